"""Error messages: each case of the tables raises its own, and every `raise` has a case."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import fastsample
from tests.support.case_loop import CaseLoop
from tests.support.engines import native
from tests.support.error_cases import (
    ErrorCase,
    candidates,
    foreign,
    internals,
    latency,
    logits,
    logits_processors,
    logprobs,
    masks,
    parameters,
    reduce_sum,
    replacement,
    samplers,
    sequences,
    softmax,
)
from tests.support.error_cases.following import PHRASES

try:
    from tests.support.error_cases import foreign_tensors, torch_tensors
except ModuleNotFoundError:
    torch_tensors = foreign_tensors = None
try:
    from tests.support.error_cases import triton_engine
except ModuleNotFoundError:
    triton_engine = None
try:
    from tests.support.error_cases import cli
except ModuleNotFoundError:
    cli = None

pytestmark = pytest.mark.smoke

PACKAGE = Path(fastsample.__file__).parent
KERNELS = Path(__file__).parents[2] / "kernels"
OUT_OF_REACH: set[str] = {
    *(() if torch_tensors else ("memory_of_tensor", "require_plain", "array_of_tensor")),
    *(() if torch_tensors else ("_require_dtype",)),
    *(() if cli else ("table", "read_rows", "read_row", "read_texts")),
    *(() if cli else ("bench", "check_outputs", "read_full_batches", "require_matplotlib")),
    *(() if internals.KNOWN else ("require_rounding_to_nearest",)),
}
"""Functions whose errors need what is not installed here, or a kind of machine."""

WITHOUT_MESSAGE = ("", "typer.Exit", "typer.Exit(1)", "typer.Exit(2)")

PUBLIC_TABLES = (
    parameters,
    logits,
    logits_processors,
    logprobs,
    masks,
    foreign,
    samplers,
    sequences,
    softmax,
    latency,
    candidates,
    reduce_sum,
    replacement,
    torch_tensors,
    foreign_tensors,
    triton_engine,
)
PUBLIC_CASES: list[ErrorCase] = [
    case for table in PUBLIC_TABLES if table for case in table.ERROR_CASES
]
ERROR_CASES: list[ErrorCase] = [
    *PUBLIC_CASES,
    *internals.ERROR_CASES,
    *(cli.ERROR_CASES if cli else ()),
]


def error_of(case: ErrorCase) -> Exception | None:
    """The exception that a call raises, with its traceback."""
    try:
        case.call()
    except Exception as error:
        return error
    return None


@pytest.fixture(scope="module")
def errors() -> list[Exception | None]:
    """The exception of each case, in their order."""
    return [error_of(case) for case in ERROR_CASES]


def test_every_case_raises_its_message(errors: list[Exception | None]) -> None:
    with CaseLoop() as cases:
        for case, error in zip(ERROR_CASES, errors, strict=True):
            with cases.case(case.part):
                assert type(error) is case.error
                assert case.part in str(error)


def test_public_messages_end_with_a_hint(errors: list[Exception | None]) -> None:
    with CaseLoop() as cases:
        for case, error in zip(PUBLIC_CASES, errors, strict=False):
            with cases.case(case.part):
                assert str(error).endswith(")")


def test_every_hint_leads_where_it_says(errors: list[Exception | None]) -> None:
    with CaseLoop() as cases:
        for case, error in zip(PUBLIC_CASES, errors, strict=False):
            with cases.case(case.part):
                mended = case.mended_call(str(error))
                if mended is None:
                    assert case.reason
                    continue
                assert mended.hint in str(error)
                right = mended.tokens() if callable(mended.tokens) else mended.tokens
                # Texts, since nan is not equal to itself.
                assert repr(mended.call()) == repr(right)


@pytest.mark.skipif(not native, reason="some words are those of the extension")
def test_all_words_are_those_of_hints(errors: list[Exception | None]) -> None:
    messages = [str(error) for error in errors]
    unused = [words for words, _ in PHRASES if not any(words in message for message in messages)]
    assert unused == []


# ---------------------------------------------------------------- every raise has a case


def _written(error: ast.expr | None) -> str:
    return "" if error is None else ast.unparse(error)


def raises_of(path: Path) -> set[tuple[str, int, int]]:
    """Every reachable `raise` with a message: (file, first line, last line)."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    out_of_reach: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name in OUT_OF_REACH:
            out_of_reach.update(ast.walk(node))
        # Errors that are raised again, and the exit of a command, have no message of their own.
        if isinstance(node, ast.Raise) and _written(node.exc) in WITHOUT_MESSAGE:
            out_of_reach.add(node)
    return {
        (str(path), node.lineno, node.end_lineno or node.lineno)
        for node in nodes
        if isinstance(node, ast.Raise) and node not in out_of_reach
    }


def lines_passed(error: Exception | None) -> set[tuple[str, int]]:
    """File and line of every frame that an exception went through."""
    lines = set()
    trace = error.__traceback__ if error else None
    while trace is not None:
        lines.add((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return lines


def is_absent(path: Path) -> bool:
    """Whether a module needs torch, or Triton too, where these are not installed."""
    needs_torch = path.name in ("device.py", "torch.py") or path.parent.name == "torch"
    return (needs_torch and not torch_tensors) or (
        path.parent.name == "triton" and not triton_engine
    )


def test_every_raise_has_a_case(errors: list[Exception | None]) -> None:
    passed = set().union(*map(lines_passed, errors))
    with CaseLoop() as cases:
        for path in PACKAGE.rglob("*.py"):
            for file, first, last in () if is_absent(path) else sorted(raises_of(path)):
                with cases.case(f"{path.relative_to(PACKAGE)}:{first}"):
                    assert any((file, line) in passed for line in range(first, last + 1))


def messages_of_kernels() -> list[str]:
    """Every message of the extension, as a pattern."""
    paths = sorted(path for path in KERNELS.rglob("*") if path.suffix in (".pyx", ".pxi"))
    source = "".join(path.read_text(encoding="utf-8") for path in paths)
    messages = re.findall(r'raise \w+\(\s*f?"([^"]+)"', source)
    assert len(messages) == len(re.findall(r"^ +raise ", source, re.MULTILINE))
    return [".*".join(map(re.escape, re.split(r"\{[^}]*\}", message))) for message in messages]


@pytest.mark.skipif(
    not (native and KERNELS.exists()), reason="the extension or its source is absent"
)
def test_every_message_of_the_extension_has_a_case(errors: list[Exception | None]) -> None:
    with CaseLoop() as cases:
        for message in messages_of_kernels():
            with cases.case(message):
                assert any(re.fullmatch(message, str(error)) for error in errors)
