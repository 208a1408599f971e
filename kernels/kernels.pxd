# cython: language_level=3
"""Declarations of the kernels' headers for Cython.

Header names are in <>: Cython would copy others into the build folder, and Clang includes a copy as a second header.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp.vector cimport vector


cdef extern from "<runtime/types.hpp>" namespace "fastsample" nogil:
    cppclass RowParams:
        uint64_t seed
        uint64_t position
        uint32_t stream
        uint32_t draw


cdef extern from "<sampling/token_counts.hpp>" namespace "fastsample" nogil:
    cppclass CTokenHistory "fastsample::TokenHistory":
        void set_ignored(const int64_t*, int64_t, bint) except +
        void set_prompt(const int64_t*, int64_t) except +
        void set_vocabulary(int64_t)
        void reserve_more(int64_t) except +
        void extend(const int64_t*, int64_t)
        void truncate(int64_t)
        int64_t prompt_count()
        int64_t output_count()
        const int32_t* tokens()
        int64_t max_token()
        size_t bytes()


cdef extern from "<sampling/penalties.hpp>" namespace "fastsample" nogil:
    cppclass TokenLists:
        const int64_t* offsets
        const int64_t* tokens
        const float* values

    cppclass LogitsProcessors:
        LogitsProcessors()
        const char* mask
        int64_t mask_stride
        int64_t mask_count
        bint mask_is_bits
        TokenLists bias
        TokenLists prompt
        TokenLists output
        CTokenHistory** histories

    bint has_penalty(const RowParams&)


cdef extern from "<runtime/dispatch.hpp>" namespace "fastsample" nogil:
    cppclass Kernels:
        pass

    cppclass InstructionSet:
        const char* name
        const Kernels* kernels
        bint (*runs)()

    cppclass Reading:
        pass
    Reading c_reading "fastsample::reading"()
    void c_set_reading "fastsample::set_reading"(Reading)

    ctypedef int32_t DType
    ctypedef int32_t LogprobsMode
    ctypedef int32_t Reduction

    cppclass Batch:
        Batch()
        const char* logits
        int64_t rows
        int64_t vocabulary
        int64_t row_stride
        int64_t token_stride
        DType dtype
        const int64_t* row_offsets

    cppclass SampleOutput:
        SampleOutput()
        int64_t* tokens
        int64_t draws
        int64_t* kept_counts
        vector[LogprobsMode] modes
        int64_t logprob_draws
        int64_t top_count
        int64_t given_count
        const int64_t* given
        double* logprobs
        int64_t* ranks
        int64_t* top_tokens
        double* top_logprobs
        double* given_logprobs
        int64_t* given_ranks
        bint distinct

    cppclass KeptSets:
        vector[int64_t] tokens
        vector[float] logits
        vector[uint64_t] masses
        vector[int64_t] offsets

    ctypedef int32_t SoftmaxFunction

    vector[InstructionSet] compiled_isas()
    vector[const char*] known_isas()
    void c_sample_rows "fastsample::sample_rows"(
        const Kernels&, const Batch&, const LogitsProcessors&, const RowParams*, Reduction, int,
        const SampleOutput&, uint8_t*) except +
    void softmax_rows(
        const Kernels&, SoftmaxFunction, const Batch&, const RowParams*, Reduction, int, void*,
        uint8_t*) except +
    KeptSets c_kept_sets "fastsample::kept_sets"(
        const Kernels&, const Batch&, const LogitsProcessors&, const RowParams*, int, uint8_t*) except +


cdef extern from "<runtime/dlpack.hpp>" namespace "fastsample" nogil:
    cppclass DLTensor:
        void* data
        int32_t device_type
        int32_t ndim
        uint8_t code
        uint8_t bits
        uint16_t lanes
        int64_t* shape
        int64_t* strides
        uint64_t byte_offset

    cppclass DLManagedTensorVersioned:
        uint32_t major
        DLTensor tensor

    cppclass DLPackExchangeAPI:
        uint32_t major
        int (*from_object)(void*, DLManagedTensorVersioned**)
        int (*to_object)(DLManagedTensorVersioned*, void**) except -1

    DLManagedTensorVersioned* new_tensor "fastsample::OwnTensor::make"(
        int, const Py_ssize_t*, uint8_t, uint8_t)

    const uint32_t kDLPackMajor
    const int32_t kDLCPU


cdef extern from "<simd/float_mode.hpp>" namespace "fastsample" nogil:
    pass


cdef extern from "<runtime/pool.hpp>" namespace "fastsample" nogil:
    int c_most_threads "fastsample::max_threads"()
    void c_limit_threads "fastsample::limit_threads"(int)


cdef extern from "<reduce/reduce.hpp>" namespace "fastsample" nogil:
    enum: kDigits

    cppclass ExactSum:
        int64_t[kDigits] digits
        double special

    cppclass Strided:
        Strided()
        const char* data
        int dimensions
        const Py_ssize_t* shape
        const Py_ssize_t* strides
        DType dtype

    ExactSum c_exact_sum "fastsample::exact_sum"(const Kernels&, const Strided&, int) except +
    double c_fixed_sum "fastsample::fixed_sum"(const Kernels&, const Strided&, int) except +
    double c_fast_sum "fastsample::fast_sum"(const Kernels&, const Strided&, int) except +
