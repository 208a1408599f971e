# Prepared calls: what does not change from one call to the next is bound once.
#
# A prepared call either does everything or returns None and has changed nothing. Then the caller takes the
# general path, whose results are the same, and which reports errors. No Python code runs during a call, so
# that only a call that releases the GIL has to take the sampler's lock.

cdef uint64_t MAX_POSITION = 0xFFFFFFFFFFFFFFFF

cdef object _NDARRAY = np.ndarray
cdef object _FLOAT32 = np.dtype(np.float32)
cdef object _FLOAT16 = np.dtype(np.float16)
cdef LogitsProcessors _NO_PROCESSORS = LogitsProcessors()


cdef bint _find_rows(Buffers& buffers, logits, bint is_checked, int64_t valid_vocab, int64_t max_vocabulary,
                     Batch* batch) except -1:
    """Find the rows of an array of shape (V,) or (B, V); False for other arrays.

    Unless it is checked, the array must be float32 or float16; uint16 holds bfloat16.
    """
    if type(logits) is not _NDARRAY:
        return False
    cdef int dtype
    if logits.dtype is _FLOAT32:
        dtype = 0
    elif logits.dtype is _FLOAT16:
        dtype = 1
    elif is_checked:
        dtype = _DTYPES[logits.dtype.char]
    else:
        return False
    cdef Py_buffer* buffer = _hold(buffers, logits, PyBUF_STRIDED_RO, 2 if dtype else 4, "logits")
    cdef int last = buffer.ndim - 1
    if not 0 <= last <= 1:
        return False
    cdef int64_t columns = buffer.shape[last]
    cdef int64_t vocabulary = valid_vocab or columns
    if not 1 <= vocabulary <= min(columns, max_vocabulary):
        return False
    _describe_rows(buffer, dtype, vocabulary, batch)
    return True


cdef class Step:
    """The `Step` of engines/contract.py.

    Parameters
    ----------
    histories : list of TokenHistory
        The tokens of the sequences, to which each call appends.
    skipped : list of int
        By how much the position of each sequence is larger than the length of its output.
    valid_vocab : int
        How many columns of every row are tokens; 0 for all, whose number may then differ.
    max_vocabulary : int
    plan : array of PLAN, shape (B,)
        Its positions are written.
    lock : threading.Lock
        Taken by calls that release the GIL.
    latency : (int64 array, int64 array), or None
        The counts and the sums of a `Latency`.
    isa, n_threads, reduction
        As in `sample`.
    """

    cdef public bint ready
    cdef const Kernels* _kernels
    cdef Reduction _reduction
    cdef int _n_threads
    cdef list _histories
    cdef LogitsProcessors _processors
    cdef vector[CTokenHistory*] _history_memory
    cdef vector[uint64_t] _skipped
    cdef int64_t _valid_vocab
    cdef int64_t _max_vocabulary
    cdef object _acquire
    cdef object _release
    cdef object _tokens
    cdef Buffers _buffers
    cdef RowParams* _params
    cdef vector[uint8_t] _status
    cdef SampleOutput _sample_output
    cdef int64_t* _latency_counts
    cdef int64_t* _latency_sums

    def __cinit__(self, list histories, skipped, int64_t valid_vocab, int64_t max_vocabulary, plan,
                  lock, latency, isa, int n_threads, str reduction):
        cdef int64_t count = len(histories)
        cdef TokenHistory history
        self._kernels = _chosen(isa).kernels
        self._reduction = <Reduction><int>_REDUCTIONS[reduction]
        self._n_threads = n_threads
        self._histories = list(histories)
        for history in self._histories:
            self._history_memory.push_back(&history._tokens)
        self._processors.histories = self._history_memory.data()
        self._skipped = skipped
        self._valid_vocab = valid_vocab
        self._max_vocabulary = max_vocabulary
        self._acquire = lock.acquire
        self._release = lock.release
        self._tokens = np.empty(count, np.int64)
        self._status.resize(count)
        self._sample_output = SampleOutput()
        self._sample_output.draws = 1
        self._sample_output.tokens = <int64_t*>_hold_write(
            self._buffers, self._tokens, 8, count, "tokens")
        self._params = <RowParams*>_hold_write(self._buffers, plan, sizeof(RowParams), count, "plan")
        if latency is not None:
            counts, sums = latency
            self._latency_counts = <int64_t*>_hold_write(
                self._buffers, counts, 8, LATENCY_BUCKETS, "counts")
            self._latency_sums = <int64_t*>_hold_write(self._buffers, sums, 8, 4, "sums")

    def __call__(self, logits, bint is_checked=False):
        """Draw a token for each sequence, append them and return them; or None."""
        cdef int64_t started = _now() if self._latency_sums else 0
        cdef Buffers buffers
        cdef Batch batch
        if not self.ready or not _find_rows(buffers, logits, is_checked, self._valid_vocab,
                                            self._max_vocabulary, &batch):
            return None
        if batch.rows != <int64_t>self._status.size() or not self._draw(batch):
            return None
        self._append()
        is_row = buffers.held[0].ndim == 1
        result = self._sample_output.tokens[0] if is_row else self._tokens.copy()
        if self._latency_sums:
            _record(self._latency_counts, self._latency_sums, _now() - started, batch.rows)
        return result

    cdef bint _draw(self, const Batch& batch) except -1:
        """Write the tokens; False where a row has none, or the sampler is in use."""
        cdef uint64_t length
        cdef int64_t b
        for b in range(batch.rows):
            length = self._history_memory[b].output_count()
            if self._skipped[b] > MAX_POSITION - length:
                return False
            if has_penalty(self._params[b]) and self._history_memory[b].max_token() >= batch.vocabulary:
                return False
            self._params[b].position = self._skipped[b] + length
            self._status[b] = 0
        if _is_brief(batch, self._processors, self._sample_output):
            self._sample(batch)
        else:
            if not self._acquire(False):
                return False
            self.ready = False
            try:
                self._sample(batch)
            finally:
                self.ready = True
                self._release()
        for b in range(batch.rows):
            if self._status[b]:
                return False
        return True

    cdef int _sample(self, const Batch& batch) except -1:
        return _sample(self._kernels, batch, self._processors, self._params, self._reduction,
                       self._n_threads, self._sample_output, self._status.data())

    cdef int _append(self) except -1:
        cdef size_t b
        for b in range(self._history_memory.size()):
            self._history_memory[b].reserve_more(1)
        for b in range(self._history_memory.size()):
            self._history_memory[b].extend(self._sample_output.tokens + b, 1)
        return 0


