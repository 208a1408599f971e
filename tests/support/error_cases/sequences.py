"""Errors in sequences of samplers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastsample import Sampler, SamplingParams
from tests.support.error_cases import ROWS, ErrorCase, call_error, tokens_of_sampler
from tests.support.error_cases.following import Mended, as_lists

TWO = [SamplingParams(seed=1), SamplingParams(seed=2)]

Call = Callable[[Sampler], Any]
Case = tuple[Call, type[Exception], str, str, Call]
"""A call of a sampler, its error, a part of the message, a hint, and the call that follows it."""


def sampler_error(
    arguments: dict[str, Any], error: type[Exception], part: str, **ways: Any
) -> ErrorCase:
    case = call_error(tokens_of_sampler, error, part, **arguments, **ways)
    return case._replace(call=lambda: Sampler(**arguments))


def outcome(sampler: Sampler, call: Call) -> Any:
    """What a call returns, and the sequences after it."""
    result = as_lists(call(sampler))
    each = [sampler.sequence(number) for number in sampler.ids]
    return result, [(one.seed, one.position, one.prompt, one.output) for one in each]


def of_sampler(
    make: Callable[..., Sampler],
    call: Call,
    error: type[Exception],
    part: str,
    hint: str,
    mended: Call,
) -> ErrorCase:
    """A call of a sampler; what follows the hint leads to the same in the reference."""
    followed = Mended(
        hint,
        lambda: outcome(make(), mended),
        lambda: outcome(make(engine="reference"), mended),
    )
    return ErrorCase(lambda: call(make()), error, part, followed)


def of_one(*case: Any) -> ErrorCase:
    return of_sampler(lambda **options: Sampler(seed=1, **options), *case)


def of_two(**options: Any) -> Sampler:
    """A sampler of the sequences 0 and 1."""
    return Sampler(TWO, **options)


CHOOSE = "sequences=[...] chooses the sequences of the rows"
IDS = "`ids` has the numbers of all"
ADDED = "an integer that add() returned"
ENTRY = "an entry is a token or a list of tokens"
SKIP = 'ignore_tokens="outside" lets penalties skip others'
GO_BACK = "reset(position) goes back to any position"


def accept_skipped(token: int) -> Call:
    """Accept a token by a sequence that skips it in penalties."""
    return lambda s: s.accept([token], sequences=s.add(seed=3, ignore_tokens="outside"))


OF_TWO: list[Case] = [
    (
        lambda s: s(ROWS),
        ValueError,
        "`logits` must have 2 rows, one for each sequence, got 4 (",
        CHOOSE,
        lambda s: s(ROWS[:2], sequences=[0, 1]),
    ),
    (
        lambda s: s(ROWS[:2], sequences=[1]),
        ValueError,
        "`logits` must have 1 rows, one for each s",
        CHOOSE,
        lambda s: s(ROWS[:2], sequences=[1, 0]),
    ),
    *(
        (call, ValueError, f"`sequences` must hold numbers of sequences, got {got} (", IDS, mended)
        for call, got, mended in (
            (
                lambda s: s(ROWS[:2], sequences=[0, 7]),
                7,
                lambda s: s(ROWS[:2], sequences=s.ids),
            ),
            (lambda s: s.sequence(2), 2, lambda s: s.sequence(s.ids[1]).seed),
            (lambda s: s.remove(5), 5, lambda s: s.remove(s.ids[1]).seed),
            (
                lambda s: s.reset(sequences=[0, 5]),
                5,
                lambda s: s.reset(3, sequences=s.ids),
            ),
            (
                lambda s: s.accept([1, 2], sequences=[0, 9]),
                9,
                lambda s: s.accept([1, 2], sequences=s.ids),
            ),
        )
    ),
    (
        lambda s: s(ROWS[:2], sequences=[1, 1]),
        ValueError,
        "`sequences` must hold each number once, got 1 more than once (a call draws one",
        "add() makes another on the same seed, stream=1",
        lambda s: s(ROWS[:2], sequences=[1, s.add(seed=2, stream=1)]),
    ),
    *(
        (
            lambda s, number=number: s(ROWS[:1], sequences=number),
            TypeError,
            f"`sequences` must be numbers of sequences, got {got} (an integer that add()",
            ADDED,
            lambda s: s(ROWS[:1], sequences=[s.add(seed=3)]),
        )
        for number, got in ((1.0, "float 1.0"), ([True], "bool True"), (["0"], "str '0'"))
    ),
    (
        lambda s: s.sequence([0]),
        TypeError,
        "`number` must be the number of one sequence, got list [0]",
        ADDED,
        lambda s: s.sequence(s.add(seed=3)).seed,
    ),
    (
        lambda s: s.remove([0, 1]),
        TypeError,
        "`number` must be the number of one sequence, got list [0, 1]",
        "one call for each",
        lambda s: [s.remove(number).seed for number in (0, 1)],
    ),
    (
        lambda s: s.reset(-1),
        ValueError,
        "`position` must be in [0, 2**64), got -1 (",
        "0 for the first",
        lambda s: s.reset(0),
    ),
    *(
        (lambda s, n=n: s.rewind(n), error, part, "0 for none", lambda s: s.rewind(0))
        for n, error, part in (
            (-1, ValueError, "`n` must be in [0, 2**64), got -1 (how many tokens to"),
            (True, TypeError, "`n` must be an integer, got bool True (how many tokens to"),
        )
    ),
    (
        lambda s: s.rewind(9),
        ValueError,
        "`n` must be at most the number of tokens since the start, or since the last skipped "
        "position, got 9 for sequence 0, which has",
        GO_BACK,
        lambda s: s.reset(0),
    ),
    (
        lambda s: s.seed,
        ValueError,
        "`seed` must be the same for all sequences, got 2 sequences (read that of one, by its",
        "sampler.sequence(0).seed",
        lambda s: s.sequence(0).seed,
    ),
    (
        lambda s: s.accept(5),
        TypeError,
        "`tokens` must be a list with an entry for each of the 2 sequences, got int (an entry",
        ENTRY,
        lambda s: s.accept([5, [1, 2]]),
    ),
    (
        lambda s: s.accept([1]),
        ValueError,
        "`tokens` must have an entry for each of the 2 sequences, got 1 (an entry is",
        "sequences=[...] chooses sequences",
        lambda s: s.accept([1], sequences=[0]),
    ),
    (
        lambda s: s.accept([1, 2**22]),
        ValueError,
        "`tokens` must hold tokens in [0, 4194304), got 4194304 at row 1 (",
        SKIP,
        accept_skipped(2**22),
    ),
    (
        lambda s: s.accept([-2], sequences=1),
        ValueError,
        "`tokens` must hold tokens in [0, 4194304), got -2 (",
        SKIP,
        accept_skipped(-2),
    ),
    *(
        (
            lambda s, tokens=tokens: s.accept(tokens),
            TypeError,
            f"`tokens` must hold lists of integers, got {got}",
            "pass integers",
            lambda s: s.accept([1, [2, 3]]),
        )
        for tokens, got in (
            ([1, [2.5]], "list of shape (1,) and dtype float64 at row 1 ("),
            ([1, True], "bool of shape (1,) and dtype bool at row 1 ("),
            ([1, [[2], [3, 4]]], "list at row 1: "),
        )
    ),
    (
        lambda s: s.add(0.8),
        TypeError,
        "`params` must be a SamplingParams, got float (",
        "as in SamplingParams(temperature=0.8)",
        lambda s: s(ROWS[:1], sequences=s.add(SamplingParams(temperature=0.8), seed=3)),
    ),
    (
        lambda s: s.add(top_q=1),
        TypeError,
        "`top_q` must be a field of SamplingParams, and is not (",
        "top_p",
        lambda s: s(ROWS[:1], sequences=s.add(top_p=0.5, seed=3)),
    ),
    (
        lambda s: s.add(stream=2**32),
        ValueError,
        "`stream` must be in [0, 2**32), got 4294967296 (",
        "0 for the first",
        lambda s: s(ROWS[:1], sequences=s.add(stream=0, seed=3)),
    ),
    (
        lambda s: s.add(prompt=["a"]),
        TypeError,
        "`prompt` must hold tokens, got the text 'a' (pass",
        "pass the numbers that a tokenizer makes of it",
        lambda s: s(ROWS[:1], sequences=s.add(prompt=[1], seed=3)),
    ),
    (
        lambda s: s(np.where(ROWS[:2] > 2, np.nan, ROWS[:2])),
        ValueError,
        "`logits` row 0 holds nan at token 2 (a logit must be finite",
        "-inf to ban its token",
        lambda s: s(np.where(ROWS[:2] > 2, -np.inf, ROWS[:2]).astype(np.float32)),
    ),
]
"""Calls of a sampler of two sequences, with their errors."""

REWOUND_TOO_FAR: list[Case] = [
    (
        lambda s: (s.accept([3, [4, 5]]), s.rewind(2)),
        ValueError,
        "got 2 for sequence 0, which has 1 (reset(position) goes back to any position)",
        GO_BACK,
        lambda s: (s.accept([3, [4, 5]]), s.reset(0)),
    ),
    (
        lambda s: (s.accept([[1, 2], 3]), s.reset(7), s.accept([4, 5]), s.rewind(2, sequences=1)),
        ValueError,
        "got 2 for sequence 1, which has 1 (",
        GO_BACK,
        lambda s: (s.accept([[1, 2], 3]), s.reset(7), s.accept([4, 5]), s.reset(6, sequences=1)),
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


ERROR_CASES = [*IGNORING, *(of_sampler(of_two, *case) for case in (*OF_TWO, *REWOUND_TOO_FAR))]
