"""Arrays of other libraries, read in place through DLPack; also bfloat16, which NumPy refuses."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.params.foreign import reason_of, way_to_array

_CPU = 1
_BFLOAT16 = (4, 16, 1)  # type code, bits, lanes

_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h: the first field of the struct in a capsule named "dltensor"."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Memory:
    """The array interface of memory, and the capsule that frees it after the last array."""

    def __init__(self, capsule: Any, interface: dict[str, Any]) -> None:
        self.capsule = capsule
        self.__array_interface__ = interface


def memory_of(array: Any, name: str, cast: str = "") -> tuple[NDArray[Any], bool]:
    """Return the memory of an object with ``__dlpack__``, and whether it is bfloat16, as uint16.

    `name` is the argument, and `cast` the dtype that messages name.
    """
    kind = f"{type(array).__module__}.{type(array).__qualname__}"
    device = _device_of(array)
    if device != _CPU:
        way_out = way_to_array(name, array, cast) or "pass a copy on the host, an array of NumPy"
        raise TypeError(
            f"`{name}` must be on the CPU, got a {kind} on a device of DLPack's type {device} "
            f"({way_out})"
        )
    try:
        return np.from_dlpack(array), False
    except Exception as error:  # of the other library, and of any type
        bits = _bfloat16_bits(array)
        if bits is None:
            way_out = way_to_array(name, array, cast) or "pass an array of NumPy"
            raise TypeError(
                f"`{name}` must be an array that NumPy reads through DLPack, or bfloat16, got a "
                f"{kind}: {reason_of(error)} ({way_out})"
            ) from error
        return bits, True


def _device_of(array: Any) -> int:
    """Return the type of the device, as DLPack numbers them; the CPU where it is not stated."""
    try:
        return int(array.__dlpack_device__()[0])
    except Exception:  # of the other library, and of any type: the reading reports it
        return _CPU


def _bfloat16_bits(array: Any) -> NDArray[np.uint16] | None:
    """Read a capsule of bfloat16 as uint16; None for any other."""
    try:
        capsule = array.__dlpack__()
        tensor = DLTensor.from_address(_pointer_in(capsule, b"dltensor"))
    except Exception:
        return None
    if tensor.device_type != _CPU or (tensor.code, tensor.bits, tensor.lanes) != _BFLOAT16:
        return None
    interface = {
        "version": 3,
        "typestr": np.dtype(np.uint16).str,
        "shape": tuple(tensor.shape[: tensor.ndim]),
        "strides": tuple(2 * s for s in tensor.strides[: tensor.ndim]) if tensor.strides else None,
        "data": ((tensor.data or 0) + tensor.byte_offset, True),
    }
    # The capsule keeps its name, and so still frees the memory.
    return np.asarray(_Memory(capsule, interface))
