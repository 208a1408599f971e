"""Errors in making, calling and copying samplers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from fastsample import Sampler, SamplingParams, sample
from tests.support.error_cases import ROW, ROWS, ErrorCase, Foreign
from tests.support.error_cases.following import NOTHING, Arguments, Mended
from tests.support.error_cases.sequences import (
    ENTRY,
    SKIP,
    TWO,
    Call,
    Case,
    of_one,
    outcome,
    sampler_error,
)


def call_after_the_last_position(sampler: Sampler) -> None:
    sampler.reset(2**64 - 1)
    sampler(ROW)
    sampler(ROW)


def accept_after_the_last_position(sampler: Sampler) -> None:
    sampler.reset(2**64 - 1)
    sampler.accept([1, 2])


def call_with_another_number_of_rows(sampler: Sampler) -> None:
    sampler(ROWS)
    sampler(ROWS[:2])


def two_of_four_rows() -> Any:
    sampler = Sampler(temperature=0, stream="row")
    sampler(ROWS)
    return sampler(ROWS[:2], sequences=[0, 3])


ONE_OR_MORE: dict[str, Callable[[], Any]] = {
    'Sampler(..., stream="row") draws continuations': lambda: Sampler(temperature=0, stream="row")(
        ROWS
    ),
    "Sampler([params, ...]) has": lambda: Sampler([GREEDY] * 4)(ROWS),
    "fastsample.sample(logits, seed=sampler.seed, stream=0, position=np.arange(0, 4))": lambda: (
        sample(ROWS, seed=Sampler().seed, stream=0, position=np.arange(0, 4), temperature=0).tokens
    ),
}
"""What the error for many rows and one sequence offers."""


def call_while_in_use(sampler: Sampler) -> None:
    with sampler._exclusive.begin(), ThreadPoolExecutor(1) as another:
        another.submit(sampler.sample, ROW, margin=True).result()  # a call that is not prepared


class Reentrant(Foreign):
    """A mask that allows all tokens, and calls a function when it is read."""

    def __init__(self, before: Callable[[], Any]) -> None:
        super().__init__(source=np.ones(3, bool))
        self.before = before

    def __dlpack__(self, **keywords: Any) -> Any:
        self.before()
        return super().__dlpack__(**keywords)


PENALTY: dict[str, Any] = {"frequency_penalty": 1.5, "frequency_scope": "all"}
GREEDY = SamplingParams(temperature=0)
PARAMS = SamplingParams(top_k=2, seed=1)


def call_in_a_thread(sampler: Sampler) -> Any:
    with ThreadPoolExecutor(1) as another:
        return another.submit(sampler, ROW).result()


def dynamic(sampler: Sampler) -> Sampler:
    """A sampler made from the list of one sampler's parameters."""
    return Sampler([replace(sampler.params, seed=sampler.seed)])


def at_position(sampler: Sampler, position: int) -> Sampler:
    sampler.reset(position)
    return sampler


def measured_calls() -> int:
    sampler = Sampler(measure=True)
    sampler(ROW)
    return sampler.latency.count


def unpickle_another_rule(sampler: Sampler) -> None:
    state = {**sampler.__getstate__(), "rule_version": 1}
    sampler.__setstate__(state)


def set_a_parameter(sampler: Sampler) -> None:
    sampler.temperature = 0


def set_the_position(sampler: Sampler) -> None:
    sampler.position = 3


AFRESH = "make a new Sampler"
INTEGERS = "pass integers"
IN_USE = "give each thread its own, or call `sample`, which keeps no state"
DYNAMIC = "make it with Sampler([params])"


def of_call(call: Call, error: type[Exception], part: str, hint: str, mended: Call) -> ErrorCase:
    """A sampler that cannot be made; what follows the hint makes one from options."""
    followed = Mended(
        hint, lambda: outcome(mended(), draw), lambda: outcome(mended(engine="reference"), draw)
    )
    return ErrorCase(call, error, part, followed)


def draw(sampler: Sampler) -> Any:
    return sampler(ROWS[: len(sampler.ids)])


