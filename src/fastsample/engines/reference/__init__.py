"""The sampling rule, version 1, in plain NumPy and Python integers: from a row to a token.

The reference is the specification and the oracle: it is written to be read beside the rule, section
by section, and every engine must return the same tokens, masses and log-probabilities as it does,
bit for bit. It is not meant to be fast. It imports NumPy and nothing else of fastsample. Its rooms:
`reference_rows` (sections 1 to 3), `reference_mass` (section 4), `reference_reductions` (section 8:
sums of masses, with the sums of sections 5 and 6), this one (the rest of them) and `reference_laws`
(section 7).

Two habits keep the bits right on any machine. Float32 values meet one NumPy operation at a time, so
nothing can be fused. Whatever could be denormal is decided on integers, so processor modes that
flush denormals to zero change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .mass import LOG2_E, TOP_MASS_BITS, exponents, float_masses, ln, masses, power, scale
from .reductions import REDUCTIONS, Reduction
from .rows import (
    EMPTY,
    INVALID,
    OK,
    Scope,
    adjust,
    is_minus_inf,
    order,
    read,
    require_rounding_to_nearest,
    status,
    to_float32,
    widen,
)

__all__ = [
    "EMPTY",
    "INVALID",
    "LOG2_E",
    "OK",
    "REDUCTIONS",
    "RULE_VERSION",
    "STAGES",
    "TOP_MASS_BITS",
    "Reduction",
    "Scope",
    "Trace",
    "adjust",
    "by_token",
    "draw",
    "exponents",
    "float_masses",
    "is_minus_inf",
    "kept_set",
    "ln",
    "masses",
    "min_p_threshold",
    "order",
    "philox4x32",
    "power",
    "read",
    "sample_row",
    "scale",
    "status",
    "to_float32",
    "trace",
    "uniform",
    "widen",
]

RULE_VERSION = 1

# ---------------------------------------------------------------- section 5: filters
# Each takes the length of the prefix of section 3's order that is kept so far, and returns the new.

STAGES = ("temperature", "top_k", "top_p", "min_p")


def _keep_top_k(kept: int, top_k: float) -> int:
    return kept if top_k <= 0 else min(kept, int(top_k))


def min_p_threshold(min_p: float) -> float | None:
    """Least y that min_p keeps, or None when it keeps every token.

    Examples
    --------
    >>> min_p_threshold(0.5) == -1 - 2**-19
    True
    >>> min_p_threshold(0.0) is None
    True
    """
    p = to_float32(min_p)
    if p <= 2.0**-60:
        return None
    return float(np.float32(float(ln(p)) * LOG2_E - 2.0**-19))


def _keep_min_p(kept: int, y: NDArray[np.float32], min_p: float) -> int:
    threshold = min_p_threshold(min_p)
    if threshold is None:
        return kept
    # y never rises along the order, so the tokens that pass are a prefix.
    return int(np.count_nonzero(y[:kept] >= np.float32(threshold)))


@dataclass(frozen=True)
class Trace:
    """What the stages did to one row.

    Attributes
    ----------
    order : int64 array of shape (V,)
        All tokens in section 3's order. Every stage keeps a prefix of it.
    y : float32 array of shape (V,)
        Scaled logits in this order; at temperature 0, 0 for the first token and -64 for the rest.
    mass : uint64 array of shape (V,), float32 in the reductions "fixed" and "fast"
        Masses in this order; at temperature 0, 2**40 for the first token and 0 for the rest. In
        these two the top token's is 1.
    stages : tuple of (str, int)
        For each stage in turn its name and the length of the prefix that is kept after it. "mask"
        drops the logits of -inf. At temperature 0 "temperature" keeps one token and is the last.
    kept : int
        Length of the prefix that is kept in the end.
    total : int, or float where masses are
        W, the kept set's total mass.
    """

    order: NDArray[np.int64]
    y: NDArray[np.float32]
    mass: NDArray[Any]
    stages: tuple[tuple[str, int], ...]
    kept: int
    total: Any


def _greedy_trace(ranked: NDArray[np.int64], finite: int, how: Reduction) -> Trace:
    # At temperature 0 all but the first token are infinitely far from it.
    gaps = np.full(ranked.shape, -np.inf, dtype=np.float32)
    gaps[0] = 0.0
    y, mass = how.masses(gaps, gaps[0], 1.0)
    stages = (("mask", finite), ("temperature", 1))
    return Trace(ranked, y, mass, stages, 1, how.total(ranked[:1], mass[:1]))


def trace(
    row: NDArray[np.float32],
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    min_keep: int = 1,
    stages: Sequence[str] = STAGES,
    reduction: str = "exact",
) -> Trace:
    """Run the stages on one row and tell what each of them kept.

    Parameters
    ----------
    row : float32 array of shape (V,)
        An adjusted row: see `adjust`.
    temperature : float
        0 keeps the first token alone and skips the filters.
    top_k : int
        Keep the first `top_k` tokens, exactly that many; 0 is off.
    top_p : float
        Keep the shortest prefix whose mass reaches this share of the total; 1 is off.
    min_p : float
        Keep the tokens with at least this share of the top token's mass; 0 is off.
    min_keep : int
        Every filter keeps the first `min_keep` tokens, or all where it gets fewer. At least 1.
    stages : sequence of str
        The stages in turn, each at most once. In those before "temperature" the temperature is 1.
        A filter that is left out is off; with no "temperature" here, `temperature` is to be 1.
    reduction : {"exact", "fixed", "fast"}
        How masses add up: section 8.

    Returns
    -------
    Trace

    Raises
    ------
    ValueError
        When nothing can be drawn from the row.
    RuntimeError
        When the processor does not round to nearest.

    Examples
    --------
    >>> row = np.log(np.array([0.5, 0.2, 0.1, 0.08, 0.04, 0.01, 0.07], dtype=np.float32))
    >>> trace(row, top_p=0.8).stages
    (('mask', 7), ('temperature', 7), ('top_k', 7), ('top_p', 3), ('min_p', 3))
    >>> trace(row, top_p=0.8, temperature=2.0, stages=("top_p", "temperature")).stages
    (('mask', 7), ('top_p', 3), ('temperature', 3))
    """
    require_rounding_to_nearest()
    if status(row) != OK:
        raise ValueError("`row` must hold a logit above -inf, and neither NaN nor +inf")
    logits, how = read(row), REDUCTIONS[reduction]
    ranked = order(logits)
    kept = int(np.count_nonzero(~is_minus_inf(logits)))
    if to_float32(temperature) == 0.0:
        return _greedy_trace(ranked, kept, how)
    ordered = logits[ranked]
    y, mass = how.masses(ordered, ordered[0], 1.0)
    passed = [("mask", kept)]
    for stage in stages:
        least = min(min_keep, kept)
        if stage == "temperature":
            y, mass = how.masses(ordered, ordered[0], temperature)
        elif stage == "top_k":
            kept = _keep_top_k(kept, top_k)
        elif stage == "top_p" and to_float32(top_p) != 1.0:
            kept = how.nucleus(ranked[:kept], mass[:kept], top_p)
        elif stage == "min_p":
            kept = _keep_min_p(kept, y, min_p)
        kept = max(kept, least)
        passed.append((stage, kept))
    return Trace(ranked, y, mass, tuple(passed), kept, how.total(ranked[:kept], mass[:kept]))


def kept_set(row: NDArray[np.float32], **filters: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Tokens that the filters leave, and their masses.

    Parameters are those of `trace`.

    Returns
    -------
    tokens : int64 array
        Ascending. A token can be kept and have mass 0: it is never drawn.
    masses : uint64 array of the same shape, or float32: see `Trace`

    Raises
    ------
    ValueError
        When nothing can be drawn from the row.

    Examples
    --------
    >>> row = np.array([1.0, 3.0, 2.0], dtype=np.float32)
    >>> [a.tolist() for a in kept_set(row, top_k=2)]
    [[1, 2], [1099511627776, 404487766016]]
    """
    return by_token(trace(row, **filters))


