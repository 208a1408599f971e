"""What users read has none of the words that were once used here in a private sense."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fastsample
from tests.support.case_loop import CaseLoop

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(fastsample.__file__).parent
WORDS = (
    *("tell", "tells", "told", "asked", "whoever", "beside", "law", "laws", "door", "doors"),
    *("room", "rooms", "roster", "rosters", "spiteful", "by night", "what a choice costs"),
)
PATTERN = re.compile(rf"(?<![\w-])({'|'.join(WORDS)})(?![\w-])", re.IGNORECASE)


def found_in(text: str) -> list[str]:
    """Each word with what surrounds it."""
    flat = " ".join(text.split())
    return [flat[max(0, at.start() - 30) : at.end() + 30] for at in PATTERN.finditer(flat)]


def test_the_search_finds_whole_words_over_line_ends() -> None:
    assert found_in("It was told.") and found_in("by\n  night") and found_in("`Laws`")
    assert not found_in("lawn, indoor, roommate, beside-the-point, by nightfall")


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def test_pages() -> None:
    assert len(pages()) >= 8
    with CaseLoop() as cases:
        for page in pages():
            with cases.case(page.relative_to(ROOT)):
                assert found_in(page.read_text(encoding="utf-8")) == []


def test_sources() -> None:
    """Error messages, output, docstrings and comments of the package and the extension."""
    kernels = [path for path in (ROOT / "kernels").rglob("*.[hcp]*") if path.name != "_native.cpp"]
    sources = [*PACKAGE.rglob("*.py"), *kernels]
    with CaseLoop() as cases:
        for path in sorted(sources):
            with cases.case(path.name):
                assert found_in(path.read_text(encoding="utf-8")) == []


def test_help_of_commands() -> None:
    pytest.importorskip("typer", reason="the command line needs typer and rich")
    pytest.importorskip("rich", reason="the command line needs typer and rich")
    from typer.testing import CliRunner

    from fastsample.cli.app import app

    with CaseLoop() as cases:
        for command in ("", "table", "bench", "verify", "demo", "info"):
            result = CliRunner().invoke(app, [*command.split(), "--help"])
            with cases.case(command or "fastsample"):
                assert result.exit_code == 0 and "Usage" in result.stdout
                assert found_in(result.stdout) == []
