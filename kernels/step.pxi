# A sampler's prepared calls: all of a call but its errors.
#
# A prepared call either does everything or returns None and has changed nothing. Then the caller takes the
# general path, whose results are the same, and which reports errors. No Python code runs between the first look
# at the sequences and the last, so that only a call that releases the GIL has to keep other uses away.

cdef uint64_t MAX_POSITION = 0xFFFFFFFFFFFFFFFF

# A forked child is another generation: the threads whose calls had released the GIL are not in it.
cdef uint64_t _generation = 1


def _count_generation():
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_generation)


# DrawMethod of params/ops.py.
cdef enum:
    INVERSE = 0
    RACE = 1
    AUTOMATIC = 2


@final
cdef class _Row:
    """What a step reads of a sequence; the sequence keeps it."""

    cdef RowParams params
    cdef TokenHistory history
    cdef list gaps
    cdef uint64_t turn  # that of the last call that has chosen it
    cdef uint64_t generation  # in which `params` were read, as a child may have another seed

    def __cinit__(self, sequence):
        cdef Buffers buffers
        self.params = (<const RowParams*>_hold_read(
            buffers, sequence._plan, sizeof(RowParams), 1, "plan"))[0]
        self.history, self.gaps = sequence._history, sequence._gaps
        self.generation = _generation

    cdef uint64_t skipped(self) except? 0:
        """By how much the position is larger than the length of the output."""
        cdef uint64_t total = 0
        for _, count in self.gaps:
            total += count
        return total


