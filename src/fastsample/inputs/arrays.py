"""Arrays of logits in a caller's form and as NumPy can hold them: bfloat16 as uint16."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_tensor(value: Any) -> bool:
    """Tell whether a value is a torch tensor, without loading torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def require_cpu(name: str, tensor: Any) -> None:
    """Refuse a tensor on another device; `name` is what messages call it."""
    if not tensor.is_cpu:
        raise TypeError(
            f"`{name}` must be on the CPU, got a tensor on {tensor.device} (pass `{name}.cpu()`)"
        )


def memory_of(array: Any) -> NDArray[Any]:
    """Look at the memory of a NumPy array or a torch CPU tensor; uint16 holds bfloat16.

    Examples
    --------
    >>> array = np.zeros(2, dtype=np.float32)
    >>> memory_of(array) is array
    True
    """
    memory: NDArray[Any]
    if is_tensor(array):
        torch = sys.modules["torch"]
        if array.dtype is not torch.bfloat16:
            memory = array.detach().numpy()
            return memory
        memory = array.detach().view(torch.int16).numpy()
        return memory.view(np.uint16)
    memory = array
    return memory.view(np.uint16) if memory.dtype.name == "bfloat16" else memory


def dtype_of(logits: Any, values: NDArray[Any]) -> str:
    """Name the dtype of logits, whose memory is `values`, as it comes back to their caller."""
    has_form = is_tensor(logits) or isinstance(logits, np.ndarray)
    return str(logits.dtype).removeprefix("torch.") if has_form else str(values.dtype)


def in_form_of(logits: Any, memory: NDArray[Any]) -> Any:
    """Give memory the kind and dtype of logits: what `memory_of` undoes.

    NumPy has no bfloat16 of its own: where logits are neither array nor tensor, uint16 stays.

    Examples
    --------
    >>> in_form_of(np.zeros(3, dtype=np.float16), np.ones(2, dtype=np.float16))
    array([1., 1.], dtype=float16)
    """
    if is_tensor(logits):
        torch = sys.modules["torch"]
        if memory.dtype != np.uint16:
            return torch.from_numpy(memory)
        return torch.from_numpy(memory.view(np.int16)).view(torch.bfloat16)
    is_bfloat16 = memory.dtype == np.uint16 and isinstance(logits, np.ndarray)
    return memory.view(logits.dtype) if is_bfloat16 else memory


def minus_inf(dtype: np.dtype[Any]) -> Any:
    """-inf as memory of this dtype holds it.

    Examples
    --------
    >>> minus_inf(np.dtype(np.float32)), hex(minus_inf(np.dtype(np.uint16)))
    (-inf, '0xff80')
    """
    return np.uint16(0xFF80) if dtype == np.uint16 else -np.inf
