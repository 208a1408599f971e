"""Mistakes in parameters, in what is asked for, and in the engine."""

from __future__ import annotations

from unittest import mock

import numpy as np

from fastsample import Sampler, SamplingParams, engines, sample
from tests.support.engines import native
from tests.support.error_cases import ROW, ROWS, Mistake, Unreadable, alone, given, staged


def call_without_native() -> None:
    """Ask for the native engine as if the extension were not installed."""
    engines._native.cache_clear()
    with mock.patch.object(engines, "has_native", lambda: False):
        sample(ROW, engine="native")


def call_without_numba() -> None:
    """Ask for the Numba engine as if numba were not installed."""
    engines._numba.cache_clear()
    with mock.patch.object(engines, "has_numba", lambda: False):
        sample(ROW, engine="numba")


def call_without_torch() -> None:
    """Ask for the torch engine as if torch were not installed."""
    engines._torch.cache_clear()
    with mock.patch.object(engines, "has_torch", lambda: False):
        sample(ROW, engine="torch")


def call_without_triton() -> None:
    """Ask for the Triton engine as if triton were not installed."""
    engines._triton.cache_clear()
    with mock.patch.object(engines, "has_triton", lambda: False):
        sample(ROW, engine="triton")


ENGINE = "be 'native', 'numba', 'torch', 'triton', 'reference', 'auto' or None, got"
TEMPERATURE = "be 0 or a finite number > 0, got"
REDUCTION = 'be "exact", "fixed" or "fast", got'
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
    given("temperature", np.ma.ones(4), TypeError, "be a number, got a masked array (0 takes"),
    given("temperature", np.ma.masked, TypeError, "be a number, got MaskedConstant masked ("),
    given("seed", np.ma.array([1, 2, 3, 4]), TypeError, "be an integer, got a masked array ("),
    given("top_k", [1, 2, np.ma.masked, 4], TypeError, "be an integer, got MaskedConstant masked"),
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
    given("repetition_penalty", 0, ValueError, "be a finite number > 0, got 0.0 (above 1 it"),
    given(
        "repetition_penalty", [1, 1e-50, 1, 1], ValueError, "be a finite number > 0, got 1e-50 at"
    ),
    given("frequency_penalty", np.nan, ValueError, "be a finite number, got nan (what each"),
    given("presence_penalty", -np.inf, ValueError, "be a finite number, got -inf (what any"),
    given("presence_penalty", "a", TypeError, "be a number, got str 'a' ("),
    given(
        "min_keep", 0, ValueError, "be a count of tokens in [1, 2**63), got 0 (every filter keeps"
    ),
    given("min_keep", None, TypeError, "be an integer, got NoneType None ("),
    given("repetition_scope", "input", ValueError, 'be "all", "prompt", "output" or a count of'),
    given(
        "frequency_scope",
        -1,
        ValueError,
        'be "all", "prompt", "output" or a count of tokens in [0, 2**63), got -1 (',
    ),
    given("presence_scope", [1] * 4, TypeError, "be a name or an integer, got list [1, 1, 1, 1] ("),
    given("stages", "top_k", TypeError, "be a tuple of names, got str 'top_k' (all of them, in"),
    given("stages", ("topk",), ValueError, "hold names of stages, got 'topk' (they are ('tempera"),
    given("stages", ["top_k", "top_k"], ValueError, "hold each stage once, got 'top_k' twice ("),
    staged(
        "hold 'temperature' where `temperature` is on, got temperature=0.0 and stages=('top_k',) (",
        stages=("top_k",),
        temperature=0,
    ),
    staged(
        "hold 'top_p' where `top_p` is on, got top_p=0.5 at row 1 and stages=() (add the stage",
        stages=(),
        top_p=[1, 0.5, 0.5, 1],
    ),
    given("n", 0, ValueError, "be a count of draws in [1, 2**32], got 0 (None draws one token"),
    given("n", 2.0, TypeError, "be an integer, got float 2.0 ("),
    Mistake(
        lambda: sample(ROW, n=2, logprobs=0),
        ValueError,
        "`n` must be left out with `logprobs`, got 2 (",
    ),
    Mistake(
        lambda: sample(ROW, n=3, seed=1, position=0, stream=2**32 - 2),
        ValueError,
        "`stream` must be in [0, 2**32 - 2), got 4294967294 (3 draws take as many streams",
    ),
    Mistake(
        lambda: sample(ROWS, n=3, seed=1, position=0, stream=[0, 1, 2**32 - 1, 2]),
        ValueError,
        "`stream` must be in [0, 2**32 - 2), got 4294967295 at row 2 (3 draws",
    ),
    given("logprobs", -1, ValueError, "be in [0, V] = [0, 3], got -1 (how many top tok"),
    given("logprobs", 4, ValueError, "be in [0, V] = [0, 3], got 4 (how many top tokens"),
    given("logprobs", 1.0, TypeError, "be an integer, got float 1.0 ("),
    given("form", "log", ValueError, "be some of ('raw', 'tempered', 'processed'), each once, got"),
    given("form", ("raw", "raw"), ValueError, "be some of ('raw', 'tempered', 'processed'), each"),
    given("form", (), ValueError, "be some of ('raw', 'tempered', 'processed'), each once, got ()"),
    given("form", ["raw"], TypeError, "be a name or a tuple of names, got list ['raw'] (they"),
    given("on_invalid", "skip", ValueError, 'be "raise" or "mark", got \'skip\' ("mark" gives a'),
    given(
        "reduction", "exakt", ValueError, f"{REDUCTION} 'exakt' (\"exact\", the default, adds int"
    ),
    given("reduction", None, ValueError, f"{REDUCTION} None ("),
    given("reduction", ["exact"], ValueError, f"{REDUCTION} ['exact'] ("),
    alone("reduction", "sum", ValueError, f"{REDUCTION} 'sum' ("),
    Mistake(lambda: Sampler(reduction=0), ValueError, f"`reduction` must {REDUCTION} 0 ("),
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

