# The results of prepared calls.

cdef object _EMPTY = np.empty
cdef object _ZEROS = np.zeros
cdef object _INT64 = np.dtype(np.int64)
cdef object _UINT64 = np.dtype(np.uint64)
cdef object _UINT8 = np.dtype(np.uint8)
cdef object _FLOAT64 = np.dtype(np.float64)
cdef object _from_numpy = None


cdef object _copy_of(tuple shape, dtype, const void* items, Py_ssize_t itemsize, Py_ssize_t count):
    """Make an array of this shape from `count` items."""
    cdef Buffers buffers
    array = _EMPTY(shape, dtype)
    if count:
        memcpy(_hold_write(buffers, array, itemsize, count, "array"), items, itemsize * count)
    return array


cdef object _as_tensor(array):
    """Return an array as a tensor of torch; None stays None."""
    global _from_numpy
    if array is None:
        return None
    if _from_numpy is None:
        _from_numpy = sys.modules["torch"].from_numpy
    return _from_numpy(array)


@final
cdef class _Details:
    """What a call returns besides tokens: arrays for the kernels to fill, None where it was not wanted."""

    cdef object logprobs
    cdef object ranks
    cdef object top_tokens
    cdef object top_logprobs
    cdef object kept_count

    cdef bint prepare(self, Buffers& buffers, const Arguments& arguments, logprobs, logprobs_mode, kept_count,
                      SampleOutput* output) except -1:
        """Allocate the arrays; False for arguments that are not plain."""
        cdef int64_t rows = arguments.batch.rows
        cdef tuple modes, leading, shape = () if arguments.is_row else (rows,)
        if type(logprobs_mode) is tuple:
            modes, leading = logprobs_mode, (len(logprobs_mode),)
        else:
            modes, leading = (logprobs_mode,), ()
        if not modes:
            return False
        for mode in modes:
            if type(mode) is not str or mode not in _MODES or modes.count(mode) > 1:
                return False
        if kept_count is True:
            self.kept_count = _EMPTY(shape, _INT64)
            output.kept_counts = <int64_t*>_hold_write(buffers, self.kept_count, 8, rows, "kept_count")
        elif kept_count is not False:
            return False
        if logprobs is None:
            return True
        if type(logprobs) is not int or not 0 <= logprobs <= arguments.batch.vocabulary:
            return False
        shape = leading + shape
        self.logprobs, self.ranks = _EMPTY(shape, _FLOAT64), _EMPTY(shape, _INT64)
        shape = shape + (logprobs,)
        self.top_tokens, self.top_logprobs = _EMPTY(shape, _INT64), _EMPTY(shape, _FLOAT64)
        _hold_details(buffers, modes, self.logprobs, self.ranks, self.top_tokens, self.top_logprobs,
                      logprobs, rows, output)
        return True

    cdef object result(self, result_type, tokens, status, seed, bint is_torch):
        """Make the `SampleResult`."""
        if is_torch:
            return result_type(
                _as_tensor(tokens), _as_tensor(self.logprobs), _as_tensor(self.ranks),
                _as_tensor(self.top_tokens), _as_tensor(self.top_logprobs),
                _as_tensor(self.kept_count), None, _as_tensor(status), seed)
        return result_type(tokens, self.logprobs, self.ranks, self.top_tokens, self.top_logprobs,
                           self.kept_count, None, status, seed)


# ---- time -------------------------------------------------------------------------------------------

# The buckets of latency.py.
cdef enum:
    LATENCY_BITS = 6
    LATENCY_BUCKETS = (63 - LATENCY_BITS + 1) << LATENCY_BITS


cdef void _record(int64_t* counts, int64_t* sums, int64_t took, int64_t tokens) noexcept:
    """What `Latency.record` does."""
    cdef int shift = 0
    while took >> shift >= 2 << LATENCY_BITS:
        shift += 1
    counts[(shift << LATENCY_BITS) + (took >> shift)] += 1
    sums[0] += 1
    sums[1] += tokens
    sums[2] += took
    sums[3] = max(sums[3], took)