# ---- sample -------------------------------------------------------------------------------------------

cdef class Draw:
    """The `Draw` of engines/contract.py.

    Parameters
    ----------
    plan : array of PLAN, shape (1,)
        The parameters; each call has its own seed, position and stream.
    max_vocabulary : int
    isa, n_threads, reduction
        As in `sample`.
    """

    cdef const Kernels* _kernels
    cdef Reduction _reduction
    cdef int _n_threads
    cdef RowParams _params
    cdef int64_t _max_vocabulary
    cdef object _number
    cdef object _ok
    cdef int64_t* _number_memory
    cdef Buffers _buffers

    def __cinit__(self, plan, int64_t max_vocabulary, isa, int n_threads, str reduction):
        self._kernels = _chosen(isa).kernels
        self._reduction = <Reduction><int>_REDUCTIONS[reduction]
        self._n_threads = n_threads
        self._params = (<const RowParams*>_hold_read(
            self._buffers, plan, sizeof(RowParams), 1, "plan"))[0]
        self._max_vocabulary = max_vocabulary
        self._number = np.zeros((), np.int64)
        self._ok = np.zeros((), np.uint8)
        self._number_memory = <int64_t*>_hold_write(self._buffers, self._number, 8, 1, "number")

    def __call__(self, logits, seed, position, stream, bint is_checked=False):
        """Draw, and return the token and the status as arrays without dimensions; or None."""
        cdef Buffers buffers
        cdef Batch batch
        cdef SampleOutput output = SampleOutput()
        cdef RowParams params = self._params
        cdef int64_t token
        cdef uint8_t status = 0
        if type(seed) is not int or type(position) is not int or type(stream) is not int:
            return None
        try:
            params.seed, params.position, params.stream = seed, position, stream
        except OverflowError:
            return None
        if not _find_rows(buffers, logits, is_checked, 0, self._max_vocabulary, &batch):
            return None
        if buffers.held[0].ndim != 1:
            return None
        output.tokens, output.draws = &token, 1
        _sample(self._kernels, batch, _NO_PROCESSORS, &params, self._reduction,
                self._n_threads, output, &status)
        if status:
            return None
        self._number_memory[0] = token
        return self._number.copy(), self._ok.copy()


# ---- time -------------------------------------------------------------------------------------------

# The buckets of latency.py.
cdef enum:
    LATENCY_BITS = 6
    LATENCY_BUCKETS = (63 - LATENCY_BITS + 1) << LATENCY_BITS


cdef int64_t _now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return <int64_t>time.tv_sec * 1_000_000_000 + time.tv_nsec


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