ONE_SEQUENCE: list[Case] = [
    (
        unpickle_another_rule,
        ValueError,
        "a copy of a Sampler must be of rule version 2, got 1: its tokens would be others (",
        AFRESH,
        draw,
    ),
    (
        set_a_parameter,
        AttributeError,
        "`temperature` cannot be set: the parameters of a Sampler are fixed (make a new Sampler)",
        AFRESH,
        draw,
    ),
    (
        set_the_position,
        AttributeError,
        "`position` cannot be set: the parameters of a Sampler are fixed (call reset(position))",
        "call reset(position)",
        lambda s: (s.reset(3), s(ROW)),
    ),
    (
        lambda s: s.latency,
        AttributeError,
        "`latency` needs a Sampler that measures, got one that does not (make it with measure=T",
        "make it with measure=True",
        lambda s: measured_calls(),
    ),
    (
        lambda s: s.reset(-1),
        ValueError,
        "`position` must be in [0, 2**64), got -1 (",
        "0 for the first",
        lambda s: (s.reset(0), s(ROW)),
    ),
    (
        lambda s: s(ROW, sequences=7),
        ValueError,
        "`sequences` must hold numbers of sequences, got 7 (`ids` has the numbers of all 1)",
        "`ids` has the numbers of all 1",
        lambda s: s(ROW, sequences=s.ids[0]),
    ),
    (
        call_after_the_last_position,
        ValueError,
        "`position` must be in [0, 2**64), got 18446744073709551616 for sequence 0 (every position",
        AFRESH,
        draw,
    ),
    (
        accept_after_the_last_position,
        ValueError,
        "`tokens` must end before position 2**64, got 2 from position 18446744073709551615 on (",
        "reset(position) goes back",
        lambda s: (s.reset(2**64 - 1), s.reset(5), s.accept([1, 2])),
    ),
    (
        call_while_in_use,
        RuntimeError,
        "this Sampler is in use, and serves one call at a",
        IN_USE,
        lambda s: call_in_a_thread(s.clone()),
    ),
    (
        lambda s: s(ROW, mask=Reentrant(lambda: s(ROW))),
        TypeError,
        "this Sampler is in use, and serves one call at a time: it was used during a call, by ano",
        "pass an array of NumPy",
        lambda s: s(ROW, mask=np.ones(3, bool)),
    ),
    (
        lambda s: s.add(),
        TypeError,
        "`add` needs a Sampler made from a list, got one made from",
        DYNAMIC,
        lambda s: dynamic(s).add(seed=3),
    ),
    (
        lambda s: s.remove(0),
        TypeError,
        "`remove` needs a Sampler made from a list, got one",
        DYNAMIC,
        lambda s: dynamic(s).remove(0).seed,
    ),
    (
        lambda s: s.sample(ROW, on_invalid="skip"),
        ValueError,
        '`on_invalid` must be "raise" or',
        '"mark" gives an invalid row the token -1 and a status',
        lambda s: s.sample(ROW * np.float32(np.nan), on_invalid="mark"),
    ),
]

