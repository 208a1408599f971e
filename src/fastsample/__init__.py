"""fastsample: tokens from logits, fast on the CPU, and the same everywhere.

`sample` draws one token per row and keeps nothing; `Sampler` remembers sequences for a loop;
`SamplingParams` names the choices; `Latency` tells how long calls took. `softmax`, `log_softmax`
and `logsumexp` look at whole rows; `top_k`, `top_p`, `kept_set` and `filter_logits` at what filters
leave of them. `candidates` shows what they do to one row; `reduce_sum` adds up any array in each of
the rule's ways; `info` describes the installation, and `verify` proves on this machine what is
promised.
"""

from ._version import __version__
from .functions import log_softmax, logsumexp, softmax
from .info import info
from .kept import KeptSet, filter_logits, kept_set
from .latency import Latency
from .params import SamplingParams
from .reduce import reduce_sum
from .reference import RULE_VERSION
from .result import SampleResult, Status
from .sample import sample
from .sampler import Sampler
from .table import Candidate, candidates
from .threads import register_if_imported as _register_if_imported
from .top import TopTokens, top_k, top_p
from .verify import verify

__all__ = [
    "RULE_VERSION",
    "Candidate",
    "KeptSet",
    "Latency",
    "SampleResult",
    "Sampler",
    "SamplingParams",
    "Status",
    "TopTokens",
    "__version__",
    "candidates",
    "filter_logits",
    "info",
    "kept_set",
    "log_softmax",
    "logsumexp",
    "reduce_sum",
    "sample",
    "softmax",
    "top_k",
    "top_p",
    "verify",
]

_register_if_imported()
