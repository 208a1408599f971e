# The arguments of prepared calls, in the form that the kernels read.
#
# These functions check what `inputs` checks, and return False for what they do not handle or would refuse:
# the general path then serves the call, or raises the error.

cdef extern from * nogil:
    """
    // A list of tokens for each row, copied from the caller's.
    struct Lists {
      std::vector<int64_t> offsets;
      std::vector<int64_t> tokens;
      std::vector<float> values;

      // What is added from here on belongs to the next row.
      void end_row() {
        if (offsets.empty()) offsets.push_back(0);
        offsets.push_back(static_cast<int64_t>(tokens.size()));
      }
      void repeat_row() {
        const std::size_t count = tokens.size();
        const std::size_t first = static_cast<std::size_t>(offsets[offsets.size() - 2]);
        for (std::size_t i = first; i < count; ++i) {
          tokens.push_back(tokens[i]);
          values.push_back(values[i]);
        }
        end_row();
      }
      fastsample::TokenLists view() const {
        return {offsets.data(), tokens.data(), values.data()};
      }
    };

    // What the kernels read of a call's arguments, and the memory of what had to be copied.
    struct Arguments {
      fastsample::Batch batch;
      fastsample::LogitsProcessors processors = {};
      bool is_row;
      bool is_torch;
      int64_t columns;
      std::vector<int64_t> row_offsets;
      Lists bias;
      int64_t given_count = 0;
      std::vector<int64_t> given;  // given_count tokens for each row
      Lists prompt;
      Lists output;
    };

    // Rounds to nearest, ties to even, whatever mode the thread is in.
    inline float nearest_float(double number) {
      const fastsample::DefaultFloatMode mode;
      const volatile double wide = number;
      const volatile float nearest = static_cast<float>(wide);
      return nearest;
    }
    """
    cppclass Lists:
        vector[int64_t] tokens
        vector[float] values
        void end_row() except +
        void repeat_row() except +
        TokenLists view()

    cppclass Arguments:
        Arguments()
        Batch batch
        LogitsProcessors processors
        bint is_row
        bint is_torch
        int64_t columns
        vector[int64_t] row_offsets
        Lists bias
        int64_t given_count
        vector[int64_t] given
        Lists prompt
        Lists output

    float nearest_float(double number)


# ---- logits -------------------------------------------------------------------------------------------

cdef bint _find_rows(Buffers& buffers, logits, at, bint is_checked, bint is_tensor, int64_t valid_vocab,
                     int64_t max_vocabulary, Arguments& arguments) except -1:
    """Find the rows of logits of shape (V,) or (B, V), or with `at` (B, T, V).

    Where they are checked, they are memory of `inputs.logits.memory_of_logits`, of a tensor if `is_tensor`:
    uint16 holds bfloat16.
    """
    cdef Array array
    if is_checked and type(logits) is _NDARRAY and logits.dtype is _UINT16:
        array.kind = BFLOAT16
        if not _find_memory(<PyArrayObject*>logits, &array):
            return False
    elif not _find_array(buffers, logits, &array):
        return False
    cdef int last = array.ndim - 1
    if array.kind > BFLOAT16 or last < 0 or (last == 2) != (at is not None):
        return False
    cdef int64_t columns = array.shape[last]
    cdef int64_t vocabulary = valid_vocab or columns
    if not 1 <= vocabulary <= min(columns, max_vocabulary):
        return False
    cdef Batch* batch = &arguments.batch
    arguments.is_row = last == 0
    arguments.is_torch = is_tensor or array.is_torch
    arguments.columns = columns
    batch.logits = array.data
    batch.rows = array.shape[0] if last else 1
    batch.vocabulary = vocabulary
    batch.row_stride = array.strides[0] if last else 0
    batch.row_offsets = NULL
    # An axis of one token may have any stride.
    batch.token_stride = array.strides[last] if columns > 1 else array.itemsize
    batch.dtype = <DType>array.kind
    return at is None or _find_places(buffers, at, array, arguments)


