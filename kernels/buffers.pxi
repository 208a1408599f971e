# The memory of Python's arrays, acquired for a call and checked for size.
#
# Python has checked the arguments before; these checks keep a wrong caller from reading or writing memory
# that is not its own.

cdef extern from * nogil:
    """
    // Buffers of Python's protocol and tensors of DLPack, released with the object; the GIL must be held then.
    struct Buffers {
      Py_buffer held[20];  // as many as a SampleRequest and a SampleOutput have
      fastsample::DLManagedTensorVersioned* tensors[7];  // as many as a call has arguments
      int count = 0;
      int tensor_count = 0;
      Buffers() = default;
      Buffers(const Buffers&) = delete;
      Buffers& operator=(const Buffers&) = delete;
      ~Buffers() {
        while (count) PyBuffer_Release(&held[--count]);
        while (tensor_count) {
          fastsample::DLManagedTensorVersioned* const tensor = tensors[--tensor_count];
          if (tensor->deleter) tensor->deleter(tensor);
        }
      }
    };

    // What the kernels read of a SampleRequest.
    struct Inputs {
      fastsample::Batch batch;
      fastsample::LogitsProcessors processors = {};
      const fastsample::RowParams* params;
      fastsample::Reduction reduction;
      int64_t given_count;  // of the caller's tokens
      const int64_t* given;
    };
    """
    cppclass Buffers:
        Py_buffer[20] held
        DLManagedTensorVersioned** tensors
        int count
        int tensor_count

    cppclass Inputs:
        Batch batch
        LogitsProcessors processors
        const RowParams* params
        Reduction reduction
        int64_t given_count
        const int64_t* given


cdef Py_buffer* _hold(Buffers& buffers, object array, int flags, Py_ssize_t itemsize, str name) except NULL:
    cdef Py_buffer* buffer = &buffers.held[buffers.count]
    PyObject_GetBuffer(array, buffer, flags)
    buffers.count += 1
    if buffer.itemsize != itemsize:
        raise ValueError(f"{name} must have items of {itemsize} bytes, got {buffer.itemsize}")
    return buffer


cdef const void* _hold_read(Buffers& buffers, object array, Py_ssize_t itemsize, Py_ssize_t length,
                            str name) except? NULL:
    """Acquire a contiguous array of at least `length` items to read."""
    cdef Py_buffer* buffer = _hold(buffers, array, PyBUF_C_CONTIGUOUS, itemsize, name)
    if buffer.len < length * itemsize:
        raise ValueError(f"{name} must have {length} items")
    return buffer.buf


cdef void* _hold_write(Buffers& buffers, object array, Py_ssize_t itemsize, Py_ssize_t length,
                       str name) except? NULL:
    """Acquire a contiguous array of exactly `length` items to write."""
    cdef Py_buffer* buffer = _hold(buffers, array, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, itemsize, name)
    if buffer.len != length * itemsize:
        raise ValueError(f"{name} must have {length} items")
    return buffer.buf


# ---- requests ---------------------------------------------------------------------------------------

# By the character of an array's dtype; uint16 holds bfloat16.
cdef dict _DTYPES = {"f": 0, "e": 1, "H": 2}
cdef dict _REDUCTIONS = {"exact": 0, "fixed": 1, "fast": 2}


cdef int _hold_request(Buffers& buffers, request, Inputs* inputs) except -1:
    values, vocabulary, plan, processors, reduction, given, _ = request
    dtype = _DTYPES.get(values.dtype.char)
    if dtype is None:
        raise ValueError(f"values must be float32, float16 or uint16, got {values.dtype}")
    cdef Py_buffer* rows = _hold(buffers, values, PyBUF_STRIDED_RO, 2 if dtype else 4, "values")
    if rows.ndim != 2 or not 1 <= vocabulary <= rows.shape[1]:
        raise ValueError("values must be rows of at least `vocabulary` tokens")
    _describe_rows(rows, dtype, vocabulary, &inputs.batch)
    inputs.params = <const RowParams*>_hold_read(
        buffers, plan, sizeof(RowParams), inputs.batch.rows, "plan")
    inputs.reduction = <Reduction><int>_REDUCTIONS[reduction]
    if processors is not None:
        mask, bias, prompt, output = processors
        if mask is not None:
            _hold_mask(buffers, mask, inputs.batch, &inputs.processors)
        _hold_lists(buffers, bias, inputs.batch.rows, &inputs.processors.bias)
        _hold_lists(buffers, prompt, inputs.batch.rows, &inputs.processors.prompt)
        _hold_lists(buffers, output, inputs.batch.rows, &inputs.processors.output)
    inputs.given_count = 0
    inputs.given = NULL
    if given is not None:
        inputs.given_count = given.shape[1]
        inputs.given = <const int64_t*>_hold_read(
            buffers, given, 8, inputs.batch.rows * inputs.given_count, "logprob_tokens")
    return 0


