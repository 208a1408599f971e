# The sequences of a sampler: what calls read and change of each.


# What fresh seeds are kept combined with: see api/fresh_seeds.py.
cdef uint64_t _seed_mask = 0


# A forked child is another generation: the threads whose calls had released the GIL are not in it.
cdef uint64_t _generation = 1


def begin_child(uint64_t seed_mask):
    """Begin a forked child's generation, and replace all fresh seeds."""
    global _generation, _seed_mask
    _generation += 1
    _seed_mask = seed_mask


@final
cdef class SequenceState:
    """The parameters, the tokens and the position of one sequence: `SequenceState` of api/sequence_state.py.

    Parameters
    ----------
    record : bytes
        Its row of a plan, with its seed and its stream.
    is_fresh : bool
        Whether nobody gave the seed.
    prompt, output : int64 arrays of shape (N,)
        Tokens in [-2**31, 2**31).
    ignored : int64 array of shape (N,)
        The tokens that are not counted, ascending.
    has_outside : bool
        Whether tokens that are not in [0, V) are not counted either, which all must be otherwise.
    """

    cdef RowParams _params  # a fresh seed in its kept form
    cdef bint _is_fresh
    cdef CTokenHistory _tokens
    cdef tuple _gaps
    cdef uint64_t _skipped
    cdef uint64_t _turn  # that of the last call that has chosen it

    def __init__(self, bytes record, bint is_fresh, prompt, output, ignored, bint has_outside):
        cdef Buffers buffers
        cdef int64_t count = 0
        cdef const int64_t* tokens = _hold_tokens(buffers, ignored, &count)
        self._set_up(record, tokens, count, has_outside)
        self._set_seed(self._params.seed, is_fresh)
        tokens = _hold_tokens(buffers, prompt, &count)
        self._tokens.set_prompt(tokens, count)
        tokens = _hold_tokens(buffers, output, &count)
        self._tokens.reserve_more(count)
        self._tokens.extend(tokens, count)

    cdef int _set_up(self, bytes record, const int64_t* ignored, int64_t count, bint has_outside) except -1:
        """Set what comes before all tokens."""
        if len(record) != sizeof(RowParams):
            raise ValueError(f"record must have {sizeof(RowParams)} bytes, got {len(record)}")
        memcpy(&self._params, <const char*>record, sizeof(RowParams))
        self._gaps, self._skipped = (), 0
        self._tokens.set_ignored(ignored, count, has_outside)
        return 0

    cdef void _set_seed(self, uint64_t seed, bint is_fresh) noexcept:
        self._params.seed = seed ^ _seed_mask if is_fresh else seed
        self._is_fresh = is_fresh

    cdef RowParams _row_params(self) noexcept:
        """The parameters in this process."""
        cdef RowParams params = self._params
        if self._is_fresh:
            params.seed ^= _seed_mask
        return params

    @property
    def record(self):
        """The row of a plan."""
        cdef RowParams params = self._row_params()
        return (<const char*>&params)[:sizeof(RowParams)]

    @property
    def seed(self):
        return self._row_params().seed

    @property
    def stream(self):
        return self._params.stream

    @property
    def gaps(self):
        """Positions that were skipped: (length of the output before, number of positions)."""
        return self._gaps

    @gaps.setter
    def gaps(self, tuple gaps):
        cdef uint64_t total = 0
        for _, count in gaps:
            total += count
        self._gaps, self._skipped = gaps, total

    @property
    def skipped(self):
        """By how much the position is larger than the length of the output."""
        return self._skipped

    @property
    def output_count(self):
        """The number of tokens of the output."""
        return self._tokens.output_count()

    def prompt_array(self):
        """Return a copy of the prompt, int64."""
        return self._array(0, self._tokens.prompt_count())

    def output_array(self):
        """Return a copy of the output, int64."""
        return self._array(self._tokens.prompt_count(), self._tokens.output_count())

    cdef object _array(self, int64_t first, int64_t count):
        cdef Buffers buffers
        cdef int64_t i
        array = np.empty(count, np.int64)
        cdef int64_t* target = <int64_t*>_hold_write(buffers, array, 8, count, "array")
        for i in range(count):
            target[i] = self._tokens.tokens()[first + i]
        return array

    def __sizeof__(self):
        return object.__sizeof__(self) + self._tokens.bytes()

    @staticmethod
    def extend_all(list states, list lists):
        """Append a list of tokens, an int64 array, to the output of each: to all or, after an error, to none."""
        cdef SequenceState state
        for state, tokens in zip(states, lists):
            state._tokens.reserve_more(len(tokens))
        for state, tokens in zip(states, lists):
            _extend(state, tokens)

    @staticmethod
    def append_all(list states, tokens):
        """Append a token, of an int64 array, to the output of each: to all or none; -1 appends none."""
        cdef Buffers buffers
        cdef Py_ssize_t i
        cdef const int64_t* items = <const int64_t*>_hold_read(buffers, tokens, 8, len(states), "tokens")
        cdef SequenceState state
        for state in states:
            state._tokens.reserve_more(1)
        for i in range(len(states)):
            if items[i] >= 0:
                (<SequenceState>states[i])._tokens.extend(items + i, 1)

    @staticmethod
    def truncate_all(list states, list counts):
        """Keep so many tokens of each output, in all or none."""
        cdef vector[int64_t] kept = counts
        cdef SequenceState state
        cdef size_t i
        for state, count in zip(states, counts):
            if not 0 <= count <= state._tokens.output_count():
                raise ValueError(f"an output of {state._tokens.output_count()} tokens has none at {count}")
        for i in range(kept.size()):
            (<SequenceState>states[i])._tokens.truncate(kept[i])


