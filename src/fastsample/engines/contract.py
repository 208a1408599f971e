"""What goes into an engine and what comes out of it: the records that every engine knows."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastsample.inputs.logits_processors import Adjustments, Csr

__all__ = [
    "Adjustments",
    "Csr",
    "Draw",
    "FindKeptSets",
    "Job",
    "KeptSets",
    "Outcome",
    "Run",
    "Step",
    "WriteLaw",
]

_KIND_OF = {"f": "float32", "e": "float16", "H": "bfloat16"}
"""What kernels call the logits, by the character of the array's dtype."""


class Job(NamedTuple):
    """Rows to draw from, and how.

    Attributes
    ----------
    values : float32, float16 or uint16 array of shape (B, columns)
        uint16 holds the bits of bfloat16. Any strides and alignment; read only.
    vocabulary : int
        How many columns are tokens; those past it are not looked at.
    plan : array of PLAN, shape (B,), C-contiguous
    adjustments : Adjustments or None
    reduction : {"exact", "fixed", "fast"}
        How masses add up: section 8 of the rule. Kept sets and their masses do not depend on it.
    """

    values: NDArray[Any]
    vocabulary: int
    plan: NDArray[np.void]
    adjustments: Adjustments | None
    reduction: str = "exact"

    @property
    def kind(self) -> str:
        """What the values hold: "float32", "float16" or "bfloat16"."""
        return _KIND_OF[self.values.dtype.char]


class Outcome(NamedTuple):
    """Where an engine writes: C-contiguous arrays that the caller made.

    A row from which nothing can be drawn has token -1, kept count 0, log-probabilities nan, rank 0
    and top tokens -1. n is the number of draws, F that of `forms`, N that of top tokens.

    Attributes
    ----------
    tokens : int64 array of shape (B, n)
        The draws of a row are made on the streams ``stream``, ``stream + 1``, ...
    status : uint8 array of shape (B,)
        In and out: a row that comes with a status other than 0 is left alone.
    kept_count : int64 array of shape (B,), or None where it is not wanted
    forms : tuple of str
        Of "raw", "tempered" and "processed"; empty where n > 1.
    logprobs : float64 array of shape (F, B)
    ranks : int64 array of shape (F, B)
    top_tokens : int64 array of shape (F, B, N)
    top_logprobs : float64 array of shape (F, B, N)
    """

    tokens: NDArray[np.int64]
    status: NDArray[np.uint8]
    kept_count: NDArray[np.int64] | None
    forms: tuple[str, ...]
    logprobs: NDArray[np.float64]
    ranks: NDArray[np.int64]
    top_tokens: NDArray[np.int64]
    top_logprobs: NDArray[np.float64]


class KeptSets(NamedTuple):
    """The kept sets of a batch, laid end to end, each in section 3's order.

    Attributes
    ----------
    tokens : int64 array of shape (N,)
    masses : uint64 array of shape (N,)
    logits : float32 array of shape (N,)
        After adjusting.
    offsets : int64 array of shape (B + 1,)
        Row b has ``tokens[offsets[b] : offsets[b + 1]]``; a bad row has none.
    """

    tokens: NDArray[np.int64]
    masses: NDArray[np.uint64]
    logits: NDArray[np.float32]
    offsets: NDArray[np.int64]


# ---------------------------------------------------------------- functions


class Run(Protocol):
    """An engine's function that draws. It raises for nothing that a row holds."""

    def __call__(
        self, job: Job, out: Outcome, *, isa: str | None = None, n_threads: int | None = None
    ) -> None:
        """Draw for every row of the job."""


class WriteLaw(Protocol):
    """An engine's function that computes softmax and its kin."""

    def __call__(
        self,
        name: str,
        job: Job,
        out: NDArray[Any],
        status: NDArray[np.uint8],
        *,
        isa: str | None = None,
        n_threads: int | None = None,
    ) -> None:
        """Write the law of each whole row at its temperature, with no adjustment and no filter.

        Parameters
        ----------
        name : {"softmax", "log_softmax", "logsumexp"}
        job : Job
            Its plan gives the temperatures; above 0 for "logsumexp".
        out : float32 array of shape (B, vocabulary), or float64 of shape (B,) for "logsumexp"
            C-contiguous. Written where a row is good. It may lie exactly where `job.values` does.
        status : uint8 array of shape (B,)
            Comes as 0. Written: 1 for an invalid row, 2 for an empty one.
        """


class FindKeptSets(Protocol):
    """An engine's function that finds kept sets."""

    def __call__(
        self,
        job: Job,
        status: NDArray[np.uint8],
        *,
        isa: str | None = None,
        n_threads: int | None = None,
    ) -> KeptSets:
        """Find the kept set of each row.

        Parameters
        ----------
        job : Job
        status : uint8 array of shape (B,)
            In and out: a row that comes with a status other than 0 is left alone.
        """


class Step(Protocol):
    """A call of a `Sampler`, prepared for sequences that stay the same from call to call.

    Attributes
    ----------
    ready : bool
        Whether it may draw; False at first.
    """

    ready: bool

    def __call__(
        self, logits: Any, sequences: Any = None, mask: Any = None, bias: Any = None
    ) -> Any:
        """Draw a token for each sequence, append them, and return them in the logits' form.

        None where the general way must be gone, from which it differs in nothing but time; then
        nothing has changed.
        """


class Draw(Protocol):
    """A call of `sample` for one row, prepared for parameters that stay the same."""

    def __call__(
        self, logits: Any, seed: Any, position: Any, stream: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8], bool] | None:
        """Draw a token; return it, the kept count and the status, and whether logits are a tensor.

        The first three are arrays without dimensions. None where the general way must be gone.
        """
