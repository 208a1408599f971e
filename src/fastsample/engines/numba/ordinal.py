"""Rules 1 and 3 as integers: logits in order, tokens as keys, and who is in front of whom.

An order is an int32 that ascends with the logit. A key is an int64 that ascends along rule 3's
order: the inverse of the token's order, then the token. A cut is a key: it keeps the tokens whose
keys do not exceed it. All loops but the first go by blocks, and open those that may hold such.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import compiled

Bits = NDArray[np.int32]
Cut = tuple[int, int]
"""A cut in its two parts: an order and a token."""

BLOCK = 128

MINUS_INF = -0x7F800001
LOWEST = MINUS_INF + 1
INF = 0x7F800000
_DENORMALS = 0x800000
_HIGHEST, _DEEPEST, _SIZE = np.int32(2**31 - 1), np.int32(-(2**31)), np.int32(0x7FFFFFFF)
_LAST = 2**32 - 1

ALL = (~LOWEST << 32) | _LAST
"""The cut that keeps every token above -inf."""


def key_of(order: int, token: int = _LAST) -> int:
    """Key of a token; without one, the last key that has this order.

    Examples
    --------
    >>> key_of(7, 3) < key_of(7, 4) < key_of(7) < key_of(6, 0)
    True
    """
    return (~order << 32) | token


def parts_of(key: int) -> Cut:
    """Order and token of a key.

    Examples
    --------
    >>> parts_of(key_of(-5, 9))
    (-5, 9)
    """
    return ~(key >> 32), key & _LAST


def tokens_of(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens in an array of keys."""
    return keys & _LAST


def logits_of(keys: NDArray[np.int64]) -> NDArray[np.float32]:
    """Logits in an array of keys, as rule 1 reads them.

    Examples
    --------
    >>> bits = np.array([1.5, -2.0, -0.0, -np.inf], np.float32).view(np.int32)
    >>> logits_of(np.array([key_of(int(order_of(one))) for one in bits]))
    array([ 1.5, -2. ,  0. , -inf], dtype=float32)
    """
    orders = (~(keys >> 32)).astype(np.int32)
    logits: NDArray[np.float32] = (orders ^ ((orders >> np.int32(31)) & _SIZE)).view(np.float32)
    return logits


@compiled
def unread_order(bits: Any) -> Any:
    return np.int32(bits ^ ((bits >> np.int32(31)) & _SIZE))


@compiled
def read_order(order: Any) -> Any:
    """Take the orders of denormals and of -0 for that of 0."""
    return np.int32(0) if -_DENORMALS <= order < _DENORMALS else np.int32(order)


@compiled
def order_of(bits: Any) -> Any:
    """Order of a logit, from its bits as int32."""
    return read_order(unread_order(bits))


@compiled
def unread(bound: Any) -> Any:
    """What an order that is not read must reach, where the read one must reach `bound`."""
    if -_DENORMALS < bound <= 0:
        return np.int32(-_DENORMALS)
    return np.int32(_DENORMALS) if 0 < bound < _DENORMALS else np.int32(bound)


@compiled
def logit_of(order: Any) -> Any:
    """Logit that has an order."""
    return np.int32(order ^ ((order >> np.int32(31)) & _SIZE)).view(np.float32)


@compiled
def _extremes(block: Bits) -> Any:
    high, low = _DEEPEST, _HIGHEST
    for i in range(len(block)):
        order = unread_order(block[i])
        high = max(high, order)
        low = min(low, order)
    return high, low


@compiled
def scan(bits: Bits, best: NDArray[np.int32]) -> Any:
    """Write the best order of each block; return the row's highest and its lowest.

    NaN is above +inf or below -inf. The lowest is not read: only what is not finite matters there.
    """
    full = len(bits) // BLOCK
    top, bottom = _DEEPEST, _HIGHEST
    for b in range(full):
        high, low = _extremes(bits[b * BLOCK : (b + 1) * BLOCK])
        best[b] = read_order(high)
        top, bottom = max(top, high), min(bottom, low)
    if full < len(best):
        high, low = _extremes(bits[full * BLOCK :])
        best[full] = read_order(high)
        top, bottom = max(top, high), min(bottom, low)
    return read_order(top), bottom


@compiled
def _list_part(bits: Bits, first: int, end: int, bound: int, keys: Any, count: int) -> Any:
    """Write keys from the place `count` on; return where they end."""
    part, least = bits[first:end], unread(bound)
    for i in range(len(part)):
        if unread_order(part[i]) >= least:
            keys[count] = (~np.int64(order_of(part[i])) << 32) | (first + i)
            count += 1
    return count


@compiled
def list_to(bits: Bits, best: NDArray[np.int32], cut: Cut, keys: NDArray[np.int64]) -> Any:
    """Write the keys of the tokens that a cut keeps, by token; return their number.

    -1 where the room in `keys` might not do, which is for all tokens of the blocks it opens.
    """
    order, token = cut
    count = np.int64(0)
    for b in range(len(best)):
        if best[b] < order:
            continue
        first, end = b * BLOCK, min((b + 1) * BLOCK, len(bits))
        if count + end - first > len(keys):
            return np.int64(-1)
        split = min(max(token + 1, first), end)
        count = _list_part(bits, first, split, order, keys, count)
        count = _list_part(bits, split, end, order + 1, keys, count)
    return count


@compiled
def nth_best(best: NDArray[np.int32], n: int) -> Any:
    """Order that the best of n blocks reach, so that n tokens do; the highest such."""
    low, high = np.int64(_DEEPEST), np.int64(_HIGHEST) + 1
    while high - low > 1:
        middle = (low + high) >> 1
        if reaching(best, np.int32(middle)) >= n:
            low = middle
        else:
            high = middle
    return low


@compiled
def reaching(orders: NDArray[np.int32], bound: Any) -> Any:
    """Count the orders that reach a bound, an int32."""
    count = np.int32(0)
    for i in range(len(orders)):
        count = np.int32(count + (orders[i] >= bound))
    return count


@compiled
def count_from(block: Bits, bound: int) -> Any:
    """Count the tokens of a block, or of a part of one, whose order reaches a bound."""
    count, least = np.int32(0), unread(bound)
    for i in range(len(block)):
        count = np.int32(count + (unread_order(block[i]) >= least))
    return count


@compiled
def count_to(bits: Bits, best: NDArray[np.int32], cut: Cut) -> Any:
    """Count the tokens that a cut keeps."""
    count = 0
    order, token = cut
    for b in range(len(best)):
        if best[b] < order:
            continue
        first, end = b * BLOCK, min((b + 1) * BLOCK, len(bits))
        split = min(max(token + 1, first), end)
        count += count_from(bits[first:split], order)
        count += count_from(bits[split:end], order + 1)
    return count
