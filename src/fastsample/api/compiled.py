"""The compiled module, where it can be loaded, for what has a form in Python too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

native: Any
try:
    from fastsample import _native as native
except (ImportError, RuntimeError, ValueError):
    # Not installed, or a wrong setting of the environment: the engine says so when it is used.
    native = None

Method = TypeVar("Method", bound=Callable[..., Any])


def prepared(method: Method) -> Method:
    """Let compiled code do a method of `Sampler` where it can: see kernels/methods.pxi."""
    return method if native is None else native.prepared(method)
