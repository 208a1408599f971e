"""From a request to what an engine writes: the step that every public function shares."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsample.params.table import THREADS

from . import require_stages, resolve, settle_draws
from .contract import Engine, KeptSets, SampleOutput, SampleRequest


class Execution(NamedTuple):
    """An engine and the options that a call runs it with."""

    engine: Engine
    isa: str | None
    n_threads: int | None

    @classmethod
    def of(cls, engine: Any, isa: Any, n_threads: Any) -> Execution:
        """Check these arguments of a call."""
        return cls(resolve(engine, isa), isa, THREADS.optional(n_threads))

    def sample(self, request: SampleRequest, output: SampleOutput) -> None:
        """Draw for every row whose status is 0; write tokens, statuses and log-probabilities."""
        self.settle(request.plan, request.reduction, request.replacement)
        self.engine.run(request, output, isa=self.isa, n_threads=self.n_threads)

    def settle(self, plan: NDArray[np.void], reduction: str, replacement: bool = True) -> None:
        """Refuse a plan that the engine cannot draw; settle how its rows are drawn, in place."""
        require_stages(self.engine.name, plan)
        settle_draws(self.engine.name, plan, reduction, replacement)

    def kept_sets(self, request: SampleRequest) -> tuple[KeptSets, NDArray[np.uint8]]:
        """Find the kept set and the status of each row."""
        require_stages(self.engine.name, request.plan)
        status = np.zeros(len(request.plan), np.uint8)
        sets = self.engine.kept_sets(request, status, isa=self.isa, n_threads=self.n_threads)
        return sets, status

    def softmax(
        self, function: str, request: SampleRequest, out: NDArray[Any]
    ) -> NDArray[np.uint8]:
        """Write "softmax", "log_softmax" or "logsumexp" of each row; return the statuses."""
        status = np.zeros(len(request.plan), np.uint8)
        self.engine.write_softmax(
            function, request, out, status, isa=self.isa, n_threads=self.n_threads
        )
        return status
