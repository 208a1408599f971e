// DLPack's C exchange API: the part of dlpack.h 1.3 that reads a tensor and makes one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

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
  // Takes the tensor over.
  int (*to_object)(DLManagedTensorVersioned* tensor, void** out);
};

constexpr uint32_t kDLPackMajor = 1;
constexpr uint32_t kDLPackMinor = 3;
constexpr int32_t kDLCPU = 1;

// A C-contiguous tensor of up to three axes; its items follow it in the same memory.
struct alignas(16) OwnTensor {
  DLManagedTensorVersioned managed;
  int64_t shape[3];
  int64_t strides[3];

  // Its items are not written; null where there is no memory.
  static DLManagedTensorVersioned* make(int ndim, const std::ptrdiff_t* sizes, uint8_t code, uint8_t bits) {
    std::ptrdiff_t count = 1;
    for (int axis = 0; axis < ndim; ++axis) count *= sizes[axis];
    const std::size_t bytes = static_cast<std::size_t>(count) * (bits / 8);
    OwnTensor* const own = static_cast<OwnTensor*>(std::malloc(sizeof(OwnTensor) + bytes));
    if (!own) return nullptr;
    int64_t stride = 1;
    for (int axis = ndim - 1; axis >= 0; --axis) {
      own->shape[axis] = sizes[axis];
      own->strides[axis] = stride;
      stride *= sizes[axis];
    }
    const DLTensor tensor{own + 1, kDLCPU, 0, ndim, code, bits, 1, own->shape, own->strides, 0};
    own->managed = {kDLPackMajor, kDLPackMinor, nullptr, free, 0, tensor};
    return &own->managed;
  }

  static void free(DLManagedTensorVersioned* managed) { std::free(managed); }
};

}  // namespace fastsample
