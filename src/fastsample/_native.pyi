# The compiled kernels, as Python sees them; kernels/_native.pyx holds them.

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.contract import SampleOutput, SampleRequest

class TokenHistory:
    output_count: int
    def __init__(
        self, prompt: Any, output: Any, ignored: Any = None, has_outside: bool = False
    ) -> None: ...
    def prompt_array(self) -> NDArray[np.int64]: ...
    def output_array(self) -> NDArray[np.int64]: ...
    @staticmethod
    def extend_all(histories: list[Any], lists: list[Any]) -> None: ...
    @staticmethod
    def append_all(histories: list[Any], tokens: NDArray[np.int64]) -> None: ...
    @staticmethod
    def truncate_all(histories: list[Any], counts: list[int]) -> None: ...

class Step:
    def __init__(self, *arguments: Any) -> None: ...
    def suspend(self) -> bool: ...
    def resume(self, sequences: dict[int, Any]) -> None: ...
    def __call__(
        self,
        logits: Any,
        *,
        at: Any = None,
        sequences: Any = None,
        mask: Any = None,
        bias: Any = None,
    ) -> Any: ...
    def draw(
        self,
        logits: Any,
        at: Any,
        sequences: Any,
        mask: Any,
        bias: Any,
        started: int = 0,
        is_checked: bool = False,
        is_tensor: bool = False,
    ) -> Any: ...
    def sample(
        self,
        logits: Any,
        at: Any,
        sequences: Any,
        mask: Any,
        bias: Any,
        logprobs: Any,
        logprobs_mode: Any,
        kept_count: Any,
        on_invalid: Any,
        started: int = 0,
        is_checked: bool = False,
        is_tensor: bool = False,
    ) -> Any: ...

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
