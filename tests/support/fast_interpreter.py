"""Triton's interpreter, without what makes it slow: importing this is enough.

It patches `triton.language` once more in every call of a function inside a kernel, where the launch
has patched it already: about 2 ms a call, ten times what the call itself costs.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.runtime import interpreter

_patch = interpreter._patch_lang
_patched: set[int] = set()
"""The modules that the launch in progress has patched."""


class _Scope:
    def __init__(self, scope: Any) -> None:
        self._scope = scope

    def restore(self) -> None:
        _patched.clear()
        self._scope.restore()


class _Nothing:
    def restore(self) -> None:
        pass


def _patch_once(fn: Any) -> Any:
    modules = {id(part) for part in fn.__globals__.values() if part is tl or part is tl.core}
    if modules <= _patched:
        return _Nothing()
    _patched.update(modules)
    return _Scope(_patch(fn))


interpreter._patch_lang = _patch_once
