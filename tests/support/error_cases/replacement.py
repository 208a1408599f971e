"""Errors in draws without replacement."""

from __future__ import annotations

from typing import Any

from fastsample import sample
from fastsample.engines import is_installed
from tests.support.error_cases import ROW, ErrorCase, Mended


def sorted_tokens(**arguments: Any) -> list[int]:
    """Distinct tokens of a row, ascending; -1 stands in front."""
    place = {"seed": 1, "position": 0}
    return sorted(sample(ROW, **{**place, "replacement": False, **arguments}).tokens.tolist())


def case(error: type[Exception], part: str, hint: str, right: Any, **arguments: Any) -> ErrorCase:
    """A bad call; `right` replaces some of its arguments as the hint says, and gets all tokens."""
    mended = {**arguments, **right}
    expected = list(range(mended["n"]))
    return ErrorCase(
        lambda: sorted_tokens(**arguments),
        error,
        part,
        Mended(hint, lambda: sorted_tokens(**mended), expected),
    )


ERROR_CASES = [
    case(
        TypeError,
        "`replacement` must be True or False, got NoneType None (True draws tokens that may repeat",
        "False n distinct ones",
        {"replacement": False},
        n=3,
        replacement=None,
    ),
    case(
        ValueError,
        "`replacement` must be True without `n`, got False (",
        "n is how many distinct tokens to draw",
        {"n": 3},
    ),
    case(
        ValueError,
        "`n` must be at most the number of tokens, 3, with replacement=False, got 4 (",
        "each token is drawn once at most",
        {"n": 3},
        n=4,
    ),
    case(
        ValueError,
        '`draw` must be "race" or None with replacement=False, got "inverse" (',
        "leave `draw` out",
        {"draw": None},
        n=3,
        draw="inverse",
    ),
    case(
        ValueError,
        "`replacement` must be True in the reduction 'fixed', got False (",
        'reduction="exact" draws distinct tokens',
        {"reduction": "exact"},
        n=3,
        reduction="fixed",
    ),
    case(
        ValueError,
        "`logits` must have n = 3 tokens to draw without replacement, got 1 (",
        "wider filters, or at temperature 0 a larger one",
        {"temperature": 1.0},
        n=3,
        temperature=0,
    ),
    case(
        ValueError,
        "`margin` must be False with replacement=False, got True (",
        "n=1 has the first",
        {"n": 1, "replacement": True, "top_k": 1, "bias": {0: 9.0}},
        n=3,
        margin=True,
    ),
    ErrorCase(
        lambda: sorted_tokens(n=3, top_k=2),
        ValueError,
        "`logits` must have n = 3 tokens to draw without replacement, got 2 (",
        Mended("a smaller n", lambda: sorted_tokens(n=2, top_k=2), [1, 2]),
    ),
    ErrorCase(
        lambda: sorted_tokens(n=3, min_p=0.9),
        ValueError,
        "`logits` must have n = 3 tokens to draw without replacement, got 1 (",
        Mended(
            'on_invalid="mark" puts -1 in the place of the others',
            lambda: sorted_tokens(n=3, min_p=0.9, on_invalid="mark"),
            [-1, -1, 2],
        ),
    ),
]
if is_installed("torch"):
    ERROR_CASES.append(
        case(
            ValueError,
            "engine 'torch' draws with replacement alone (",
            'use engine="native"',
            {"engine": "native" if is_installed("native") else "reference"},
            n=3,
            engine="torch",
        )
    )
