# cython: language_level=3
"""The compiled kernels for Python: records of arrays in, arrays and status codes out.

kernels.pxd declares the kernels; buffers.pxi acquires the memory of arrays; sequences.pxi keeps the sequences of a
sampler; arrays.pxi, arguments.pxi and results.pxi are what prepared calls take and return, step.pxi and draw.pxi those
of a sampler and of `sample`, call.pxi and methods.pxi the ways from a sampler to its step; sums.pxi adds the numbers of any array.
The GIL is released for all but brief calls.
"""

import os
import sys
from functools import update_wrapper as _update_wrapper
from time import perf_counter_ns as _perf_counter_ns

from cython cimport final
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_STRIDED_RO,
    PyBUF_WRITABLE,
    PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_Clear, PyErr_NoMemory
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.ref cimport Py_DECREF
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.algorithm cimport adjacent_find, lower_bound, sort
from libcpp.vector cimport vector

from kernels cimport (
    CTokenHistory,
    LogitsProcessors,
    SampleOutput,
    Batch,
    DLManagedTensorVersioned,
    DLPackExchangeAPI,
    DLTensor,
    DType,
    LogprobsMode,
    InstructionSet,
    KeptSets,
    Kernels,
    Reading,
    Reduction,
    RowParams,
    SoftmaxFunction,
    TokenLists,
    c_kept_sets,
    c_limit_threads,
    c_most_threads,
    c_reading,
    c_sample_rows,
    c_set_reading,
    compiled_isas,
    has_penalty,
    kDLCPU,
    kDLPackMajor,
    known_isas,
    new_tensor,
    softmax_rows,
)

import numpy as np


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


# ---- instruction sets ---------------------------------------------------------------------------------

KNOWN_ISA = tuple([name.decode() for name in known_isas()])

cdef dict _usable = {}
cdef list _compiled = []


cdef class _Isa:
    cdef str name
    cdef const Kernels* kernels


cdef void _find_kernels():
    cdef InstructionSet compiled
    cdef _Isa isa
    for compiled in compiled_isas():
        isa = _Isa.__new__(_Isa)
        isa.name = compiled.name.decode()
        isa.kernels = compiled.kernels
        _compiled.append(isa.name)
        if compiled.runs():
            _usable[isa.name] = isa


_find_kernels()


cdef _Isa _resolve(name, str source):
    isa = _usable.get(name) if isinstance(name, str) else None
    if isa is not None:
        return <_Isa>isa
    known_names, usable_names = ", ".join(KNOWN_ISA), ", ".join(_usable)
    if name in KNOWN_ISA:
        raise RuntimeError(
            f"{source} {name!r} cannot run on this machine (usable here: {usable_names})")
    raise ValueError(
        f"{source} must be one of {known_names}, got {name!r} (usable here: {usable_names})")


cdef _Isa _default = _resolve(
    os.environ.get("FASTSAMPLE_ISA") or list(_usable)[-1], "the environment's `FASTSAMPLE_ISA`")


cdef _Isa _chosen(isa):
    return _default if isa is None else _resolve(isa, "`isa`")


def isa_compiled():
    """Return the names of the instruction sets in this build, the least demanding first."""
    return tuple(_compiled)


def isa_usable():
    """Return the names of those that this machine can run, the least demanding first."""
    return tuple(_usable)


def default_isa():
    """Return the name for calls without one: that of FASTSAMPLE_ISA, or the last usable one."""
    return _default.name


def compiler():
    """Return the name and version of the compiler that built this module."""
    return FASTSAMPLE_COMPILER.decode()


def flags():
    """Return the compiler flags that all kernels share."""
    return FASTSAMPLE_FLAGS.decode()


# ---- how first passes read rows ---------------------------------------------------------------------

READINGS = ("streams", "ahead")  # by number: see runtime/types.hpp


def reading():
    """Return the name of how first passes read rows: that of FASTSAMPLE_READING, or this processor's best."""
    return READINGS[<int>c_reading()]


def set_reading(str name, str source="`name`"):
    """Choose how the first passes of all later calls read rows. It changes no result."""
    if name not in READINGS:
        raise ValueError(f"{source} must be one of {', '.join(READINGS)}, got {name!r} (or unset)")
    c_set_reading(<Reading><int>READINGS.index(name))


if os.environ.get("FASTSAMPLE_READING"):
    set_reading(os.environ["FASTSAMPLE_READING"], "the environment's `FASTSAMPLE_READING`")


# ---- threads ------------------------------------------------------------------------------------------


def most_threads():
    """Return how many threads a call may use: the limit, or the number of usable processors."""
    return c_most_threads()


def limit_threads(int threads):
    """Limit all later calls to so many threads; 0 removes the limit."""
    c_limit_threads(threads)