cdef bint _find_places(Buffers& buffers, at, const Array& array, Arguments& arguments) except -1:
    """Find the row of each sequence along the axis T: one place for all, or one for each."""
    cdef Batch* batch = &arguments.batch
    cdef int64_t steps = array.shape[1]
    cdef int64_t b, place
    cdef Array places
    if type(at) is int:
        if not -steps <= at < steps:
            return False
        place = at
        batch.logits += (place + (steps if place < 0 else 0)) * array.strides[1]
        return True
    cdef bint is_list = type(at) is list or type(at) is tuple
    if is_list:
        if len(at) != batch.rows:
            return False
    elif (not _find_array(buffers, at, &places) or places.ndim != 1 or places.shape[0] != batch.rows
          or (places.kind != INT64 and places.kind != INT32)):
        return False
    for b in range(batch.rows):
        if not is_list:
            place = _integer_at(places, b)
        elif type(at[b]) is int and -steps <= at[b] < steps:
            place = at[b]
        else:
            return False
        if not -steps <= place < steps:
            return False
        place += steps if place < 0 else 0
        arguments.row_offsets.push_back(b * batch.row_stride + place * array.strides[1])
    batch.row_offsets = arguments.row_offsets.data()
    return True


cdef int64_t _integer_at(const Array& array, int64_t i) noexcept:
    """Read an integer of an array with one axis, of any alignment."""
    cdef int64_t wide
    cdef int32_t narrow
    if array.kind == INT64:
        memcpy(&wide, array.data + i * array.strides[0], 8)
        return wide
    memcpy(&narrow, array.data + i * array.strides[0], 4)
    return narrow


cdef double _float_at(const Array& array, int64_t i) noexcept:
    """Read a float of an array with one axis, of any alignment."""
    cdef double wide
    cdef float narrow
    if array.kind == FLOAT64:
        memcpy(&wide, array.data + i * array.strides[0], 8)
        return wide
    memcpy(&narrow, array.data + i * array.strides[0], 4)
    return narrow


# ---- mask ---------------------------------------------------------------------------------------------

