# The compiled kernels, as Python sees them; kernels/_native.pyx holds them.

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.contract import SampleOutput, SampleRequest

class SequenceState:
    gaps: tuple[tuple[int, int], ...]
    record: bytes
    seed: int
    stream: int
    skipped: int
    output_count: int
    def __init__(
        self,
        record: bytes,
        is_fresh: bool,
        prompt: Any,
        output: Any,
        ignored: Any,
        has_outside: bool,
    ) -> None: ...
    def prompt_array(self) -> NDArray[np.int64]: ...
    def output_array(self) -> NDArray[np.int64]: ...
    @staticmethod
    def extend_all(states: list[Any], lists: list[Any]) -> None: ...
    @staticmethod
    def append_all(states: list[Any], tokens: NDArray[np.int64]) -> None: ...
    @staticmethod
    def truncate_all(states: list[Any], counts: list[int]) -> None: ...

def set_seed_mask(mask: int) -> None: ...
def prepared(method: Any) -> Any: ...

class Step:  # fastsample.engines.contract has its methods
    def __init__(self, *arguments: Any) -> None: ...
    def __call__(self, logits: Any, **arguments: Any) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...

class Draw:
    def __init__(self, *arguments: Any) -> None: ...
    def __call__(
        self,
        logits: Any,
        seed: Any,
        position: Any,
        stream: Any,
        at: Any = None,
        mask: Any = None,
        bias: Any = None,
        valid_vocab: Any = None,
        logprobs: Any = None,
        logprobs_mode: Any = "raw",
        kept_count: Any = False,
        logprob_tokens: Any = None,
        is_checked: bool = False,
        is_tensor: bool = False,
    ) -> Any: ...

def sample(
    request: SampleRequest, out: SampleOutput, isa: str | None = None, n_threads: int | None = None
) -> None: ...
def kept_sets(
    request: SampleRequest,
    status: NDArray[np.uint8],
    isa: str | None = None,
    n_threads: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float32], NDArray[np.int64]]: ...
def softmax(
    name: str,
    request: SampleRequest,
    out: NDArray[Any],
    status: NDArray[np.uint8],
    isa: str | None = None,
    n_threads: int | None = None,
) -> None: ...
def exact_sum(values: NDArray[Any], isa: str | None, n_threads: int) -> tuple[bytes, float]: ...
def float_sum(values: NDArray[Any], reduction: str, isa: str | None, n_threads: int) -> float: ...
def isa_compiled() -> tuple[str, ...]: ...
def isa_usable() -> tuple[str, ...]: ...
def default_isa() -> str: ...
def compiler() -> str: ...
def flags() -> str: ...
def reading() -> str: ...
def set_reading(name: str, source: str = ...) -> None: ...
def most_threads() -> int: ...
def limit_threads(threads: int) -> None: ...