def _limit_in(str text):
    """Return the limit in FASTSAMPLE_NUM_THREADS; 0 if it is not set."""
    if not text:
        return 0
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise ValueError(
            f"the environment's `FASTSAMPLE_NUM_THREADS` must be in [1, 2**31), got {text!r} (or unset)")
    return int(text)


c_limit_threads(_limit_in(os.environ.get("FASTSAMPLE_NUM_THREADS", "")))


include "buffers.pxi"


# ---- functions of an engine ---------------------------------------------------------------------------

# Releasing and taking the GIL costs 0.1 us, half of a greedy row of so many logits. The slowest
# parameters keep other threads waiting for 8 us.
cdef int64_t BRIEF = 2048


cdef bint _is_brief(const Batch& batch, const LogitsProcessors& processors,
                    const SampleOutput& output) noexcept:
    return (batch.rows * (batch.vocabulary + output.draws) <= BRIEF
            and processors.prompt.offsets == NULL and processors.output.offsets == NULL)


cdef int _sample(const Kernels* kernels, const Batch& batch, const LogitsProcessors& processors,
                 const RowParams* params, Reduction reduction, int n_threads,
                 const SampleOutput& output, uint8_t* status) except -1:
    if _is_brief(batch, processors, output):
        c_sample_rows(kernels[0], batch, processors, params, reduction, n_threads, output, status)
    else:
        with nogil:
            c_sample_rows(kernels[0], batch, processors, params, reduction, n_threads, output,
                          status)
    return 0


def sample(request, out, isa=None, n_threads=None):
    """Draw for every row of a `SampleRequest`, and write a `SampleOutput` of engines/contract.py."""
    cdef Buffers buffers
    cdef Inputs inputs
    cdef SampleOutput output
    cdef _Isa chosen = _chosen(isa)
    _hold_request(buffers, request, &inputs)
    cdef uint8_t* status = _hold_output(buffers, out, inputs, &output)
    output.distinct = not request.replacement
    _sample(chosen.kernels, inputs.batch, inputs.processors, inputs.params, inputs.reduction,
            n_threads or 0, output, status)


def kept_sets(request, status, isa=None, n_threads=None):
    """Find the kept set of each row of a `SampleRequest`; return the arrays of a `KeptSets`."""
    cdef Buffers buffers
    cdef Inputs inputs
    cdef _Isa chosen = _chosen(isa)
    cdef int threads = n_threads or 0
    _hold_request(buffers, request, &inputs)
    cdef uint8_t* statuses = <uint8_t*>_hold_write(buffers, status, 1, inputs.batch.rows, "status")
    cdef KeptSets sets
    with nogil:
        sets = c_kept_sets(chosen.kernels[0], inputs.batch, inputs.processors, inputs.params, threads,
                           statuses)
    return (
        _list_of(sets.tokens.size(), _INT64_ITEMS, sets.tokens.data()),
        _list_of(sets.masses.size(), _UINT64_ITEMS, sets.masses.data()),
        _list_of(sets.logits.size(), _FLOAT32_ITEMS, sets.logits.data()),
        _list_of(sets.offsets.size(), _INT64_ITEMS, sets.offsets.data()),
    )


def softmax(str name, request, out, status, isa=None, n_threads=None):
    """Write "softmax", "log_softmax" or "logsumexp" of each row at the temperature of its plan.

    `out` is float32 of shape (rows, vocabulary); for "logsumexp" float64 of shape (rows,).
    """
    cdef Buffers buffers
    cdef Inputs inputs
    cdef _Isa chosen = _chosen(isa)
    cdef SoftmaxFunction function = <SoftmaxFunction><int>_SOFTMAX_FUNCTIONS[name]
    cdef bint per_token = name != "logsumexp"
    cdef int threads = n_threads or 0
    _hold_request(buffers, request, &inputs)
    cdef int64_t length = inputs.batch.rows * (inputs.batch.vocabulary if per_token else 1)
    cdef void* target = _hold_write(buffers, out, 4 if per_token else 8, length, "out")
    cdef uint8_t* statuses = <uint8_t*>_hold_write(buffers, status, 1, inputs.batch.rows, "status")
    with nogil:
        softmax_rows(chosen.kernels[0], function, inputs.batch, inputs.params, inputs.reduction,
                     threads, target, statuses)


cdef dict _SOFTMAX_FUNCTIONS = {"softmax": 0, "log_softmax": 1, "logsumexp": 2}


include "sequences.pxi"
include "arrays.pxi"
include "arguments.pxi"
include "results.pxi"
include "call.pxi"
include "step.pxi"
include "methods.pxi"
include "draw.pxi"
include "sums.pxi"
