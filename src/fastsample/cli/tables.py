"""The tables of the commands, in one style."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Column, Table


def make_table(*columns: Column) -> Table:
    """Make a table without edges."""
    return Table(*columns, box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))


def number(name: str, **options: Any) -> Column:
    """Make a column of numbers: where the table is too wide, the words of its name are wrapped."""
    return Column(name, justify="right", **options)


def label(name: str, **options: Any) -> Column:
    """Make a column of texts that are never wrapped."""
    return Column(name, no_wrap=True, **options)
