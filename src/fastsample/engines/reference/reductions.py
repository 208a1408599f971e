"""Section 8 of the rule: the totals, nuclei and draws of sections 5 and 6 in each reduction mode.

In "exact" masses are integers, whose sums no order changes. In "fixed"
they are float32, and every sum has its order. "fast" is whatever is quickest, which here is the
fixed mode with each block added in the order of NumPy: it guarantees no bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .mass import TOP_MASS_BITS, float_masses, masses
from .rows import to_float32

BLOCK, LANES = 4096, 16
"""Section 8's fixed order: blocks of so many numbers, each of so many lanes."""


def block_totals(blocks: NDArray[Any]) -> NDArray[Any]:
    """Sum each of some blocks in the fixed order, in their own dtype.

    Examples
    --------
    >>> block_totals(np.ones((2, 4096), dtype=np.float32))
    array([4096., 4096.], dtype=float32)
    """
    steps = blocks.reshape(len(blocks), BLOCK // LANES, LANES)
    lanes = np.cumsum(steps, axis=1, dtype=blocks.dtype)[:, -1]
    for half in (8, 4, 2, 1):
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


def nucleus_target(share: float, total: int) -> int:
    """Mass that reaches a share of a total: `need` of section 5.

    Examples
    --------
    >>> nucleus_target(0.5, 2**40) == 2**39 - 2**19
    True
    """
    p = max(0, int(to_float32(share) * 2.0**31) - 2**10)
    return max(1, -((-p * total) >> 31))


class Reduction:
    """The mode "exact", whose masses are uint64; in the others they are float32.

    Attributes
    ----------
    top : float
        The top token's mass.
    """

    top = 2.0**TOP_MASS_BITS
    masses: Callable[..., tuple[NDArray[np.float32], NDArray[Any]]] = staticmethod(masses)

    def total(self, tokens: NDArray[np.int64], mass: NDArray[Any]) -> Any:
        """W of a kept set, in any order: an int in exact, else a float."""
        return int(mass.sum(dtype=np.uint64))

    def nucleus(self, tokens: NDArray[np.int64], mass: NDArray[Any], share: float) -> int:
        """Count the first tokens of an ordered kept set that reach a share below 1."""
        running = np.cumsum(mass, dtype=np.uint64)
        need = nucleus_target(share, int(running[-1]))
        return int(np.searchsorted(running, np.uint64(need), side="left")) + 1

    def draw(self, tokens: NDArray[np.int64], mass: NDArray[Any], u: int) -> int:
        """Token that U draws from a kept set in ascending order of tokens."""
        running = np.cumsum(mass, dtype=np.uint64)
        r = (u * int(running[-1])) >> 64
        return int(tokens[np.searchsorted(running, np.uint64(r), side="right")])


class _Fixed(Reduction):
    top = 1.0
    masses = staticmethod(float_masses)

    def total(self, tokens: NDArray[np.int64], mass: NDArray[Any]) -> float:
        return float(self._running(_blocks(tokens, mass))[-1])

    def nucleus(self, tokens: NDArray[np.int64], mass: NDArray[Any], share: float) -> int:
        need = (to_float32(share) - 2.0**-21) * self.total(tokens, mass)
        # cumsum adds one by one, from the left.
        running = np.cumsum(mass, dtype=np.float64)
        return min(int(np.searchsorted(running, need, side="left")) + 1, len(tokens))

    def draw(self, tokens: NDArray[np.int64], mass: NDArray[Any], u: int) -> int:
        blocks = _blocks(tokens, mass)
        running = self._running(blocks)
        r = (u >> 11) * 2.0**-53 * float(running[-1])
        block = int(np.searchsorted(running, r, side="right"))
        before = running[block - 1] if block else np.float64(0.0)
        inside = np.cumsum(np.concatenate(([before], blocks[block])))[1:]
        reached = np.flatnonzero(inside > r)
        at = reached[0] if len(reached) else np.flatnonzero(blocks[block])[-1]
        return block * BLOCK + int(at)

    def _running(self, blocks: NDArray[np.float32]) -> NDArray[np.float64]:
        """Running total of the masses, block by block."""
        return np.cumsum(self._block_totals(blocks), dtype=np.float64)

    def _block_totals(self, blocks: NDArray[np.float32]) -> NDArray[np.float32]:
        return block_totals(blocks)


class _Fast(_Fixed):
    def _block_totals(self, blocks: NDArray[np.float32]) -> NDArray[np.float32]:
        totals: NDArray[np.float32] = blocks.sum(axis=1, dtype=np.float32)
        return totals


def _blocks(tokens: NDArray[np.int64], mass: NDArray[np.float32]) -> NDArray[np.float32]:
    """The masses where their tokens are in the row, 4,096 a block; all others are 0."""
    blocks = np.zeros((int(tokens.max()) // BLOCK + 1, BLOCK), dtype=np.float32)
    blocks.reshape(-1)[tokens] = mass
    return blocks


REDUCTIONS: dict[str, Reduction] = {"exact": Reduction(), "fixed": _Fixed(), "fast": _Fast()}
