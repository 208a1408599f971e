"""Products of 64-bit integers, and rule 6's generator, where int64 is the widest integer there is.

No product here reaches 2**63.
"""

from __future__ import annotations

from torch import Tensor

WORD = 0xFFFFFFFF
_31_BITS = 2**31 - 1
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def _product(constant: int, words: Tensor) -> tuple[Tensor, Tensor]:
    """High and low word of the product of a constant and 32-bit words, by the constant's halves."""
    upper = (constant >> 16) * words
    lower = (constant & 0xFFFF) * words + ((upper & 0xFFFF) << 16)
    return (upper >> 16) + (lower >> 32), lower & WORD


def uniform(
    seed: Tensor, position: Tensor, stream: Tensor, purpose: int = 0
) -> tuple[Tensor, Tensor]:
    """High and low word of U: Philox4x32-10, as `reference.uniform`.

    `seed` and `position` hold 64 bits in int64; shapes broadcast.

    Examples
    --------
    >>> import torch
    >>> zero = torch.zeros(1, dtype=torch.int64)
    >>> [hex(int(word)) for word in uniform(zero, zero, zero)]
    ['0xe169c58d', '0x6627e8d5']
    """
    k0, k1 = seed & WORD, (seed >> 32) & WORD
    c0, c1, c2, c3 = position & WORD, (position >> 32) & WORD, stream, stream * 0 + purpose
    for _ in range(10):
        a, a_low = _product(_MULTIPLIERS[0], c0)
        b, b_low = _product(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = b ^ c1 ^ k0, b_low, a ^ c3 ^ k1, a_low
        k0, k1 = (k0 + _WEYL[0]) & WORD, (k1 + _WEYL[1]) & WORD
    return c1, c0


def scaled(words: tuple[Tensor, Tensor], total: Tensor) -> Tensor:
    """floor(U * W / 2**64), for U in two words and W below 2**62.

    Examples
    --------
    >>> import torch
    >>> one = torch.ones(1, dtype=torch.int64)
    >>> scaled((one << 31, one), (one << 40) + 1).tolist() == [2**39]
    True
    """
    high, low = total >> 31, total & _31_BITS
    product = total * 0
    # 16 bits of U at a time, from the lowest; what is left so far is below W.
    for word, shift in ((words[1], 0), (words[1], 16), (words[0], 0), (words[0], 16)):
        part = (word >> shift) & 0xFFFF
        lower = part * low + (product & _31_BITS)
        upper = part * high + (product >> 31) + (lower >> 31)
        product = (upper << 15) + ((lower & _31_BITS) >> 16)
    return product


def needed(share: Tensor, total: Tensor) -> Tensor:
    """ceil(P * W / 2**31), for P up to 2**31 and W below 2**62.

    Examples
    --------
    >>> import torch
    >>> needed(torch.tensor([3]), torch.tensor([2**31 + 1])).tolist()
    [4]
    """
    return share * (total >> 31) + ((share * (total & _31_BITS) + _31_BITS) >> 31)
