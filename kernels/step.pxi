# Calls that are prepared: what does not change from one to the next is bound once.
#
# Each does all of it or nothing. It returns None, and has changed nothing, where the general way must
# be gone; that way differs from it in nothing but time, and also says what is wrong.

cdef uint64_t MAX_POSITION = 0xFFFFFFFFFFFFFFFF

cdef object _NDARRAY = np.ndarray
cdef object _FLOAT32 = np.dtype(np.float32)
cdef object _FLOAT16 = np.dtype(np.float16)
cdef dict _CODES = {"f": 0, "e": 1, "H": 2}


cdef int _hold_logits(Held& held, logits, memory_of_logits, bint* torch) except -1:
    """Hold logits of any shape, and return the code of their dtype."""
    cdef int dtype
    torch[0] = False
    if type(logits) is _NDARRAY and logits.dtype is _FLOAT32:
        dtype = 0
    elif type(logits) is _NDARRAY and logits.dtype is _FLOAT16:
        dtype = 1
    else:
        logits, torch[0] = memory_of_logits(logits)
        dtype = _CODES[logits.dtype.char]
    PyObject_GetBuffer(logits, &held.buffer, PyBUF_STRIDED_RO)
    return dtype


cdef bint _holds_tokens(output):
    return isinstance(output, array.array) and output.typecode == "q"


cdef int _make_room(array.array output) except -1:
    """Find memory for one more item; no length changes."""
    cdef Py_ssize_t length = output.ob_size
    array.resize_smart(output, length + 1)
    output.ob_size = length
    return 0


cdef class Step:
    """Calls of a sampler for the same sequences, with nothing but logits to look at.

    From the check of the turn to the last appended token no other Python code can run, unless the
    rows are long enough to release the GIL: then the call takes the turn.

    Parameters
    ----------
    ids : tuple of int, or None
        The numbers of the sequences.
    outputs : list of array
        Their tokens, to which each call appends.
    skipped : list of int
        What each one's position is beyond the length of its output.
    valid_vocab : int
        How many columns of every row are tokens; 0 for all, whose number may then differ.
    most : int
        The largest vocabulary.
    plan : array of PLAN, shape (B,)
        Its positions are written.
    tokens : int64 array of shape (B, 1)
    status : uint8 array of shape (B,)
        All 0, between calls too.
    owner : dict
        Empty while no thread has the turn.
    memory_of_logits, as_ids, as_given : callables
        What the general way makes of logits, of sequences, and of tokens.
    latency : (int64 array, int64 array), or None
        The counts and the sums of a `Latency`.
    isa, n_threads, reduction
        As in `sample`.
    """

    cdef public bint ready
    cdef const Kernels* _kernels
    cdef Reduction _reduction
    cdef int _n_threads
    cdef object _ids
    cdef list _outputs
    cdef vector[uint64_t] _skipped
    cdef int64_t _valid_vocab
    cdef int64_t _most
    cdef dict _owner
    cdef object _memory_of_logits
    cdef object _as_ids
    cdef object _as_given
    cdef object _drawn
    cdef Held _plan
    cdef Held _tokens
    cdef Held _status
    cdef SampleOutput _answers
    cdef bint _is_measured
    cdef Held _counts
    cdef Held _sums

    def __cinit__(self, ids, list outputs, skipped, int64_t valid_vocab, int64_t most, plan,
                  tokens, status, dict owner, memory_of_logits, as_ids, as_given, latency,
                  isa, int n_threads, str reduction):
        cdef int64_t count = len(outputs)
        if len(skipped) != count or not all(_holds_tokens(output) for output in outputs):
            raise ValueError("outputs must be arrays of int64, one for each number in skipped")
        if not 0 <= valid_vocab <= most:
            raise ValueError("valid_vocab must be at most `most`")
        self._kernels = _chosen(isa).kernels
        self._reduction = <Reduction>_code_of(reduction)
        self._n_threads = n_threads
        self._ids = ids
        self._outputs = list(outputs)
        self._skipped = skipped
        self._valid_vocab = valid_vocab
        self._most = most
        self._owner = owner
        self._memory_of_logits = memory_of_logits
        self._as_ids = as_ids
        self._as_given = as_given
        self._answers = SampleOutput()
        _hold_write(self._plan, plan, sizeof(RowParams), count, "plan")
        _hold_tokens(self._tokens, tokens, count, &self._answers)
        _hold_write(self._status, status, 1, count, "status")
        self._drawn = tokens.reshape(count)
        if latency is not None:
            self._is_measured = True
            _hold_write(self._counts, latency[0], 8, LATENCY_BUCKETS, "counts")
            _hold_write(self._sums, latency[1], 8, 4, "sums")

    def __call__(self, logits, sequences=None, mask=None, bias=None):
        """Draw a token for each sequence, append them and return them; or None."""
        cdef int64_t started = _now() if self._is_measured else 0
        cdef Held held
        cdef Batch batch
        cdef bint torch
        if mask is not None or bias is not None or not self._is_free():
            return None
        if not self._find_rows(held, logits, &batch, &torch):
            return None
        if sequences is not self._ids and self._as_ids(sequences) != self._ids:
            return None
        # Again: what looks at logits and at sequences may be Python code.
        if not self._is_free() or not self._draw(batch):
            return None
        self._append()
        answer = self._answer(held.buffer.ndim, torch)
        if self._is_measured:
            _record(self._counts, self._sums, _now() - started, batch.rows)
        return answer

    cdef bint _is_free(self) except -1:
        return self.ready and len(self._owner) == 0

    cdef bint _find_rows(self, Held& held, logits, Batch* batch, bint* torch) except -1:
        """Find the rows where they lie; False where they are not as many, or of no good length."""
        cdef int dtype = _hold_logits(held, logits, self._memory_of_logits, torch)
        cdef int last = held.buffer.ndim - 1
        if not 0 <= last <= 1:
            return False
        cdef int64_t columns = held.buffer.shape[last]
        cdef int64_t vocabulary = self._valid_vocab or columns
        if not 1 <= vocabulary <= min(columns, self._most):
            return False
        _describe_rows(&held.buffer, dtype, vocabulary, batch)
        return batch.rows == len(self._outputs)

    cdef bint _draw(self, const Batch& batch) except -1:
        """Write the tokens; False where there is one that cannot be drawn."""
        cdef RowParams* settings = <RowParams*>self._plan.buffer.buf
        cdef uint8_t* status = <uint8_t*>self._status.buffer.buf
        cdef const LogitsProcessors* nothing = &_NOTHING_ADJUSTED.adjustments
        cdef uint64_t length
        cdef int64_t b
        for b in range(batch.rows):
            length = len(<array.array>self._outputs[b])
            if self._skipped[b] > MAX_POSITION - length:
                return False
            settings[b].position = self._skipped[b] + length
        if not _is_brief(batch, nothing[0], self._answers):
            self._owner["thread"] = PyThread_get_thread_ident()
        try:
            _sample(self._kernels, batch, nothing[0], settings, self._reduction, self._n_threads,
                    self._answers, status)
            for b in range(batch.rows):
                if status[b]:
                    return False
        finally:
            # The general way leaves rows alone that come to it with a status.
            memset(status, 0, batch.rows)
            if self._owner:
                self._owner.clear()
        return True

    cdef int _append(self) except -1:
        cdef int64_t b
        cdef array.array output
        for output in self._outputs:
            _make_room(output)
        for b in range(len(self._outputs)):
            output = <array.array>self._outputs[b]
            output.data.as_longlongs[output.ob_size] = self._answers.tokens[b]
            output.ob_size += 1
        return 0

    cdef object _answer(self, int ndim, bint torch):
        """An int for one row of shape (V,), else a copy of the tokens."""
        if ndim == 1:
            return self._answers.tokens[0]
        tokens = self._drawn.copy()
        return self._as_given(tokens, tokens.shape, torch=torch) if torch else tokens


