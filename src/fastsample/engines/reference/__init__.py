"""The sampling rule, version 2, in plain NumPy and Python integers: from a row to a token.

The reference is the specification and the oracle: it is written to be read together with the rule,
section by section, and every engine must return the same tokens, masses and log-probabilities, bit
for bit. It is not meant to be fast. It imports NumPy, the table of parameters and the records of
`contract`. Its modules, by section of the rule: `rows` (1), `penalties` and `logits_processors`
(2), `ordinal` (3), `mass` (4, and the logarithm of 7), `filters` (5), `draw`, `clocks`, `race`,
`distinct` and `margin` (6), `logprobs` and `softmax` (7), `reductions` (8: sums of masses, with
the sums of 5 and 6). `sums` is `fastsample.reduce_sum`, and `engine` has the functions of an
engine.

Two habits keep the bits right on any machine. Float32 values meet one NumPy operation at a time, so
nothing can be fused. Whatever could be denormal is decided on integers, so processor modes that
flush denormals to zero change nothing.
"""

from .distinct import draw_distinct
from .draw import draw, philox4x32, uniform
from .filters import STAGES, Trace, by_token, trace
from .margin import Decision, explain, margin
from .mass import LOG2_E, TOP_MASS_BITS, exponents, float_masses, ln, masses, power, scale
from .ordinal import order
from .penalties import Scope, adjust
from .race import Arrival, Place, Race, decide, draw_by_race, is_listed, prepare
from .reductions import REDUCTIONS, Reduction
from .rows import EMPTY, INVALID, OK, is_minus_inf, read, status, to_float32, widen

RULE_VERSION = 2
