# The memory of Python's arrays, acquired for a call and checked for size.
#
# Python has checked the arguments before; these checks keep a wrong caller from reading or writing memory
# that is not its own.

cdef extern from * nogil:
    """
    // A buffer of Python's protocol, released with the object; the GIL must be held then.
    struct Held {
      Py_buffer buffer = {};
      Held() = default;
      Held(const Held&) = delete;
      Held& operator=(const Held&) = delete;
      ~Held() { PyBuffer_Release(&buffer); }
    };

    // What the kernels read of a SampleRequest, the logits processors aside.
    struct Inputs {
      Held rows;
      Held plan;
      fastsample::Batch batch;
      fastsample::Reduction reduction;
      const fastsample::RowParams* params() const {
        return static_cast<const fastsample::RowParams*>(plan.buffer.buf);
      }
    };

    // What they write of a SampleOutput.
    struct Outputs {
      Held tokens;
      Held status;
      Held kept_count;
      fastsample::SampleOutput output = {};
      uint8_t* statuses() const { return static_cast<uint8_t*>(status.buffer.buf); }
    };
    """
    cppclass Held:
        Py_buffer buffer

    cppclass Inputs:
        Held rows
        Held plan
        Batch batch
        Reduction reduction
        const RowParams* params()

    cppclass Outputs:
        Held tokens
        Held status
        Held kept_count
        SampleOutput output
        uint8_t* statuses()


cdef int _hold(Held& held, object array, int flags, Py_ssize_t itemsize, str name) except -1:
    PyObject_GetBuffer(array, &held.buffer, flags)
    if held.buffer.itemsize != itemsize:
        raise ValueError(
            f"{name} must have items of {itemsize} bytes, got {held.buffer.itemsize}")
    return 0


cdef int _hold_read(Held& held, object array, Py_ssize_t itemsize, Py_ssize_t length,
                    str name) except -1:
    """Acquire a contiguous array of at least `length` items to read."""
    _hold(held, array, PyBUF_C_CONTIGUOUS, itemsize, name)
    if held.buffer.len < length * itemsize:
        raise ValueError(f"{name} must have {length} items")
    return 0


cdef int _hold_write(Held& held, object array, Py_ssize_t itemsize, Py_ssize_t length,
                     str name) except -1:
    """Acquire a contiguous array of exactly `length` items to write."""
    _hold(held, array, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, itemsize, name)
    if held.buffer.len != length * itemsize:
        raise ValueError(f"{name} must have {length} items")
    return 0


cdef int _hold_plan(Held& held, object plan, int64_t rows) except -1:
    _hold_read(held, plan, sizeof(RowParams), rows, "plan")
    return 0


cdef int _hold_tokens(Held& held, object tokens, int64_t rows, SampleOutput* output) except -1:
    _hold(held, tokens, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, 8, "tokens")
    if held.buffer.ndim != 2 or held.buffer.shape[0] != rows:
        raise ValueError("tokens must have shape (rows, draws)")
    output.tokens = <int64_t*>held.buffer.buf
    output.draws = held.buffer.shape[1]
    return 0


# ---- rows -------------------------------------------------------------------------------------------

# By the character of an array's dtype; uint16 holds bfloat16.
cdef dict _DTYPES = {"f": 0, "e": 1, "H": 2}


cdef int _hold_rows(Held& held, object values, int dtype, int64_t vocabulary,
                    Batch* batch) except -1:
    """Acquire an array of shape (rows, columns) whose first `vocabulary` columns are tokens."""
    _hold(held, values, PyBUF_STRIDED_RO, 2 if dtype else 4, "values")
    if held.buffer.ndim != 2 or not 1 <= vocabulary <= held.buffer.shape[1]:
        raise ValueError("values must be rows of at least `vocabulary` tokens")
    _describe_rows(&held.buffer, dtype, vocabulary, batch)
    return 0


cdef void _describe_rows(const Py_buffer* buffer, int dtype, int64_t vocabulary,
                         Batch* batch) noexcept:
    """Describe one row of shape (columns,), or several."""
    cdef int last = buffer.ndim - 1
    batch.logits = <const char*>buffer.buf
    batch.rows = buffer.shape[0] if last else 1
    batch.vocabulary = vocabulary
    batch.row_stride = buffer.strides[0] if last else 0
    # An axis of one token may have any stride.
    batch.token_stride = buffer.strides[last] if buffer.shape[last] > 1 else buffer.itemsize
    batch.dtype = <DType>dtype


# ---- logits processors ------------------------------------------------------------------------------

cdef class _Lists:
    """A list of tokens for each row: (offsets, tokens, values or None), or None."""

    cdef TokenLists lists
    cdef Held offsets
    cdef Held tokens
    cdef Held values

    def __cinit__(self, lists, int64_t rows, int64_t vocabulary, bint with_values):
        if lists is None:
            return
        _hold_read(self.offsets, lists[0], 8, rows + 1, "offsets")
        cdef const int64_t* offsets = <const int64_t*>self.offsets.buffer.buf
        cdef int64_t i
        for i in range(rows):
            if not 0 <= offsets[i] <= offsets[i + 1]:
                raise ValueError("offsets must ascend from 0")
        cdef int64_t length = offsets[rows]
        _hold_read(self.tokens, lists[1], 8, length, "tokens")
        cdef const int64_t* tokens = <const int64_t*>self.tokens.buffer.buf
        for i in range(length):
            if not 0 <= tokens[i] < vocabulary:
                raise ValueError("tokens must be in the vocabulary")
        self.lists.offsets = offsets
        self.lists.tokens = tokens
        if with_values:
            _hold_read(self.values, lists[2], 4, length, "values")
            self.lists.values = <const float*>self.values.buffer.buf


