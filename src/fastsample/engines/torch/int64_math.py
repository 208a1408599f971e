"""Products of 64-bit integers where int64 is the widest integer; no product here reaches 2**63."""

from __future__ import annotations

from torch import Tensor

_31_BITS = 2**31 - 1


def mul_high(words: tuple[Tensor, Tensor], total: Tensor) -> Tensor:
    """floor(U * W / 2**64), for U as its high and low word, and W up to 2**62.

    Examples
    --------
    >>> import torch
    >>> one = torch.ones(1, dtype=torch.int64)
    >>> mul_high((one << 31, one), (one << 40) + 1).tolist() == [2**39]
    True
    """
    high, low = total >> 31, total & _31_BITS
    product = total * 0
    # 16 bits of U at a time, from the lowest; the quotient so far is below W.
    for word, shift in ((words[1], 0), (words[1], 16), (words[0], 0), (words[0], 16)):
        part = (word >> shift) & 0xFFFF
        lower = part * low + (product & _31_BITS)
        upper = part * high + (product >> 31) + (lower >> 31)
        product = (upper << 15) + ((lower & _31_BITS) >> 16)
    return product


def nucleus_target(share: Tensor, total: Tensor) -> Tensor:
    """max(1, ceil(P * W / 2**31)), for P up to 2**31 and W up to 2**62.

    Examples
    --------
    >>> import torch
    >>> nucleus_target(torch.tensor([3, 0]), torch.tensor([2**31 + 1, 9])).tolist()
    [4, 1]
    """
    target = share * (total >> 31) + ((share * (total & _31_BITS) + _31_BITS) >> 31)
    return target.clamp_min_(1)