cdef bint _find_mask(Buffers& buffers, mask, Arguments& arguments) except -1:
    """A bool for each token, or a bit; one row may serve all."""
    cdef Array array
    if not _find_array(buffers, mask, &array):
        return False
    cdef int last = array.ndim - 1
    cdef bint is_bits = array.kind == INT32 or array.kind == UINT32
    cdef int64_t rows = arguments.batch.rows
    if not (is_bits or array.kind == BOOL) or not 0 <= last <= 1:
        return False
    cdef int64_t count = array.shape[last]
    # Whether a bool mask may be shorter is for the general path to say.
    cdef int64_t least = 1 if is_bits else arguments.batch.vocabulary
    if not least <= count <= ((arguments.columns + 31) // 32 if is_bits else arguments.columns):
        return False
    if count > 1 and array.strides[last] != array.itemsize:
        return False
    if last == 1 and array.shape[0] != 1 and array.shape[0] != rows:
        return False
    cdef LogitsProcessors* processors = &arguments.processors
    processors.mask = array.data
    processors.mask_stride = array.strides[0] if last == 1 and array.shape[0] > 1 else 0
    processors.mask_count = min(arguments.batch.vocabulary, count * (32 if is_bits else 1))
    processors.mask_is_bits = is_bits
    return True


# ---- bias ---------------------------------------------------------------------------------------------

cdef bint _find_bias(Buffers& buffers, bias, Arguments& arguments) except -1:
    """A dict for all rows or one for each, or two arrays."""
    cdef int64_t rows = arguments.batch.rows
    cdef int64_t b
    if type(bias) is list:
        if len(bias) != rows:
            return False
        for one in <list>bias:
            if one is not None and not _add_dict(one, arguments):
                return False
            arguments.bias.end_row()
    else:
        if not (_add_arrays(buffers, bias, arguments) if type(bias) is tuple
                else _add_dict(bias, arguments)):
            return False
        arguments.bias.end_row()
        for b in range(1, rows):
            arguments.bias.repeat_row()
    arguments.processors.bias = arguments.bias.view()
    return True


cdef bint _add_dict(bias, Arguments& arguments) except -1:
    if type(bias) is not dict:
        return False
    cdef double number
    for token, value in (<dict>bias).items():
        if type(token) is not int or not 0 <= token < arguments.batch.vocabulary:
            return False
        if type(value) is float:
            number = value
        elif type(value) is int and -MAX_EXACT <= value <= MAX_EXACT:
            number = value
        else:
            return False
        if not _add_bias(token, number, arguments):
            return False
    return True


# Integers up to here are exact in float64.
cdef int64_t MAX_EXACT = 1 << 53


cdef bint _add_bias(int64_t token, double number, Arguments& arguments) except -1:
    cdef float value = nearest_float(number)
    if not value < INFINITY:
        return False
    arguments.bias.tokens.push_back(token)
    arguments.bias.values.push_back(value)
    return True


cdef bint _add_arrays(Buffers& buffers, tuple bias, Arguments& arguments) except -1:
    cdef Array tokens, values
    if len(bias) != 2 or not (_find_array(buffers, bias[0], &tokens) and _find_array(buffers, bias[1], &values)):
        return False
    if tokens.ndim != 1 or values.ndim != 1 or tokens.shape[0] != values.shape[0]:
        return False
    if ((tokens.kind != INT64 and tokens.kind != INT32)
            or (values.kind != FLOAT32 and values.kind != FLOAT64)):
        return False
    cdef int64_t i, token
    for i in range(tokens.shape[0]):
        token = _integer_at(tokens, i)
        if not (0 <= token < arguments.batch.vocabulary
                and _add_bias(token, _float_at(values, i), arguments)):
            return False
    cdef vector[int64_t] ascending = arguments.bias.tokens
    sort(ascending.begin(), ascending.end())
    return adjacent_find(ascending.begin(), ascending.end()) == ascending.end()


# ---- tokens whose log-probabilities are returned ------------------------------------------------------

cdef bint _find_given(Buffers& buffers, tokens, Arguments& arguments) except -1:
    """One list for all rows, lists of one length for each, or an array of either form."""
    cdef Array array
    cdef bint is_shared
    cdef int64_t b, i, rows = arguments.batch.rows
    if type(tokens) is list:
        is_shared = not tokens or type((<list>tokens)[0]) is not list
        if not _add_lists([tokens] if is_shared else tokens, 1 if is_shared else rows, arguments):
            return False
    else:
        if not _find_array(buffers, tokens, &array) or not 1 <= array.ndim <= 2:
            return False
        is_shared = array.ndim == 1
        if not _add_integers(array, 1 if is_shared else rows, arguments):
            return False
    if is_shared:
        for b in range(1, rows):
            for i in range(arguments.given_count):
                arguments.given.push_back(arguments.given[i])
    return True


cdef bint _add_lists(list lists, int64_t count, Arguments& arguments) except -1:
    if <int64_t>len(lists) != count:
        return False
    if count:
        arguments.given_count = len(lists[0])
    for tokens in lists:
        if type(tokens) is not list or <int64_t>len(tokens) != arguments.given_count:
            return False
        for token in <list>tokens:
            if type(token) is not int or not -1 <= token < arguments.batch.vocabulary:
                return False
            arguments.given.push_back(token)
    return True


cdef bint _add_integers(Array array, int64_t count, Arguments& arguments) except -1:
    if array.kind != INT64 and array.kind != INT32:
        return False
    cdef int64_t b, i, token
    cdef int64_t stride = 0
    if array.ndim == 2:
        if array.shape[0] != count:
            return False
        stride, array.strides[0], array.shape[0] = array.strides[0], array.strides[1], array.shape[1]
    arguments.given_count = array.shape[0]
    for b in range(count):
        for i in range(arguments.given_count):
            token = _integer_at(array, i)
            if not -1 <= token < arguments.batch.vocabulary:
                return False
            arguments.given.push_back(token)
        array.data += stride
    return True


# ---- histories ----------------------------------------------------------------------------------------

cdef bint _find_history(value, const Batch& batch, Lists& lists, TokenLists* target) except -1:
    """The tokens of each row, lists or arrays of NumPy; those of one row need not be in another list."""
    cdef bint is_flat = type(value) is list and (not value or type((<list>value)[0]) is int)
    if type(value) is _NDARRAY:
        is_flat = PyArray_NDIM(<PyArrayObject*>value) == 1
        if not 1 <= PyArray_NDIM(<PyArrayObject*>value) <= 2:
            return False
    elif type(value) is not list:
        return False
    cdef list rows = [value] if is_flat and batch.rows == 1 else list(value)
    if len(rows) != batch.rows:
        return False
    for tokens in rows:
        if not _add_tokens(tokens, batch.vocabulary, lists):
            return False
        lists.end_row()
    target[0] = lists.view()
    return True


cdef bint _add_tokens(tokens, int64_t vocabulary, Lists& lists) except -1:
    cdef Array array
    cdef int64_t i, number
    if type(tokens) is list:
        for token in <list>tokens:
            if type(token) is not int or not 0 <= token < vocabulary:
                return False
            lists.tokens.push_back(token)
        return True
    if (type(tokens) is not _NDARRAY or not _find_ndarray(tokens, &array) or array.ndim != 1
            or (array.kind != INT64 and array.kind != INT32)):
        return False
    for i in range(array.shape[0]):
        number = _integer_at(array, i)
        if not 0 <= number < vocabulary:
            return False
        lists.tokens.push_back(number)
    return True
