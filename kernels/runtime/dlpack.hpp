// DLPack's C exchange API: the part of dlpack.h 1.3 that reads a tensor.
#pragma once

#include <cstdint>

namespace fastsample {

struct DLTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t code;  // what an item is
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in items; null: C-contiguous
  uint64_t byte_offset;
};

struct DLManagedTensorVersioned {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(DLManagedTensorVersioned* self);  // may be null
  uint64_t flags;
  DLTensor tensor;
};

// What the capsule `__dlpack_c_exchange_api__` of a type of tensors points to.
struct DLPackExchangeAPI {
  uint32_t major;
  uint32_t minor;
  void* previous;
  int (*allocate)(DLTensor*, DLManagedTensorVersioned**, void*, void (*)(void*, const char*, const char*));
  // Not 0: a Python exception is set.
  int (*from_object)(void* object, DLManagedTensorVersioned** out);
};

constexpr uint32_t kDLPackMajor = 1;
constexpr int32_t kDLCPU = 1;

}  // namespace fastsample
