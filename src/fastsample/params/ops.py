"""What the stages of a chain can do, and how a token is drawn."""

from __future__ import annotations

from enum import IntEnum


class Op(IntEnum):
    """What a stage does with its parameter's value v: section 5 of the rule has the formulas.

    Engines know ops, not filters. kernels/runtime/types.hpp has the same codes. Each op looks at
    the tokens kept so far: m is their largest logit, y = (x - m) * s the exponent to base 2, W
    their total mass. Whatever v is, an op keeps the first `min_keep` tokens.
    """

    SCALE = 1
    """Divide the logits by v."""
    COUNT = 2
    """Keep the first v tokens."""
    MASS = 3
    """Keep the shortest prefix that reaches the share v of the mass."""
    THRESHOLD = 4
    """Keep the tokens with y >= log2(v): at least v times the top token's probability."""
    THRESHOLD_OF_TOTAL = 5
    """Keep the tokens with y >= log2(v * W / 2^40): a probability of at least v."""
    THRESHOLD_OF_TOP_SHARE = 6
    """Keep the tokens with y >= log2(v * 2^40 / W): at least v times the top one's, squared."""
    THRESHOLD_OF_DEVIATION = 7
    """Keep the tokens whose logit is at least m - v * sigma: sigma is the logits' deviation."""
    BAND = 8
    """Keep the tokens nearest to the mean of y that reach the share v of the mass.

    The one op that can drop the top token: m, y, masses and W are then computed again.
    """


class DrawMethod(IntEnum):
    """How a token is drawn: section 6 of the rule. kernels/runtime/types.hpp has the codes."""

    INVERSE = 0
    """The first token whose running sum of mass exceeds a random share of all."""
    RACE = 1
    """The token that arrives first, each at a rate of its mass."""
    AUTOMATIC = 2
    """The race where masses are summed exactly, else the inverse method; no engine reads it."""


# For arrays. To compare one with a member of an enum, NumPy looks for attributes of its class in
# Python code: twenty times slower, and what a signal handler raises there is lost.
INVERSE, RACE, AUTOMATIC = map(int, DrawMethod)