cdef const int64_t* _hold_tokens(Buffers& buffers, tokens, int64_t* count) except? NULL:
    cdef Py_buffer* buffer = _hold(buffers, tokens, PyBUF_C_CONTIGUOUS, 8, "tokens")
    count[0] = buffer.len // 8
    return <const int64_t*>buffer.buf


cdef int _extend(SequenceState state, tokens) except -1:
    cdef Buffers buffers
    cdef int64_t count = 0
    cdef const int64_t* items = _hold_tokens(buffers, tokens, &count)
    state._tokens.extend(items, count)
    return 0


# ---- rows -------------------------------------------------------------------------------------------

@final
cdef class _Rows:
    """Some sequences, in order, as calls read them."""

    cdef list states
    cdef vector[int64_t] numbers
    cdef vector[CTokenHistory*] histories
    cdef vector[RowParams] params
    cdef vector[uint64_t] skipped

    def __cinit__(self):
        self.states = []

    cdef int64_t count(self) noexcept:
        return <int64_t>self.numbers.size()

    cdef bint has(self, int64_t b, int64_t number) noexcept:
        """Whether row b is that of this sequence."""
        return b < self.count() and self.numbers[b] == number

    cdef int write(self, int64_t b, int64_t number, SequenceState state) except -1:
        """Write row b, or add it as the last one; after an error nothing has changed."""
        if b == self.count():
            self._reserve(b + 1)
            self.states.append(state)
            self.numbers.resize(b + 1)
            self.histories.resize(b + 1)
            self.params.resize(b + 1)
            self.skipped.resize(b + 1)
        self.states[b] = state
        self.numbers[b] = number
        self.histories[b] = &state._tokens
        self.params[b] = state._row_params()
        self.skipped[b] = state._skipped
        return 0

    cdef int _reserve(self, size_t count) except -1:
        """Allocate memory: for twice as many as before, where there is not enough."""
        if count <= self.numbers.capacity():
            return 0
        count = max(count, 2 * self.numbers.size())
        self.histories.reserve(count)
        self.params.reserve(count)
        self.skipped.reserve(count)
        self.numbers.reserve(count)  # last: its capacity is that of all
        return 0

    cdef int truncate(self, int64_t count) except -1:
        """Keep the first rows."""
        if count < self.count():
            self.numbers.resize(count)
            self.histories.resize(count)
            self.params.resize(count)
            self.skipped.resize(count)
            del self.states[count:]
        return 0

    cdef int remove(self, int64_t number) except -1:
        """Remove the row of a sequence, of rows with ascending numbers."""
        cdef int64_t b = lower_bound(self.numbers.begin(), self.numbers.end(), number) - self.numbers.begin()
        if self.has(b, number):
            self.numbers.erase(self.numbers.begin() + b)
            self.histories.erase(self.histories.begin() + b)
            self.params.erase(self.params.begin() + b)
            self.skipped.erase(self.skipped.begin() + b)
            del self.states[b]
        return 0
