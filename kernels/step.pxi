# Prepared calls: what does not change from one call to the next is bound once.
#
# A prepared call either does everything or returns None and has changed nothing. Then the caller takes the
# general path, whose results are the same, and which reports errors. No Python code runs during a call, so
# that only a call that releases the GIL has to take the sampler's lock.

cdef uint64_t MAX_POSITION = 0xFFFFFFFFFFFFFFFF

cdef object _NDARRAY = np.ndarray
cdef object _FLOAT32 = np.dtype(np.float32)
cdef object _FLOAT16 = np.dtype(np.float16)
cdef dict _CODES = {"f": 0, "e": 1, "H": 2}


cdef bint _find_rows(Held& held, logits, bint is_checked, int64_t valid_vocab, int64_t max_vocabulary,
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
        dtype = _CODES[logits.dtype.char]
    else:
        return False
    PyObject_GetBuffer(logits, &held.buffer, PyBUF_STRIDED_RO)
    cdef int last = held.buffer.ndim - 1
    if not 0 <= last <= 1:
        return False
    cdef int64_t columns = held.buffer.shape[last]
    cdef int64_t vocabulary = valid_vocab or columns
    if not 1 <= vocabulary <= min(columns, max_vocabulary):
        return False
    _describe_rows(&held.buffer, dtype, vocabulary, batch)
    return True


cdef bint _holds_tokens(output):
    return isinstance(output, array.array) and output.typecode == "q"


cdef int _reserve_one(array.array output) except -1:
    """Allocate memory for one more item; the length does not change."""
    cdef Py_ssize_t length = output.ob_size
    array.resize_smart(output, length + 1)
    output.ob_size = length
    return 0


cdef class Step:
    """A sampler's call for sequences that stay the same, without logits processors.

    Parameters
    ----------
    outputs : list of array
        The tokens of the sequences, to which each call appends.
    skipped : list of int
        By how much the position of each sequence is larger than the length of its output.
    valid_vocab : int
        How many columns of every row are tokens; 0 for all, whose number may then differ.
    max_vocabulary : int
    plan : array of PLAN, shape (B,)
        Its positions are written.
    exclusive : object
        Its `lock`, a `threading.Lock`, is taken by calls that release the GIL.
    latency : (int64 array, int64 array), or None
        The counts and the sums of a `Latency`.
    isa, n_threads, reduction
        As in `sample`.

    Attributes
    ----------
    ready : bool
        Whether it may draw; False at first, and during other uses of the sampler.
    """

    cdef public bint ready
    cdef const Kernels* _kernels
    cdef Reduction _reduction
    cdef int _n_threads
    cdef list _outputs
    cdef vector[uint64_t] _skipped
    cdef int64_t _valid_vocab
    cdef int64_t _max_vocabulary
    cdef object _exclusive
    cdef object _tokens
    cdef Held _plan
    cdef Held _tokens_memory
    cdef vector[uint8_t] _status
    cdef SampleOutput _sample_output
    cdef bint _is_measured
    cdef Held _counts
    cdef Held _sums

    def __cinit__(self, list outputs, skipped, int64_t valid_vocab, int64_t max_vocabulary, plan,
                  exclusive, latency, isa, int n_threads, str reduction):
        cdef int64_t count = len(outputs)
        if len(skipped) != count or not all(_holds_tokens(output) for output in outputs):
            raise ValueError("outputs must be arrays of int64, one for each number in skipped")
        if not 0 <= valid_vocab <= max_vocabulary:
            raise ValueError("valid_vocab must be at most max_vocabulary")
        self._kernels = _chosen(isa).kernels
        self._reduction = <Reduction>_code_of(reduction)
        self._n_threads = n_threads
        self._outputs = list(outputs)
        self._skipped = skipped
        self._valid_vocab = valid_vocab
        self._max_vocabulary = max_vocabulary
        self._exclusive = exclusive
        self._tokens = np.empty(count, np.int64)
        self._status.resize(count)
        self._sample_output = SampleOutput()
        _hold_write(self._plan, plan, sizeof(RowParams), count, "plan")
        _hold_tokens(self._tokens_memory, self._tokens.reshape(count, 1), count, &self._sample_output)
        if latency is not None:
            self._is_measured = True
            _hold_write(self._counts, latency[0], 8, LATENCY_BUCKETS, "counts")
            _hold_write(self._sums, latency[1], 8, 4, "sums")

    def __call__(self, logits, bint is_checked=False):
        """Draw a token for each sequence, append them and return them; or None.

        `is_checked` says that the logits are memory as `memory_of_logits` returns it.
        """
        cdef int64_t started = _now() if self._is_measured else 0
        cdef Held held
        cdef Batch batch
        if not self.ready or not _find_rows(held, logits, is_checked, self._valid_vocab,
                                            self._max_vocabulary, &batch):
            return None
        if batch.rows != <int64_t>self._status.size() or not self._draw(batch):
            return None
        self._append()
        result = self._sample_output.tokens[0] if held.buffer.ndim == 1 else self._tokens.copy()
        if self._is_measured:
            _record(self._counts, self._sums, _now() - started, batch.rows)
        return result

    cdef bint _draw(self, const Batch& batch) except -1:
        """Write the tokens; False where a row has none, or the sampler is in use."""
        cdef RowParams* params = <RowParams*>self._plan.buffer.buf
        cdef uint64_t length
        cdef int64_t b
        for b in range(batch.rows):
            length = len(<array.array>self._outputs[b])
            if self._skipped[b] > MAX_POSITION - length:
                return False
            params[b].position = self._skipped[b] + length
            self._status[b] = 0
        if _is_brief(batch, _NO_PROCESSORS.processors, self._sample_output):
            self._sample(batch, params)
        else:
            lock = self._exclusive.lock
            if not lock.acquire(False):
                return False
            self.ready = False
            try:
                self._sample(batch, params)
            finally:
                self.ready = True
                lock.release()
        for b in range(batch.rows):
            if self._status[b]:
                return False
        return True

    cdef int _sample(self, const Batch& batch, const RowParams* params) except -1:
        return _sample(self._kernels, batch, _NO_PROCESSORS.processors, params, self._reduction,
                       self._n_threads, self._sample_output, self._status.data())

    cdef int _append(self) except -1:
        cdef int64_t b
        cdef array.array output
        for output in self._outputs:
            _reserve_one(output)
        for b in range(len(self._outputs)):
            output = <array.array>self._outputs[b]
            output.data.as_longlongs[output.ob_size] = self._sample_output.tokens[b]
            output.ob_size += 1
        return 0


# ---- sample -------------------------------------------------------------------------------------------

cdef class Draw:
    """A call of `sample` for one row, with fixed parameters and no logits processors.

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
    cdef Held _number_memory

    def __cinit__(self, plan, int64_t max_vocabulary, isa, int n_threads, str reduction):
        cdef Held held
        self._kernels = _chosen(isa).kernels
        self._reduction = <Reduction>_code_of(reduction)
        self._n_threads = n_threads
        _hold_plan(held, plan, 1)
        self._params = (<const RowParams*>held.buffer.buf)[0]
        self._max_vocabulary = max_vocabulary
        self._number = np.zeros((), np.int64)
        self._ok = np.zeros((), np.uint8)
        _hold_write(self._number_memory, self._number, 8, 1, "number")

    def __call__(self, logits, seed, position, stream, bint is_checked=False):
        """Draw, and return the token, the kept count and the status as arrays without dimensions; or None."""
        cdef Held held
        cdef Batch batch
        cdef SampleOutput output = SampleOutput()
        cdef RowParams params = self._params
        cdef int64_t token, kept_count
        cdef uint8_t status = 0
        if type(seed) is not int or type(position) is not int or type(stream) is not int:
            return None
        try:
            params.seed, params.position, params.stream = seed, position, stream
        except OverflowError:
            return None
        if not _find_rows(held, logits, is_checked, 0, self._max_vocabulary, &batch):
            return None
        if held.buffer.ndim != 1:
            return None
        output.tokens, output.draws, output.kept_counts = &token, 1, &kept_count
        _sample(self._kernels, batch, _NO_PROCESSORS.processors, &params, self._reduction,
                self._n_threads, output, &status)
        if status:
            return None
        return self._as_array(token), self._as_array(kept_count), self._ok.copy()

    cdef object _as_array(self, int64_t number):
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