cdef class _Processors:
    """The logits processors of a batch, and the buffers that hold their memory."""

    cdef LogitsProcessors processors
    cdef Held mask
    cdef _Lists bias
    cdef _Lists prompt
    cdef _Lists output

    def __cinit__(self, int64_t rows, int64_t vocabulary, mask, bias, prompt, output):
        self.processors = LogitsProcessors()
        if mask is not None:
            self._acquire_mask(mask, rows, vocabulary)
        self.bias = _Lists(bias, rows, vocabulary, True)
        self.prompt = _Lists(prompt, rows, vocabulary, False)
        self.output = _Lists(output, rows, vocabulary, False)
        self.processors.bias = self.bias.lists
        self.processors.prompt = self.prompt.lists
        self.processors.output = self.output.lists

    cdef int _acquire_mask(self, mask, int64_t rows, int64_t vocabulary) except -1:
        """bool, a byte for each token, or uint32, a bit for each; one row may serve all."""
        bits = mask.dtype != np.bool_
        _hold(self.mask, mask, PyBUF_C_CONTIGUOUS, 4 if bits else 1, "mask")
        cdef Py_buffer* buffer = &self.mask.buffer
        if buffer.ndim != 2 or (buffer.shape[0] != 1 and buffer.shape[0] != rows):
            raise ValueError("mask must have one row, or one for each row of values")
        self.processors.mask = <const char*>buffer.buf
        self.processors.mask_stride = 0 if buffer.shape[0] == 1 else buffer.strides[0]
        self.processors.mask_count = min(vocabulary, buffer.shape[1] * (32 if bits else 1))
        self.processors.mask_is_bits = bits
        return 0


cdef _Processors _NO_PROCESSORS = _Processors(0, 1, None, None, None, None)


cdef _Processors _acquire_inputs(request, Inputs& inputs):
    values, vocabulary, plan, processors, reduction = request
    dtype = _DTYPES.get(values.dtype.char)
    if dtype is None:
        raise ValueError(f"values must be float32, float16 or uint16, got {values.dtype}")
    _hold_rows(inputs.rows, values, dtype, vocabulary, &inputs.batch)
    _hold_plan(inputs.plan, plan, inputs.batch.rows)
    inputs.reduction = <Reduction>_code_of(reduction)
    if processors is None:
        return _NO_PROCESSORS
    mask, bias, prompt, output = processors
    return _Processors(inputs.batch.rows, inputs.batch.vocabulary, mask, bias, prompt, output)


# ---- results ----------------------------------------------------------------------------------------

cdef dict _MODES = {"raw": 0, "tempered": 1, "processed": 2}


cdef class _Logprobs:
    """The buffers of a `LogprobResult`."""

    cdef Held logprobs
    cdef Held ranks
    cdef Held top_tokens
    cdef Held top_logprobs

    def __cinit__(self, result, int64_t rows, int64_t vocabulary):
        modes, logprobs, ranks, top_tokens, top_logprobs = result
        if len(modes) > len(_MODES):
            raise ValueError(f"modes must be at most {len(_MODES)}")
        cdef int64_t count = len(modes) * rows
        cdef int64_t top_count = top_tokens.shape[2]
        if top_count > vocabulary:
            raise ValueError("top_tokens cannot hold more tokens than the vocabulary")
        _hold_write(self.logprobs, logprobs, 8, count, "logprobs")
        _hold_write(self.ranks, ranks, 8, count, "ranks")
        _hold_write(self.top_tokens, top_tokens, 8, count * top_count, "top_tokens")
        _hold_write(self.top_logprobs, top_logprobs, 8, count * top_count, "top_logprobs")

    cdef int describe(self, result, SampleOutput* output) except -1:
        for mode in result[0]:
            output.modes.push_back(<LogprobsMode><int>_MODES[mode])
        output.top_count = self.top_tokens.buffer.shape[2]
        output.logprobs = <double*>self.logprobs.buffer.buf
        output.ranks = <int64_t*>self.ranks.buffer.buf
        output.top_tokens = <int64_t*>self.top_tokens.buffer.buf
        output.top_logprobs = <double*>self.top_logprobs.buffer.buf
        return 0


cdef _Logprobs _acquire_outputs(result, const Batch& batch, Outputs& outputs):
    """Acquire the arrays of a `SampleOutput`; returns the owner of those for log-probabilities."""
    tokens, status, kept_count, logprobs = result
    _hold_tokens(outputs.tokens, tokens, batch.rows, &outputs.output)
    _hold_write(outputs.status, status, 1, batch.rows, "status")
    if kept_count is not None:
        _hold_write(outputs.kept_count, kept_count, 8, batch.rows, "kept_count")
        outputs.output.kept_counts = <int64_t*>outputs.kept_count.buffer.buf
    if logprobs is None:
        return None
    cdef _Logprobs buffers = _Logprobs(logprobs, batch.rows, batch.vocabulary)
    buffers.describe(logprobs, &outputs.output)
    return buffers