cdef void _describe_rows(const Py_buffer* buffer, int dtype, int64_t vocabulary,
                         Batch* batch) noexcept:
    """Describe one row of shape (columns,), or several."""
    cdef int last = buffer.ndim - 1
    batch.logits = <const char*>buffer.buf
    batch.rows = buffer.shape[0] if last else 1
    batch.vocabulary = vocabulary
    batch.row_stride = buffer.strides[0] if last else 0
    batch.row_offsets = NULL
    # An axis of one token may have any stride.
    batch.token_stride = buffer.strides[last] if buffer.shape[last] > 1 else buffer.itemsize
    batch.dtype = <DType>dtype


cdef int _hold_mask(Buffers& buffers, mask, const Batch& batch, LogitsProcessors* processors) except -1:
    """bool, a byte for each token, or uint32, a bit for each; one row may serve all."""
    bits = mask.dtype != np.bool_
    cdef Py_buffer* buffer = _hold(buffers, mask, PyBUF_C_CONTIGUOUS, 4 if bits else 1, "mask")
    if buffer.ndim != 2 or (buffer.shape[0] != 1 and buffer.shape[0] != batch.rows):
        raise ValueError("mask must have one row, or one for each row of values")
    processors.mask = <const char*>buffer.buf
    processors.mask_stride = 0 if buffer.shape[0] == 1 else buffer.strides[0]
    processors.mask_count = min(batch.vocabulary, buffer.shape[1] * (32 if bits else 1))
    processors.mask_is_bits = bits
    return 0


cdef int _hold_lists(Buffers& buffers, lists, int64_t rows, TokenLists* target) except -1:
    """A list of tokens for each row: (offsets, tokens, values or None), or None."""
    if lists is None:
        return 0
    offsets, tokens, values = lists
    target.offsets = <const int64_t*>_hold_read(buffers, offsets, 8, rows + 1, "offsets")
    cdef int64_t length = target.offsets[rows]
    target.tokens = <const int64_t*>_hold_read(buffers, tokens, 8, length, "tokens")
    if values is not None:
        target.values = <const float*>_hold_read(buffers, values, 4, length, "values")
    return 0


# ---- results ----------------------------------------------------------------------------------------

cdef dict _MODES = {"raw": 0, "tempered": 1, "processed": 2}


cdef uint8_t* _hold_output(Buffers& buffers, output, const Inputs& inputs, SampleOutput* target) except? NULL:
    """Acquire the arrays of a `SampleOutput`; returns the statuses."""
    tokens, status, kept_count, logprobs = output
    cdef Py_buffer* buffer = _hold(buffers, tokens, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, 8, "tokens")
    cdef int64_t rows = inputs.batch.rows
    if buffer.ndim != 2 or buffer.shape[0] != rows:
        raise ValueError("tokens must have shape (rows, draws)")
    target.tokens = <int64_t*>buffer.buf
    target.draws = buffer.shape[1]
    if kept_count is not None:
        target.kept_counts = <int64_t*>_hold_write(buffers, kept_count, 8, rows, "kept_count")
    if logprobs is not None:
        _hold_logprobs(buffers, logprobs, inputs, target)
    return <uint8_t*>_hold_write(buffers, status, 1, rows, "status")


cdef int _hold_logprobs(Buffers& buffers, result, const Inputs& inputs, SampleOutput* target) except -1:
    modes, logprobs, ranks, top_tokens, top_logprobs, given_logprobs, given_ranks = result
    cdef int64_t draws = logprobs.shape[2], top_count = top_tokens.shape[2], rows = inputs.batch.rows
    if draws and draws != target.draws:
        raise ValueError(f"logprobs must be of all {target.draws} draws, or of none")
    if top_count > inputs.batch.vocabulary:
        raise ValueError("top_tokens cannot hold more tokens than the vocabulary")
    _add_modes(modes, target)
    cdef int64_t results = target.modes.size() * rows
    target.logprob_draws, target.top_count = draws, top_count
    target.given, target.given_count = inputs.given, inputs.given_count
    target.logprobs = <double*>_hold_write(buffers, logprobs, 8, results * draws, "logprobs")
    target.ranks = <int64_t*>_hold_write(buffers, ranks, 8, results * draws, "ranks")
    cdef int64_t count = results * top_count
    target.top_tokens = <int64_t*>_hold_write(buffers, top_tokens, 8, count, "top_tokens")
    target.top_logprobs = <double*>_hold_write(buffers, top_logprobs, 8, count, "top_logprobs")
    count = results * target.given_count
    target.given_logprobs = <double*>_hold_write(buffers, given_logprobs, 8, count, "token_logprobs")
    target.given_ranks = <int64_t*>_hold_write(buffers, given_ranks, 8, count, "token_ranks")
    return 0


cdef int _add_modes(tuple modes, SampleOutput* target) except -1:
    for mode in modes:
        target.modes.push_back(<LogprobsMode><int>_MODES[mode])
    return 0
