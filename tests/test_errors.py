"""Every message: one row per way to go wrong, and a count that no `raise` is without a row."""

from __future__ import annotations

import ast
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from support import native

import fastsample
from fastsample import Sampler, SamplingParams, engines, sample

try:
    import torch
except ModuleNotFoundError:
    torch = None

PACKAGE = Path(fastsample.__file__).parent
ROOMS = ("params", "logits", "result", "sampler", "info", "engines/__init__", "engines/native")
TORCH_ONLY = "_tensor_memory"

ROW = np.array([1.0, 2.0, 3.0], dtype=np.float32)
ROWS = np.stack([ROW] * 4)


class Mistake(NamedTuple):
    """A call, the error that it must end in, and a part of the message, word for word."""

    call: Callable[[], Any]
    error: type[Exception]
    part: str


class Unreadable:
    """An array whose memory NumPy cannot reach."""

    ndim = 1

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("on another device")


def rows_with(row: int, token: int, value: float) -> np.ndarray:
    spoilt = ROWS.copy()
    spoilt[row, token] = value
    return spoilt


def frozen(out: np.ndarray) -> np.ndarray:
    out.flags.writeable = False
    return out


def given(name: str, value: Any, error: type[Exception], part: str) -> Mistake:
    """A call of `sample` on four rows with one bad argument; `part` follows that name."""
    arguments = {"seed": 1, "position": 0, "stream": "row", name: value}
    return Mistake(lambda: sample(ROWS, **arguments), error, f"`{name}` must {part}")


def logits(value: Any, error: type[Exception], part: str) -> Mistake:
    return Mistake(lambda: sample(value), error, f"`logits` {part}")


def made(arguments: dict[str, Any], error: type[Exception], part: str) -> Mistake:
    return Mistake(lambda: Sampler(**arguments), error, part)


def call_without_native() -> None:
    """Ask for the native engine as if the extension were not installed."""
    engines._native_run.cache_clear()
    with mock.patch.object(engines, "has_native", lambda: False):
        sample(ROW, engine="native")


def call_after_the_last_position() -> None:
    sampler = Sampler()
    sampler.reset(2**64 - 1)
    sampler(ROW)
    sampler(ROW)


def call_with_another_number_of_rows() -> None:
    sampler = Sampler()
    sampler(ROWS)
    sampler(ROWS[:2])


def call_while_in_use() -> None:
    sampler = Sampler()
    with sampler._turn, ThreadPoolExecutor(1) as another:
        another.submit(sampler, ROW).result()


def set_a_parameter() -> None:
    Sampler().temperature = 0


def set_the_position() -> None:
    Sampler().position = 3


TEMPERATURE = "be 0 or a finite number > 0, got"
TOP_K = "be a count of tokens in [1, 2**63), or off, got"
SHAPE = "be a scalar or have shape (B,) = (4,), got"

