# cython: language_level=3
"""The door to the compiled kernels: buffers in, the GIL released, status codes out.

Nothing is checked here that logits.py and params.py have checked; what is checked keeps a wrong caller
from reading memory that is not its own.
"""

import os

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_STRIDED_RO,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libcpp.vector cimport vector

import numpy as np


cdef extern from "dispatch.hpp" namespace "fastsample" nogil:
    cppclass Settings:
        pass

    cppclass Kernels:
        const char* name

    cppclass Batch:
        const char* logits
        int64_t rows
        int64_t vocabulary
        int64_t stride
        const Settings* settings

    ctypedef enum Status:
        pass

    vector[const Kernels*] compiled_kernels()
    bint usable(const Kernels&)
    void c_sample_rows "fastsample::sample_rows"(
        const Kernels&, const Batch&, int, int64_t*, uint8_t*) except +
    Status c_kept_set "fastsample::kept_set"(
        const Kernels&, const void*, int64_t, const Settings&, int64_t*, uint64_t*, int64_t*) except +


cdef extern from "pool.hpp" namespace "fastsample" nogil:
    int c_hardware_threads "fastsample::hardware_threads"()


cdef extern from "philox.hpp" namespace "fastsample" nogil:
    cppclass Words:
        uint32_t[4] word

    Words philox4x32(uint64_t, Words)


cdef extern from *:
    """
    #ifndef FASTSAMPLE_FLAGS
    #define FASTSAMPLE_FLAGS ""
    #endif
    #ifdef __clang__
    #define FASTSAMPLE_COMPILER __VERSION__
    #else
    #define FASTSAMPLE_COMPILER "GCC " __VERSION__
    #endif
    """
    const char* FASTSAMPLE_FLAGS
    const char* FASTSAMPLE_COMPILER


KNOWN_ISA = ("baseline", "x86-64-v3", "x86-64-v4", "neon")

cdef dict _usable = {}
cdef list _compiled = []


cdef class _Isa:
    cdef const Kernels* kernels


cdef void _find_kernels():
    cdef const Kernels* kernels
    cdef _Isa isa
    for kernels in compiled_kernels():
        name = kernels.name.decode()
        _compiled.append(name)
        if usable(kernels[0]):
            isa = _Isa.__new__(_Isa)
            isa.kernels = kernels
            _usable[name] = isa


_find_kernels()


cdef _Isa _resolve(name, str source):
    isa = _usable.get(name)
    if isa is not None:
        return <_Isa>isa
    usable_names = ", ".join(_usable)
    if name in KNOWN_ISA:
        raise RuntimeError(
            f"{source} {name!r} cannot run on this machine; usable here: {usable_names}")
    raise ValueError(
        f"{source} must be one of {', '.join(KNOWN_ISA)}, got {name!r}; usable here: {usable_names}")


cdef _Isa _default = _resolve(
    os.environ.get("FASTSAMPLE_ISA") or list(_usable)[-1], "the environment's `FASTSAMPLE_ISA`")


cdef _Isa _chosen(isa):
    return _default if isa is None else _resolve(isa, "`isa`")


def isa_compiled():
    """Names of the instruction sets in this build, the least demanding first."""
    return tuple(_compiled)


def isa_usable():
    """Names of those that this machine can run, the least demanding first."""
    return tuple(_usable)


def default_isa():
    """The name that is used where a call gives none: FASTSAMPLE_ISA, or the last usable one."""
    return _default.kernels.name.decode()


def compiler():
    """The compiler that built this module."""
    return FASTSAMPLE_COMPILER.decode()


def flags():
    """The compiler flags that all kernels share."""
    return FASTSAMPLE_FLAGS.decode()


def hardware_threads():
    """The number of processors that this process may run on."""
    return c_hardware_threads()


def philox(key, counter):
    """Philox4x32-10 of a 64-bit key and four 32-bit counter words: four 32-bit words."""
    cdef Words words
    cdef int i
    for i in range(4):
        words.word[i] = counter[i]
    words = philox4x32(key, words)
    return tuple(words.word[i] for i in range(4))


cdef class _View:
    """A buffer that is released when this object goes."""

    cdef Py_buffer buffer
    cdef bint held

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


cdef _View _view(object array, int flags, int dimensions, Py_ssize_t itemsize, str name):
    cdef _View view = _View.__new__(_View)
    PyObject_GetBuffer(array, &view.buffer, flags | PyBUF_FORMAT)
    view.held = True
    if view.buffer.ndim != dimensions or view.buffer.itemsize != itemsize:
        raise ValueError(
            f"{name} must have {dimensions} dimensions and items of {itemsize} bytes, "
            f"got {view.buffer.ndim} and {view.buffer.itemsize}")
    return view


cdef _View _logits(object logits, int dimensions):
    cdef _View view = _view(logits, PyBUF_STRIDED_RO, dimensions, 4, "logits")
    cdef Py_ssize_t last = dimensions - 1
    if view.buffer.shape[last] < 1:
        raise ValueError("logits must have at least one token")
    if view.buffer.shape[last] > 1 and view.buffer.strides[last] != 4:
        raise ValueError("logits of a row must lie side by side")
    return view


def sample_rows(rows, plan, tokens, status, isa, int n_threads):
    """Write each row's token and status; see engines/native.py."""
    cdef _Isa chosen = _chosen(isa)
    cdef _View logits = _logits(rows, 2)
    cdef _View settings = _view(plan, PyBUF_C_CONTIGUOUS, 1, sizeof(Settings), "plan")
    cdef _View token_view = _view(tokens, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, 1, 8, "tokens")
    cdef _View status_view = _view(status, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, 1, 1, "status")
    cdef Batch batch
    batch.rows = logits.buffer.shape[0]
    for view in (settings, token_view, status_view):
        if (<_View>view).buffer.shape[0] != batch.rows:
            raise ValueError("plan, tokens and status must have one item for each row")
    batch.logits = <const char*>logits.buffer.buf
    batch.vocabulary = logits.buffer.shape[1]
    batch.stride = logits.buffer.strides[0]
    batch.settings = <const Settings*>settings.buffer.buf
    with nogil:
        c_sample_rows(chosen.kernels[0], batch, n_threads, <int64_t*>token_view.buffer.buf,
                      <uint8_t*>status_view.buffer.buf)


def kept_set(row, plan, isa):
    """The kept set of one row: tokens (int64, ascending) and masses (uint64). Empty for a bad row."""
    cdef _Isa chosen = _chosen(isa)
    cdef _View logits = _logits(row, 1)
    cdef _View settings = _view(plan, PyBUF_C_CONTIGUOUS, 1, sizeof(Settings), "plan")
    if settings.buffer.shape[0] != 1:
        raise ValueError("plan must have one item")
    cdef int64_t vocabulary = logits.buffer.shape[0]
    cdef int64_t count = 0
    tokens = np.empty(vocabulary, dtype=np.int64)
    masses = np.empty(vocabulary, dtype=np.uint64)
    cdef int64_t[::1] token_view = tokens
    cdef uint64_t[::1] mass_view = masses
    with nogil:
        c_kept_set(chosen.kernels[0], logits.buffer.buf, vocabulary,
                   (<const Settings*>settings.buffer.buf)[0], &token_view[0], &mass_view[0], &count)
    return tokens[:count].copy(), masses[:count].copy()
