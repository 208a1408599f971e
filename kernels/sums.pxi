# Sums of the numbers of an array.

from kernels cimport ExactSum, Strided, c_exact_sum, c_fast_sum, c_fixed_sum, kDigits


cdef int _hold_numbers(Buffers& buffers, object values, Strided* numbers) except -1:
    """Acquire an array of any shape and strides."""
    cdef Py_buffer* buffer = _hold(buffers, values, PyBUF_STRIDED_RO, values.itemsize, "values")
    numbers.data = <const char*>buffer.buf
    numbers.dimensions = buffer.ndim
    numbers.shape = buffer.shape
    numbers.strides = buffer.strides
    numbers.dtype = <DType><int>{**_DTYPES, "d": 3}[values.dtype.char]
    return 0


def exact_sum(values, isa, int n_threads):
    """Return the exact sum of the finite numbers, a little-endian integer of 2**-1074, and the sum of the others."""
    cdef Buffers buffers
    cdef Strided numbers
    cdef _Isa chosen = _chosen(isa)
    cdef ExactSum sum
    cdef uint32_t[kDigits] digits
    cdef int i
    _hold_numbers(buffers, values, &numbers)
    with nogil:
        sum = c_exact_sum(chosen.kernels[0], numbers, n_threads)
    for i in range(kDigits):
        digits[i] = <uint32_t>sum.digits[i]
    return (<const char*>digits)[:sizeof(digits)], sum.special


def float_sum(values, str reduction, isa, int n_threads):
    """Return the sum in the order of a reduction, "fixed" or "fast"."""
    cdef Buffers buffers
    cdef Strided numbers
    cdef _Isa chosen = _chosen(isa)
    cdef bint is_fixed = reduction == "fixed"
    cdef double sum
    _hold_numbers(buffers, values, &numbers)
    with nogil:
        if is_fixed:
            sum = c_fixed_sum(chosen.kernels[0], numbers, n_threads)
        else:
            sum = c_fast_sum(chosen.kernels[0], numbers, n_threads)
    return sum