PARAMETERS = [
    given("temperature", -1, ValueError, f"{TEMPERATURE} -1.0 (0 takes the top token"),
    given("temperature", [1, 1, np.nan, 1], ValueError, f"{TEMPERATURE} nan at row 2 ("),
    given("temperature", np.array([1, 1, 1, 1e39]), ValueError, f"{TEMPERATURE} 1e+39 at row 3 ("),
    given("temperature", np.inf, ValueError, f"{TEMPERATURE} inf ("),
    given("temperature", -(10**400), ValueError, f"{TEMPERATURE} -inf ("),
    given("temperature", "1", TypeError, "be a number, got str '1' ("),
    given("temperature", None, TypeError, "be a number, got NoneType None ("),
    given("temperature", True, TypeError, "be a number, got bool True ("),
    given("temperature", np.True_, TypeError, "be a number, got bool"),
    given("temperature", [1, 1, 1, "a"], TypeError, "be a number, got str 'a' at row 3 ("),
    given("temperature", [1, 1, [1], 1], TypeError, "be a number, got list [1] at row 2 ("),
    given("temperature", np.ones(4, bool), TypeError, "be a number, got an array of bool ("),
    given("temperature", np.ones(4, complex), TypeError, "be a number, got an array of complex128"),
    given("temperature", [1.0, 1.0], ValueError, f"{SHAPE} (2,) (one value per row of `logits`)"),
    given("top_p", 1.3, ValueError, "be in [0, 1], got 1.3 (a share of the mass such as 0.95"),
    given("top_p", [1, 1, 95, 1], ValueError, "be in [0, 1], got 95.0 at row 2 ("),
    given("top_p", np.ones((4, 1)), ValueError, f"{SHAPE} (4, 1) ("),
    given("top_p", Unreadable(), TypeError, "be a number, got Unreadable: on another device ("),
    given("min_p", -0.1, ValueError, "be in [0, 1], got -0.1 (a share of the top token's"),
    given("top_k", -2, ValueError, f"{TOP_K} -2 (0, -1 and None are off)"),
    given("top_k", np.array([1, 2, -9, 3]), ValueError, f"{TOP_K} -9 at row 2 ("),
    given("top_k", 2**63, ValueError, f"{TOP_K} 9223372036854775808 ("),
    given("top_k", 50.0, TypeError, "be an integer, got float 50.0 (0, -1 and None are off)"),
    given("top_k", np.ones(4), TypeError, "be an integer, got an array of float64 ("),
    given("seed", -1, ValueError, "be in [0, 2**64), got -1 (take it modulo 2**64"),
    given("seed", 2**64, ValueError, "be in [0, 2**64), got 18446744073709551616 ("),
    given("seed", "x", TypeError, "be an integer, got str 'x' ("),
    given("seed", np.full(4, -1, np.int32), ValueError, "be in [0, 2**64), got -1 at row 0 ("),
    given(
        "seed",
        [1, 2, None, 3],
        TypeError,
        "be an integer, got NoneType None at row 2 (take it modulo 2**64, or leave `seed` out",
    ),
    given("position", None, ValueError, "be given with `seed`, got None (pass how many tokens"),
    given("position", np.int64(-1), ValueError, "be in [0, 2**64), got -1 (how many tokens have"),
    given("stream", None, ValueError, 'be given with one seed for 4 rows, got None (pass stream="'),
    given(
        "stream", "rows", ValueError, "be \"row\", an integer or one integer per row, got 'rows'"
    ),
    given("stream", 2**32, ValueError, "be in [0, 2**32), got 4294967296 (which continuation"),
    given("n_threads", 0, ValueError, "be in [1, 2**31), got 0 (None lets fastsample choose)"),
    given("n_threads", "2", TypeError, "be an integer, got str '2' ("),
    Mistake(
        lambda: sample(ROW, temperature=0, seed=1),
        ValueError,
        "`position` must be given with `seed`",
    ),
    Mistake(
        lambda: SamplingParams(top_p=float("nan")),
        ValueError,
        "`top_p` must be in [0, 1], got nan (",
    ),
    Mistake(
        lambda: SamplingParams(temperature=[1.0]),
        TypeError,
        "`temperature` must be a number, got list (for one value per row call sample()",
    ),
    Mistake(
        lambda: SamplingParams(seed=True), TypeError, "`seed` must be an integer, got bool True ("
    ),
]

LOGITS = [
    logits(
        SimpleNamespace(logits=ROWS),
        TypeError,
        "must be a NumPy array or a torch CPU tensor, got SimpleNamespace (pass `output.logits[",
    ),
    logits(
        [1.0, 2.0], TypeError, "must be a NumPy array or a torch CPU tensor, got list (pass `np"
    ),
    logits(ROW.astype(float), TypeError, "must be float32, got float64 (pass `logits.astype(np"),
    logits(ROW.astype(">f4"), TypeError, "must be float32, got >f4 (pass `logits.astype(np"),
    logits(
        np.ma.array(ROW), TypeError, "must be a plain array, got a masked one (pass `logits.fil"
    ),
    logits(
        ROWS[None], ValueError, "must have shape (V,) or (B, V), got (1, 4, 3) (pass `logits[:, -"
    ),
    logits(np.zeros((), np.float32), ValueError, "must have shape (V,) or (B, V), got () (one row"),
    logits(
        ROW[:0], ValueError, "must have 1 to 2**22 tokens per row, got shape (0,) (the last axis"
    ),
    logits(np.zeros(2**22 + 1, np.float32), ValueError, "must have 1 to 2**22 tokens per row, got"),
    logits(
        ROWS[:, ::2], ValueError, "must have the tokens of a row side by side, got a column stri"
    ),
    logits(
        ROW[::-1], ValueError, "must have the tokens of a row side by side, got a column stride o"
    ),
    logits(
        rows_with(3, 2, np.nan), ValueError, "row 3 holds nan at token 2 (a logit must be finite"
    ),
    logits(
        rows_with(1, 0, np.inf), ValueError, "row 1 holds inf at token 0 (a logit must be finite"
    ),
    logits(rows_with(3, 2, np.nan)[3], ValueError, "holds nan at token 2 (a logit must be finite"),
    logits(np.full_like(ROWS, -np.inf), ValueError, "row 0 is -inf at every token (leave at least"),
]

OUT = [
    given("out", [0] * 4, TypeError, "be a numpy.ndarray as `logits` is, got list (leave it out"),
    given("out", np.zeros(4), TypeError, "be int64 on the CPU, got float64 on cpu (leave it out"),
    given("out", np.zeros(3, int), ValueError, "have shape logits.shape[:-1] = (4,), got (3,) ("),
    given(
        "out", frozen(np.zeros(4, int)), ValueError, "be writable, got a read-only array (pass a"
    ),
]

ENGINES = [
    given("engine", "cuda", ValueError, "be 'native', 'reference', 'auto' or None, got 'cuda' ("),
    Mistake(
        lambda: sample(ROW, engine="reference", isa="baseline"),
        ValueError,
        "`isa` must be None for engine 'reference', which has no kernels, got 'baseline' (",
    ),
    Mistake(
        call_without_native,
        RuntimeError,
        "engine 'native' needs the compiled extension, which is not installed (install",
    ),
]

