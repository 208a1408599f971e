# cython: language_level=3
"""The door to the compiled kernels: buffers in, the GIL released, status codes out.

Nothing is checked here that the Python rooms have checked; what is checked keeps a wrong caller from
reading memory that is not its own.
"""

import os

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_STRIDED_RO,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp.vector cimport vector

import numpy as np


cdef extern from "adjust.hpp" namespace "fastsample" nogil:
    cppclass TokenLists:
        const int64_t* offsets
        const int64_t* tokens
        const float* values

    cppclass Adjustments:
        const char* mask
        int64_t mask_stride
        int64_t mask_count
        bint mask_is_bits
        TokenLists bias
        TokenLists prompt
        TokenLists output


cdef extern from "dispatch.hpp" namespace "fastsample" nogil:
    cppclass Settings:
        pass

    cppclass Kernels:
        const char* name

    ctypedef int32_t DType
    ctypedef int32_t Form

    cppclass Batch:
        const char* logits
        int64_t rows
        int64_t vocabulary
        int64_t row_stride
        int64_t token_stride
        DType dtype

    cppclass Answers:
        int64_t* tokens
        int64_t draws
        int64_t* kept_counts
        vector[Form] forms
        int64_t top_count
        double* logprobs
        int64_t* ranks
        int64_t* top_tokens
        double* top_logprobs

    cppclass KeptSets:
        vector[int64_t] tokens
        vector[float] logits
        vector[uint64_t] masses
        vector[int64_t] offsets

    cppclass Function:
        pass

    vector[const Kernels*] compiled_kernels()
    bint usable(const Kernels&)
    void c_sample_rows "fastsample::sample_rows"(
        const Kernels&, const Batch&, const Adjustments&, const Settings*, int, const Answers&,
        uint8_t*) except +
    void apply_function(
        const Kernels&, Function, const Batch&, const double*, int, void*, uint8_t*) except +
    KeptSets c_kept_sets "fastsample::kept_sets"(
        const Kernels&, const Batch&, const Adjustments&, const Settings*, int, uint8_t*) except +


cdef extern from "dispatch.hpp" namespace "fastsample::Function" nogil:
    Function kSoftmax
    Function kLogSoftmax
    Function kLogSumExp


cdef extern from "pool.hpp" namespace "fastsample" nogil:
    int c_most_threads "fastsample::most_threads"()
    void c_limit_threads "fastsample::limit_threads"(int)


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


# ---- instruction sets ---------------------------------------------------------------------------------

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


# ---- buffers ------------------------------------------------------------------------------------------

cdef class _View:
    """A buffer that is released when this object goes."""

    cdef Py_buffer buffer
    cdef bint held

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


cdef _View _view(object array, int flags, Py_ssize_t itemsize, str name):
    cdef _View view = _View.__new__(_View)
    PyObject_GetBuffer(array, &view.buffer, flags)
    view.held = True
    if view.buffer.itemsize != itemsize:
        raise ValueError(
            f"{name} must have items of {itemsize} bytes, got {view.buffer.itemsize}")
    return view


cdef _View _read(object array, Py_ssize_t itemsize, Py_ssize_t length, str name):
    """A contiguous array of at least `length` items, to be read."""
    cdef _View view = _view(array, PyBUF_C_CONTIGUOUS, itemsize, name)
    if view.buffer.len < length * itemsize:
        raise ValueError(f"{name} must have {length} items")
    return view


cdef _View _write(object array, Py_ssize_t itemsize, Py_ssize_t length, str name):
    """A contiguous array of exactly `length` items, to be written."""
    cdef _View view = _view(array, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, itemsize, name)
    if view.buffer.len != length * itemsize:
        raise ValueError(f"{name} must have {length} items")
    return view


_DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2}


cdef class _Rows:
    """A batch of rows, and what keeps its memory."""

    cdef Batch batch
    cdef _View view

    def __cinit__(self, values, str kind, int64_t vocabulary):
        dtype = _DTYPES[kind]
        self.view = _view(values, PyBUF_STRIDED_RO, 2 if dtype else 4, "values")
        cdef Py_buffer* buffer = &self.view.buffer
        if buffer.ndim != 2 or not 1 <= vocabulary <= buffer.shape[1]:
            raise ValueError("values must be rows of at least `vocabulary` tokens")
        self.batch.logits = <const char*>buffer.buf
        self.batch.rows = buffer.shape[0]
        self.batch.vocabulary = vocabulary
        self.batch.row_stride = buffer.strides[0]
        # A vocabulary of one token may come with any stride.
        self.batch.token_stride = buffer.strides[1] if buffer.shape[1] > 1 else buffer.itemsize
        self.batch.dtype = <DType><int>dtype


