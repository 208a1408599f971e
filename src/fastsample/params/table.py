"""The parameter table: every parameter of a draw, once.

Checks, plans, stages, SamplingParams, tensor columns, the command line's options and the random
cases of `fastsample.verify` come from these records. docs/dev/adding-a-filter.md is the recipe for
one more filter.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import partial

import numpy as np

from .ops import Op
from .validation import (
    CountParameter,
    DrawParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    ScopeParameter,
    SeedParameter,
)

# The last float64 values that float32 rounds to something allowed: -2^-150 to zero, 1 + 2^-24 to
# one, the last one under half a step past float32's largest to that largest, and the first one over
# 2^-150 to the smallest that is not zero.
_ZERO, _ONE = -(2.0**-150), 1.0 + 2.0**-24
_FINITE = math.nextafter(2.0**128 - 2.0**103, 0.0)
_OVER_ZERO = math.nextafter(2.0**-150, 1.0)
_share = partial(FloatParameter, rule="in [0, 1]", low=_ZERO, high=_ONE)

TEMPERATURE = FloatParameter(
    name="temperature",
    help="Divide logits by this number; 0 takes the top token and skips the filters.",
    rule="0 or a finite number > 0",
    way_out="0 takes the top token, 1 changes nothing",
    low=_ZERO,
    high=_FINITE,
    default=1.0,
    op=Op.SCALE,
)
TOP_K = CountParameter(
    name="top_k",
    help="Keep this many of the most probable tokens.",
    rule="a count of tokens in [1, 2**63), or off",
    way_out="0, -1 and None are off",
    default=0,
    off=(0, -1, None),
    op=Op.COUNT,
)
TOP_P = _share(
    name="top_p",
    help="Keep the most probable tokens that together reach this probability.",
    way_out="a share of the mass such as 0.95; 1 is off",
    default=1.0,
    op=Op.MASS,
)
MIN_P = _share(
    name="min_p",
    help="Keep tokens at least this probable, relative to the top token.",
    way_out="a share of the top token's probability such as 0.05; 0 is off",
    default=0.0,
    op=Op.THRESHOLD,
)
TYPICAL_P = _share(
    name="typical_p",
    help="Keep the tokens nearest to the mean information content that reach this probability.",
    way_out="a share of the mass such as 0.9; 1 is off",
    default=1.0,
    op=Op.BAND,
)
TOP_A = _share(
    name="top_a",
    help="Keep tokens at least this probable, relative to the square of the largest probability.",
    way_out="a share of the square of the largest probability such as 0.2; 0 is off",
    default=0.0,
    op=Op.THRESHOLD_OF_TOP_SHARE,
)
EPSILON_CUTOFF = _share(
    name="epsilon_cutoff",
    help="Keep tokens with at least this probability.",
    way_out="a probability such as 0.0003; 0 is off",
    default=0.0,
    op=Op.THRESHOLD_OF_TOTAL,
)
TOP_N_SIGMA = FloatParameter(
    name="top_n_sigma",
    help="Keep logits within this many standard deviations of the largest.",
    rule="a finite number >= 0",
    way_out="a number of standard deviations such as 1; 0 is off",
    low=_ZERO,
    high=_FINITE,
    default=0.0,
    op=Op.THRESHOLD_OF_DEVIATION,
)
REPETITION_PENALTY = FloatParameter(
    name="repetition_penalty",
    help="Divide positive logits of tokens in the history by this number, multiply others.",
    rule="a finite number > 0",
    way_out="above 1 it makes tokens of the history less likely; 1 is off",
    low=_OVER_ZERO,
    high=_FINITE,
    default=1.0,
)
FREQUENCY_PENALTY = FloatParameter(
    name="frequency_penalty",
    help="Subtract this number from a logit for each occurrence of its token in the history.",
    rule="a finite number",
    way_out="what each occurrence in the history takes off a logit; 0 is off",
    low=-_FINITE,
    high=_FINITE,
    default=0.0,
)
PRESENCE_PENALTY = FloatParameter(
    name="presence_penalty",
    help="Subtract this number from a logit if its token occurs in the history.",
    rule="a finite number",
    way_out="what any occurrence in the history takes off a logit; 0 is off",
    low=-_FINITE,
    high=_FINITE,
    default=0.0,
)
MIN_KEEP = IntParameter(
    name="min_keep",
    help="Every filter keeps at least this many tokens.",
    rule="a count of tokens in [1, 2**63)",
    way_out="every filter keeps at least so many; 1 changes nothing",
    low=1,
    default=1,
)


def _scope(penalty: str, default: str) -> ScopeParameter:
    return ScopeParameter(
        name=f"{penalty}_scope",
        help=f"The tokens that the {penalty} penalty counts: all, prompt, output, or the last n.",
        rule='"all", "prompt", "output" or a count of tokens in [0, 2**63)',
        way_out="a count n means the last n tokens of prompt and output",
        default=default,
        off=(0,),
    )


REPETITION_SCOPE = _scope("repetition", "all")
FREQUENCY_SCOPE = _scope("frequency", "output")
PRESENCE_SCOPE = _scope("presence", "output")
DRAW = DrawParameter(
    name="draw",
    help="How the token is drawn: by race or inverse; a race by default.",
    rule='"race", "inverse" or None',
    way_out='None is a race in the reduction "exact", and inverse in the others',
)
SEED = SeedParameter(
    name="seed",
    help="The seed of the random numbers.",
    rule="in [0, 2**64)",
    way_out="leave `seed` out for a fresh one",
    high=2**64 - 1,
    dtype=np.uint64,
)
POSITION = IntParameter(
    name="position",
    help="How many tokens have been drawn for this sequence.",
    rule="in [0, 2**64)",
    way_out="how many tokens have been drawn for this sequence, 0 for the first",
    high=2**64 - 1,
    dtype=np.uint64,
)
STREAM = IntParameter(
    name="stream",
    help="Which continuation of one seed.",
    rule="in [0, 2**32)",
    way_out='which continuation of one seed; "row" puts row b on stream b',
    high=2**32 - 1,
    dtype=np.uint32,
)
ONE_STREAM = replace(STREAM, way_out="which continuation of the seed, 0 for the first")
"""The stream of one sequence, where "row" has no meaning."""
THREADS = IntParameter(
    name="n_threads",
    help="The most threads that a call uses.",
    rule="in [1, 2**31)",
    way_out="None lets fastsample choose",
    low=1,
    high=2**31 - 1,
)
DRAWS = IntParameter(
    name="n",
    help="How many tokens are drawn from each row.",
    rule="a count of draws in [1, 2**32]",
    way_out="None draws one token and adds no axis",
    low=1,
    high=2**32,
)
MINUTES = FloatParameter(
    name="minutes",
    help="How long `verify` checks random cases.",
    rule="above 0 and finite",
    way_out="1 is one minute",
    low=math.nextafter(0.0, 1.0),
    high=sys.float_info.max,
)

STAGE_PARAMETERS: tuple[Parameter, ...] = (
    TOP_N_SIGMA,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    TOP_A,
    MIN_P,
    TYPICAL_P,
    EPSILON_CUTOFF,
)
"""The parameters that act as stages, in the default order."""
PENALTIES = (REPETITION_PENALTY, FREQUENCY_PENALTY, PRESENCE_PENALTY)
PENALTY_SCOPES = (REPETITION_SCOPE, FREQUENCY_SCOPE, PRESENCE_SCOPE)
RNG_POSITION = (SEED, POSITION, STREAM)
"""What names a draw's random numbers."""

STAGES = tuple(parameter.name for parameter in STAGE_PARAMETERS)
"""The names of all stages, in the default order."""

MAX_STAGES = 16
"""The most stages of one chain: a plan can hold as many."""

BY_NAME = {
    parameter.name: parameter
    for parameter in (*STAGE_PARAMETERS, *PENALTIES, MIN_KEEP, *PENALTY_SCOPES, DRAW, *RNG_POSITION)
}
"""The parameters of a draw by name."""
