"""Section 6 of the rule: random words by counter, and the token of the inverse method."""

from __future__ import annotations

import torch
from torch import Tensor

from .int64_math import mul_high

WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xCD9E8D57 - 2**32, 0xD2511F53 - 2**32)
"""Those of the third and the first word, less 2**32: their products with a word fit in int64."""
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

Words = tuple[Tensor, Tensor, Tensor, Tensor]
"""Four random words, int64 tensors of one shape with values below 2**32."""


def words(seed: Tensor, position: Tensor, stream: Tensor, last: Tensor) -> Words:
    """Random words of Philox4x32-10; `last` is the counter's last word: purpose + 256 * index.

    `seed` and `position` hold 64 bits in int64; shapes of one number of axes broadcast.

    Examples
    --------
    >>> zero = torch.zeros(1, dtype=torch.int64)
    >>> [hex(int(word)) for word in words(zero, zero, zero, zero)]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    multipliers, weyl = (
        torch.stack([seed.new_full((1,) * seed.ndim, one) for one in pair])
        for pair in (_MULTIPLIERS, _WEYL)
    )
    rounds = torch.arange(_ROUNDS, device=seed.device).view(-1, *[1] * weyl.ndim)
    keys = (torch.stack([seed & WORD, (seed >> 32) & WORD]) + weyl * rounds).bitwise_and_(WORD)
    _, position, stream, last = torch.broadcast_tensors(seed, position, stream, last)
    # The words that are multiplied, and those that are not.
    even = torch.stack([position & WORD, stream])
    odd = torch.stack([(position >> 32) & WORD, last])
    for key in keys.unbind():
        even = even.flip(0)
        product = even * multipliers
        even = (product >> 32).add_(even).bitwise_xor_(odd).bitwise_xor_(key)
        odd = product.bitwise_and_(WORD)
    return even[0], odd[0], even[1], odd[1]


def uniform(
    seed: Tensor, position: Tensor, stream: Tensor, purpose: int = 0
) -> tuple[Tensor, Tensor]:
    """High and low word of U, as `reference.uniform`; shapes as for `words`.

    Examples
    --------
    >>> zero = torch.zeros(1, dtype=torch.int64)
    >>> [hex(int(word)) for word in uniform(zero, zero, zero)]
    ['0xe169c58d', '0x6627e8d5']
    """
    low, high, _, _ = words(seed, position, stream, torch.full_like(stream, purpose))
    return high, low


def uniform_words(
    rng_position: Tensor, draws: int, device: torch.device, purpose: int = 0
) -> tuple[Tensor, Tensor]:
    """The words of U of every draw, of shape (B, draws), computed where the positions are.

    `rng_position` has shape (B, 3): seed, position, stream.
    """
    seed, position, stream = rng_position.unsqueeze(2).unbind(1)
    streams = stream + torch.arange(draws, device=stream.device)
    found = uniform(seed, position, streams, purpose)
    high, low = (word.to(device, non_blocking=True) for word in found)
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
