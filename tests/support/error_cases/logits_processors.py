"""Errors in masks, biases and histories."""

from __future__ import annotations

import numpy as np

from fastsample import sample
from tests.support.error_cases import ROW, ROWS, Follow, call_error, row_error, rows_error
from tests.support.error_cases.following import Arguments

TOKENS = "(tokens are columns of `logits`"
BY_ROW = "one per row of `logits`, in their order"
INTEGERS = "pass integers"
LEAVE = "leave others out"
ONE = np.array([False, True, False])
SKIP = 'ignore_tokens="outside" lets penalties skip others'
ERROR_CASES = [
    rows_error(
        "bias",
        ([1, 2], np.ma.ones(2)),
        TypeError,
        "have numbers as values, got a masked array (pass the values that it does not mask, `",
        to=("pass the values that it does not mask", ([1, 2], [1.0, 1.0])),
    ),
    rows_error(
        "prompt",
        np.ma.ones((4, 2), int),
        TypeError,
        "hold lists of integers, got a masked array at row 0 (pass `prompt[0].compressed()`, the",
        to=("the tokens that it does not mask", [[1, 1]] * 4),
    ),
    rows_error(
        "bias",
        3,
        TypeError,
        "be a dict {token: value}, a list of pairs (token, value), of B dicts, or a ",
    ),
    rows_error(
        "bias",
        [{}, {}, 5, {}],
        TypeError,
        "be a dict {token: value}, a list of pairs (token, value), of B dicts, or a tuple (tokens, "
        "values), got int at row 2",
        to=("leave it out where there is none", [{}, {}, None, {}]),
    ),
    rows_error(
        "bias",
        np.zeros((4, 3), np.float32),
        TypeError,
        "be a dict {token: value}, a list of pairs (token, value), of B dicts, or a tuple (tokens, "
        "values), got ndarray "
        "(leave it out where there is none; add one that is as wide as the rows to `logits`)",
        to=("add one that is as wide as the rows to `logits`", Arguments(bias=None, logits=ROWS)),
    ),
    rows_error(
        "bias",
        [{}],
        ValueError,
        "have one entry for each of the 4 rows, got 1 (one per row of",
        to=(BY_ROW, [{1: 9.0}, {}, {}, {}]),
    ),
    rows_error(
        "bias", {3: 1.0}, ValueError, f"hold tokens in [0, 3), got 3 {TOKENS}", to=(LEAVE, {})
    ),
    rows_error(
        "bias",
        [{}, {-1: 1}, {}, {}],
        ValueError,
        f"hold tokens in [0, 3), got -1 at row 1 {TOKENS}",
        to=(LEAVE, [{}] * 4),
    ),
    rows_error(
        "bias",
        {0.5: 1.0},
        TypeError,
        "hold lists of integers, got list of shape (1,) and dtype f",
        to=(INTEGERS, {0: 1.0}),
    ),
    *(
        rows_error(
            "bias",
            bias,
            ValueError,
            f"have one reading, got {bias} (pass",
            Follow(hint, [token] * 4),
        )
        for bias in (((0, 1), (1, 9)), [[0, 1], [1, 9]], [(0, 1), [1, 9]])
        for hint, token in (
            ("list(map(tuple, bias))", 1),
            ("tuple(map(np.asarray, bias))", 1),
        )
    ),
    rows_error(
        "bias",
        ((0, 1.0), (1, 9.0), (2, 0.5)),
        ValueError,
        "have one reading, got ((0, 1.0), (1, 9.0), (2, 0.5)) (pass `list(map(tuple, bias))` for",
        Follow("list(map(tuple, bias))", [1] * 4),
    ),
    rows_error(
        "bias",
        {"hello": 1.0},
        TypeError,
        "hold tokens, got the text 'hello' (pass the numbers that a tokenizer makes of it)",
        Follow("the numbers that a tokenizer makes of it", [0] * 4, value={0: 9.0}),
    ),
    rows_error(
        "bias",
        {"0": 1.0, 0: 2.0},
        ValueError,
        "hold each token once, got token 0 2 times (add its values up)",
        Follow("add its values up", [0] * 4, value={0: 3.0}),
    ),
    rows_error(
        "bias",
        {np.uint64(1): 1.0, -1: 1.0},
        ValueError,
        f"hold tokens in [0, 3), got -1 {TOKENS}",
        to=(LEAVE, {1: 1.0}),
    ),
    rows_error(
        "bias",
        {True: 1.0, 2: 1.0},
        TypeError,
        "hold lists of integers, got a bool among them (",
        to=(INTEGERS, {1: 1.0, 2: 1.0}),
    ),
    *(
        rows_error(
            name,
            text,
            TypeError,
            f"hold tokens, got the text {word!r}{place} (pass the numbers that a tokenizer makes",
            Follow(
                "the numbers that a tokenizer makes of it",
                [1] * 4,
                value=[[2]] * 4,
                arguments={"frequency_penalty": 1.5, "frequency_scope": "all"},
            ),
        )
        for name in ("prompt", "output")
        for text, word, place in (
            ("hi", "hi", ""),
            (b"hi", b"hi", ""),
            (["hi"] * 4, "hi", " at row 0"),
            ([[1], [2, "a"], [1], [1]], "a", " at row 1"),
        )
    ),
    rows_error(
        "bias", {0: "a"}, TypeError, "have numbers as values, got <U1 (pass numbers, which are"
    ),
    rows_error(
        "bias", [{0: None}] * 4, TypeError, "have numbers as values, got object at row 0 (pass"
    ),
    rows_error(
        "bias", {0: [1, 2], 1: 3}, TypeError, "have numbers as values, got list: setting an array"
    ),
    rows_error(
        "bias",
        ([1, 2], np.ma.array([9.0, 1.0], mask=[False, True])),
        TypeError,
        "have numbers as values, got a masked array (pass the values that it does not mask,",
        to=("and their tokens", ([1], [9.0])),
    ),
    rows_error(
        "bias", {1: np.nan}, ValueError, "be finite or -inf in float32, got nan for token 1 (-inf"
    ),
    rows_error(
        "bias",
        {1: 1e39},
        ValueError,
        "be finite or -inf in float32, got 1e+39 for token 1 (",
        to=("a mask that bans the others forces it", Arguments(bias=None, mask=ONE)),
    ),
    rows_error(
        "bias",
        [{}, {}, {}, {2: np.inf}],
        ValueError,
        "be finite or -inf in float32, got inf for token 2 at row 3 (",
        to=("-inf bans a token", [{}, {}, {}, {2: -np.inf}]),
    ),
    rows_error(
        "bias",
        ({}, None),
        ValueError,
        "have one entry for each of the 4 rows, got 2 (one per row of",
        to=(BY_ROW, ({1: 9.0}, None, None, None)),
    ),
    rows_error(
        "bias",
        ([0, 1, 2],),
        ValueError,
        "be two arrays (tokens, values) where it is a tuple, got 1",
        to=("a list has pairs (token, value)", [(1, 9.0)]),
    ),
    rows_error(
        "bias", ([0, 1], [1.0]), ValueError, "have a value for each token, got (1,) values for (2,"
    ),
    rows_error(
        "bias",
        ([0, 2, 0], [1.0] * 3),
        ValueError,
        "hold each token once, got token 0 2 times (add",
        to=("add its values up", ([0, 2], [2.0, 1.0])),
    ),
    rows_error(
        "bias",
        ([3], [1.0]),
        ValueError,
        f"hold tokens in [0, 3), got 3 {TOKENS}",
        to=(LEAVE, ([], [])),
    ),
    rows_error(
        "prompt",
        {1, 2},
        TypeError,
        "be a list of tokens, one such list per row, or an array, got",
        to=("pass lists of integers", [[1, 2]] * 4),
    ),
    rows_error(
        "prompt",
        np.ones((4, 1, 1), int),
        TypeError,
        "be a list of tokens, one such list per row,",
        to=("pass lists of integers", [[1]] * 4),
    ),
    rows_error(
        "prompt",
        [[0]] * 3,
        ValueError,
        "have one entry for each of the 4 rows, got 3 (one per row",
        to=(BY_ROW, [[0], [1], [2], []]),
    ),
    rows_error(
        "prompt",
        [0, 1, 2],
        ValueError,
        "have one entry for each of the 4 rows, got 3 (one per",
        to=(BY_ROW, [[0], [1], [2], []]),
    ),
    rows_error(
        "prompt",
        [0] * 4,
        TypeError,
        "hold lists of integers, got int of shape () and dtype int64",
        to=("pass a list, [0] for one token 0", [[0]] * 4),
    ),
    rows_error(
        "output",
        [[0], [0, 3], [], [9]],
        ValueError,
        f"hold tokens in [0, 3), got 3 at row 1 {TOKENS}",
        to=(SKIP, Arguments(ignore_tokens="outside")),
        means=[[0], [0], [], []],
    ),
    rows_error(
        "output",
        [[0.5]] * 4,
        TypeError,
        "hold lists of integers, got list of shape (1,) and dtype",
        to=(INTEGERS, [[1]] * 4),
    ),
    rows_error(
        "output",
        [[[0], []]] * 4,
        TypeError,
        "hold lists of integers, got list at row 0: setting an array",
        to=(INTEGERS, [[0]] * 4),
    ),
    row_error(
        "output",
        [0, -1],
        ValueError,
        f"hold tokens in [0, 3), got -1 {TOKENS}",
        to=(SKIP, Arguments(ignore_tokens="outside")),
        means=[0],
    ),
    row_error(
        "output",
        [[0], [1]],
        ValueError,
        "have one entry for each of the 1 rows, got 2 (one per",
        to=(BY_ROW, [[0]]),
    ),
    row_error(
        "prompt",
        [2**63],
        ValueError,
        f"hold tokens in [0, 3), got 9223372036854775808 {TOKENS}",
        to=(LEAVE, []),
    ),
    call_error(
        sample,
        ValueError,
        f"`bias` must hold tokens in [0, 2), got 2 {TOKENS}",
        ROW,
        seed=1,
        position=0,
        valid_vocab=2,
        bias={2: 1.0, 0: 9.0},
        to=(LEAVE, {0: 9.0}),
    ),
]
