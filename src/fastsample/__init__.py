"""fastsample: deterministic token sampling from language model logits, fast on the CPU.

`sample` draws one token per row and keeps no state; a `Sampler` keeps sequences for a generation
loop or for continuous batching, and records times in a `Latency`. `SamplingParams` holds the
parameters. `softmax`, `log_softmax` and `logsumexp` compute over entire rows; `top_k`, `top_p`,
`kept_set` and `filter_logits` return what filters keep; `candidates` lists the top tokens of one
row, the filter that cut each, and how a token is drawn. `reduce_sum` adds any array of floats.
`info` describes the installation, and `verify` checks the guarantees on this machine.
"""

from ._version import __version__
from .api import threads
from .api.candidates import Arrival, Candidate, DrawTrace, candidates
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
from .verification import verify

__all__ = [
    "RULE_VERSION",
    "Arrival",
    "Candidate",
    "DrawTrace",
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