ERROR_CASES = [
    ErrorCase(
        lambda: call_with_another_number_of_rows(Sampler(temperature=0, stream="row")),
        ValueError,
        "`logits` must have 4 rows, one for each sequence, got 2 (sequences=[...] chooses the s",
        Mended("sequences=[...] chooses", lambda: two_of_four_rows().tolist(), [2, 2]),
    ),
    *(
        ErrorCase(
            lambda: Sampler(temperature=0)(ROWS),
            ValueError,
            "`logits` must have one row for a Sampler of one sequence, got 4 (",
            Mended(hint, lambda draw=draw: draw().tolist(), [2, 2, 2, 2]),
        )
        for hint, draw in ONE_OR_MORE.items()
    ),
    ErrorCase(
        lambda: Sampler(prompt=[[1], [2]]),
        ValueError,
        '`stream` must be "row" for 2 prompts and one set of parameters, got 0 (',
        Mended(
            "a list of params has a seed for each",
            lambda: Sampler([GREEDY, GREEDY], prompt=[[1], [2]])(ROWS[:2]).tolist(),
            [2, 2],
        ),
    ),
    *(
        ErrorCase(
            lambda bad=bad: Sampler(stream=bad),
            error,
            f"`stream` must be {part} (which continuation of one seed",
            Mended(
                '"row" puts row b on stream b',
                lambda: Sampler(GREEDY, stream="row")(ROWS).tolist(),
                [2, 2, 2, 2],
            ),
        )
        for bad, error, part in (
            ("rows", TypeError, "an integer, got str 'rows'"),
            (2**32, ValueError, "in [0, 2**32), got 4294967296"),
        )
    ),
    *(of_one(*case) for case in ONE_SEQUENCE),
    of_call(
        lambda: Sampler(0.8),
        TypeError,
        "`params` must be a SamplingParams, got float (pass a field by its name",
        "as in SamplingParams(temperature=0.8)",
        lambda **engine: Sampler(SamplingParams(temperature=0.8), seed=1, **engine),
    ),
    sampler_error(
        {"valid_vocab": 0},
        ValueError,
        "`valid_vocab` must be in [1, V] = [1, 4194304], got 0 (",
        to=("leave it out for all", None),
    ),
    sampler_error(
        {"topk": 3},
        TypeError,
        "`topk` must be a field of SamplingParams, and is not (did you mean `top_k`?)",
        to=("did you mean `top_k`?", Arguments(topk=NOTHING, top_k=3)),
    ),
    of_call(
        lambda: Sampler(params=PARAMS),
        TypeError,
        "is not (pass it first, without a name)",
        "pass it first, without a name",
        lambda **engine: Sampler(PARAMS, **engine),
    ),
    of_call(
        lambda: Sampler(position=3),
        TypeError,
        "is not (a sampler starts at 0; reset(3) goes to position 3)",
        "reset(3) goes to position 3",
        lambda **engine: at_position(Sampler(seed=1, **engine), 3),
    ),
    *(
        of_call(
            lambda arguments=arguments: Sampler(**arguments),
            TypeError,
            f"`{name}` must be {kind}, got {got} (for one value per row call sample()",
            "call sample(), which takes them",
            lambda **engine: Sampler(TWO, **engine),
        )
        for name, kind, got, arguments in (
            ("seed", "an integer", "list", {"seed": [1, 2]}),
            ("temperature", "a number", "ndarray", {"temperature": np.ones(2)}),
        )
    ),
    sampler_error(
        {"top_k": 3.0}, TypeError, "`top_k` must be an integer, got float 3.0 (", means=3
    ),
    sampler_error(
        {"measure": 1},
        TypeError,
        "`measure` must be True or False, got int 1 (True keeps the",
        to=("True keeps the time of every call in `latency`", True),
    ),
    sampler_error({"engine": "fast"}, ValueError, "`engine` must be 'native', 'numba', "),
    sampler_error(
        {"draw": "race", "reduction": "fast"},
        ValueError,
        '`draw` must be "inverse" or None in the reduction \'fast\', got "race" (',
        to=('a race needs reduction="exact"', Arguments(reduction="exact")),
    ),
    sampler_error({"n_threads": 0}, ValueError, "`n_threads` must be in [1, 2**31), got 0 ("),
    sampler_error(
        {"prompt": 0.5, **PENALTY},
        TypeError,
        "`prompt` must hold lists of integers, got float of shape ",
        to=(INTEGERS, [1, 2]),
    ),
    sampler_error(
        {"prompt": [-1], **PENALTY},
        ValueError,
        "`prompt` must hold tokens in [0, 4194304), got -1 (tokens",
        to=(SKIP, Arguments(ignore_tokens="outside")),
        means=[],
    ),
    of_call(
        lambda: Sampler(prompt=[[0], [1, 2**22]], stream="row"),
        ValueError,
        "`prompt` must hold tokens in [0, 4194304), got 4194304 at row 1 (tokens",
        SKIP,
        lambda **engine: Sampler(
            seed=1,
            prompt=[[0], [1, 2**22]],
            stream="row",
            ignore_tokens="outside",
            **PENALTY,
            **engine,
        ),
    ),
    sampler_error(
        {"prompt": [[[0], []]], **PENALTY},
        TypeError,
        "`prompt` must hold lists of integers, got list at row 0: setting",
        to=(INTEGERS, [0]),
    ),
    of_call(
        lambda: Sampler([*TWO, 0.8]),
        TypeError,
        "`params` must be a SamplingParams, got flo",
        "as in SamplingParams(temperature=0.8)",
        lambda **engine: Sampler([*TWO, SamplingParams(temperature=0.8, seed=3)], **engine),
    ),
    *(
        of_call(
            lambda params=params, prompt=prompt: Sampler(params, prompt=prompt),
            ValueError,
            f"`prompt` must have an entry for each of the {len(params)} sequences, got ",
            ENTRY,
            lambda params=params, **engine: Sampler(
                params, prompt=[[1], [2]][: len(params)], **engine
            ),
        )
        for params, prompt in ((TWO, [[1]]), (TWO[:1], [[1], [2]]))
    ),
    of_call(
        lambda: Sampler([], reduction="fixed").add(draw="race"),
        ValueError,
        '`draw` must be "inverse" or None in the reduction \'fixed\', got "race" (',
        'a race needs reduction="exact"',
        lambda **engine: Sampler([SamplingParams(draw="race", seed=1)], **engine),
    ),
]
