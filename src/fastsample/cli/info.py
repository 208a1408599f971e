"""`fastsample info`: versions, engines and instruction sets of this installation."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from fastsample import info as installation


def info() -> None:
    """Print versions, installed engines, the instruction set in use and the number of threads."""
    print_info(Console(), installation())


def print_info(console: Console, facts: dict[str, Any]) -> None:
    """Print the items of `fastsample.info()`, one per line."""
    for name, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        console.print(
            Text(f"{name + ':':<14} {'-' if text in (None, '') else text}"), soft_wrap=True
        )
