"""Sections 1 and 3 as integers: ordinals of logits, sort keys of tokens, and the search by block.

An ordinal is an int32 that ascends with the logit. A sort key is an int64 that ascends along
section 3's order: the inverse of the token's ordinal, then the token. A cut is a sort key: it keeps
the tokens whose sort keys do not exceed it. All loops but the first skip the blocks whose maximum
is below the cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import compiled

Bits = NDArray[np.int32]
Cut = tuple[int, int]
"""The two parts of a cut: an ordinal and a token."""

BLOCK = 128

MINUS_INF = -0x7F800001
LOWEST = MINUS_INF + 1
INF = 0x7F800000
_DENORMALS = 0x800000
_HIGHEST, _DEEPEST, _SIZE = np.int32(2**31 - 1), np.int32(-(2**31)), np.int32(0x7FFFFFFF)
_LAST = 2**32 - 1

ALL = (~LOWEST << 32) | _LAST
"""The cut that keeps every token above -inf."""


def sort_key(ordinal: int, token: int = _LAST) -> int:
    """Sort key of a token; without one, the last sort key of this ordinal.

    Examples
    --------
    >>> sort_key(7, 3) < sort_key(7, 4) < sort_key(7) < sort_key(6, 0)
    True
    """
    return (~ordinal << 32) | token


def key_parts(key: int) -> Cut:
    """Ordinal and token of a sort key.

    Examples
    --------
    >>> key_parts(sort_key(-5, 9))
    (-5, 9)
    """
    return ~(key >> 32), key & _LAST


def tokens_of(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens of an array of sort keys."""
    return keys & _LAST


def logits_of(keys: NDArray[np.int64]) -> NDArray[np.float32]:
    """Logits of an array of sort keys, as section 1 reads them.

    Examples
    --------
    >>> bits = np.array([1.5, -2.0, -0.0, -np.inf], np.float32).view(np.int32)
    >>> logits_of(np.array([sort_key(int(ordinal_of(one))) for one in bits]))
    array([ 1.5, -2. ,  0. , -inf], dtype=float32)
    """
    ordinals = (~(keys >> 32)).astype(np.int32)
    logits: NDArray[np.float32] = (ordinals ^ ((ordinals >> np.int32(31)) & _SIZE)).view(np.float32)
    return logits


@compiled
def unread_ordinal(bits: Any) -> Any:
    return np.int32(bits ^ ((bits >> np.int32(31)) & _SIZE))


@compiled
def read_ordinal(ordinal: Any) -> Any:
    """Ordinal of a logit as section 1 reads it: denormals and -0 have that of 0."""
    return np.int32(0) if -_DENORMALS <= ordinal < _DENORMALS else np.int32(ordinal)


@compiled
def ordinal_of(bits: Any) -> Any:
    """Ordinal of a logit, from its bits as int32."""
    return read_ordinal(unread_ordinal(bits))


@compiled
def unread_bound(bound: Any) -> Any:
    """Bound for ordinals that are not read, where those that are read must reach `bound`."""
    if -_DENORMALS < bound <= 0:
        return np.int32(-_DENORMALS)
    return np.int32(_DENORMALS) if 0 < bound < _DENORMALS else np.int32(bound)


@compiled
def logit_of(ordinal: Any) -> Any:
    """Logit that has an ordinal."""
    return np.int32(ordinal ^ ((ordinal >> np.int32(31)) & _SIZE)).view(np.float32)


@compiled
def _extremes(block: Bits) -> Any:
    high, low = _DEEPEST, _HIGHEST
    for i in range(len(block)):
        ordinal = unread_ordinal(block[i])
        high = max(high, ordinal)
        low = min(low, ordinal)
    return high, low


@compiled
def scan(bits: Bits, block_max: NDArray[np.int32]) -> Any:
    """Write the highest ordinal of each block; return the row's highest and its lowest.

    NaN is above +inf or below -inf. The lowest is not read: only what is not finite matters there.
    """
    top, bottom = _DEEPEST, _HIGHEST
    for b in range(len(block_max)):
        high, low = _extremes(bits[b * BLOCK : (b + 1) * BLOCK])
        block_max[b] = read_ordinal(high)
        top, bottom = max(top, high), min(bottom, low)
    return read_ordinal(top), bottom


@compiled
def _list_part(bits: Bits, first: int, end: int, bound: int, keys: Any, count: int) -> Any:
    """Write sort keys from the place `count` on; return the place after the last."""
    part, least = bits[first:end], unread_bound(bound)
    for i in range(len(part)):
        if unread_ordinal(part[i]) >= least:
            keys[count] = (~np.int64(ordinal_of(part[i])) << 32) | (first + i)
            count += 1
    return count


@compiled
def list_kept(bits: Bits, block_max: NDArray[np.int32], cut: Cut, keys: NDArray[np.int64]) -> Any:
    """Write the sort keys of the tokens that a cut keeps, by token; return their number.

    -1 where `keys` might be too short: for all tokens of the blocks that are searched.
    """
    ordinal, token = cut
    count = np.int64(0)
    for b in range(len(block_max)):
        if block_max[b] < ordinal:
            continue
        first, end = b * BLOCK, min((b + 1) * BLOCK, len(bits))
        if count + end - first > len(keys):
            return np.int64(-1)
        split = min(max(token + 1, first), end)
        count = _list_part(bits, first, split, ordinal, keys, count)
        count = _list_part(bits, split, end, ordinal + 1, keys, count)
    return count


@compiled
def count_from(block: Bits, bound: int) -> Any:
    """Count the tokens of a block, or of a part of one, whose ordinal reaches a bound."""
    count, least = np.int32(0), unread_bound(bound)
    for i in range(len(block)):
        count = np.int32(count + (unread_ordinal(block[i]) >= least))
    return count


@compiled
def count_kept(bits: Bits, block_max: NDArray[np.int32], cut: Cut) -> Any:
    """Count the tokens that a cut keeps."""
    count = 0
    ordinal, token = cut
    for b in range(len(block_max)):
        if block_max[b] < ordinal:
            continue
        first, end = b * BLOCK, min((b + 1) * BLOCK, len(bits))
        split = min(max(token + 1, first), end)
        count += count_from(bits[first:split], ordinal)
        count += count_from(bits[split:end], ordinal + 1)
    return count
