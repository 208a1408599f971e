# Python's arrays as the kernels read and write them: held for a call, checked for size.
#
# Nothing is checked here that the Python rooms have checked; what is checked keeps a wrong caller
# from reading memory that is not its own.

cdef extern from *:
    """
    // A buffer, given back when this object goes; the GIL is held where it does.
    struct Held {
      Py_buffer buffer = {};
      Held() = default;
      Held(const Held&) = delete;
      Held& operator=(const Held&) = delete;
      ~Held() { PyBuffer_Release(&buffer); }
    };
    """
    cppclass Held:
        Py_buffer buffer


cdef int _hold(Held& held, object array, int flags, Py_ssize_t itemsize, str name) except -1:
    PyObject_GetBuffer(array, &held.buffer, flags)
    if held.buffer.itemsize != itemsize:
        raise ValueError(
            f"{name} must have items of {itemsize} bytes, got {held.buffer.itemsize}")
    return 0


cdef int _hold_read(Held& held, object array, Py_ssize_t itemsize, Py_ssize_t length,
                    str name) except -1:
    """A contiguous array of at least `length` items, to be read."""
    _hold(held, array, PyBUF_C_CONTIGUOUS, itemsize, name)
    if held.buffer.len < length * itemsize:
        raise ValueError(f"{name} must have {length} items")
    return 0


cdef int _hold_write(Held& held, object array, Py_ssize_t itemsize, Py_ssize_t length,
                     str name) except -1:
    """A contiguous array of exactly `length` items, to be written."""
    _hold(held, array, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, itemsize, name)
    if held.buffer.len != length * itemsize:
        raise ValueError(f"{name} must have {length} items")
    return 0


cdef int _hold_plan(Held& held, object plan, int64_t rows) except -1:
    _hold_read(held, plan, sizeof(RowParams), rows, "plan")
    return 0


cdef int _hold_tokens(Held& held, object tokens, int64_t rows, SampleOutput* answers) except -1:
    _hold(held, tokens, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, 8, "tokens")
    if held.buffer.ndim != 2 or held.buffer.shape[0] != rows:
        raise ValueError("tokens must have shape (rows, draws)")
    answers.tokens = <int64_t*>held.buffer.buf
    answers.draws = held.buffer.shape[1]
    return 0


# ---- rows -------------------------------------------------------------------------------------------

cdef dict _DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2}


cdef int _hold_rows(Held& held, object values, int dtype, int64_t vocabulary,
                    Batch* batch) except -1:
    """An array of shape (rows, columns) whose first `vocabulary` columns are tokens."""
    _hold(held, values, PyBUF_STRIDED_RO, 2 if dtype else 4, "values")
    if held.buffer.ndim != 2 or not 1 <= vocabulary <= held.buffer.shape[1]:
        raise ValueError("values must be rows of at least `vocabulary` tokens")
    _describe_rows(&held.buffer, dtype, vocabulary, batch)
    return 0


cdef void _describe_rows(const Py_buffer* buffer, int dtype, int64_t vocabulary,
                         Batch* batch) noexcept:
    """One row of shape (columns,), or several."""
    cdef int last = buffer.ndim - 1
    batch.logits = <const char*>buffer.buf
    batch.rows = buffer.shape[0] if last else 1
    batch.vocabulary = vocabulary
    batch.row_stride = buffer.strides[0] if last else 0
    # A vocabulary of one token may come with any stride.
    batch.token_stride = buffer.strides[last] if buffer.shape[last] > 1 else buffer.itemsize
    batch.dtype = <DType>dtype


# ---- adjustments ------------------------------------------------------------------------------------

cdef class _Lists:
    """One list of tokens a row: (offsets, tokens, values or None), or None."""

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


cdef class _Adjusted:
    """The adjustments of a batch, and what keeps their memory."""

    cdef LogitsProcessors adjustments
    cdef Held mask
    cdef _Lists bias
    cdef _Lists prompt
    cdef _Lists output

    def __cinit__(self, int64_t rows, int64_t vocabulary, mask, bias, prompt, output):
        self.adjustments = LogitsProcessors()
        if mask is not None:
            self._take_mask(mask, rows, vocabulary)
        self.bias = _Lists(bias, rows, vocabulary, True)
        self.prompt = _Lists(prompt, rows, vocabulary, False)
        self.output = _Lists(output, rows, vocabulary, False)
        self.adjustments.bias = self.bias.lists
        self.adjustments.prompt = self.prompt.lists
        self.adjustments.output = self.output.lists

    cdef int _take_mask(self, mask, int64_t rows, int64_t vocabulary) except -1:
        """bool, a byte a token; or uint32, a bit a token. One row serves all."""
        bits = mask.dtype != np.bool_
        _hold(self.mask, mask, PyBUF_C_CONTIGUOUS, 4 if bits else 1, "mask")
        cdef Py_buffer* buffer = &self.mask.buffer
        if buffer.ndim != 2 or (buffer.shape[0] != 1 and buffer.shape[0] != rows):
            raise ValueError("mask must have one row, or one for each row of values")
        self.adjustments.mask = <const char*>buffer.buf
        self.adjustments.mask_stride = 0 if buffer.shape[0] == 1 else buffer.strides[0]
        self.adjustments.mask_count = min(vocabulary, buffer.shape[1] * (32 if bits else 1))
        self.adjustments.mask_is_bits = bits
        return 0


cdef _Adjusted _NOTHING_ADJUSTED = _Adjusted(0, 1, None, None, None, None)


cdef _Adjusted _adjusted(const Batch& batch, mask, bias, prompt, output):
    if mask is None and bias is None and prompt is None and output is None:
        return _NOTHING_ADJUSTED
    return _Adjusted(batch.rows, batch.vocabulary, mask, bias, prompt, output)


# ---- what is told -----------------------------------------------------------------------------------

cdef dict _FORMS = {"raw": 0, "tempered": 1, "processed": 2}


cdef class _Told:
    """Where log-probabilities go, and what keeps the memory."""

    cdef Held logprobs
    cdef Held ranks
    cdef Held top_tokens
    cdef Held top_logprobs

    def __cinit__(self, forms, int64_t rows, int64_t vocabulary, logprobs, ranks, top_tokens,
                  top_logprobs):
        if len(forms) > len(_FORMS):
            raise ValueError(f"forms must be at most {len(_FORMS)}")
        cdef int64_t told = len(forms) * rows
        cdef int64_t count = top_tokens.shape[2]
        if count > vocabulary:
            raise ValueError("top_tokens cannot hold more tokens than the vocabulary")
        _hold_write(self.logprobs, logprobs, 8, told, "logprobs")
        _hold_write(self.ranks, ranks, 8, told, "ranks")
        _hold_write(self.top_tokens, top_tokens, 8, told * count, "top_tokens")
        _hold_write(self.top_logprobs, top_logprobs, 8, told * count, "top_logprobs")

    cdef int show(self, forms, int64_t top_count, SampleOutput* answers) except -1:
        for form in forms:
            answers.modes.push_back(<LogprobsMode><int>_FORMS[form])
        answers.top_count = top_count
        answers.logprobs = <double*>self.logprobs.buffer.buf
        answers.ranks = <int64_t*>self.ranks.buffer.buf
        answers.top_tokens = <int64_t*>self.top_tokens.buffer.buf
        answers.top_logprobs = <double*>self.top_logprobs.buffer.buf
        return 0
