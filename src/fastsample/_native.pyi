# The compiled kernels, as Python sees them; kernels/_native.pyx holds them.

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.contract import SampleOutput, SampleRequest

class Step:
    ready: bool
    def __init__(
        self,
        outputs: list[array[int]],
        skipped: list[int],
        valid_vocab: int,
        max_vocabulary: int,
        plan: NDArray[np.void],
        lock: Any,
        latency: tuple[array[int], array[int]] | None,
        isa: str | None,
        n_threads: int,
        reduction: str,
    ) -> None: ...
    def __call__(self, logits: Any, is_checked: bool = False) -> Any: ...

class Draw:
    def __init__(
        self,
        plan: NDArray[np.void],
        max_vocabulary: int,
        isa: str | None,
        n_threads: int,
        reduction: str,
    ) -> None: ...
    def __call__(
        self, logits: Any, seed: Any, position: Any, stream: Any, is_checked: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]] | None: ...

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
def most_threads() -> int: ...
def limit_threads(threads: int) -> None: ...
def philox(key: int, counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]: ...
