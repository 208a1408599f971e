"""Errors in parameters, in what a call returns, and in the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from fastsample import Sampler, SamplingParams, engines, kept_set, sample
from fastsample.params.ops import DrawMethod
from tests.support.engines import NATIVE, native, without_modules
from tests.support.error_cases import (
    ROW,
    ROWS,
    ErrorCase,
    Unreadable,
    call_error,
    row_error,
    rows_error,
    stages_error,
    tokens_of_sampler,
)
from tests.support.error_cases.following import DRAWS, Arguments, Mended


def draw_without(module: str, engine: str | None = None) -> Any:
    """Draw with an engine as if a module were not installed."""
    with without_modules(module, "numba"):
        return draw_of(engine=engine)


def draw_without_race(**arguments: Any) -> Any:
    """Draw as if the Numba engine had no race."""
    record = replace(engines.ENGINES["numba"], draws=(DrawMethod.INVERSE,))
    with mock.patch.dict(engines.ENGINES, numba=record):
        return draw_of(**arguments)


def draw_of(engine: str | None = None, **arguments: Any) -> Any:
    return sample(ROW, engine=engine, seed=1, position=0, n=DRAWS, **arguments)


def params_of(**fields: Any) -> SamplingParams:
    return SamplingParams(**fields)


def step_of_sampler(engine: str | None = None, **arguments: Any) -> Any:
    return Sampler(engine=engine, seed=1).sample(ROW, **arguments)


ENGINE = "be 'native', 'numba', 'reference', 'torch', 'triton', 'auto' or None, got"
TEMPERATURE = "be 0 or a finite number > 0, got"
REDUCTION = 'be "exact", "fixed" or "fast", got'
TOP_K = "be a count of tokens in [1, 2**63), or off, got"
NUMBERS = np.zeros(2)
LEAVE = "or leave `engine` out"
PER_ROW = "one value per row of `logits`"
CALL_SAMPLE = Mended(
    "for one value per row call sample()",
    lambda: sample(ROWS[:2], temperature=[1, 0], seed=[3, 4], position=0).tokens.tolist(),
    lambda: [int(sample(ROW, seed=3, position=0, engine="reference").tokens), 2],
)
SHAPE = "be a scalar or have shape (B,) = (4,), got"

PARAMETERS = [
    rows_error("temperature", -1, ValueError, f"{TEMPERATURE} -1.0 (0 takes the top token"),
    rows_error("temperature", [1, 1, np.nan, 1], ValueError, f"{TEMPERATURE} nan at row 2 ("),
    rows_error(
        "temperature", np.array([1, 1, 1, 1e39]), ValueError, f"{TEMPERATURE} 1e+39 at row 3 ("
    ),
    rows_error("temperature", np.inf, ValueError, f"{TEMPERATURE} inf ("),
    rows_error("temperature", -(10**400), ValueError, f"{TEMPERATURE} -inf ("),
    rows_error("temperature", "1", TypeError, "be a number, got str '1' (", means=1.0),
    rows_error("temperature", np.timedelta64(1, "ns"), TypeError, "be a number, got timedelta64 "),
    rows_error("top_k", np.array(3, "M8[ns]"), TypeError, "be an integer, got ndarray array("),
    rows_error("temperature", None, TypeError, "be a number, got NoneType None ("),
    rows_error("temperature", True, TypeError, "be a number, got bool True ("),
    rows_error("temperature", np.True_, TypeError, "be a number, got bool"),
    rows_error("temperature", [1, 1, 1, "a"], TypeError, "be a number, got str 'a' at row 3 ("),
    rows_error("temperature", [1, 1, [1], 1], TypeError, "be a number, got list [1] at row 2 ("),
    rows_error("temperature", np.ones(4, bool), TypeError, "be a number, got an array of bool ("),
    rows_error(
        "temperature", np.ones(4, complex), TypeError, "be a number, got an array of complex128"
    ),
    rows_error(
        "temperature",
        np.ma.ones(4),
        TypeError,
        "be a number, got a masked array (pass",
        means=[1.0] * 4,
    ),
    rows_error("temperature", np.ma.masked, TypeError, "be a number, got MaskedConstant masked ("),
    rows_error(
        "seed",
        np.ma.array([1, 2, 3, 4]),
        TypeError,
        "be an integer, got a masked array (",
        means=[1, 2, 3, 4],
    ),
    rows_error(
        "top_k", [1, 2, np.ma.masked, 4], TypeError, "be an integer, got MaskedConstant masked"
    ),
    *(
        rows_error("top_k", np.array([1, 2, 3, odd]), TypeError, "be an integer, got an array of ")
        for odd in (np.nan, np.inf, 1e30)
    ),
    rows_error(
        "temperature",
        [1.0, 1.0],
        ValueError,
        f"{SHAPE} (2,) (one value per row of `logits`)",
        to=(PER_ROW, [0.5, 1, 0, 2]),
    ),
    rows_error("top_p", 1.3, ValueError, "be in [0, 1], got 1.3 (a share of the mass such as 0.95"),
    rows_error("top_p", [1, 1, 95, 1], ValueError, "be in [0, 1], got 95.0 at row 2 ("),
    rows_error(
        "top_p", np.ones((4, 1)), ValueError, f"{SHAPE} (4, 1) (", to=(PER_ROW, [0.5, 1, 0.7, 0])
    ),
    rows_error(
        "top_p", Unreadable(), TypeError, "be a number, got Unreadable: on another device ("
    ),
    rows_error("min_p", -0.1, ValueError, "be in [0, 1], got -0.1 (a share of the top token's"),
    rows_error("top_k", -2, ValueError, f"{TOP_K} -2 (0, -1 and None are off)"),
    rows_error("top_k", np.array([1, 2, -9, 3]), ValueError, f"{TOP_K} -9 at row 2 ("),
    rows_error("top_k", 2**63, ValueError, f"{TOP_K} 9223372036854775808 ("),
    rows_error(
        "top_k",
        50.0,
        TypeError,
        "be an integer, got float 50.0 (pass `int(top_k)`; 0, -1 and",
        means=50,
    ),
    rows_error("top_k", np.ones(4), TypeError, "be an integer, got an array of float64 (", means=1),
    rows_error(
        "seed",
        -1,
        ValueError,
        "be in [0, 2**64), got -1 (pass `int(seed) % 2**64`, or",
        means=2**64 - 1,
    ),
    rows_error("seed", 2**64, ValueError, "be in [0, 2**64), got 18446744073709551616 (", means=0),
    rows_error("seed", "x", TypeError, "be an integer, got str 'x' ("),
    rows_error(
        "seed",
        np.full(4, -1, np.int32),
        ValueError,
        "be in [0, 2**64), got -1 at row 0 (",
        means=[2**64 - 1] * 4,
    ),
    rows_error(
        "seed",
        [1, 2, None, 3],
        TypeError,
        "be an integer, got NoneType None at row 2 (leave `seed` out",
    ),
    rows_error(
        "position", None, ValueError, "be given with `seed`, got None (pass how many tokens"
    ),
    rows_error(
        "position", np.int64(-1), ValueError, "be in [0, 2**64), got -1 (how many tokens have"
    ),
    rows_error(
        "stream",
        None,
        ValueError,
        'be given with one seed for 4 rows, got None (pass stream="',
        to=('stream="row"', "row"),
    ),
    rows_error(
        "stream", "rows", ValueError, "be \"row\", an integer or one integer per row, got 'rows'"
    ),
    rows_error("stream", 2**32, ValueError, "be in [0, 2**32), got 4294967296 (which continuation"),
    rows_error("repetition_penalty", 0, ValueError, "be a finite number > 0, got 0.0 (above 1 it"),
    rows_error(
        "repetition_penalty", [1, 1e-50, 1, 1], ValueError, "be a finite number > 0, got 1e-50 at"
    ),
    rows_error("frequency_penalty", np.nan, ValueError, "be a finite number, got nan (what each"),
    rows_error("presence_penalty", -np.inf, ValueError, "be a finite number, got -inf (what any"),
    rows_error("presence_penalty", "a", TypeError, "be a number, got str 'a' ("),
    rows_error(
        "min_keep", 0, ValueError, "be a count of tokens in [1, 2**63), got 0 (every filter keeps"
    ),
    rows_error("min_keep", None, TypeError, "be an integer, got NoneType None ("),
    rows_error(
        "repetition_scope", "input", ValueError, 'be "all", "prompt", "output" or a count of'
    ),
    rows_error(
        "frequency_scope",
        -1,
        ValueError,
        'be "all", "prompt", "output" or a count of tokens in [0, 2**63), got -1 (',
    ),
    rows_error(
        "presence_scope", [1] * 4, TypeError, "be a name or an integer, got list [1, 1, 1, 1] ("
    ),
    rows_error(
        "stages", "top_k", TypeError, "be a tuple of names, got str 'top_k' (all of them, in"
    ),
    rows_error(
        "stages", ("topk",), ValueError, "hold names of stages, got 'topk' (they are ('top_n_s"
    ),
    rows_error(
        "stages", (np.array("top_k"),), ValueError, "hold names of stages, got array('top_k',"
    ),
    rows_error(
        "stages", ["top_k", "top_k"], ValueError, "hold each stage once, got 'top_k' twice ("
    ),
    stages_error(
        "hold 'temperature' where `temperature` is on, got temperature=0.0 and stages=('top_k',) (",
        ("add the stage", ("top_k", "temperature")),
        stages=("top_k",),
        temperature=0,
    ),
    stages_error(
        "hold 'top_p' where `top_p` is on, got top_p=0.5 at row 1 and stages=() (add the stage",
        ("add the stage", ("top_p",)),
        stages=(),
        top_p=[1, 0.5, 0.5, 1],
    ),
    rows_error(
        "n", 0, ValueError, "be a count of draws in [1, 2**32], got 0 (None draws one token"
    ),
    rows_error("n", 2.0, TypeError, "be an integer, got float 2.0 (", means=2),
    rows_error("margin", 1, TypeError, "be True or False, got int 1 (True adds the field"),
    rows_error("kept_count", "all", TypeError, "be True or False, got str 'all' (True adds"),
    call_error(
        step_of_sampler,
        TypeError,
        "`margin` must be True or False, got NoneType None (",
        margin=None,
    ),
    *(
        call_error(
            sample,
            ValueError,
            f"`stream` must be in [0, 2**32 - 2), got {stream} (3 draws take as many streams",
            logits,
            seed=1,
            position=0,
            n=3,
            stream=value,
            to=("pass a lower one", 2**32 - 3),
        )
        for logits, value, stream in (
            (ROW, 2**32 - 2, 2**32 - 2),
            (ROWS, [0, 1, 2**32 - 1, 2], "4294967295 at row 2"),
        )
    ),
    rows_error("logprobs", -1, ValueError, "be in [0, V] = [0, 3], got -1 (the number of top"),
    rows_error("logprobs", 4, ValueError, "be in [0, V] = [0, 3], got 4 (the number of top to"),
    rows_error("logprobs", 1.0, TypeError, "be an integer, got float 1.0 (", means=1),
    rows_error(
        "logprobs_mode",
        "log",
        ValueError,
        "be some of ('raw', 'tempered', 'processed'), each once,",
    ),
    rows_error(
        "logprobs_mode",
        ("raw", "raw"),
        ValueError,
        "be some of ('raw', 'tempered', 'processed'), ",
    ),
    rows_error(
        "logprobs_mode",
        (),
        ValueError,
        "be some of ('raw', 'tempered', 'processed'), each once",
    ),
    rows_error(
        "logprobs_mode", ["raw"], TypeError, "be a name or a tuple of names, got list ['raw']"
    ),
    rows_error(
        "on_invalid", "skip", ValueError, 'be "raise" or "mark", got \'skip\' ("mark" gives a'
    ),
    row_error("logprobs_mode", NUMBERS, TypeError, "be a name or a tuple of names, got ndarray "),
    row_error("logprobs_mode", (NUMBERS,), TypeError, "be a name or a tuple of names, got tuple "),
    row_error("on_invalid", NUMBERS, ValueError, 'be "raise" or "mark", got array([0., 0.]) ('),
    rows_error(
        "reduction", "exakt", ValueError, f"{REDUCTION} 'exakt' (\"exact\", the default, adds int"
    ),
    row_error("draw", "hare", ValueError, 'be "race", "inverse" or None, got \'hare\' (None is a '),
    row_error("draw", 1, TypeError, "be a name or None, got int 1 (None is a race in the"),
    rows_error("draw", ["race"] * 4, TypeError, "be a name or None, got list ['race', 'race', "),
    call_error(
        params_of,
        ValueError,
        '`draw` must be "race", "inverse" or None, got \'Race\' (None is a race in the reduction',
        draw="Race",
    ),
    *(
        call_error(
            function,
            ValueError,
            f'`draw` must be "inverse" or None in the reduction {reduction!r}, got "race" (its',
            draw="race",
            reduction=reduction,
            to=('a race needs reduction="exact"', Arguments(reduction="exact")),
        )
        for function, reduction in ((draw_of, "fixed"), (tokens_of_sampler, "fast"))
    ),
    rows_error("reduction", None, ValueError, f"{REDUCTION} None ("),
    rows_error("reduction", ["exact"], ValueError, f"{REDUCTION} ['exact'] ("),
    row_error("reduction", "sum", ValueError, f"{REDUCTION} 'sum' ("),
    call_error(tokens_of_sampler, ValueError, f"`reduction` must {REDUCTION} 0 (", reduction=0),
    rows_error("n_threads", 0, ValueError, "be in [1, 2**31), got 0 (None lets fastsample choose)"),
    rows_error("n_threads", "2", TypeError, "be an integer, got str '2' (", means=2),
    call_error(sample, ValueError, "`position` must be given with `seed`", ROW, seed=1),
    call_error(params_of, ValueError, "`top_p` must be in [0, 1], got nan (", top_p=float("nan")),
    ErrorCase(
        lambda: SamplingParams(temperature=[1.0]),
        TypeError,
        "`temperature` must be a number, got list (for one value per row call sample()",
        CALL_SAMPLE,
    ),
    call_error(
        params_of,
        TypeError,
        "`seed` must be an integer, got bool True (",
        seed=True,
        to=("leave `seed` out", None),
    ),
]

ENGINES = [
    *(
        row_error(name, value, TypeError, f"be a name or None, got {type(value).__name__} ")
        for name in ("engine", "isa")
        for value in (NUMBERS, [], {}, 0)
    ),
    call_error(
        tokens_of_sampler, TypeError, "`engine` must be a name or None, got ", engine=NUMBERS
    ),
    call_error(kept_set, TypeError, "`isa` must be a name or None, got ", ROW, isa=NUMBERS),
    rows_error("engine", "cuda", ValueError, f"{ENGINE} 'cuda' (None takes the fastest one)"),
    *(
        call_error(
            draw_of,
            ValueError,
            f"`isa` must be None for engine {engine!r}, which has no instruction sets to choose",
            engine=engine,
            isa="baseline",
            to=("leave one of the two out", Arguments(isa=None, engine=None)),
        )
        for engine in ("reference", "numba")
    ),
    call_error(
        draw_without_race,
        ValueError,
        "engine 'numba' has no draw \"race\" (use engine=",
        engine="numba",
        draw="race",
        to=('use engine="native"', Arguments(engine="native"))
        if native
        else ('draw="inverse"', Arguments(draw="inverse")),
    ),
    *(
        call_error(
            draw_without, RuntimeError, part, module, engine, to=(words, Arguments(engine=None))
        )
        for module, engine, part, words in (
            ("numba", "numba", "engine 'numba' needs numba, which is not installed, on", LEAVE),
            ("torch", "torch", "engine 'torch' needs torch, which is not installed (pip", LEAVE),
            ("triton", "triton", "engine 'triton' needs torch and triton, which are not", LEAVE),
            (NATIVE, "native", "engine 'native' and `isa` need the compiled", "leave both out"),
        )
    ),
]


def native_error_cases() -> list[ErrorCase]:
    if native is None:
        return []
    missing = next(isa for isa in ("neon", "baseline") if isa not in native.isa_usable())
    return [
        call_error(function, error, part, isa=isa)
        for isa, error, part in (
            ("sse9", ValueError, "`isa` must be one of baseline, x86-64-v3, x86-64-v4, neon, got"),
            (missing, RuntimeError, f"`isa` {missing!r} cannot run on this machine (usable here: "),
        )
        for function in (draw_of, tokens_of_sampler)
    ]


ERROR_CASES = [*PARAMETERS, *ENGINES, *native_error_cases()]
