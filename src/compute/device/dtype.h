#pragma once

#include <cstdint>

namespace hadal::device {

// Element types of stored tensors. kE2M1 packs two 4-bit codes a byte, the even index in the low
// nibble.
enum class DType : uint8_t { kF32, kBF16, kE4M3, kE8M0, kE2M1, kI32, kI64, kU8 };

constexpr uint32_t dtype_bits(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kI32:
      return 32;
    case DType::kBF16:
      return 16;
    case DType::kI64:
      return 64;
    case DType::kE2M1:
      return 4;
    case DType::kE4M3:
    case DType::kE8M0:
    case DType::kU8:
      return 8;
  }
  return 0;
}

constexpr uint64_t dtype_bytes(DType type, uint64_t n_elements) {
  return (n_elements * dtype_bits(type) + 7) / 8;
}

}  // namespace hadal::device
