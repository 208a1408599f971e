"""fastsample: tokens from logits, fast on the CPU, and the same everywhere.

`sample` draws one token per row and keeps nothing; `Sampler` counts positions for a loop;
`SamplingParams` names the choices; `candidates` shows what they do to one row; `info` describes
the installation.
"""

from ._version import __version__
from .info import info
from .params import SamplingParams
from .reference import RULE_VERSION
from .result import SampleResult
from .sampler import Sampler, sample
from .table import Candidate, candidates

__all__ = [
    "RULE_VERSION",
    "Candidate",
    "SampleResult",
    "Sampler",
    "SamplingParams",
    "__version__",
    "candidates",
    "info",
    "sample",
]