cdef class _Lists:
    """One list of tokens a row: (offsets, tokens, values or None), or None."""

    cdef TokenLists lists
    cdef _View offsets
    cdef _View tokens
    cdef _View values

    def __cinit__(self, lists, int64_t rows, int64_t vocabulary, bint with_values):
        if lists is None:
            return
        self.offsets = _read(lists[0], 8, rows + 1, "offsets")
        cdef const int64_t* offsets = <const int64_t*>self.offsets.buffer.buf
        cdef int64_t i
        for i in range(rows):
            if not 0 <= offsets[i] <= offsets[i + 1]:
                raise ValueError("offsets must ascend from 0")
        cdef int64_t length = offsets[rows]
        self.tokens = _read(lists[1], 8, length, "tokens")
        cdef const int64_t* tokens = <const int64_t*>self.tokens.buffer.buf
        for i in range(length):
            if not 0 <= tokens[i] < vocabulary:
                raise ValueError("tokens must be in the vocabulary")
        self.lists.offsets = offsets
        self.lists.tokens = tokens
        if with_values:
            self.values = _read(lists[2], 4, length, "values")
            self.lists.values = <const float*>self.values.buffer.buf


cdef class _Adjusted:
    """The adjustments of a batch, and what keeps their memory."""

    cdef Adjustments adjustments
    cdef _View mask
    cdef _Lists bias
    cdef _Lists prompt
    cdef _Lists output

    def __cinit__(self, _Rows rows, mask, bias, prompt, output):
        cdef int64_t count = rows.batch.rows
        cdef int64_t vocabulary = rows.batch.vocabulary
        if mask is not None:
            self._take_mask(mask, count, vocabulary)
        self.bias = _Lists(bias, count, vocabulary, True)
        self.prompt = _Lists(prompt, count, vocabulary, False)
        self.output = _Lists(output, count, vocabulary, False)
        self.adjustments.bias = self.bias.lists
        self.adjustments.prompt = self.prompt.lists
        self.adjustments.output = self.output.lists

    cdef int _take_mask(self, mask, int64_t rows, int64_t vocabulary) except -1:
        """bool, a byte a token; or uint32, a bit a token. One row serves all."""
        bits = mask.dtype != np.bool_
        self.mask = _view(mask, PyBUF_C_CONTIGUOUS, 4 if bits else 1, "mask")
        cdef Py_buffer* buffer = &self.mask.buffer
        if buffer.ndim != 2 or (buffer.shape[0] != 1 and buffer.shape[0] != rows):
            raise ValueError("mask must have one row, or one for each row of values")
        self.adjustments.mask = <const char*>buffer.buf
        self.adjustments.mask_stride = 0 if buffer.shape[0] == 1 else buffer.strides[0]
        self.adjustments.mask_count = min(vocabulary, buffer.shape[1] * (32 if bits else 1))
        self.adjustments.mask_is_bits = bits
        return 0


_FORMS = {"raw": 0, "tempered": 1, "processed": 2}


cdef class _Told:
    """Where log-probabilities go, and what keeps the memory."""

    cdef vector[Form] forms
    cdef int64_t top_count
    cdef _View logprobs
    cdef _View ranks
    cdef _View top_tokens
    cdef _View top_logprobs

    def __cinit__(self, forms, int64_t rows, int64_t vocabulary, logprobs, ranks, top_tokens,
                  top_logprobs):
        for form in forms:
            self.forms.push_back(<Form><int>_FORMS[form])
        cdef int64_t told = <int64_t>self.forms.size() * rows
        self.top_count = top_tokens.shape[2]
        if self.top_count > vocabulary:
            raise ValueError("top_tokens cannot hold more tokens than the vocabulary")
        self.logprobs = _write(logprobs, 8, told, "logprobs")
        self.ranks = _write(ranks, 8, told, "ranks")
        self.top_tokens = _write(top_tokens, 8, told * self.top_count, "top_tokens")
        self.top_logprobs = _write(top_logprobs, 8, told * self.top_count, "top_logprobs")

    cdef void show(self, Answers* answers):
        answers.forms = self.forms
        answers.top_count = self.top_count
        answers.logprobs = <double*>self.logprobs.buffer.buf
        answers.ranks = <int64_t*>self.ranks.buffer.buf
        answers.top_tokens = <int64_t*>self.top_tokens.buffer.buf
        answers.top_logprobs = <double*>self.top_logprobs.buffer.buf