SAMPLER = [
    Mistake(
        lambda: Sampler(0.8),
        TypeError,
        "`params` must be a SamplingParams, got float (pass a field by its name",
    ),
    made(
        {"topk": 3},
        TypeError,
        "`topk` must be a field of SamplingParams, and is not "
        "(the fields are temperature, top_k, top_p, min_p, seed)",
    ),
    made({"params": SamplingParams()}, TypeError, "is not (pass it first, without a name)"),
    made({"position": 3}, TypeError, "is not (a sampler starts at 0; reset(3) goes to position 3)"),
    made(
        {"seed": [1, 2]},
        TypeError,
        "`seed` must be an integer, got list (for one value per row call sample()",
    ),
    made(
        {"temperature": np.ones(2)},
        TypeError,
        "`temperature` must be a number, got ndarray (for one value per row call sample()",
    ),
    Mistake(
        set_a_parameter,
        AttributeError,
        "`temperature` cannot be set: the parameters of a Sampler are fixed (make a new Sampler)",
    ),
    Mistake(
        set_the_position,
        AttributeError,
        "`position` cannot be set: the parameters of a Sampler are fixed (call reset(position))",
    ),
    made({"top_k": 3.0}, TypeError, "`top_k` must be an integer, got float 3.0 ("),
    made({"engine": "fast"}, ValueError, "`engine` must be 'native', 'reference'"),
    made({"n_threads": 0}, ValueError, "`n_threads` must be in [1, 2**31), got 0 ("),
    Mistake(lambda: Sampler().reset(-1), ValueError, "`position` must be in [0, 2**64), got -1 ("),
    Mistake(
        call_with_another_number_of_rows,
        ValueError,
        "`logits` must have 4 rows as in the last call, got 2 (call reset() to start anew, or "
        "sample() with per-row seeds",
    ),
    Mistake(
        call_after_the_last_position,
        ValueError,
        "`position` must be in [0, 2**64), got 18446744073709551616 (",
    ),
    Mistake(call_while_in_use, RuntimeError, "this Sampler is being used by another thread"),
]


def native_mistakes() -> list[Mistake]:
    if native is None:
        return []
    missing = next(isa for isa in ("neon", "baseline") if isa not in native.isa_usable())
    return [
        Mistake(lambda: sample(ROW, isa="sse9"), ValueError, "got 'sse9'; usable here: "),
        Mistake(lambda: sample(ROW, isa=missing), RuntimeError, f"{missing!r} cannot run on this"),
    ]


def torch_mistakes() -> list[Mistake]:
    if torch is None:
        return []
    rows, ones, integers = torch.from_numpy(ROWS), torch.ones(3), torch.zeros(4, dtype=torch.int64)

    def wrong(name: str, value: Any, part: str) -> Mistake:
        return Mistake(lambda: sample(rows, **{name: value}), TypeError, f"`{name}` must be {part}")

    return [
        logits(
            ones.clone().requires_grad_(), TypeError, "must not require grad, got a tensor that"
        ),
        logits(
            ones.to("meta"), TypeError, "must be on the CPU, got a tensor on meta (pass `logits.c"
        ),
        logits(
            ones.bfloat16(), TypeError, "must be float32, got torch.bfloat16 (pass `logits.float()`"
        ),
        logits(
            ones.to_sparse(), TypeError, "must be dense, got torch.sparse_coo (pass `logits.to_den"
        ),
        logits(
            rows.T, ValueError, "must have the tokens of a row side by side, got a column stride of"
        ),
        logits(
            rows[:, ::2],
            ValueError,
            "must have the tokens of a row side by side, got a column stride of 8 bytes (pass "
            "`logits.contiguous()`)",
        ),
        logits(
            torch.ones(1, 2, 3), ValueError, "must have shape (V,) or (B, V), got (1, 2, 3) (pass"
        ),
        given("out", integers, TypeError, "be a numpy.ndarray as `logits` is, got Tensor (leave"),
        wrong("out", np.zeros(4, int), "a torch.Tensor as `logits` is, got ndarray ("),
        wrong("out", torch.zeros(4), "int64 on the CPU, got torch.float32 on cpu ("),
        wrong("out", integers.to("meta"), "int64 on the CPU, got torch.int64 on meta ("),
        wrong("temperature", torch.ones(4).requires_grad_(), "a number, got Tensor: Can't call"),
        wrong("top_k", torch.ones(4), "an integer, got an array of float32 ("),
    ]


MISTAKES = [*PARAMETERS, *LOGITS, *OUT, *ENGINES, *SAMPLER, *native_mistakes(), *torch_mistakes()]


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
        if torch is None and isinstance(node, ast.FunctionDef) and node.name == TORCH_ONLY:
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
