# Arrays and tensors that a prepared call is given: their memory, without a call of Python code.
#
# Exact types only: an instance of a subclass may behave in another way, and goes the general path.

cdef extern from * nogil:
    """
    // An array in memory: strides in bytes.
    struct Array {
      const char* data;
      int ndim;
      int64_t shape[3];
      int64_t strides[3];
      int kind;  // of kItemKinds
      int64_t itemsize;
      bool is_torch;
    };
    """
    cppclass Array:
        const char* data
        int ndim
        int64_t[3] shape
        int64_t[3] strides
        int kind
        int64_t itemsize
        bint is_torch


# Fields of NumPy's arrays: reading them costs less than a buffer request.
cdef extern from "<numpy/arrayobject.h>" nogil:
    ctypedef struct PyArrayObject:
        pass
    ctypedef struct PyArray_Descr:
        pass
    void* PyArray_DATA(PyArrayObject*)
    int PyArray_NDIM(PyArrayObject*)
    Py_ssize_t PyArray_DIM(PyArrayObject*, int)
    Py_ssize_t PyArray_STRIDE(PyArrayObject*, int)
    PyArray_Descr* PyArray_DESCR(PyArrayObject*)


# The first three are those of DType.
cdef enum Kind:
    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2
    FLOAT64 = 3
    BOOL = 4
    INT32 = 5
    UINT32 = 6
    INT64 = 7

cdef int64_t[8] _ITEMSIZES = [4, 2, 2, 8, 1, 4, 4, 8]

cdef object _NDARRAY = np.ndarray
cdef object _FLOAT32 = np.dtype(np.float32)
cdef object _FLOAT16 = np.dtype(np.float16)
cdef object _UINT16 = np.dtype(np.uint16)
cdef dict _KINDS = {
    _FLOAT32: FLOAT32, _FLOAT16: FLOAT16, np.dtype(np.float64): FLOAT64, np.dtype(np.bool_): BOOL, np.dtype(np.int32): INT32,
    np.dtype(np.uint32): UINT32, np.dtype(np.int64): INT64}


cdef bint _find_array(Buffers& buffers, value, Array* array) except -1:
    """Find the memory of an array of NumPy, or of a tensor; False for anything else."""
    if type(value) is _NDARRAY:
        return _find_ndarray(value, array)
    return _find_tensor(buffers, value, array)


cdef bint _find_ndarray(value, Array* array) except -1:
    dtype = <object>PyArray_DESCR(<PyArrayObject*>value)
    if dtype is _FLOAT32:
        array.kind = FLOAT32
    elif dtype is _FLOAT16:
        array.kind = FLOAT16
    else:
        kind = _KINDS.get(dtype)
        if kind is None:
            return False
        array.kind = kind
    return _find_memory(<PyArrayObject*>value, array)


cdef bint _find_memory(PyArrayObject* value, Array* array) noexcept:
    """Find the memory of an array of NumPy whose kind is known."""
    array.ndim = PyArray_NDIM(value)
    if array.ndim > 3:
        return False
    array.itemsize = _ITEMSIZES[array.kind]
    array.data = <const char*>PyArray_DATA(value)
    array.is_torch = False
    cdef int axis
    for axis in range(array.ndim):
        array.shape[axis] = PyArray_DIM(value, axis)
        array.strides[axis] = PyArray_STRIDE(value, axis)
    return True


# ---- tensors ------------------------------------------------------------------------------------------

cdef str _EXCHANGE = "__dlpack_c_exchange_api__"

# The type that was found last, and what its capsule holds: a process rarely has tensors of two types.
cdef object _tensor_type = None
cdef const DLPackExchangeAPI* _exchange = NULL
cdef bint _is_torch = False
cdef const DLPackExchangeAPI* _torch_exchange = NULL


cdef bint _find_exchange(kind) except -1:
    """Find the exchange API that a type itself has; False where it has none of version 1."""
    global _tensor_type, _exchange, _is_torch, _torch_exchange
    capsule = kind.__dict__.get(_EXCHANGE)
    if capsule is None or not PyCapsule_IsValid(capsule, "dlpack_exchange_api"):
        return False
    found = <const DLPackExchangeAPI*>PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
    if found.major != kDLPackMajor:
        return False
    torch = sys.modules.get("torch")
    _is_torch = torch is not None and kind is torch.Tensor
    if _is_torch:
        _torch_exchange = found
    _exchange, _tensor_type = found, kind
    return True


cdef bint _find_tensor(Buffers& buffers, value, Array* array) except -1:
    """Find the memory of a tensor by the exchange API; False where the general path must look at it."""
    if type(value) is not _tensor_type and not _find_exchange(type(value)):
        return False
    # Attributes may be Python code, of a mode of torch, that finds tensors of another type.
    cdef const DLPackExchangeAPI* exchange = _exchange
    cdef bint is_torch = _is_torch
    # The exchange API would ignore both.
    if is_torch and (value.requires_grad or value.is_neg()):
        return False
    cdef DLManagedTensorVersioned** managed = &buffers.tensors[buffers.tensor_count]
    if exchange.from_object(<void*>value, managed):
        PyErr_Clear()
        return False
    buffers.tensor_count += 1
    cdef const DLTensor* tensor = &managed[0].tensor
    if (managed[0].major != kDLPackMajor or tensor.device_type != kDLCPU or tensor.data == NULL
            or tensor.ndim > 3 or tensor.lanes != 1 or not _find_kind(tensor, array)):
        return False
    array.itemsize = _ITEMSIZES[array.kind]
    array.data = <const char*>tensor.data + tensor.byte_offset
    array.ndim = tensor.ndim
    array.is_torch = is_torch
    cdef int64_t stride = array.itemsize
    cdef int axis
    for axis in range(tensor.ndim - 1, -1, -1):
        array.shape[axis] = tensor.shape[axis]
        array.strides[axis] = tensor.strides[axis] * array.itemsize if tensor.strides else stride
        stride *= tensor.shape[axis]
    return True


cdef bint _find_kind(const DLTensor* tensor, Array* array) noexcept:
    """Find the kind of a tensor's items."""
    cdef int code = tensor.code, bits = tensor.bits
    if code == 2:  # kDLFloat
        array.kind = FLOAT32 if bits == 32 else FLOAT16 if bits == 16 else FLOAT64
        return bits == 32 or bits == 16 or bits == 64
    if code == 4:  # kDLBfloat
        array.kind = BFLOAT16
        return bits == 16
    if code == 6:  # kDLBool
        array.kind = BOOL
        return bits == 8
    if code == 0:  # kDLInt
        array.kind = INT32 if bits == 32 else INT64
        return bits == 32 or bits == 64
    array.kind = UINT32
    return code == 1 and bits == 32  # kDLUInt
