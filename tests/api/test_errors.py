"""Every message: one row per way to go wrong, and a count that no `raise` is without a row."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fastsample
from tests.support.engines import native
from tests.support.error_cases import (
    Mistake,
    adjustments,
    functions,
    inside,
    latencies,
    parameters,
    rows,
    sequences,
    sums,
    tables,
)

try:
    from tests.support.error_cases import tensors
except ModuleNotFoundError:
    tensors = None
try:
    from tests.support.error_cases import kernels
except ModuleNotFoundError:
    kernels = None
try:
    from tests.support.error_cases import commands
except ModuleNotFoundError:
    commands = None

PACKAGE = Path(fastsample.__file__).parent
KERNELS = Path(__file__).parents[2] / "kernels"
OUT_OF_REACH: set[str] = {
    *(() if tensors else ("_tensor_memory", "require_cpu")),
    *(() if commands else ("table", "read_rows", "read_row", "read_texts")),
    *(() if commands else ("bench", "check_outputs", "read_whole_batches", "require_matplotlib")),
    *(() if inside.ROUNDING_IS_KNOWN else ("require_rounding_to_nearest",)),
}
"""Functions whose errors need what is not installed here, or a kind of machine."""

WITHOUT_MESSAGE = ("", "typer.Exit", "typer.Exit(1)", "typer.Exit(2)")

TO_CALLERS: list[Mistake] = [
    *(*parameters.MISTAKES, *rows.MISTAKES, *adjustments.MISTAKES, *sequences.MISTAKES),
    *(*functions.MISTAKES, *latencies.MISTAKES, *tables.MISTAKES),
    *sums.MISTAKES,
    *(tensors.MISTAKES if tensors else ()),
    *(kernels.MISTAKES if kernels else ()),
]
MISTAKES: list[Mistake] = [
    *(*TO_CALLERS, *inside.MISTAKES),
    *(commands.MISTAKES if commands else ()),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.part[:50])
def test_message(mistake: Mistake) -> None:
    with pytest.raises(mistake.error) as caught:
        mistake.call()
    assert type(caught.value) is mistake.error
    assert mistake.part in str(caught.value)


@pytest.mark.parametrize("mistake", TO_CALLERS, ids=lambda mistake: mistake.part[:50])
def test_a_message_shows_a_way_out(mistake: Mistake) -> None:
    with pytest.raises(mistake.error) as caught:
        mistake.call()
    message = str(caught.value)
    assert message.endswith(")") or "usable here: " in message


# ---------------------------------------------------------------- no raise without a row


def _written(error: ast.expr | None) -> str:
    return "" if error is None else ast.unparse(error)


def raises_of(path: Path) -> set[tuple[str, int, int]]:
    """Every `raise` of a room with a message, where it can be reached: (file, first line, last)."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    out_of_reach: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name in OUT_OF_REACH:
            out_of_reach.update(ast.walk(node))
        # Another's error let through, and the end of a command: they have no message of their own.
        if isinstance(node, ast.Raise) and _written(node.exc) in WITHOUT_MESSAGE:
            out_of_reach.add(node)
    return {
        (str(path), node.lineno, node.end_lineno or node.lineno)
        for node in nodes
        if isinstance(node, ast.Raise) and node not in out_of_reach
    }


def lines_passed(call: Callable[[], Any]) -> set[tuple[str, int]]:
    """File and line of every frame that the call's error went through."""
    lines = set()
    try:
        call()
    except Exception as error:
        trace = error.__traceback__
        while trace is not None:
            lines.add((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
            trace = trace.tb_next
    return lines


def is_absent(room: Path) -> bool:
    """Whether a room needs torch, or Triton too, where these are not installed."""
    of_torch = room.name == "device.py" or room.parent.name == "torch"
    return (of_torch and not tensors) or (room.parent.name == "triton" and not kernels)


def test_no_raise_is_without_a_row() -> None:
    passed = set().union(*(lines_passed(mistake.call) for mistake in MISTAKES))
    silent = [
        f"{Path(file).name}:{first}"
        for room in PACKAGE.rglob("*.py")
        if not is_absent(room)
        for file, first, last in sorted(raises_of(room))
        if not any((file, line) in passed for line in range(first, last + 1))
    ]
    assert silent == []


def messages_of_kernels() -> list[str]:
    """Every message in the door to the kernels, as a pattern."""
    paths = sorted(path for path in KERNELS.rglob("*") if path.suffix in (".pyx", ".pxi"))
    source = "".join(path.read_text(encoding="utf-8") for path in paths)
    messages = re.findall(r'raise \w+\(\s*f?"([^"]+)"', source)
    assert len(messages) == len(re.findall(r"^ +raise ", source, re.MULTILINE))
    return [".*".join(map(re.escape, re.split(r"\{[^}]*\}", message))) for message in messages]


@pytest.mark.skipif(
    not (native and KERNELS.exists()), reason="the extension or its source is absent"
)
def test_no_message_of_the_kernels_is_without_a_row() -> None:
    said = []
    for mistake in MISTAKES:
        try:
            mistake.call()
        except Exception as error:
            said.append(str(error))
    silent = [
        message
        for message in messages_of_kernels()
        if not any(re.fullmatch(message, one) for one in said)
    ]
    assert silent == []
