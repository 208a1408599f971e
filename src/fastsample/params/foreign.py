"""Arrays and tensors of other libraries: why one cannot be read, and what can be done about it."""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_SHOWN = 60  # characters


def brief(value: Any) -> str:
    """Return a value's representation for a message: short, on one line, and never an error."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of any object
        text = "(which has no representation)"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def shown(value: Any) -> str:
    """Return a value's type and representation for a message."""
    return f"{type(value).__name__} {brief(value)}"


def is_tensor(value: Any) -> bool:
    """Return whether a value is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


# ---------------------------------------------------------------- tensors of torch


class Fault(NamedTuple):
    """Why a tensor cannot be read, in the words of a message."""

    rule: str
    got: str
    way_out: str

    def error(self, name: str, row: int | None = None) -> TypeError:
        """Make the error for an argument."""
        return TypeError(f"`{name}` must {self.rule}, got {self.got}{at(row)} ({self.way_out})")


def at(row: int | None) -> str:
    """Name a row in a message."""
    return "" if row is None else f" at row {row}"


_OUTSIDE = "call it outside of the transform"
_PADDING = {"logits": "-torch.inf", "mask": "0"}
"""What fills places without a value, where a value that changes nothing is known."""


def fault_of_device_tensor(name: str, tensor: Any) -> Fault | None:
    """Say why a tensor cannot be read by engines of tensors; None where it can be."""
    torch = sys.modules["torch"]
    if tensor.requires_grad:
        got, way_out = "a tensor that does", f"pass `{name}.detach()`"
        return Fault("not require grad", got, way_out)
    if tensor.is_nested:
        return Fault("be dense", "a nested tensor", _way_to_dense(name, tensor))
    if tensor.layout is not torch.strided:
        return Fault("be dense", str(tensor.layout), f"pass `{name}.to_dense()`")
    if tensor.is_quantized:
        got = f"a quantized tensor of {tensor.dtype}"
        return Fault("be of plain numbers", got, f"pass `{name}.dequantize()`")
    if str(tensor.dtype).startswith("torch.bits"):
        got, way_out = f"a tensor of {tensor.dtype}", "pass the numbers that its bits stand for"
        return Fault("be of plain numbers", got, way_out)
    kind = type(tensor).__name__
    if kind == "MaskedTensor":
        way_out = f"pass `{name}.to_tensor({_PADDING.get(name, '0')})`"
        return Fault("be a plain tensor", "a MaskedTensor", way_out)
    if kind == "DTensor":
        return Fault("be a plain tensor", "a DTensor", f"pass `{name}.full_tensor()`")
    if kind == "FakeTensor" and not torch._C._len_torch_dispatch_stack():
        return _FAKE
    return None


_FAKE = Fault("hold values", "a FakeTensor, which has none", "call it with a tensor that has them")


def require_plain(name: str, tensor: Any, device: Any = None, code: str = "") -> None:
    """Refuse a tensor that engines of tensors cannot read, or cannot move to a device."""
    fault = fault_of_device_tensor(code or name, tensor)
    if fault is None and tensor.is_meta and device is not None and device.type != "meta":
        fault = _META
    if fault is not None:
        raise fault.error(name)


_META = Fault(
    "hold values",
    "a tensor on meta, which has none",
    "call it with a tensor on a device that stores values",
)


def fault_of_host_tensor(name: str, tensor: Any) -> Fault | None:
    """Say why NumPy cannot read a tensor; None where no reason is known."""
    fault = fault_of_device_tensor(name, tensor)
    if fault is not None:
        return fault
    if type(tensor).__name__ == "FakeTensor":
        return _FAKE
    if tensor.is_meta:
        return _META
    if not tensor.is_cpu:
        return Fault("be on the CPU", f"a tensor on {tensor.device}", f"pass `{name}.cpu()`")
    if _is_transformed(tensor):
        way_out = f'{_OUTSIDE}; sample() also takes it with engine="torch" and on_invalid="mark"'
        return Fault("be a plain tensor", "one of a transform, as in torch.vmap", way_out)
    if tensor.is_neg():
        return Fault("be stored as it is", "a view with signs changed", f"pass `{name}.clone()`")
    if tensor.is_conj():
        return Fault("be stored as it is", "a conjugate view", f"pass `{name}.resolve_conj()`")
    return None


def _way_to_dense(name: str, tensor: Any) -> str:
    """Say how to make rows of one length of a nested tensor, or lists."""
    torch = sys.modules["torch"]
    parts = tensor.unbind()
    if len({tuple(part.shape) for part in parts}) == 1 and parts[0].layout is torch.strided:
        return f"pass `torch.stack({name}.unbind())`"
    if name in _PADDING:
        return f"pass `torch.nested.to_padded_tensor({name}, {_PADDING[name]})`"
    return f"pass `[part.tolist() for part in {name}.unbind()]`"


def _is_transformed(tensor: Any) -> bool:
    """Return whether a tensor is one of torch.vmap or torch.func, whose values are not stored."""
    try:
        tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return True
    return False


def array_of_tensor(name: str, tensor: Any, row: int | None = None, code: str = "") -> NDArray[Any]:
    """Read a tensor of torch as an array of NumPy; bfloat16 is widened to float32.

    `row` and `code` are those of `host_array`.
    """
    torch = sys.modules["torch"]
    try:
        plain = tensor.float() if tensor.dtype is torch.bfloat16 else tensor
        memory: NDArray[Any] = plain.numpy()
    except Exception as error:
        raise error_of_tensor(name, tensor, error, row, code) from error
    return memory


def reason_of(error: Exception) -> str:
    """Return the message of another library's error, its first line and cut."""
    reason = str(error).strip().partition("\n")[0]
    return reason if len(reason) <= 2 * _SHOWN else f"{reason[: 2 * _SHOWN]}..."


