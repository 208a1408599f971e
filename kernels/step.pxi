# A sampler's prepared calls: all of a call but its errors.
#
# A prepared call either does everything or returns None and has changed nothing. Then the caller takes the
# general path, whose results are the same, and which reports errors. No Python code runs between the first look
# at the sequences and the last, so that only a call that releases the GIL has to keep other uses away. So all
# arrays of results are made before: making a tensor may run finalizers.

cdef uint64_t MAX_POSITION = 0xFFFFFFFFFFFFFFFF
cdef int64_t MAX_STREAMS = 1 << 32

cdef object _urandom = os.urandom

# DrawMethod of params/ops.py.
cdef enum:
    INVERSE = 0
    RACE = 1
    AUTOMATIC = 2


@final
cdef class Step:
    """The `Step` of engines/contract.py.

    Parameters
    ----------
    owner : type
        A class whose objects keep their step in the slot `_step`: see call.pxi.
    valid_vocab : int
        How many columns of every row are tokens; 0 for all, whose number may then differ.
    max_vocabulary : int
    is_dynamic : bool
        Whether sequences may be added and removed; then a result has a seed for each row.
    result_type : type
        Called with the fields of a `SampleResult`.
    params_type, sequence_type : type
        `SamplingParams` and `Sequence`.
    prepare : function
        Gives parameters their `PreparedParams`, in the slot `_prepared`, and returns them.
    latency : (int64 array, int64 array), or None
        The counts and the sums of a `Latency`.
    isa, n_threads, reduction
        As in `sample`.
    """

    cdef const Kernels* _kernels
    cdef Reduction _reduction
    cdef int _n_threads
    cdef int64_t _valid_vocab
    cdef int64_t _max_vocabulary
    cdef bint _is_dynamic
    cdef object _result_type
    cdef object _params_type
    cdef object _sequence_type
    cdef object _prepare
    cdef int64_t* _latency_counts
    cdef int64_t* _latency_sums
    # Both are None while the sampler changes: the `SequenceTable`, and its sequences by number.
    cdef object _table
    cdef dict _sequences
    # The generation of the process in which a call has released the GIL; 0 where none has.
    cdef uint64_t _drawing
    # All sequences, if they were read, and those that the last call with numbers has chosen.
    cdef bint _has_all
    cdef _Rows _all
    cdef _Rows _chosen
    cdef uint64_t _read_in  # the generation in which they were read: a child may have other seeds
    cdef uint64_t _turn
    # Of the last call.
    cdef _Rows _rows
    cdef vector[uint8_t] _status
    cdef Buffers _buffers  # last: it is large

    def __cinit__(self, type owner, int64_t valid_vocab, int64_t max_vocabulary, bint is_dynamic, type result_type,
                  type params_type, type sequence_type, prepare, latency, isa, int n_threads, str reduction):
        _call_steps(owner, Step)
        self._kernels = _chosen(isa).kernels
        self._reduction = <Reduction><int>_REDUCTIONS[reduction]
        self._n_threads = n_threads
        self._valid_vocab, self._max_vocabulary = valid_vocab, max_vocabulary
        self._is_dynamic, self._result_type = is_dynamic, result_type
        self._params_type, self._sequence_type, self._prepare = params_type, sequence_type, prepare
        self._all, self._chosen = _Rows.__new__(_Rows), _Rows.__new__(_Rows)
        if latency is not None:
            counts, sums = latency
            self._latency_counts = <int64_t*>_hold_write(
                self._buffers, counts, 8, LATENCY_BUCKETS, "counts")
            self._latency_sums = <int64_t*>_hold_write(self._buffers, sums, 8, 4, "sums")

    def suspend(self):
        """Decline all calls, and drop what was read of the sequences; False during a call, which goes on."""
        if self._drawing == _generation:
            return False
        self._table = self._sequences = None
        self._drop()
        return True

    def resume(self, table):
        """Serve calls for the sequences of a table."""
        self._drop()
        self._table, self._sequences = table, table.sequences

    cdef int _drop(self) except -1:
        self._has_all = False
        self._all.truncate(0)
        self._chosen.truncate(0)
        self._read_in = _generation
        return 0

    def __call__(self, logits, *, at=None, sequences=None, mask=None, bias=None):
        """Do a call of the sampler; None where it declines."""
        return self.draw(logits, at, sequences, mask, bias)

    cpdef object draw(self, logits, at, sequences, mask, bias, int64_t started=0, bint is_checked=False,
                      bint is_tensor=False):
        """Draw, append the tokens and return them; None likewise."""
        if self._latency_sums and not started:
            started = <int64_t>_perf_counter_ns()
        cdef Buffers buffers
        cdef Arguments arguments
        cdef SampleOutput output
        cdef Shape shape
        cdef int64_t token = -1
        if not self._find(buffers, logits, at, mask, bias, is_checked, is_tensor, arguments):
            return None
        if arguments.is_row:
            tokens, output.tokens = None, &token
        else:
            _add_rows(shape, arguments)
            tokens = _new_array(shape, _INT64_ITEMS, arguments.is_torch, <void**>&output.tokens)
        if not self._draw(buffers, sequences, False, arguments, output):
            return None
        self._record(started, output.tokens)
        return token if arguments.is_row else tokens

    cpdef object sample(self, logits, at, sequences, mask, bias, logprobs, logprobs_mode, logprob_tokens, kept_count,
                        on_invalid, int64_t started=0, bint is_checked=False, bint is_tensor=False):
        """Draw likewise, and return a `SampleResult` without margins."""
        if self._latency_sums and not started:
            started = <int64_t>_perf_counter_ns()
        cdef Buffers buffers
        cdef Arguments arguments
        cdef SampleOutput output
        cdef _Details details = _Details.__new__(_Details)
        cdef Shape shape
        cdef int64_t b
        cdef uint8_t* status = NULL
        if type(on_invalid) is not str or (on_invalid != "raise" and on_invalid != "mark"):
            return None
        if not (self._find(buffers, logits, at, mask, bias, is_checked, is_tensor, arguments)
                and (self._is_dynamic or arguments.batch.rows > 0)  # the seed of all is that of the first row
                and details.prepare(buffers, arguments, logprobs, logprobs_mode, kept_count, logprob_tokens,
                                    &output)):
            return None
        _add_rows(shape, arguments)
        tokens = _new_array(shape, _INT64_ITEMS, arguments.is_torch, <void**>&output.tokens)
        statuses = _new_array(shape, _UINT8_ITEMS, arguments.is_torch, <void**>&status)
        if not self._draw(buffers, sequences, on_invalid == "mark", arguments, output):
            return None
        for b in range(arguments.batch.rows):
            status[b] = self._status[b]
        self._record(started, output.tokens)
        return details.result(self._result_type, tokens, statuses, self._seeds(arguments))

    cdef bint _find(self, Buffers& buffers, logits, at, mask, bias, bint is_checked, bint is_tensor,
                    Arguments& arguments) except -1:
        return (_find_rows(buffers, logits, at, is_checked, is_tensor, self._valid_vocab, self._max_vocabulary,
                           arguments)
                and (mask is None or _find_mask(buffers, mask, arguments))
                and (bias is None or _find_bias(buffers, bias, arguments)))

    # ---- sequences

    cdef bint _bind(self, Buffers& buffers, sequences) except -1:
        """Find the sequences of the rows; False for any that are not in the table, or cannot be drawn."""
        cdef vector[int64_t] ids
        # First: attributes of a tensor may be Python code that uses the sampler.
        if sequences is not None and not _find_ids(buffers, sequences, ids):
            return False
        if self._sequences is None:
            return False
        if self._read_in != _generation:
            self._drop()
        if sequences is None:
            self._rows = self._all
            return self._has_all or self._read_all()
        self._rows = self._chosen
        if ids == self._chosen.numbers or self._choose(ids):
            return True
        self._chosen.truncate(0)
        return False

    cdef bint _read_all(self) except -1:
        cdef int64_t b = 0
        self._all.truncate(0)
        for number, sequence in self._sequences.items():
            if not self._read(self._all, b, number, _state_of(sequence)):
                return False
            b += 1
        self._has_all = True
        return True

    cdef bint _choose(self, const vector[int64_t]& ids) except -1:
        """Read the sequences of these numbers, but for those whose row is the same as before."""
        cdef int64_t b, count = ids.size()
        cdef SequenceState state
        self._turn += 1
        for b in range(count):
            if not self._chosen.has(b, ids[b]):
                sequence = self._sequences.get(ids[b])
                if sequence is None or not self._read(self._chosen, b, ids[b], _state_of(sequence)):
                    return False
            state = <SequenceState>self._chosen.states[b]
            if state._turn == self._turn:  # it occurs twice
                return False
            state._turn = self._turn
        self._chosen.truncate(count)
        return True

    cdef bint _read(self, _Rows rows, int64_t b, int64_t number, SequenceState state) except -1:
        rows.write(b, number, state)
        return self._settle_draw(&rows.params[b])

    cdef bint _settle_draw(self, RowParams* params) noexcept:
        """What `engines.settle_draws` does; False where it refuses."""
        if params.draw == AUTOMATIC:
            params.draw = INVERSE if self._reduction else RACE
        return params.draw != RACE or not self._reduction

    cdef object _add(self, params, prompt, stream):
        """Add a sequence and return its number; None where it declines, as calls do."""
        if (self._sequences is None or not self._is_dynamic or type(params) is not self._params_type
                or type(stream) is not int or not 0 <= stream < MAX_STREAMS):
            return None
        prepared = getattr(params, "_prepared", None)
        if prepared is None:
            prepared = self._prepare(params)
        cdef SequenceState state = SequenceState.__new__(SequenceState)
        if not self._begin(state, prepared, params.seed, stream, prompt):
            return None
        sequence = self._sequence_type.__new__(self._sequence_type)
        sequence._params, sequence._state = params, state
        # Python code may have used the sampler until here; from here on there is none.
        if self._sequences is None:
            return None
        number = self._table._next_id
        self._table._next_id = number + 1  # first: an error here skips a number and loses no sequence
        self._sequences[number] = sequence
        has_all, self._has_all = self._has_all, False
        self._has_all = has_all and self._read(self._all, self._all.count(), number, state)
        return number

    cdef bint _begin(self, SequenceState state, prepared, seed, stream, prompt) except -1:
        """Set the parameters and the prompt of a new sequence."""
        cdef Buffers buffers
        cdef vector[int64_t] tokens
        cdef int64_t count = 0
        record, ignored, has_outside = <tuple>prepared
        if not _find_tokens(buffers, prompt, self._valid_vocab or self._max_vocabulary, tokens):
            return False
        cdef const int64_t* ids = _hold_tokens(buffers, ignored, &count)
        state._set_up(record, ids, count, has_outside)
        state._tokens.set_prompt(tokens.data(), tokens.size())
        state._set_seed(int.from_bytes(_urandom(8), "little") if seed is None else seed, seed is None)
        state._params.stream = stream
        cdef RowParams settled = state._params
        return self._settle_draw(&settled)

    cdef object _remove(self, number):
        """Remove a sequence and return it; None where it declines."""
        if self._sequences is None or not self._is_dynamic or type(number) is not int:
            return None
        sequence = self._sequences.pop(number, None)
        if sequence is not None:
            self._all.remove(number)
            self._chosen.truncate(0)
        return sequence

    # ---- the draw

    cdef bint _draw(self, Buffers& buffers, sequences, bint marks, Arguments& arguments,
                    SampleOutput& output) except -1:
        """Draw, and append the tokens; False where a row has none, or the sampler is in use."""
        if not self._bind(buffers, sequences) or arguments.batch.rows != self._rows.count():
            return False
        cdef _Rows rows = self._rows
        cdef uint64_t length
        cdef int64_t b
        self._status.assign(rows.count(), 0)
        for b in range(rows.count()):
            length = rows.histories[b].output_count()
            if rows.skipped[b] > MAX_POSITION - length:
                return False
            rows.histories[b].set_vocabulary(arguments.batch.vocabulary)
            if has_penalty(rows.params[b]) and rows.histories[b].max_token() >= arguments.batch.vocabulary:
                return False
            rows.params[b].position = rows.skipped[b] + length
        arguments.processors.histories = rows.histories.data()
        output.draws = 1
        if not self._sample(arguments, output):
            return False
        if not marks:
            for b in range(arguments.batch.rows):
                if self._status[b]:
                    return False
        return self._append(output.tokens)

    cdef bint _sample(self, const Arguments& arguments, const SampleOutput& output) except -1:
        if _is_brief(arguments.batch, arguments.processors, output):
            self._run(arguments, output)
            return True
        table, sequences = self._table, self._sequences
        self._table = self._sequences = None
        self._drawing = _generation
        try:
            self._run(arguments, output)
        finally:
            self._drawing = 0
            self._table, self._sequences = table, sequences
        return True

    cdef int _run(self, const Arguments& arguments, const SampleOutput& output) except -1:
        return _sample(self._kernels, arguments.batch, arguments.processors, self._rows.params.data(),
                       self._reduction, self._n_threads, output, self._status.data())

    cdef bint _append(self, const int64_t* tokens) except -1:
        """Append a token to each output; -1 appends none."""
        cdef _Rows rows = self._rows
        cdef int64_t b
        for b in range(rows.count()):
            rows.histories[b].reserve_more(1)
        for b in range(rows.count()):
            if tokens[b] >= 0:
                rows.histories[b].extend(tokens + b, 1)
        return True

    # ---- results

    cdef object _seeds(self, const Arguments& arguments):
        """The seed of all rows, or an array of theirs."""
        if arguments.is_row or not self._is_dynamic:
            return self._rows.params[0].seed
        return _seeds_of(self._rows.params)

    cdef int _record(self, int64_t started, const int64_t* tokens) except -1:
        """Record the time of a call, and how many tokens it has drawn."""
        cdef int64_t drawn = 0, took, b
        if self._latency_sums:
            took = <int64_t>_perf_counter_ns() - started
            for b in range(self._rows.count()):
                drawn += tokens[b] >= 0
            _record(self._latency_counts, self._latency_sums, took, drawn)
        return 0


