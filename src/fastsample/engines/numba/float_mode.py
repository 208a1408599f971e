"""The processor's float mode: the default one during a call, whatever mode is set.

Section 1: other libraries may switch on flush-to-zero or another rounding, and no token may change.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from . import compiled

_X86_64 = platform.machine().lower() in ("x86_64", "amd64")
# Rounds to nearest, keeps denormals, traps nothing: in x86's MXCSR, in aarch64's FPCR.
_DEFAULT = 0x1F80 if _X86_64 else 0


def _exchange_mxcsr(builder: Any, mode: Any) -> Any:
    word, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
    access = ir.FunctionType(ir.VoidType(), [pointer])
    old, new = builder.alloca(word), builder.alloca(word)
    builder.store(builder.trunc(mode, word), new)
    for name, place in (("stmxcsr", old), ("ldmxcsr", new)):
        instruction = ir.Function(builder.module, access, f"llvm.x86.sse.{name}")
        builder.call(instruction, [builder.bitcast(place, pointer)])
    return builder.zext(builder.load(old), ir.IntType(64))


def _exchange_fpcr(builder: Any, mode: Any) -> Any:
    word = ir.IntType(64)
    old = builder.asm(ir.FunctionType(word, []), "mrs $0, fpcr", "=r", [], True)
    builder.asm(ir.FunctionType(ir.VoidType(), [word]), "msr fpcr, $0", "r", [mode], True)
    return old


@intrinsic  # type: ignore[untyped-decorator]
def _exchange(_typing: Any, _mode: Any) -> Any:
    """Set the mode of this thread, and return the one that it had."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        write = _exchange_mxcsr if _X86_64 else _exchange_fpcr
        return write(builder, arguments[0])

    return types.int64(types.int64), generate


@compiled
def _set_mode(mode: int) -> Any:
    return _exchange(mode)


class DefaultMode:
    """Compute in the default mode for the time of a `with`, and leave the mode as it was.

    It is set by calls of their own: no optimizer can move a loop's arithmetic past them.

    Examples
    --------
    >>> import numpy as np
    >>> with DefaultMode():
    ...     float(np.float32(1e-38) / np.float32(2)) > 0
    True
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = _set_mode(_DEFAULT)

    def __exit__(self, *_error: object) -> None:
        _set_mode(self._before)