def by_token(seen: Trace) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Tokens and masses of a `Trace`'s kept set, in ascending token.

    Examples
    --------
    >>> by_token(trace(np.array([1, 3, 1], dtype=np.float32), top_k=2))[0].tolist()
    [0, 1]
    """
    tokens = seen.order[: seen.kept]
    ascending = np.argsort(tokens)
    return tokens[ascending], seen.mass[: seen.kept][ascending]


# ---------------------------------------------------------------- section 6: draw

_WORD = 0xFFFFFFFF


def philox4x32(
    key: tuple[int, int], counter: tuple[int, int, int, int]
) -> tuple[int, int, int, int]:
    """Philox4x32-10: four pseudo-random 32-bit words for a key and a counter of 32-bit words.

    Examples
    --------
    >>> [f"{word:08x}" for word in philox4x32((0, 0), (0, 0, 0, 0))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & _WORD, (a >> 32) ^ c3 ^ k1, a & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, position: int, stream: int, purpose: int = 0) -> int:
    """U of the rule: 64 random bits as an integer, for one draw.

    `seed` and `position` are in [0, 2**64), `stream` and `purpose` in [0, 2**32). Purpose 0 is the
    draw of the token.

    Examples
    --------
    >>> uniform(0, 0, 0) == 0xE169C58D6627E8D5
    True
    """
    key = (seed & _WORD, seed >> 32)
    words = philox4x32(key, (position & _WORD, position >> 32, stream, purpose))
    return words[0] + (words[1] << 32)


def draw(tokens: NDArray[np.int64], mass: NDArray[Any], u: int, reduction: str = "exact") -> int:
    """Token at which the running mass, by ascending token, first exceeds floor(u * W / 2**64).

    So in exact; in the other modes as section 8 says. `tokens` is the kept set, ascending, and
    `mass` its masses; `u` is a `uniform`.

    Examples
    --------
    >>> tokens, mass = np.array([3, 5]), np.array([2**40, 2**40], dtype=np.uint64)
    >>> draw(tokens, mass, 2**63 - 1), draw(tokens, mass, 2**63)
    (3, 5)
    """
    return REDUCTIONS[reduction].draw(tokens, mass, u)


def sample_row(
    row: NDArray[np.float32],
    *,
    seed: int,
    position: int,
    stream: int,
    reduction: str = "exact",
    **filters: Any,
) -> tuple[int, int]:
    """Draw one token from one adjusted row.

    Parameters are those of `uniform` and `trace`. Returns the token, or -1 when nothing can be
    drawn, and the row's `status`.

    Examples
    --------
    >>> row = np.array([1.0, 3.0, 2.0], dtype=np.float32)
    >>> filters = dict(temperature=0.8, top_k=2, top_p=0.95, min_p=0.05)
    >>> sample_row(row, **filters, seed=1, position=0, stream=0)
    (2, 0)
    """
    found = status(row)
    if found != OK:
        return -1, found
    kept = by_token(trace(row, **filters, reduction=reduction))
    return draw(*kept, uniform(seed, position, stream), reduction), OK
