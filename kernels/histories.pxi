# The tokens of a sampler's sequences, with the counts that penalties read.


@final
cdef class TokenHistory:
    """The tokens of one sequence: `TokenHistory` of api/token_history.py.

    Parameters
    ----------
    prompt, output : int64 arrays of shape (N,)
        Tokens in [-2**31, 2**31).
    ignored : int64 array of shape (N,), optional
        The tokens that are not counted, ascending.
    has_outside : bool
        Whether tokens that are not in [0, V) are not counted either, which all must be otherwise.
    """

    cdef CTokenHistory _tokens

    def __init__(self, prompt, output, ignored=None, bint has_outside=False):
        cdef Buffers buffers
        cdef int64_t count = 0
        cdef const int64_t* tokens
        if ignored is not None:
            tokens = _hold_tokens(buffers, ignored, &count)
            self._tokens.set_ignored(tokens, count, has_outside)
        tokens = _hold_tokens(buffers, prompt, &count)
        self._tokens.set_prompt(tokens, count)
        tokens = _hold_tokens(buffers, output, &count)
        self._tokens.reserve_more(count)
        self._tokens.extend(tokens, count)

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
    def extend_all(list histories, list lists):
        """Append a list of tokens, an int64 array, to the output of each: to all or, after an error, to none."""
        cdef TokenHistory history
        for history, tokens in zip(histories, lists):
            history._tokens.reserve_more(len(tokens))
        for history, tokens in zip(histories, lists):
            _extend(history, tokens)

    @staticmethod
    def append_all(list histories, tokens):
        """Append a token, of an int64 array, to the output of each: to all or none; -1 appends none."""
        cdef Buffers buffers
        cdef Py_ssize_t i
        cdef const int64_t* items = <const int64_t*>_hold_read(buffers, tokens, 8, len(histories), "tokens")
        cdef TokenHistory history
        for history in histories:
            history._tokens.reserve_more(1)
        for i in range(len(histories)):
            if items[i] >= 0:
                (<TokenHistory>histories[i])._tokens.extend(items + i, 1)

    @staticmethod
    def truncate_all(list histories, list counts):
        """Keep so many tokens of each output, in all or none."""
        cdef vector[int64_t] kept = counts
        cdef TokenHistory history
        cdef size_t i
        for history, count in zip(histories, counts):
            if not 0 <= count <= history._tokens.output_count():
                raise ValueError(f"an output of {history._tokens.output_count()} tokens has none at {count}")
        for i in range(kept.size()):
            (<TokenHistory>histories[i])._tokens.truncate(kept[i])


cdef const int64_t* _hold_tokens(Buffers& buffers, tokens, int64_t* count) except? NULL:
    cdef Py_buffer* buffer = _hold(buffers, tokens, PyBUF_C_CONTIGUOUS, 8, "tokens")
    count[0] = buffer.len // 8
    return <const int64_t*>buffer.buf


cdef int _extend(TokenHistory history, tokens) except -1:
    cdef Buffers buffers
    cdef int64_t count = 0
    cdef const int64_t* items = _hold_tokens(buffers, tokens, &count)
    history._tokens.extend(items, count)
    return 0
