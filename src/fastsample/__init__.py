"""fastsample: tokens from logits, fast on the CPU, and the same everywhere.

`sample` draws one token per row and keeps nothing; `Sampler` remembers sequences for a loop;
`SamplingParams` names the choices; `Latency` tells how long calls took. `softmax`, `log_softmax`
and `logsumexp` look at whole rows; `top_k`, `top_p`, `kept_set` and `filter_logits` at what filters
leave of them. `candidates` shows what they do to one row; `reduce_sum` adds up any array in each of
the rule's ways; `info` describes the installation, and `verify` proves on this machine what is
promised.
"""

from ._version import __version__
from .api import threads
from .api.candidates import Candidate, candidates
from .api.filtering import KeptSet, filter_logits, kept_set
from .api.info import info
from .api.latency import Latency
from .api.reduce_sum import reduce_sum
from .api.result import SampleResult, Status
from .api.sample import sample
from .api.sampler import Sampler
from .api.softmax import log_softmax, logsumexp, softmax
from .api.topk import TopTokens, top_k, top_p
from .engines.reference import RULE_VERSION
from .params.parameters import SamplingParams
from .verification.verify import verify

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

threads.register_if_imported()
