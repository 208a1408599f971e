"""Every message: one row per way to go wrong, and a count that no `raise` is without a row."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mistakes import Mistake, adjustments, functions, parameters, rows, sequences

import fastsample

try:
    from mistakes import tensors
except ModuleNotFoundError:
    tensors = None

PACKAGE = Path(fastsample.__file__).parent
ROOMS = (
    *("params", "checks", "logits", "dlpack", "adjustments", "result", "sample", "info"),
    *("engines/__init__", "engines/native", "engines/laws", "engines/reference"),
    *("memory", "functions", "kept", "top", "turn", "sequences", "roster", "sampler"),
)
TORCH_ONLY = ("_tensor_memory", "_tensor_mask")

MISTAKES: list[Mistake] = [
    *(*parameters.MISTAKES, *rows.MISTAKES, *adjustments.MISTAKES, *sequences.MISTAKES),
    *functions.MISTAKES,
    *(tensors.MISTAKES if tensors else ()),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.part[:50])
def test_message(mistake: Mistake) -> None:
    with pytest.raises(mistake.error) as caught:
        mistake.call()
    message = str(caught.value)
    assert type(caught.value) is mistake.error
    assert mistake.part in message
    assert message.endswith(")") or "usable here: " in message, "it shows no way out"


# ---------------------------------------------------------------- no raise without a row


def raises_of(room: str) -> set[tuple[str, int, int]]:
    """Every `raise` of a room that can be reached here, as (file, first line, last line)."""
    path = PACKAGE / f"{room}.py"
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    out_of_reach: set[ast.AST] = set()
    for node in nodes:
        if not tensors and isinstance(node, ast.FunctionDef) and node.name in TORCH_ONLY:
            out_of_reach.update(ast.walk(node))
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


def test_no_raise_is_without_a_row() -> None:
    passed = set().union(*(lines_passed(mistake.call) for mistake in MISTAKES))
    silent = [
        f"{Path(file).name}:{first}"
        for room in ROOMS
        for file, first, last in sorted(raises_of(room))
        if not any((file, line) in passed for line in range(first, last + 1))
    ]
    assert silent == []
