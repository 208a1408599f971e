# Prepared calls of `sample`, for one row.

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

    def __call__(self, logits, seed, position, stream, at=None, mask=None, bias=None, valid_vocab=None,
                 logprobs=None, logprobs_mode="raw", kept_count=False, logprob_tokens=None,
                 bint is_checked=False, bint is_tensor=False):
        """Draw, and return a `SampleResult`; or None."""
        cdef Buffers buffers
        cdef Arguments arguments
        cdef SampleOutput output = SampleOutput()
        cdef RowParams params = self._params
        cdef _Details details = _Details.__new__(_Details)
        cdef Shape shape
        cdef int64_t columns = 0
        cdef uint8_t* status = NULL
        if type(seed) is not int or type(position) is not int or type(stream) is not int:
            return None
        try:
            params.seed, params.position, params.stream = seed, position, stream
        except OverflowError:
            return None
        if valid_vocab is not None:
            if type(valid_vocab) is not int or not 1 <= valid_vocab <= self._max_vocabulary:
                return None
            columns = valid_vocab
        if not (_find_rows(buffers, logits, at, is_checked, is_tensor, columns, self._max_vocabulary, arguments)
                and arguments.batch.rows == 1
                and (mask is None or _find_mask(buffers, mask, arguments))
                and (bias is None or _find_bias(buffers, bias, arguments))
                and details.prepare(buffers, arguments, logprobs, logprobs_mode, kept_count, logprob_tokens,
                                    &output)):
            return None
        _add_rows(shape, arguments)
        tokens = _new_array(shape, _INT64_ITEMS, arguments.is_torch, <void**>&output.tokens)
        statuses = _new_array(shape, _UINT8_ITEMS, arguments.is_torch, <void**>&status)
        output.draws, status[0] = 1, 0
        _sample(self._kernels, arguments.batch, arguments.processors, &params, self._reduction,
                self._n_threads, output, status)
        if status[0]:
            return None
        return details.result(self._result_type, tokens, statuses, seed)
