"""What the stages of a chain can do."""

from __future__ import annotations

from enum import IntEnum


class Op(IntEnum):
    """What a stage does with its parameter's value v: section 5 of the rule has the formulas.

    Engines know ops, not filters. kernels/runtime/types.hpp has the same codes.
    """

    SCALE = 1
    """Divide the logits by v."""
    COUNT = 2
    """Keep the first v tokens."""
    MASS = 3
    """Keep the shortest prefix that reaches the share v of the mass."""
    THRESHOLD = 4
    """Keep the tokens with y >= log2(v)."""