cdef SequenceState _state_of(sequence):
    return <SequenceState>sequence._state


cdef bint _find_tokens(Buffers& buffers, prompt, int64_t limit, vector[int64_t]& tokens) except -1:
    """Find the tokens of a prompt, a list, a tuple or an array, in [0, limit)."""
    cdef Array array
    cdef int64_t b
    if type(prompt) is list or type(prompt) is tuple:
        for token in prompt:
            if type(token) is not int or not 0 <= token < limit:
                return False
            tokens.push_back(token)
        return True
    if not _find_array(buffers, prompt, &array) or array.ndim != 1 or array.kind != INT64:
        return False
    for b in range(array.shape[0]):
        tokens.push_back(_integer_at(array, b))
        if not 0 <= tokens.back() < limit:
            return False
    return True


cdef bint _find_ids(Buffers& buffers, sequences, vector[int64_t]& ids) except -1:
    """Find numbers of sequences: one, or a list, a tuple or an array of them."""
    cdef Array array
    cdef int64_t b
    if type(sequences) is int:
        sequences = (sequences,)
    if type(sequences) is list or type(sequences) is tuple:
        for number in sequences:
            if type(number) is not int or not 0 <= number <= MAX_EXACT:
                return False
            ids.push_back(number)
        return True
    if not _find_array(buffers, sequences, &array) or array.ndim != 1 or array.kind != INT64:
        return False
    for b in range(array.shape[0]):
        ids.push_back(_integer_at(array, b))
    return True
