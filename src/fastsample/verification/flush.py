"""The processor's flush-to-zero mode, which other libraries switch on: on for a while, to try it.

The C library keeps the mode in its `fenv_t`; where it lies there is known for two processors. What
was asked for is tried before it is believed.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

# Word of glibc's and musl's fenv_t, and the bits in it that flush: results, and operands on x86.
_PLACES = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}
_WORDS = 64


def flushes() -> bool:
    """Whether a product that is denormal comes out as 0 now.

    Examples
    --------
    >>> flushes()
    False
    """
    with np.errstate(under="ignore"):
        product = np.array([1e-38], dtype=np.float32) * np.float32(0.25)
    return not bool(product.view(np.uint32)[0])


@contextmanager
def flushing() -> Iterator[bool]:
    """Flush denormals to zero for the time of a `with`; tell whether this thread does."""
    place = _PLACES.get(platform.machine())
    if platform.system() != "Linux" or place is None:
        yield False
        return
    import ctypes

    library = ctypes.CDLL(None)
    word, bits = place
    before, changed = (ctypes.c_uint32 * _WORDS)(), (ctypes.c_uint32 * _WORDS)()
    library.fegetenv(before)
    library.fegetenv(changed)
    changed[word] |= bits
    library.fesetenv(changed)
    try:
        yield flushes()
    finally:
        library.fesetenv(before)
