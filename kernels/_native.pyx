# cython: language_level=3
"""The door to the compiled kernels: buffers in, status codes out, the GIL released where that pays.

kernels.pxd declares the kernels, buffers.pxi holds arrays for them, step.pxi is a sampler's call, and
sums.pxi adds up any array.
"""

import os

from cpython cimport array
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_STRIDED_RO,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp.vector cimport vector
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from kernels cimport (
    LogitsProcessors,
    SampleOutput,
    Batch,
    DType,
    LogprobsMode,
    Function,
    InstructionSet,
    KeptSets,
    Kernels,
    Reduction,
    RowParams,
    TokenLists,
    Words,
    apply_function,
    c_kept_sets,
    c_limit_threads,
    c_most_threads,
    c_sample_rows,
    compiled_isas,
    kLogSoftmax,
    kLogSumExp,
    kSoftmax,
    known_isas,
    philox4x32,
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
    return _default.name


def compiler():
    """The compiler that built this module."""
    return FASTSAMPLE_COMPILER.decode()


def flags():
    """The compiler flags that all kernels share."""
    return FASTSAMPLE_FLAGS.decode()


# ---- threads ------------------------------------------------------------------------------------------


def most_threads():
    """The most threads that a call may use: the limit, or the processors that this thread may run on."""
    return c_most_threads()


def limit_threads(int threads):
    """Limit every call to come to so many threads; 0 takes the limit away."""
    c_limit_threads(threads)


def _limit_in(str text):
    """The limit that FASTSAMPLE_NUM_THREADS asks for; 0 where it is not set."""
    if not text:
        return 0
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise ValueError(
            f"the environment's `FASTSAMPLE_NUM_THREADS` must be in [1, 2**31), got {text!r} (or unset)")
    return int(text)


c_limit_threads(_limit_in(os.environ.get("FASTSAMPLE_NUM_THREADS", "")))


# ---- random words -------------------------------------------------------------------------------------


def philox(key, counter):
    """Philox4x32-10 of a 64-bit key and four 32-bit counter words: four 32-bit words."""
    cdef Words words
    cdef int i
    for i in range(4):
        words.word[i] = counter[i]
    words = philox4x32(key, words)
    return tuple(words.word[i] for i in range(4))


include "buffers.pxi"


# ---- the doors ----------------------------------------------------------------------------------------

# Letting go of the GIL and taking it back costs 0.1 us, half of a greedy row of so many logits. The
# slowest setting, with as many, keeps other threads waiting for 8 us.
cdef int64_t BRIEF = 2048


cdef bint _is_brief(const Batch& batch, const LogitsProcessors& adjustments,
                    const SampleOutput& answers) noexcept:
    return (batch.rows * (batch.vocabulary + answers.draws) <= BRIEF
            and adjustments.prompt.offsets == NULL and adjustments.output.offsets == NULL)


cdef dict _REDUCTIONS = {"exact": 0, "fixed": 1, "fast": 2}


cdef int _code_of(str reduction) except -1:
    return _REDUCTIONS[reduction]


cdef int _sample(const Kernels* kernels, const Batch& batch, const LogitsProcessors& adjustments,
                 const RowParams* settings, Reduction reduction, int n_threads,
                 const SampleOutput& answers, uint8_t* status) except -1:
    if _is_brief(batch, adjustments, answers):
        c_sample_rows(kernels[0], batch, adjustments, settings, reduction, n_threads, answers,
                      status)
    else:
        with nogil:
            c_sample_rows(kernels[0], batch, adjustments, settings, reduction, n_threads, answers,
                          status)
    return 0


def sample(values, str kind, int64_t vocabulary, plan, mask, bias, prompt, output, tokens, status,
           kept_counts, forms, logprobs, ranks, top_tokens, top_logprobs, isa, int n_threads,
           str reduction):
    """Write each row's tokens, status and what is told of it; see engines/native.py."""
    cdef Held held_rows, held_plan, held_tokens, held_status, held_kept
    cdef Batch batch
    cdef SampleOutput answers = SampleOutput()
    cdef _Isa chosen = _chosen(isa)
    _hold_rows(held_rows, values, _DTYPES[kind], vocabulary, &batch)
    cdef _Adjusted adjusted = _adjusted(batch, mask, bias, prompt, output)
    _hold_plan(held_plan, plan, batch.rows)
    _hold_tokens(held_tokens, tokens, batch.rows, &answers)
    _hold_write(held_status, status, 1, batch.rows, "status")
    if kept_counts is not None:
        _hold_write(held_kept, kept_counts, 8, batch.rows, "kept_counts")
        answers.kept_counts = <int64_t*>held_kept.buffer.buf
    cdef _Told told
    if forms:
        told = _Told(forms, batch.rows, vocabulary, logprobs, ranks, top_tokens, top_logprobs)
        told.show(forms, top_tokens.shape[2], &answers)
    _sample(chosen.kernels, batch, adjusted.adjustments, <const RowParams*>held_plan.buffer.buf,
            <Reduction>_code_of(reduction), n_threads, answers, <uint8_t*>held_status.buffer.buf)


def kept_sets(values, str kind, int64_t vocabulary, plan, mask, bias, prompt, output, status, isa,
              int n_threads):
    """Kept sets in the rule's order: tokens, masses (uint64), adjusted logits (float32), offsets."""
    cdef Held held_rows, held_plan, held_status
    cdef Batch batch
    cdef _Isa chosen = _chosen(isa)
    _hold_rows(held_rows, values, _DTYPES[kind], vocabulary, &batch)
    cdef _Adjusted adjusted = _adjusted(batch, mask, bias, prompt, output)
    _hold_plan(held_plan, plan, batch.rows)
    _hold_write(held_status, status, 1, batch.rows, "status")
    cdef KeptSets sets
    with nogil:
        sets = c_kept_sets(chosen.kernels[0], batch, adjusted.adjustments,
                           <const RowParams*>held_plan.buffer.buf, n_threads,
                           <uint8_t*>held_status.buffer.buf)
    cdef size_t length = sets.tokens.size()
    tokens = np.empty(length, np.int64)
    masses = np.empty(length, np.uint64)
    logits = np.empty(length, np.float32)
    offsets = np.empty(sets.offsets.size(), np.int64)
    _copy(tokens, sets.tokens.data())
    _copy(masses, sets.masses.data())
    _copy(logits, sets.logits.data())
    _copy(offsets, sets.offsets.data())
    return tokens, masses, logits, offsets


cdef int _copy(array, const void* source) except -1:
    cdef Held target
    _hold(target, array, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, array.itemsize, "array")
    if target.buffer.len:
        memcpy(target.buffer.buf, source, target.buffer.len)
    return 0


cdef int _apply(Function function, Py_ssize_t itemsize, bint per_token, values, str kind,
                int64_t vocabulary, temperature, out, status, isa, int n_threads,
                str reduction) except -1:
    cdef Held held_rows, held_temperatures, held_target, held_status
    cdef Batch batch
    cdef _Isa chosen = _chosen(isa)
    cdef Reduction code = <Reduction>_code_of(reduction)
    _hold_rows(held_rows, values, _DTYPES[kind], vocabulary, &batch)
    _hold_read(held_temperatures, temperature, 8, batch.rows, "temperature")
    cdef int64_t length = batch.rows * (vocabulary if per_token else 1)
    _hold_write(held_target, out, itemsize, length, "out")
    _hold_write(held_status, status, 1, batch.rows, "status")
    with nogil:
        apply_function(chosen.kernels[0], function, batch,
                       <const double*>held_temperatures.buffer.buf, code, n_threads,
                       held_target.buffer.buf, <uint8_t*>held_status.buffer.buf)
    return 0


def softmax(values, kind, vocabulary, temperature, out, status, isa, n_threads, reduction):
    """Write probabilities, float32 (rows, vocabulary)."""
    _apply(kSoftmax, 4, True, values, kind, vocabulary, temperature, out, status, isa, n_threads,
           reduction)


def log_softmax(values, kind, vocabulary, temperature, out, status, isa, n_threads, reduction):
    """Write log-probabilities, float32 (rows, vocabulary)."""
    _apply(kLogSoftmax, 4, True, values, kind, vocabulary, temperature, out, status, isa, n_threads,
           reduction)


def logsumexp(values, kind, vocabulary, temperature, out, status, isa, n_threads, reduction):
    """Write the logarithm of the sum of exponentials, float64 (rows,)."""
    _apply(kLogSumExp, 8, False, values, kind, vocabulary, temperature, out, status, isa, n_threads,
           reduction)


include "step.pxi"
include "sums.pxi"
