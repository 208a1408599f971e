"""Section 6 of the rule: the random number of each draw, and the token it selects."""

from __future__ import annotations

import torch
from torch import Tensor

from .int64_math import mul_high

WORD = 0xFFFFFFFF
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


def uniform_words(rng_position: Tensor, draws: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The words of U of every draw, of shape (B, draws), computed where the positions are.

    `rng_position` has shape (B, 3): seed, position, stream.
    """
    seed, position, stream = rng_position.unsqueeze(2).unbind(1)
    streams = stream + torch.arange(draws, device=stream.device)
    high, low = (word.to(device, non_blocking=True) for word in uniform(seed, position, streams))
    return high, low


def first_above(masses: Tensor, words: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Find where running masses first exceed r = floor(U * W / 2**64).

    Parameters
    ----------
    masses : int64 tensor of shape (B, N)
    words : int64 tensors of shape (B, n)

    Returns
    -------
    places : int64 tensor of shape (B, n)
        The last place where none does, as in a row that is not valid.
    r : int64 tensor of shape (B, n)
    running : int64 tensor of shape (B, N)
        Its last column is W.
    """
    running = masses.cumsum(1)
    r = mul_high(words, running[:, -1:])
    places = torch.searchsorted(running, r, right=True).clamp_max_(masses.shape[1] - 1)
    return places, r, running