cdef _View _settings(plan, int64_t rows):
    return _read(plan, sizeof(Settings), rows, "plan")


# ---- the doors ----------------------------------------------------------------------------------------


def sample(values, str kind, int64_t vocabulary, plan, mask, bias, prompt, output, tokens, status,
           kept_counts, forms, logprobs, ranks, top_tokens, top_logprobs, isa, int n_threads):
    """Write each row's tokens, status and what is told of it; see engines/native.py."""
    cdef _Isa chosen = _chosen(isa)
    cdef _Rows rows = _Rows(values, kind, vocabulary)
    cdef _Adjusted adjusted = _Adjusted(rows, mask, bias, prompt, output)
    cdef int64_t count = rows.batch.rows
    cdef _View settings = _settings(plan, count)
    cdef _View token_view = _view(tokens, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, 8, "tokens")
    if token_view.buffer.ndim != 2 or token_view.buffer.shape[0] != count:
        raise ValueError("tokens must have shape (rows, draws)")
    cdef _View status_view = _write(status, 1, count, "status")
    cdef Answers answers
    answers.tokens = <int64_t*>token_view.buffer.buf
    answers.draws = token_view.buffer.shape[1]
    answers.kept_counts = NULL
    answers.top_count = 0
    cdef _View kept_view
    if kept_counts is not None:
        kept_view = _write(kept_counts, 8, count, "kept_counts")
        answers.kept_counts = <int64_t*>kept_view.buffer.buf
    cdef _Told told
    if forms:
        told = _Told(forms, count, vocabulary, logprobs, ranks, top_tokens, top_logprobs)
        told.show(&answers)
    with nogil:
        c_sample_rows(chosen.kernels[0], rows.batch, adjusted.adjustments,
                      <const Settings*>settings.buffer.buf, n_threads, answers,
                      <uint8_t*>status_view.buffer.buf)


def kept_sets(values, str kind, int64_t vocabulary, plan, mask, bias, prompt, output, status, isa,
              int n_threads):
    """Kept sets in the rule's order: tokens, masses (uint64), adjusted logits (float32), offsets."""
    cdef _Isa chosen = _chosen(isa)
    cdef _Rows rows = _Rows(values, kind, vocabulary)
    cdef _Adjusted adjusted = _Adjusted(rows, mask, bias, prompt, output)
    cdef _View settings = _settings(plan, rows.batch.rows)
    cdef _View status_view = _write(status, 1, rows.batch.rows, "status")
    cdef KeptSets sets
    with nogil:
        sets = c_kept_sets(chosen.kernels[0], rows.batch, adjusted.adjustments,
                           <const Settings*>settings.buffer.buf, n_threads,
                           <uint8_t*>status_view.buffer.buf)
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
    cdef _View target = _view(array, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, array.itemsize, "array")
    if target.buffer.len:
        memcpy(target.buffer.buf, source, target.buffer.len)
    return 0


cdef _apply(Function function, Py_ssize_t itemsize, bint per_token, values, str kind,
            int64_t vocabulary, temperature, out, status, isa, int n_threads):
    cdef _Isa chosen = _chosen(isa)
    cdef _Rows rows = _Rows(values, kind, vocabulary)
    cdef int64_t count = rows.batch.rows
    cdef _View temperatures = _read(temperature, 8, count, "temperature")
    cdef _View target = _write(out, itemsize, count * (vocabulary if per_token else 1), "out")
    cdef _View status_view = _write(status, 1, count, "status")
    with nogil:
        apply_function(chosen.kernels[0], function, rows.batch,
                       <const double*>temperatures.buffer.buf, n_threads, target.buffer.buf,
                       <uint8_t*>status_view.buffer.buf)


def softmax(values, kind, vocabulary, temperature, out, status, isa, n_threads):
    """Write probabilities, float32 (rows, vocabulary)."""
    _apply(kSoftmax, 4, True, values, kind, vocabulary, temperature, out, status, isa, n_threads)


def log_softmax(values, kind, vocabulary, temperature, out, status, isa, n_threads):
    """Write log-probabilities, float32 (rows, vocabulary)."""
    _apply(kLogSoftmax, 4, True, values, kind, vocabulary, temperature, out, status, isa, n_threads)


def logsumexp(values, kind, vocabulary, temperature, out, status, isa, n_threads):
    """Write the logarithm of the sum of exponentials, float64 (rows,)."""
    _apply(kLogSumExp, 8, False, values, kind, vocabulary, temperature, out, status, isa, n_threads)
