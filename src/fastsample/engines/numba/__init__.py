"""How the loops of the Numba engine are compiled.

The modules, by section of the rule: `ordinal` (1 and 3), `mass` (4), `row` (a row and its cuts),
`filters` (5), `draw`, `clocks` and `race` (6), `logprobs` and `softmax` (7), `fixed` (8), `engine`.
Section 2 is the reference's. `float_mode` sets the processor's float mode. Loops write no float
maxima, and no float sums but in lanes: Numba leaves others scalar.

Each loop is compiled at its first call, for one set of types: logits come as the bits of float32,
in a contiguous array that is not writable. No product and sum are fused without `fastmath`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import numba

_Loop = TypeVar("_Loop", bound=Callable[..., Any])

# Off by default: processes that start together and share the folder have crashed (numba
# issue 4807), and a change in a function that a loop calls is not seen.
_CACHE = os.environ.get("FASTSAMPLE_NUMBA_CACHE") == "1"


def compiled(loop: _Loop) -> _Loop:
    """Compile a function at its first call; it releases the GIL."""
    made: _Loop = numba.njit(nogil=True, cache=_CACHE, error_model="numpy")(loop)
    return made
