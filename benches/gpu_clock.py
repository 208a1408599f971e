"""Time a draw on a GPU with events around many calls, in a CUDA graph and call by call.

A graph holds a call for every input and is replayed, as in a server: the host's time is not in it.
Call by call, the time of Python is included. The inputs exceed the second-level cache, so that each
call reads its rows from memory, as after a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

SECONDS, FEWEST, MOST = 0.5, 5, 50
"""How long a figure is measured, and the least and most rounds of its median."""

Call = Callable[[Tensor], object]


class Times(NamedTuple):
    """Microseconds per call: in a graph, None where the call cannot be in one, and call by call."""

    graph: float | None
    eager: float

    @property
    def best(self) -> float:
        """The shorter one."""
        return self.eager if self.graph is None else min(self.graph, self.eager)


def times_of(call: Call, inputs: Sequence[Tensor]) -> Times:
    """Time a call on its inputs in turn."""
    for one in inputs[:3]:
        call(one)
    torch.cuda.synchronize()

    def one_by_one() -> None:
        for one in inputs:
            call(one)

    eager = _median(one_by_one) / len(inputs)
    if waits(lambda: call(inputs[0])):
        return Times(None, eager)
    try:
        graph = captured(one_by_one)
    except RuntimeError:  # it copies from memory of the host that is not pinned, for instance
        return Times(None, eager)
    return Times(_median(graph.replay) / len(inputs), eager)


def waits(call: Callable[[], object]) -> bool:
    """Whether a call waits for the device: such a call cannot be in a graph."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        return True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return False


def captured(calls: Callable[[], object]) -> Any:
    """Capture calls that have run before in a graph; one that fails leaves nothing behind."""
    graph = torch.cuda.CUDAGraph()
    try:
        # The stream is that of before again, where the capture cannot even be ended too.
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph):
            calls()
    except RuntimeError:
        # What CUDA broke off has not ended for torch's generator, which would refuse all draws.
        fresh = torch.Generator("cuda").graphsafe_get_state()
        torch.cuda.default_generators[torch.cuda.current_device()].graphsafe_set_state(fresh)
        raise
    return graph


def bandwidth() -> float:
    """Measure how many bytes a second a copy on the device moves, read and written."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / (_median(lambda: target.copy_(source)) * 1e-6)


def _median(calls: Callable[[], object]) -> float:
    """Median microseconds of the rounds."""
    _microseconds(calls)
    first = _microseconds(calls)
    rounds = min(MOST, max(FEWEST, int(SECONDS * 1e6 / first)))
    return median(_microseconds(calls) for _ in range(rounds))


def _microseconds(calls: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    calls()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3
