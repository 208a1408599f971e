"""Errors in samplers and their sequences."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from fastsample import Sampler, SamplingParams, sample
from tests.support.error_cases import ROW, ROWS, ErrorCase, Foreign, Mended

TWO = [SamplingParams(seed=1), SamplingParams(seed=2)]
GREEDY = SamplingParams(temperature=0)


def sampler_error(arguments: dict[str, Any], error: type[Exception], part: str) -> ErrorCase:
    return ErrorCase(lambda: Sampler(**arguments), error, part)


def of_one(call: Callable[[Sampler], Any], error: type[Exception], part: str) -> ErrorCase:
    return ErrorCase(lambda: call(Sampler()), error, part)


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


def unpickle_another_rule(sampler: Sampler) -> None:
    state = {**sampler.__getstate__(), "rule_version": 1}
    sampler.__setstate__(state)


def set_a_parameter(sampler: Sampler) -> None:
    sampler.temperature = 0


def set_the_position(sampler: Sampler) -> None:
    sampler.position = 3


def of_two() -> Sampler:
    """A sampler of the sequences 0 and 1."""
    return Sampler(TWO)


OF_TWO: list[tuple[Callable[[Sampler], Any], type[Exception], str]] = [
    (lambda s: s(ROWS), ValueError, "`logits` must have 2 rows, one for each sequence, got 4 ("),
    (lambda s: s(ROWS[:2], sequences=[1]), ValueError, "`logits` must have 1 rows, one for each s"),
    (
        lambda s: s(ROWS[:2], sequences=[0, 7]),
        ValueError,
        "`sequences` must hold numbers of sequences, got 7 (`ids` has the numbers of all",
    ),
    (lambda s: s.sequence(2), ValueError, "`sequences` must hold numbers of sequences, got 2 ("),
    (lambda s: s.remove(5), ValueError, "`sequences` must hold numbers of sequences, got 5 ("),
    (
        lambda s: s.reset(sequences=[0, 5]),
        ValueError,
        "`sequences` must hold numbers of sequences, got 5 (",
    ),
    (
        lambda s: s.accept([1, 2], sequences=[0, 9]),
        ValueError,
        "`sequences` must hold numbers of sequences, got 9 (",
    ),
    (
        lambda s: s(ROWS[:2], sequences=[1, 1]),
        ValueError,
        "`sequences` must hold each number once, got 1 more than once (a call draws one",
    ),
    *(
        (
            lambda s, number=number: s(ROWS[:1], sequences=number),
            TypeError,
            f"`sequences` must be numbers of sequences, got {got} (an integer that add()",
        )
        for number, got in ((1.0, "float 1.0"), ([True], "bool True"), (["0"], "str '0'"))
    ),
    (
        lambda s: s.sequence([0]),
        TypeError,
        "`sequences` must be numbers of sequences, got list [0]",
    ),
    (lambda s: s.reset(-1), ValueError, "`position` must be in [0, 2**64), got -1 ("),
    (lambda s: s.rewind(-1), ValueError, "`n` must be in [0, 2**64), got -1 (how many tokens to"),
    (lambda s: s.rewind(True), TypeError, "`n` must be"),
    (
        lambda s: s.rewind(9),
        ValueError,
        "`n` must be at most the number of tokens since the start, or since the last skipped "
        "position, got 9 for sequence 0, which has",
    ),
    (
        lambda s: s.seed,
        ValueError,
        "`seed` must be the same for all sequences, got 2 sequences (read that of one, by its",
    ),
    (
        lambda s: s.accept(5),
        TypeError,
        "`tokens` must be a list with an entry for each of the 2 sequences, got int (an entry",
    ),
    (
        lambda s: s.accept([1]),
        ValueError,
        "`tokens` must have an entry for each of the 2 sequences, got 1 (an entry is",
    ),
    (
        lambda s: s.accept([1, 2**22]),
        ValueError,
        "`tokens` must hold tokens in [0, 4194304), got 4194304 at row 1 (",
    ),
    (
        lambda s: s.accept([-2], sequences=1),
        ValueError,
        "`tokens` must hold tokens in [0, 4194304), got -2 (",
    ),
    (
        lambda s: s.accept([1, [2.5]]),
        TypeError,
        "`tokens` must hold lists of integers, got list of shape (1,) and dtype float64 at row 1 (",
    ),
    (
        lambda s: s.accept([1, True]),
        TypeError,
        "`tokens` must hold lists of integers, got bool of shape (1,) and dtype bool at row 1 (",
    ),
    (
        lambda s: s.accept([1, [[2], [3, 4]]]),
        TypeError,
        "`tokens` must hold lists of integers, got list at row 1: ",
    ),
    (lambda s: s.add(0.8), TypeError, "`params` must be a SamplingParams, got float ("),
    (
        lambda s: s.add(top_q=1),
        TypeError,
        "`top_q` must be a field of SamplingParams, and is not (did you mean `top_p`?)",
    ),
    (lambda s: s.add(stream=2**32), ValueError, "`stream` must be in [0, 2**32), got 4294967296 ("),
    (lambda s: s.add(prompt=["a"]), TypeError, "`prompt` must hold tokens, got the text 'a' (pass"),
    (
        lambda s: Sampler([], reduction="fixed").add(draw="race"),
        ValueError,
        '`draw` must be "inverse" or None in the reduction \'fixed\', got "race" (',
    ),
    (
        lambda s: s(np.where(ROWS[:2] > 2, np.nan, ROWS[:2])),
        ValueError,
        "`logits` row 0 holds nan at token 2 (a logit must be finite",
    ),
]
"""Calls of a sampler of two sequences, with their errors."""

REWOUND_TOO_FAR: list[tuple[Callable[[Sampler], Any], str]] = [
    (
        lambda s: (s.accept([3, [4, 5]]), s.rewind(2)),
        "got 2 for sequence 0, which has 1 (reset(position) goes back to any position)",
    ),
    (
        lambda s: (s.accept([[1, 2], 3]), s.reset(7), s.accept([4, 5]), s.rewind(2, sequences=1)),
        "got 2 for sequence 1, which has 1 (",
    ),
]

PLACEHOLDERS = {"prompt": [1, 1, -200, 40], "presence_penalty": 1.5, "presence_scope": "all"}


def greedy_with(sampler: Sampler, **keywords: Any) -> list[int]:
    """The token of a new sequence, alone in a sampler of rows of 3 columns."""
    number = sampler.add(temperature=0, **keywords)
    return sampler(ROWS[:1], sequences=number).tolist()


def placeholder_error(call: Callable[[], Any], part: str, hint: str, ignored: Any) -> ErrorCase:
    """A prompt with placeholders; `hint` leads to the tokens to ignore."""
    return ErrorCase(
        call,
        ValueError,
        part,
        Mended(hint, lambda: greedy_with(Sampler([]), **PLACEHOLDERS, ignore_tokens=ignored), [2]),
    )


IGNORING = [
    placeholder_error(
        lambda: Sampler([]).add(prompt=[1, -200, 40]),
        "`prompt` must hold tokens in [0, 4194304), got -200 (tokens are columns of `logits`; ",
        'ignore_tokens="outside" lets penalties skip others',
        "outside",
    ),
    placeholder_error(
        lambda: Sampler(valid_vocab=3, prompt=[1, 40]),
        "`prompt` must hold tokens in [0, 3), got 40 (tokens are columns of `logits`; ignore",
        'ignore_tokens="outside"',
        "outside",
    ),
    placeholder_error(
        lambda: greedy_with(Sampler([]), prompt=[1, 40], presence_penalty=1.5),
        "sequence 0 must hold tokens in [0, 3), got 40 (remove(0) lets the others be drawn; ",
        'made with ignore_tokens="outside", it skips them in penalties',
        "outside",
    ),
    placeholder_error(
        lambda: SamplingParams(ignore_tokens=2**31),
        "`ignore_tokens` must hold tokens in [-2**31, 2**31), got 2147483648 (",
        '"outside" is all that are not columns of the logits',
        "outside",
    ),
    *(
        ErrorCase(
            lambda bad=bad: SamplingParams(ignore_tokens=bad),
            TypeError,
            f'`ignore_tokens` must be tokens, "outside" or a list of these, got {shown} (',
            Mended(
                '"outside" is all that are not columns of the logits',
                lambda: greedy_with(Sampler([]), **PLACEHOLDERS, ignore_tokens="outside"),
                [2],
            ),
        )
        for bad, shown in (
            ("inside", "'inside'"),
            ([1, "2"], "'2'"),
            (1.5, "1.5"),
            ([True], "True"),
            ({}, "{}"),
        )
    ),
    ErrorCase(
        lambda: removing_lets_others_draw(is_removed=False),
        ValueError,
        "sequence 1 must hold tokens in [0, 3), got 40 (",
        Mended(
            "remove(1) lets the others be drawn",
            lambda: removing_lets_others_draw(is_removed=True),
            [2],
        ),
    ),
]


def removing_lets_others_draw(is_removed: bool) -> Any:
    sampler = Sampler([SamplingParams(temperature=0, presence_penalty=0.5)] * 2, prompt=[[1], [40]])
    if is_removed:
        sampler.remove(1)
    return sampler(ROWS[: len(sampler.ids)]).tolist()


ERROR_CASES = [
    *IGNORING,
    ErrorCase(
        lambda: Sampler(0.8),
        TypeError,
        "`params` must be a SamplingParams, got float (pass a field by its name",
    ),
    sampler_error(
        {"valid_vocab": 0},
        ValueError,
        "`valid_vocab` must be in [1, V] = [1, 4194304], got 0 (",
    ),
    sampler_error(
        {"topk": 3},
        TypeError,
        "`topk` must be a field of SamplingParams, and is not (did you mean `top_k`?)",
    ),
    sampler_error(
        {"params": SamplingParams()}, TypeError, "is not (pass it first, without a name)"
    ),
    sampler_error(
        {"position": 3}, TypeError, "is not (a sampler starts at 0; reset(3) goes to position 3)"
    ),
    sampler_error(
        {"seed": [1, 2]},
        TypeError,
        "`seed` must be an integer, got list (for one value per row call sample()",
    ),
    sampler_error(
        {"temperature": np.ones(2)},
        TypeError,
        "`temperature` must be a number, got ndarray (for one value per row call sample()",
    ),
    of_one(
        unpickle_another_rule,
        ValueError,
        "a copy of a Sampler must be of rule version 2, got 1: its tokens would be others (",
    ),
    of_one(
        set_a_parameter,
        AttributeError,
        "`temperature` cannot be set: the parameters of a Sampler are fixed (make a new Sampler)",
    ),
    of_one(
        set_the_position,
        AttributeError,
        "`position` cannot be set: the parameters of a Sampler are fixed (call reset(position))",
    ),
    sampler_error({"top_k": 3.0}, TypeError, "`top_k` must be an integer, got float 3.0 ("),
    sampler_error(
        {"measure": 1}, TypeError, "`measure` must be True or False, got int 1 (True keeps the"
    ),
    of_one(
        lambda s: s.latency,
        AttributeError,
        "`latency` needs a Sampler that measures, got one that does not (make it with measure=T",
    ),
    sampler_error({"engine": "fast"}, ValueError, "`engine` must be 'native', 'numba', "),
    sampler_error(
        {"draw": "race", "reduction": "fast"},
        ValueError,
        '`draw` must be "inverse" or None in the reduction \'fast\', got "race" (',
    ),
    sampler_error({"n_threads": 0}, ValueError, "`n_threads` must be in [1, 2**31), got 0 ("),
    sampler_error(
        {"prompt": 0.5}, TypeError, "`prompt` must hold lists of integers, got float of shape "
    ),
    sampler_error(
        {"prompt": [-1]}, ValueError, "`prompt` must hold tokens in [0, 4194304), got -1 (tokens"
    ),
    sampler_error(
        {"prompt": [[0], [1, 2**22]], "stream": "row"},
        ValueError,
        "`prompt` must hold tokens in [0, 4194304), got 4194304 at row 1 (tokens",
    ),
    sampler_error(
        {"prompt": [[[0], []]]},
        TypeError,
        "`prompt` must hold lists of integers, got list at row 0: setting",
    ),
    of_one(lambda s: s.reset(-1), ValueError, "`position` must be in [0, 2**64), got -1 ("),
    of_one(
        lambda s: s(ROW, sequences=7),
        ValueError,
        "`sequences` must hold numbers of sequences, got 7 (`ids` has the numbers of all 1)",
    ),
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
    of_one(
        call_after_the_last_position,
        ValueError,
        "`position` must be in [0, 2**64), got 18446744073709551616 for sequence 0 (every position",
    ),
    of_one(
        accept_after_the_last_position,
        ValueError,
        "`tokens` must end before position 2**64, got 2 from position 18446744073709551615 on (",
    ),
    of_one(call_while_in_use, RuntimeError, "this Sampler is in use, and serves one call at a"),
    of_one(
        lambda s: s(ROW, mask=Reentrant(lambda: s(ROW))),
        TypeError,
        "this Sampler is in use, and serves one call at a time: it was used during a call, by ano",
    ),
    of_one(
        lambda s: s.add(), TypeError, "`add` needs a Sampler made from a list, got one made from"
    ),
    of_one(lambda s: s.remove(0), TypeError, "`remove` needs a Sampler made from a list, got one"),
    of_one(
        lambda s: s.sample(ROW, on_invalid="skip"), ValueError, '`on_invalid` must be "raise" or'
    ),
    *(ErrorCase(lambda call=call: call(of_two()), error, part) for call, error, part in OF_TWO),
    *(
        ErrorCase(lambda call=call: call(of_two()), ValueError, part)
        for call, part in REWOUND_TOO_FAR
    ),
    ErrorCase(
        lambda: Sampler([*TWO, 0.8]), TypeError, "`params` must be a SamplingParams, got flo"
    ),
    ErrorCase(
        lambda: Sampler(TWO, prompt=[[1]]),
        ValueError,
        "`prompt` must have an entry for each of the 2 sequences, got 1 (an entry is",
    ),
    ErrorCase(
        lambda: Sampler(TWO[:1], prompt=[[1], [2]]),
        ValueError,
        "`prompt` must have an entry for each of the 1 sequences, got 2 (an entry is",
    ),
]
