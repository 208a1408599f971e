# Sums of the numbers of an array.

from kernels cimport ExactSum, Strided, c_exact_sum, c_fast_sum, c_fixed_sum, kDigits

cdef dict _NUMBERS = {"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3}
cdef dict _SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}


cdef int _hold_numbers(Held& held, object values, str kind, Strided* numbers) except -1:
    """Acquire an array of any shape and strides."""
    _hold(held, values, PyBUF_STRIDED_RO, _SIZES[kind], "values")
    numbers.data = <const char*>held.buffer.buf
    numbers.dimensions = held.buffer.ndim
    numbers.shape = held.buffer.shape
    numbers.strides = held.buffer.strides
    numbers.dtype = <DType><int>_NUMBERS[kind]
    return 0


def exact_sum(values, str kind, isa, int n_threads):
    """Return the exact sum of the finite numbers, a little-endian integer of 2**-1074, and the sum of the others."""
    cdef Held held
    cdef Strided numbers
    cdef _Isa chosen = _chosen(isa)
    cdef ExactSum sum
    cdef uint32_t[kDigits] digits
    cdef int i
    _hold_numbers(held, values, kind, &numbers)
    with nogil:
        sum = c_exact_sum(chosen.kernels[0], numbers, n_threads)
    for i in range(kDigits):
        digits[i] = <uint32_t>sum.digits[i]
    return (<const char*>digits)[:sizeof(digits)], sum.special


def fixed_sum(values, str kind, isa, int n_threads):
    """Return the sum in rule 8's fixed order."""
    cdef Held held
    cdef Strided numbers
    cdef _Isa chosen = _chosen(isa)
    cdef double sum
    _hold_numbers(held, values, kind, &numbers)
    with nogil:
        sum = c_fixed_sum(chosen.kernels[0], numbers, n_threads)
    return sum


def fast_sum(values, str kind, isa, int n_threads):
    """Return the sum in the order that is fastest on this machine."""
    cdef Held held
    cdef Strided numbers
    cdef _Isa chosen = _chosen(isa)
    cdef double sum
    _hold_numbers(held, values, kind, &numbers)
    with nogil:
        sum = c_fast_sum(chosen.kernels[0], numbers, n_threads)
    return sum
