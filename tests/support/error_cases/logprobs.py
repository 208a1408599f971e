"""Errors in asking for log-probabilities of given tokens, and for those of OpenAI's API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastsample import Sampler, SampleResult, sample
from tests.support.error_cases import ROW, ROWS, ErrorCase, Follow, row_error, rows_error
from tests.support.error_cases.following import Mended

NAME = "logprob_tokens"
TOP = [2] * 4
RESULT = sample(ROW, temperature=0, logprobs=1)
MODES = sample(ROW, temperature=0, logprobs=1, logprobs_mode=("raw", "processed"))
WORDS = ["a", "b", "c"]


def content(result: SampleResult, decode: Any, mode: Any = None) -> list[str]:
    """The tokens of an object of the API."""
    return [one["token"] for one in result.to_openai(decode, mode=mode)["content"]]


def openai_error(
    error: type[Exception],
    part: str,
    call: Callable[[], Any],
    hint: str,
    mended: Callable[[], Any],
) -> ErrorCase:
    return ErrorCase(call, error, part, Mended(hint, mended, ["c"]))


ERROR_CASES = [
    rows_error(
        NAME,
        [[0], [1, 3], [2], []],
        ValueError,
        "hold tokens in [0, 3), got 3 at row 1 (tokens are columns of `logits`; -1 leaves",
        Follow("-1 leaves a place without a token", TOP, [[0], [1, -1], [2], []]),
    ),
    rows_error(
        NAME,
        [0, -2],
        ValueError,
        "hold tokens in [0, 3), got -2 (tokens are columns of `logits`; -1 leaves a place",
        Follow("-1 leaves a place without a token", TOP, [0, -1]),
    ),
    rows_error(
        NAME,
        [[0], [1]],
        ValueError,
        "have one entry for each of the 4 rows, got 2 (one per row of",
        Follow("one per row of `logits`, in their order", TOP, [[0], [1], [0], None]),
    ),
    rows_error(
        NAME,
        2,
        TypeError,
        "be a list of tokens, one such list per row, or an array, got int 2 (a list of one",
        Follow("a list of one, for one token", TOP, [2]),
    ),
    rows_error(
        NAME,
        "yes",
        TypeError,
        "hold tokens, got the text 'yes' (pass the numbers that a tokenizer makes",
        Follow("pass the numbers that a tokenizer makes of it", TOP, [1]),
    ),
    row_error(
        NAME,
        [0.5],
        TypeError,
        "hold lists of integers, got list of shape (1,) and dtype float64 (pass integers: tok",
        Follow("tokens are columns of `logits`", 2, [0]),
    ),
    ErrorCase(
        lambda: Sampler([]).sample(ROWS[:0], logprob_tokens=[3], on_invalid="mark"),
        ValueError,
        "`logprob_tokens` must hold tokens in [0, 3), got 3 (tokens are columns of `logits`; -1",
        Mended(
            "-1 leaves a place without a token",
            lambda: Sampler([]).sample(ROWS[:0], logprob_tokens=[-1]).tokens.tolist(),
            [],
        ),
    ),
    openai_error(
        ValueError,
        "`to_openai` needs log-probabilities of the draws, got a result without them (sample with",
        lambda: sample(ROW, logprob_tokens=[1]).to_openai(str),
        "with logprobs=0",
        lambda: content(sample(ROW, temperature=0, logprobs=0), WORDS.__getitem__),
    ),
    openai_error(
        TypeError,
        "`decode` must be a function of one token, got list (it returns the token's str or bytes, ",
        lambda: RESULT.to_openai(WORDS),
        "`decode.__getitem__`",
        lambda: content(RESULT, WORDS.__getitem__),
    ),
    openai_error(
        TypeError,
        "`decode` must return str or bytes, got int 2 for token 2 (bytes where a token can be a",
        lambda: RESULT.to_openai(int),
        "bytes where a token can be a part of a character",
        lambda: content(RESULT, lambda token: WORDS[token].encode()),
    ),
    openai_error(
        ValueError,
        "`mode` must be left out for a result of one mode, got 0 (with `logprobs_mode` a tuple,",
        lambda: RESULT.to_openai(str, mode=0),
        "with `logprobs_mode` a tuple, it is a place in it",
        lambda: content(MODES, WORDS.__getitem__, 1),
    ),
    *(
        openai_error(
            ValueError,
            f"`mode` must be in [0, 2), got {mode!r} (the result has 2 modes; 0 is the first",
            lambda mode=mode: MODES.to_openai(str, mode=mode),
            "0 is the first of its `logprobs_mode`",
            lambda: content(MODES, WORDS.__getitem__, 0),
        )
        for mode in (None, 2, -1, True, "raw")
    ),
]
