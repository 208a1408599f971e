"""Products of 64-bit integers, and rule 6's generator, where int64 is the widest integer there is.

No product here reaches 2**63.
"""

from __future__ import annotations

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
_31_BITS = 2**31 - 1
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


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
    seed, position, stream = torch.broadcast_tensors(seed, position, stream)
    multipliers, weyl = (
        torch.stack([torch.full_like(seed, one) for one in pair]) for pair in (_MULTIPLIERS, _WEYL)
    )
    # In halves of 16 bits: a word times a half stays below 2**48.
    upper_half, lower_half = multipliers >> 16, multipliers & 0xFFFF
    key = torch.stack([seed & WORD, (seed >> 32) & WORD])
    # The words that are multiplied, and those that are not.
    even = torch.stack([position & WORD, stream])
    odd = torch.stack([(position >> 32) & WORD, torch.full_like(stream, purpose)])
    for _ in range(_ROUNDS):
        upper = even * upper_half
        lower = even * lower_half + ((upper & 0xFFFF) << 16)
        high = ((upper >> 16) + (lower >> 32)).flip(0)
        even, odd = high ^ odd ^ key, (lower & WORD).flip(0)
        key = (key + weyl) & WORD
    return odd[0], even[0]


def scaled(words: tuple[Tensor, Tensor], total: Tensor) -> Tensor:
    """floor(U * W / 2**64), for U in two words and W up to 2**62.

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
    """ceil(P * W / 2**31), for P up to 2**31 and W up to 2**62.

    Examples
    --------
    >>> import torch
    >>> needed(torch.tensor([3]), torch.tensor([2**31 + 1])).tolist()
    [4]
    """
    return share * (total >> 31) + ((share * (total & _31_BITS) + _31_BITS) >> 31)