cdef _Row _row_of(sequence):
    cdef dict attributes = sequence.__dict__
    row = attributes.get("_row")
    if row is None or (<_Row>row).generation != _generation:
        row = attributes["_row"] = _Row(sequence)
    return <_Row>row


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
    has_seeds : bool
        Whether a result has a seed for each row.
    result_type : type
        Called with the fields of a `SampleResult`.
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
    cdef bint _has_seeds
    cdef object _result_type
    cdef int64_t* _latency_counts
    cdef int64_t* _latency_sums
    # None while the sampler changes.
    cdef dict _sequences
    # The generation of the process in which a call has released the GIL; 0 where none has.
    cdef uint64_t _drawing
    # Of the sequences of the last call, until one of them changes.
    cdef bint _is_bound
    cdef uint64_t _bound_in  # the generation of the process
    cdef bint _is_all
    cdef vector[int64_t] _ids
    cdef uint64_t _turn
    cdef list _rows
    cdef vector[CTokenHistory*] _histories
    cdef vector[RowParams] _params
    cdef vector[uint64_t] _skipped
    cdef vector[int64_t] _tokens
    cdef vector[uint8_t] _status
    cdef Buffers _buffers  # last: it is large

    def __cinit__(self, type owner, int64_t valid_vocab, int64_t max_vocabulary, bint has_seeds, result_type,
                  latency, isa, int n_threads, str reduction):
        _call_steps(owner, Step)
        self._kernels = _chosen(isa).kernels
        self._reduction = <Reduction><int>_REDUCTIONS[reduction]
        self._n_threads = n_threads
        self._valid_vocab, self._max_vocabulary = valid_vocab, max_vocabulary
        self._has_seeds, self._result_type = has_seeds, result_type
        if latency is not None:
            counts, sums = latency
            self._latency_counts = <int64_t*>_hold_write(
                self._buffers, counts, 8, LATENCY_BUCKETS, "counts")
            self._latency_sums = <int64_t*>_hold_write(self._buffers, sums, 8, 4, "sums")

    def suspend(self):
        """Decline all calls, and drop what was read of the sequences; False during a call, which goes on."""
        if self._drawing == _generation:
            return False
        self._sequences = self._rows = None
        self._is_bound = False
        return True

    def resume(self, dict sequences):
        """Serve calls for the sequences of a table, by number."""
        self._is_bound = False
        self._sequences = sequences

    def __call__(self, logits, *, at=None, sequences=None, mask=None, bias=None):
        """Draw a token for each sequence, append them and return them; or None."""
        return self._call(logits, at, sequences, mask, bias, 0, False, False)

    def draw(self, logits, at, sequences, mask, bias, int64_t started=0, bint is_checked=False,
             bint is_tensor=False):
        """Do a call that began before."""
        return self._call(logits, at, sequences, mask, bias, started, is_checked, is_tensor)

    cdef object _call(self, logits, at, sequences, mask, bias, int64_t started, bint is_checked, bint is_tensor):
        if self._latency_sums and not started:
            started = <int64_t>_perf_counter_ns()
        cdef Buffers buffers
        cdef Arguments arguments
        cdef SampleOutput output = SampleOutput()
        if not (self._find(buffers, logits, at, mask, bias, is_checked, is_tensor, arguments)
                and self._draw(buffers, sequences, False, arguments, output)):
            return None
        if arguments.is_row:
            result = self._tokens[0]
        else:
            result = self._token_array(arguments)
        self._record(started)
        return result

    def sample(self, logits, at, sequences, mask, bias, logprobs, logprobs_mode, kept_count, on_invalid,
               int64_t started=0, bint is_checked=False, bint is_tensor=False):
        """Draw like a call, and return a `SampleResult` without margins; or None."""
        cdef Buffers buffers
        cdef Arguments arguments
        cdef SampleOutput output = SampleOutput()
        cdef _Details details = _Details.__new__(_Details)
        if type(on_invalid) is not str or (on_invalid != "raise" and on_invalid != "mark"):
            return None
        if not (self._find(buffers, logits, at, mask, bias, is_checked, is_tensor, arguments)
                and details.prepare(arguments, logprobs, logprobs_mode, kept_count, &output)
                and self._draw(buffers, sequences, on_invalid == "mark", arguments, output)):
            return None
        cdef Shape shape
        _add_rows(shape, arguments)
        status = _copy_of(shape, _UINT8_ITEMS, self._status.data(), arguments.is_torch)
        result = details.result(self._result_type, self._token_array(arguments), status,
                                self._seeds(arguments))
        self._record(started)
        return result

    cdef bint _find(self, Buffers& buffers, logits, at, mask, bias, bint is_checked, bint is_tensor,
                    Arguments& arguments) except -1:
        return (_find_rows(buffers, logits, at, is_checked, is_tensor, self._valid_vocab, self._max_vocabulary,
                           arguments)
                and (mask is None or _find_mask(buffers, mask, arguments))
                and (bias is None or _find_bias(buffers, bias, arguments)))

    # ---- sequences

    cdef bint _bind(self, Buffers& buffers, sequences) except -1:
        """Make the sequences of a call those of the rows; False for any that are not in the table."""
        cdef vector[int64_t] ids
        cdef bint is_all = sequences is None
        if self._sequences is None or not (is_all or _find_ids(buffers, sequences, ids)):
            return False
        if self._is_bound and self._bound_in == _generation and is_all == self._is_all and ids == self._ids:
            return True
        cdef list rows = []
        cdef int64_t number
        if is_all:
            for sequence in self._sequences.values():
                rows.append(_row_of(sequence))
        for number in ids:
            sequence = self._sequences.get(number)
            if sequence is None:
                return False
            rows.append(_row_of(sequence))
        return self._read(rows) and self._keep(is_all, ids, rows)

    cdef bint _read(self, list rows) except -1:
        """Read parameters and positions; False where a sequence occurs twice, or cannot be drawn."""
        cdef int64_t b, count = len(rows)
        cdef _Row row
        self._is_bound = False
        self._turn += 1
        self._histories.resize(count)
        self._params.resize(count)
        self._skipped.resize(count)
        self._tokens.resize(count)
        self._status.resize(count)
        for b in range(count):
            row = <_Row>rows[b]
            if row.turn == self._turn:
                return False
            row.turn = self._turn
            self._params[b] = row.params
            if not self._settle_draw(&self._params[b]):
                return False
            self._skipped[b] = row.skipped()
            self._histories[b] = &row.history._tokens
        return True

    cdef bint _settle_draw(self, RowParams* params) noexcept:
        """What `engines.settle_draws` does; False where it refuses."""
        if params.draw == AUTOMATIC:
            params.draw = INVERSE if self._reduction else RACE
        return params.draw != RACE or not self._reduction

    cdef bint _keep(self, bint is_all, const vector[int64_t]& ids, list rows) except -1:
        self._is_all, self._ids, self._rows = is_all, ids, rows
        self._is_bound, self._bound_in = True, _generation
        return True

    # ---- the draw

    cdef bint _draw(self, Buffers& buffers, sequences, bint marks, Arguments& arguments,
                    SampleOutput& output) except -1:
        """Draw, and append the tokens; False where a row has none, or the sampler is in use."""
        if not self._bind(buffers, sequences) or arguments.batch.rows != <int64_t>self._status.size():
            return False
        cdef uint64_t length
        cdef int64_t b
        for b in range(arguments.batch.rows):
            length = self._histories[b].output_count()
            if self._skipped[b] > MAX_POSITION - length:
                return False
            self._histories[b].set_vocabulary(arguments.batch.vocabulary)
            if (has_penalty(self._params[b])
                    and self._histories[b].max_token() >= arguments.batch.vocabulary):
                return False
            self._params[b].position = self._skipped[b] + length
            self._status[b] = 0
        arguments.processors.histories = self._histories.data()
        output.tokens, output.draws = self._tokens.data(), 1
        if not self._sample(arguments, output):
            return False
        if not marks:
            for b in range(arguments.batch.rows):
                if self._status[b]:
                    return False
        return self._append()

    cdef bint _sample(self, const Arguments& arguments, const SampleOutput& output) except -1:
        if _is_brief(arguments.batch, arguments.processors, output):
            self._run(arguments, output)
            return True
        sequences, self._sequences = self._sequences, None
        self._drawing = _generation
        try:
            self._run(arguments, output)
        finally:
            self._drawing = 0
            self._sequences = sequences
        return True

    cdef int _run(self, const Arguments& arguments, const SampleOutput& output) except -1:
        return _sample(self._kernels, arguments.batch, arguments.processors, self._params.data(),
                       self._reduction, self._n_threads, output, self._status.data())

    cdef bint _append(self) except -1:
        """Append a token to each output; -1 appends none."""
        cdef size_t b
        for b in range(self._histories.size()):
            self._histories[b].reserve_more(1)
        for b in range(self._histories.size()):
            if self._tokens[b] >= 0:
                self._histories[b].extend(self._tokens.data() + b, 1)
        return True

    # ---- results

    cdef object _token_array(self, const Arguments& arguments):
        cdef Shape shape
        _add_rows(shape, arguments)
        return _copy_of(shape, _INT64_ITEMS, self._tokens.data(), arguments.is_torch)

    cdef object _seeds(self, const Arguments& arguments):
        """The seed of all rows, or an array of theirs."""
        if arguments.is_row or not self._has_seeds:
            return self._params[0].seed
        cdef vector[uint64_t] seeds
        cdef int64_t b
        for b in range(arguments.batch.rows):
            seeds.push_back(self._params[b].seed)
        return _list_of(seeds.size(), _UINT64_ITEMS, seeds.data())

    cdef int _record(self, int64_t started) except -1:
        """Record the time of a call, and how many tokens it has drawn."""
        cdef int64_t drawn = 0, took, b
        if self._latency_sums:
            took = <int64_t>_perf_counter_ns() - started
            for b in range(<int64_t>self._tokens.size()):
                drawn += self._tokens[b] >= 0
            _record(self._latency_counts, self._latency_sums, took, drawn)
        return 0


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
