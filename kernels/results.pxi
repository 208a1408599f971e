# The results of calls: arrays of NumPy, or tensors of torch.

cdef extern from "<numpy/arrayobject.h>":
    int _import_array() except -1
    object PyArray_SimpleNew(int, const Py_ssize_t*, int)
    enum:
        NPY_UINT8
        NPY_INT64
        NPY_UINT64
        NPY_FLOAT32
        NPY_FLOAT64


cdef extern from * nogil:
    """
    struct Shape {
      int ndim = 0;
      Py_ssize_t sizes[3];

      void add_axis(Py_ssize_t size) { sizes[ndim++] = size; }
    };
    """
    cppclass Shape:
        Shape()
        int ndim
        Py_ssize_t[3] sizes
        void add_axis(Py_ssize_t size)


_import_array()


# The type of items: its number in NumPy, and its code and bits in DLPack.
cdef struct ItemType:
    int number
    uint8_t code
    uint8_t bits

cdef ItemType _UINT8_ITEMS = ItemType(NPY_UINT8, 1, 8)
cdef ItemType _INT64_ITEMS = ItemType(NPY_INT64, 0, 64)
cdef ItemType _UINT64_ITEMS = ItemType(NPY_UINT64, 1, 64)
cdef ItemType _FLOAT32_ITEMS = ItemType(NPY_FLOAT32, 2, 32)
cdef ItemType _FLOAT64_ITEMS = ItemType(NPY_FLOAT64, 2, 64)


cdef void _add_rows(Shape& shape, const Arguments& arguments) noexcept:
    """Add the axis of the rows, which logits of shape (V,) have not."""
    if not arguments.is_row:
        shape.add_axis(arguments.batch.rows)


cdef object _new_array(const Shape& shape, const ItemType& items, bint is_torch, void** memory):
    """Make an array, or a tensor, whose items are not written, and find its memory."""
    if is_torch and _torch_exchange != NULL:
        return _new_tensor(shape, items, memory)
    array = PyArray_SimpleNew(shape.ndim, shape.sizes, items.number)
    memory[0] = PyArray_DATA(<PyArrayObject*>array)
    return sys.modules["torch"].from_numpy(array) if is_torch else array


cdef object _new_tensor(const Shape& shape, const ItemType& items, void** memory):
    """Make a tensor of torch by the exchange API: code of NumPy would have to be fetched after a model's step."""
    cdef DLManagedTensorVersioned* managed = new_tensor(shape.ndim, shape.sizes, items.code, items.bits)
    cdef void* made = NULL
    if managed == NULL:
        PyErr_NoMemory()
    memory[0] = managed.tensor.data
    _torch_exchange.to_object(managed, &made)
    tensor = <object>made
    Py_DECREF(tensor)
    return tensor


cdef object _list_of(size_t count, const ItemType& items, const void* source):
    """Make an array of one axis, of these items."""
    cdef Shape shape
    cdef void* memory = NULL
    shape.add_axis(count)
    array = _new_array(shape, items, False, &memory)
    if count:
        memcpy(memory, source, count * (items.bits // 8))
    return array


cdef object _seeds_of(const vector[RowParams]& params):
    """Make an array of the seed of each row."""
    cdef vector[uint64_t] seeds
    cdef size_t b
    for b in range(params.size()):
        seeds.push_back(params[b].seed)
    return _list_of(seeds.size(), _UINT64_ITEMS, seeds.data())


@final
cdef class _Details:
    """What a call returns besides tokens: arrays for the kernels to fill, None where it was not wanted."""

    cdef object logprobs
    cdef object ranks
    cdef object top_tokens
    cdef object top_logprobs
    cdef object token_logprobs
    cdef object token_ranks
    cdef object kept_count

    cdef bint prepare(self, Buffers& buffers, Arguments& arguments, logprobs, logprobs_mode, kept_count,
                      logprob_tokens, SampleOutput* output) except -1:
        """Allocate the arrays; False for arguments that are not plain."""
        cdef bint is_torch = arguments.is_torch
        cdef Shape shape
        cdef tuple modes
        modes = logprobs_mode if type(logprobs_mode) is tuple else (logprobs_mode,)
        if not modes:
            return False
        for mode in modes:
            if type(mode) is not str or mode not in _MODES or modes.count(mode) > 1:
                return False
        _add_rows(shape, arguments)
        if kept_count is True:
            self.kept_count = _new_array(shape, _INT64_ITEMS, is_torch, <void**>&output.kept_counts)
        elif kept_count is not False:
            return False
        if logprobs is None and logprob_tokens is None:
            return True
        _add_modes(modes, output)
        if type(logprobs_mode) is tuple:
            shape = Shape()
            shape.add_axis(len(modes))
            _add_rows(shape, arguments)
        if logprobs is not None and not self.prepare_drawn(shape, arguments, logprobs, output):
            return False
        return logprob_tokens is None or self.prepare_given(buffers, shape, arguments, logprob_tokens, output)

    cdef bint prepare_drawn(self, Shape shape, const Arguments& arguments, logprobs,
                            SampleOutput* output) except -1:
        """Allocate those of the draw and of the top tokens."""
        cdef bint is_torch = arguments.is_torch
        if type(logprobs) is not int or not 0 <= logprobs <= arguments.batch.vocabulary:
            return False
        output.logprob_draws, output.top_count = 1, logprobs
        self.logprobs = _new_array(shape, _FLOAT64_ITEMS, is_torch, <void**>&output.logprobs)
        self.ranks = _new_array(shape, _INT64_ITEMS, is_torch, <void**>&output.ranks)
        shape.add_axis(output.top_count)
        self.top_tokens = _new_array(shape, _INT64_ITEMS, is_torch, <void**>&output.top_tokens)
        self.top_logprobs = _new_array(shape, _FLOAT64_ITEMS, is_torch, <void**>&output.top_logprobs)
        return True

    cdef bint prepare_given(self, Buffers& buffers, Shape shape, Arguments& arguments, logprob_tokens,
                            SampleOutput* output) except -1:
        """Allocate those of the caller's tokens."""
        cdef bint is_torch = arguments.is_torch
        if not _find_given(buffers, logprob_tokens, arguments):
            return False
        output.given, output.given_count = arguments.given.data(), arguments.given_count
        shape.add_axis(output.given_count)
        self.token_logprobs = _new_array(shape, _FLOAT64_ITEMS, is_torch, <void**>&output.given_logprobs)
        self.token_ranks = _new_array(shape, _INT64_ITEMS, is_torch, <void**>&output.given_ranks)
        return True

    cdef object result(self, result_type, tokens, status, seed):
        """Make the `SampleResult`."""
        return result_type(tokens, self.logprobs, self.ranks, self.top_tokens, self.top_logprobs,
                           self.token_logprobs, self.token_ranks, self.kept_count, None, status, seed)


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