# ---- sample -------------------------------------------------------------------------------------------

cdef class Draw:
    """Calls of `sample` for one row, with the same parameters and nothing that adjusts the logits.

    Parameters
    ----------
    plan : array of PLAN, shape (1,)
        The parameters; where its draw is made is given anew by each call.
    most : int
        The largest vocabulary.
    memory_of_logits : callable
        As in `Step`.
    isa, n_threads, reduction
        As in `sample`.
    """

    cdef const Kernels* _kernels
    cdef Reduction _reduction
    cdef int _n_threads
    cdef RowParams _settings
    cdef int64_t _most
    cdef object _memory_of_logits
    cdef object _number
    cdef object _ok
    cdef Held _number_memory

    def __cinit__(self, plan, int64_t most, memory_of_logits, isa, int n_threads, str reduction):
        cdef Held held
        self._kernels = _chosen(isa).kernels
        self._reduction = <Reduction>_code_of(reduction)
        self._n_threads = n_threads
        _hold_plan(held, plan, 1)
        self._settings = (<const RowParams*>held.buffer.buf)[0]
        self._most = most
        self._memory_of_logits = memory_of_logits
        self._number = np.zeros((), np.int64)
        self._ok = np.zeros((), np.uint8)
        _hold_write(self._number_memory, self._number, 8, 1, "number")

    def __call__(self, logits, seed, position, stream):
        """Draw, and return a token, the kept count, the status, and whether logits are a tensor.

        The first three are arrays without dimensions.
        """
        cdef Held held
        cdef Batch batch
        cdef bint torch
        cdef SampleOutput answers = SampleOutput()
        cdef RowParams settings = self._settings
        cdef int64_t token, kept_count
        cdef uint8_t status = 0
        if type(seed) is not int or type(position) is not int or type(stream) is not int:
            return None
        try:
            settings.seed, settings.position, settings.stream = seed, position, stream
        except OverflowError:
            return None
        cdef int dtype = _hold_logits(held, logits, self._memory_of_logits, &torch)
        if held.buffer.ndim != 1 or not 1 <= held.buffer.shape[0] <= self._most:
            return None
        _describe_rows(&held.buffer, dtype, held.buffer.shape[0], &batch)
        answers.tokens, answers.draws, answers.kept_counts = &token, 1, &kept_count
        _sample(self._kernels, batch, _NOTHING_ADJUSTED.adjustments, &settings, self._reduction,
                self._n_threads, answers, &status)
        if status:
            return None
        return self._told(token), self._told(kept_count), self._ok.copy(), torch

    cdef object _told(self, int64_t number):
        (<int64_t*>self._number_memory.buffer.buf)[0] = number
        return self._number.copy()


# ---- time -------------------------------------------------------------------------------------------

# The buckets of latency.py.
cdef enum:
    LATENCY_BITS = 6
    LATENCY_BUCKETS = (63 - LATENCY_BITS + 1) << LATENCY_BITS


cdef int64_t _now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return <int64_t>time.tv_sec * 1_000_000_000 + time.tv_nsec


cdef void _record(Held& counts, Held& sums, int64_t took, int64_t tokens) noexcept:
    """What `Latency.record` does."""
    cdef int64_t* sum = <int64_t*>sums.buffer.buf
    cdef int shift = 0
    while took >> shift >= 2 << LATENCY_BITS:
        shift += 1
    (<int64_t*>counts.buffer.buf)[(shift << LATENCY_BITS) + (took >> shift)] += 1
    sum[0] += 1
    sum[1] += tokens
    sum[2] += took
    sum[3] = max(sum[3], took)