ENGINES = [
    given("engine", "cuda", ValueError, f"{ENGINE} 'cuda' (None takes the fastest one)"),
    Mistake(
        lambda: sample(ROW, engine="reference", isa="baseline"),
        ValueError,
        "`isa` must be None for engine 'reference', which has no instruction sets to choose from,",
    ),
    Mistake(
        lambda: sample(ROW, engine="numba", isa="baseline"),
        ValueError,
        "`isa` must be None for engine 'numba', which has no instruction sets to choose from, got",
    ),
    Mistake(
        call_without_numba,
        RuntimeError,
        "engine 'numba' needs numba, which is not installed, on x86-64 or aarch64: pip install ",
    ),
    Mistake(
        call_without_torch,
        RuntimeError,
        "engine 'torch' needs torch, which is not installed: pip install torch (or pip install ",
    ),
    Mistake(
        call_without_triton,
        RuntimeError,
        "engine 'triton' needs torch and triton, which are not both installed: pip install torch ",
    ),
    Mistake(
        call_without_native,
        RuntimeError,
        "engine 'native' and `isa` need the compiled extension, which is not installed (leave both",
    ),
]


def native_mistakes() -> list[Mistake]:
    if native is None:
        return []
    missing = next(isa for isa in ("neon", "baseline") if isa not in native.isa_usable())
    return [
        Mistake(lambda: sample(ROW, isa="sse9"), ValueError, "got 'sse9'; usable here: "),
        Mistake(lambda: sample(ROW, isa=missing), RuntimeError, f"{missing!r} cannot run on this"),
        Mistake(lambda: sample(ROW, isa=[]), ValueError, "got []; usable here: "),
        Mistake(lambda: Sampler(isa="sse9"), ValueError, "got 'sse9'; usable here: "),
        Mistake(lambda: Sampler(isa=missing), RuntimeError, f"{missing!r} cannot run on this"),
    ]


MISTAKES = [*PARAMETERS, *ENGINES, *native_mistakes()]
