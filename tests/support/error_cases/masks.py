"""Errors in masks, each with the mask that its hint makes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsample import sample
from tests.support.error_cases import ROWS, ErrorCase, Follow, Foreign, call_error, rows_error
from tests.support.error_cases.following import Arguments

KIND = "be bool, or int32 with a bit per token, got"
SHAPE = "have shape (3,) or (4, 3), got"
WORDS = "have shape (1,) or (4, 1), got"
MIDDLE = [1] * 4
"""The tokens of the four rows where token 1 is the last one allowed."""
NO_LAST = np.array([True, True, False])


def mask_error(
    mask: Any, part: str, hint: str, tokens: Any = MIDDLE, error: type[Exception] = TypeError
) -> ErrorCase:
    """A mask that means to ban token 2, and code in the message that makes such a mask."""
    return rows_error("mask", mask, error, part, Follow(hint, tokens))


def banned_with(value: float, dtype: Any) -> np.ndarray:
    """A mask that is added to logits."""
    return np.array([[0, 0, value]] * 4).astype(dtype)


BY_TOKEN = Follow(
    "pass a bool for each token, True where it is allowed", MIDDLE, value=np.array([[1, 1, 0]]) > 0
)
DTYPES = [
    *(
        mask_error(banned_with(value, dtype), f"{KIND} {np.dtype(dtype)} (", "mask == 0")
        for value, dtype in (
            (-np.inf, np.float32),
            (-1e9, np.float64),
            (-65504, np.float16),
            (-(10**9), np.int64),
            (np.finfo(np.float32).min, np.float32),
        )
    ),
    mask_error(np.zeros(3), f"{KIND} float64 (", "mask == 0", [2] * 4),
    *(
        mask_error(NO_LAST.astype(dtype), f"{KIND} {np.dtype(dtype)} (", "mask.astype(bool)")
        for dtype in (np.float32, np.float64, np.int64, np.uint8, np.int8, ">i8")
    ),
    mask_error(np.ones(3, ">i4"), f"{KIND} >i4 (pass ", "mask.astype(bool)", [2] * 4),
    rows_error(
        "mask",
        np.array([0, 0, -0.5]),
        TypeError,
        f"{KIND} float64 (add it to the logits instead, or pass a bool for each token",
        Follow("a bool for each token", MIDDLE, value=NO_LAST),
    ),
    *(
        mask_error(np.array([0b011]).astype(dtype), f"{KIND} {dtype} (", hint)
        for dtype, hint in (
            (">i4", "mask.astype(np.int32)"),
            ("int64", "mask.astype(np.int32)"),
            ("uint64", "mask.astype(np.int32)"),
        )
    ),
    mask_error(
        np.array([[2**32 - 5]] * 4), f"{KIND} int64 (pass `mask.as", "mask.astype(np.int32)"
    ),
    mask_error(
        np.array([[0b011, 0, 0, 0]] * 4, np.uint8),
        f"{KIND} uint8 (",
        "mask.view(np.int32)",
    ),
    mask_error(
        np.array([[0b011, 9, 0, 9, 0, 9, 0, 9]] * 4, np.uint8)[:, ::2],
        f"{KIND} uint8 (",
        "mask.copy().view(np.int32)",
    ),
    mask_error(
        np.array([0b011], np.uint8),
        f"{KIND} uint8 (",
        'np.unpackbits(np.asarray(mask), axis=-1, count=3, bitorder="little").astype(bool)',
    ),
    mask_error(
        np.packbits(NO_LAST),
        f"{KIND} uint8 (",
        "np.unpackbits(np.asarray(mask), axis=-1, count=3).astype(bool)",
    ),
    mask_error(
        np.array([1]),
        f"{KIND} int64 (it holds words: pass `mask.astype(np.int32)`; tokens: pass ",
        "np.isin(np.arange(3), mask)",
    ),
    mask_error(
        np.array([1]),
        f"{KIND} int64 (it holds words: pass `mask.astype(np.int32)`; tokens: pass ",
        "mask.astype(np.int32)",
        [0] * 4,
    ),
    mask_error(np.array([1, 0]), f"{KIND} int64 (pass `np.", "np.isin(np.arange(3), mask)"),
    *(
        rows_error("mask", mask, TypeError, f"{KIND} {mask.dtype} (", BY_TOKEN)
        for mask in (np.array(["a"] * 3), np.ones(2), np.array([7, 7, 7, 7]), np.array(1.0))
    ),
]
LISTS = [
    mask_error([True, True, False], "be an array, got list (pass", "np.asarray(mask)"),
    mask_error([[1, 1, 0]] * 4, "be an array, got list (pass", "np.asarray(mask).astype(bool)"),
    mask_error([0.0, 0.0, -1e30], "be an array, got list (pass", "np.asarray(mask) == 0"),
    mask_error([2**32 - 5], "be an array, got list (pass", "np.asarray(mask).astype(np.int32)"),
    mask_error([0, 1], "be an array, got list (pass", "np.isin(np.arange(3), np.asarray(mask))"),
    mask_error({0, 1}, "be an array, got set (pass", "np.isin(np.arange(3), list(mask))"),
    rows_error("mask", "abc", TypeError, "be an array, got str (pass a bool for each", BY_TOKEN),
    rows_error("mask", {}, TypeError, "be an array, got dict (pass a bool for each", BY_TOKEN),
    rows_error("mask", {"a"}, TypeError, "be an array, got set (pass a bool for each", BY_TOKEN),
    rows_error(
        "mask",
        [[True], [True, False]],
        TypeError,
        "be an array, got list (pass a bool for each token",
        Follow("pass a bool for each token", MIDDLE, value=NO_LAST),
    ),
]
MASKED = [
    mask_error(
        np.ma.array(np.ones(3, bool), mask=~NO_LAST),
        "be a plain array, got a masked one (pass",
        "mask.filled(0)",
    ),
    rows_error(
        "mask",
        np.ma.array(np.zeros(3), mask=~NO_LAST),
        TypeError,
        "be a plain array, got a masked one (pass `mask.filled(-np.inf)`)",
        Follow("mask.filled(-np.inf)", MIDDLE, value=np.isfinite([0, 0, -np.inf])),
    ),
]
SHAPES = [
    rows_error(
        "mask",
        NO_LAST[:2],
        ValueError,
        f"{SHAPE} (2,) (",
        Follow(
            'short_mask="ban" bans the tokens past its end',
            MIDDLE,
            value=NO_LAST[:2],
            arguments={"short_mask": "ban"},
        ),
    ),
    mask_error(np.ones((4, 4), bool), f"{SHAPE} (4, 4) (", "mask[..., :3]", [2] * 4, ValueError),
    mask_error(
        np.broadcast_to(NO_LAST, (4, 1, 3)),
        f"{SHAPE} (4, 1, 3) (",
        "mask.reshape(4, 3)",
        error=ValueError,
    ),
    *(
        rows_error(
            "mask",
            np.ones(shape, bool),
            ValueError,
            f"{SHAPE} {shape} (",
            Follow("one for all rows, or one for each row of `logits`", MIDDLE, value=NO_LAST),
        )
        for shape in ((2, 3), (1, 4, 3, 1), ())
    ),
    rows_error(
        "mask",
        np.ones((4, 0), bool),
        ValueError,
        f"{SHAPE} (4, 0) (leave",
        Follow("leave it out where all tokens are allowed", [2] * 4, value=None),
    ),
    mask_error(
        np.full((4, 2), 0b011, np.int32), f"{WORDS} (4, 2) (", "mask[..., :1]", error=ValueError
    ),
    mask_error(
        np.array([0b011, 7], np.uint32), f"{WORDS} (2,) (", "mask[..., :1]", error=ValueError
    ),
    mask_error(NO_LAST.astype(np.int32), f"{WORDS} (3,) (", "mask.astype(bool)", error=ValueError),
    mask_error(
        np.array([[0, 0, -(10**9)]] * 4, np.int32),
        f"{WORDS} (4, 3) (",
        "mask == 0",
        error=ValueError,
    ),
    mask_error(
        np.array([0b011, 5, 6], np.int32), f"{WORDS} (3,) (", "mask[..., :1]", error=ValueError
    ),
]
BY_ROW = [
    rows_error(
        "mask",
        [NO_LAST, None],
        ValueError,
        "have one entry for each of the 4 rows, got 2 (",
        Follow("None allows all tokens", [1, 2, 2, 2], value=[NO_LAST, None, None, None]),
    ),
    rows_error(
        "mask",
        [None, NO_LAST.astype(int), None, None],
        TypeError,
        f"{KIND} int64 at row 1 (pass `mask.astype(bool)`)",
        Follow("mask.astype(bool)", [2, 1, 2, 2], value=[None, NO_LAST, None, None]),
    ),
    rows_error(
        "mask",
        [None, None, [True, True, False], None],
        TypeError,
        "be an array, got list at row 2 (pass `np.asarray(mask)`)",
        Follow("np.asarray(mask)", [2, 2, 1, 2], value=[None, None, NO_LAST, None]),
    ),
    rows_error(
        "mask",
        [None, None, None, np.ones(4, bool)],
        ValueError,
        "have shape (3,), got (4,) at row 3 (",
        Follow("mask[..., :3]", [2] * 4, value=[None, None, None, np.ones(3, bool)]),
    ),
]
ERROR_CASES = [
    *DTYPES,
    *LISTS,
    *MASKED,
    *SHAPES,
    *BY_ROW,
    rows_error(
        "mask",
        Foreign(),
        TypeError,
        "be an array that NumPy reads through DLPack, or bfloat16,",
        to=("pass an array of NumPy", NO_LAST),
    ),
    rows_error(
        "short_mask",
        True,
        ValueError,
        'be "raise" or "ban", got True ("ban" bans the tokens past the end',
        Follow('"ban"', [2] * 4, value="ban"),
    ),
    call_error(
        sample,
        ValueError,
        f"`mask` must {SHAPE} (2,) (short_mask=",
        ROWS,
        mask=np.ones(2, bool),
        valid_vocab=3,
        temperature=0,
        to=('short_mask="ban" bans the tokens past its end', Arguments(short_mask="ban")),
    ),
]
