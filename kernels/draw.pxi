# Prepared calls of `sample`.

@final
cdef class Draw:
    """The `Draw` of engines/contract.py.

    Parameters
    ----------
    plan : array of PLAN, shape (1,)
        The parameters; each call has its own seed, position and stream.
    max_vocabulary : int
    result_type : type
        Called with the fields of a `SampleResult`.
    isa, n_threads, reduction
        As in `sample`.
    """

    cdef const Kernels* _kernels
    cdef Reduction _reduction
    cdef int _n_threads
    cdef RowParams _params
    cdef int64_t _max_vocabulary
    cdef object _result_type

    def __cinit__(self, plan, int64_t max_vocabulary, result_type, isa, int n_threads, str reduction):
        cdef Buffers buffers
        self._kernels = _chosen(isa).kernels
        self._reduction = <Reduction><int>_REDUCTIONS[reduction]
        self._n_threads = n_threads
        self._params = (<const RowParams*>_hold_read(
            buffers, plan, sizeof(RowParams), 1, "plan"))[0]
        self._max_vocabulary = max_vocabulary
        self._result_type = result_type

    def __call__(self, logits, seed, position, stream, at=None, mask=None, bias=None, prompt=None, output=None,
                 valid_vocab=None, logprobs=None, logprobs_mode="raw", kept_count=False, logprob_tokens=None,
                 bint is_checked=False, bint is_tensor=False):
        """Draw, and return a `SampleResult`; or None."""
        cdef Buffers buffers
        cdef Arguments arguments
        cdef SampleOutput results
        cdef _Details details = _Details.__new__(_Details)
        cdef vector[RowParams] params
        cdef Shape shape
        cdef int64_t b, columns = 0
        cdef uint8_t* status = NULL
        if valid_vocab is not None:
            if type(valid_vocab) is not int or not 1 <= valid_vocab <= self._max_vocabulary:
                return None
            columns = valid_vocab
        if not (_find_rows(buffers, logits, at, is_checked, is_tensor, columns, self._max_vocabulary, arguments)
                and self._find_rng_positions(seed, position, stream, arguments, params)
                and (mask is None or _find_mask(buffers, mask, arguments))
                and (bias is None or _find_bias(buffers, bias, arguments))
                and (prompt is None or _find_history(
                    prompt, arguments.batch, arguments.prompt, &arguments.processors.prompt))
                and (output is None or _find_history(
                    output, arguments.batch, arguments.output, &arguments.processors.output))
                and details.prepare(buffers, arguments, logprobs, logprobs_mode, kept_count, logprob_tokens,
                                    &results)):
            return None
        _add_rows(shape, arguments)
        tokens = _new_array(shape, _INT64_ITEMS, arguments.is_torch, <void**>&results.tokens)
        statuses = _new_array(shape, _UINT8_ITEMS, arguments.is_torch, <void**>&status)
        memset(status, 0, arguments.batch.rows)
        results.draws = 1
        _sample(self._kernels, arguments.batch, arguments.processors, params.data(), self._reduction,
                self._n_threads, results, status)
        for b in range(arguments.batch.rows):
            if status[b]:
                return None
        return details.result(self._result_type, tokens, statuses,
                              seed if type(seed) is int else _seeds_of(params))

    cdef bint _find_rng_positions(self, seed, position, stream, const Arguments& arguments,
                                  vector[RowParams]& params) except -1:
        """Give each row its seed, position and stream: one number for all, or one for each."""
        cdef int64_t b, rows = arguments.batch.rows
        cdef uint64_t number = 0
        cdef bint by_row = type(stream) is str and stream == "row"
        if arguments.is_row and type(seed) is not int:
            return False
        if stream is None:
            if rows > 1 and type(seed) is int:
                return False
            stream = 0
        params.assign(rows, self._params)
        for b in range(rows):
            if not (_find_number(seed, b, rows, &params[b].seed)
                    and _find_number(position, b, rows, &params[b].position)
                    and _find_number(b if by_row else stream, b, rows, &number)
                    and number < <uint64_t>MAX_STREAMS):
                return False
            params[b].stream = number
        return True


cdef bint _find_number(value, int64_t b, int64_t rows, uint64_t* number) except -1:
    """Find the number of a row: that of all rows, or one of a list."""
    if type(value) is list:
        if len(<list>value) != rows:
            return False
        value = (<list>value)[b]
    if type(value) is not int:
        return False
    try:
        number[0] = value
    except OverflowError:
        return False
    return True