def _entry(name: str, row: int | None) -> str:
    return name if row is None else f"{name}[{row}]"


def error_of_tensor(
    name: str, tensor: Any, error: Exception, row: int | None = None, code: str = ""
) -> TypeError:
    """Make the error for a tensor that NumPy cannot read."""
    code = code or _entry(name, row)
    fault = fault_of_host_tensor(code, tensor)
    if fault is None:
        way_out = f"pass `{code}.float()`, or another dtype that NumPy has"
        if tensor.is_floating_point() and tensor.dtype.itemsize >= 4:
            way_out = f"pass `{code}.clone()`"
        fault = Fault(
            "be a tensor that NumPy reads", f"one of {tensor.dtype}: {reason_of(error)}", way_out
        )
    return fault.error(name, row)


# ---------------------------------------------------------------- other objects


def host_array(name: str, value: Any, row: int | None = None, code: str = "") -> Any:
    """Return an array or tensor of another library as one of NumPy, other values as they are.

    For messages, `name` is the argument, `row` a place in it, and `code` how hints write the value.
    """
    if isinstance(value, (int, list, tuple, np.ndarray, np.generic)):
        return value
    if is_tensor(value):
        return array_of_tensor(name, value, row, code)
    is_buffer = isinstance(value, (memoryview, array))
    if not is_buffer and not hasattr(value, "__array__") and not hasattr(value, "__dlpack__"):
        if not getattr(value, "ndim", 0):
            return value
        raise TypeError(
            f"`{name}` must be an array that NumPy reads, got {type(value).__name__}{at(row)} "
            "(pass a list of numbers)"
        )
    try:
        read = np.asarray if is_buffer or hasattr(value, "__array__") else np.from_dlpack
        return read(value)
    except Exception as error:  # of the other library, and of any type
        way_out = way_to_array(code or _entry(name, row), value) or "pass a list of numbers"
        raise TypeError(
            f"`{name}` must be an array that NumPy reads, got {type(value).__name__}{at(row)}: "
            f"{reason_of(error)} ({way_out})"
        ) from error


def way_to_array(name: str, value: Any, cast: str = "") -> str:
    """Say how to make an array of numbers of an object; "" where no way is known.

    Ways that make a copy are tried on it. `cast` is the dtype to ask for, as code.
    """
    if isinstance(value, ctypes._Pointer):
        return f"pass `np.ctypeslib.as_array({name}, shape=(n,))`, n the number of its elements"
    if "CData" in type(value).__name__:  # of cffi
        dtype_code = cast or "dtype"
        return f"pass `np.frombuffer(ffi.buffer({name}, n), {dtype_code})`, n its number of bytes"
    is_bytes = isinstance(value, memoryview) and value.format in ("B", "b", "c")
    if is_bytes or isinstance(value, (bytes, bytearray)):
        return f"pass `np.frombuffer({name}, {cast or 'dtype'})`, in the dtype of its numbers"
    if "Tracer" in type(value).__name__:
        return "call it with values, outside of jax.jit and jax.vmap"
    option = f", dtype={cast}" if cast else ""
    dtype = getattr(np, cast.removeprefix("np.")) if cast else None
    ways: list[tuple[str, Callable[[], Any]]] = [
        (f"{name}.numpy()", lambda: value.numpy()),
        (f"np.asarray({name}{option})", lambda: np.asarray(value, dtype)),
    ]
    if hasattr(value, "__cuda_array_interface__"):
        ways += [
            (f"{name}.get()", lambda: value.get()),
            (f"{name}.copy_to_host()", lambda: value.copy_to_host()),
        ]
    if isinstance(value, (list, tuple)) and value and all(map(is_tensor, value)):
        torch = sys.modules["torch"]
        ways = [(f"torch.stack(tuple({name}))", lambda: torch.stack(tuple(value)).detach())]
    if isinstance(value, (str, set, frozenset, dict)):
        return ""
    return next((f"pass `{code}`" for code, call in ways if _makes_array(call)), "")


def _makes_array(call: Callable[[], Any]) -> bool:
    try:
        made = call()
    except Exception:
        return False
    is_array = isinstance(made, np.ndarray) and made.ndim > 0 and made.dtype.kind in "biuf"
    return is_array or is_tensor(made)


def spelled(name: str, value: Any) -> str:
    """Return how hints write an array that can be indexed: the argument, or NumPy's view of it."""
    has_index = is_tensor(value) or hasattr(type(value), "__getitem__")
    return name if has_index else f"np.from_dlpack({name})"
