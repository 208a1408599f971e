"""Tables in a narrow terminal."""

from __future__ import annotations

from io import StringIO

import pytest

pytest.importorskip("rich")

from rich.console import Console

from fastsample.cli.tables import label, make_table, number


def test_names_are_wrapped_before_numbers_are_cut() -> None:
    table = make_table(label("us"), number("mean"), number("p50 x np.max"))
    table.add_row("fastsample", "12345.6", "1234.56")
    console = Console(file=StringIO(), width=30)
    console.print(table)
    printed = console.file.getvalue()
    assert "12345.6" in printed and "1234.56" in printed and "…" not in printed
    assert printed.splitlines()[0].split() == ["p50", "x"]
