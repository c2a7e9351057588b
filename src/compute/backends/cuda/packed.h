#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <cuda_runtime_api.h>

#include "base/core/result.h"
#include "compute/backends/cuda/packed_places.h"
#include "compute/ops/ops.h"

// Weights of matrix products in the order in which the tensor cores take them.
//
// A matrix [n, k] is cut into strips of 16 outputs and blocks of 32 inputs, both filled up with
// zeros. The blocks of a strip are contiguous, and so are the strips of a group. In a block, lane
// (g, c) = (lane / 4, lane % 4) of a warp owns the inputs 8c .. 8c+7 of outputs g and g + 8: that
// is its part of the A operand of two m16n8k16 products, if product s takes 8c+4s and 8c+4s+1 as
// the columns 2c and 2c+1, and 8c+4s+2 and 8c+4s+3 as the columns 2c+8 and 2c+9. The order inside
// one product is the same for all kernels, and the other operand is read in it.
//
//   kFp4Row   272 B: lane * 8: a word of output g, one of g + 8;
//             256 + 2g: exponent fields of the block in outputs g and g + 8
//   kFp8Tile  512 B: lane * 16: two words of output g, two of g + 8; the exponent fields of the
//             blocks of a slice stand before its first block, filled up to a multiple of 16 B that
//             is the same for all slices
//   kBf16     1024 B: lane * 16: output g; 512 + lane * 16: output g + 8
//   kF32      row-major, no strips
//
// The exponent field f of a block multiplies the shifted codes by 2^(f - 127): it holds the block's
// scale and the distance between a code's bits, read as bf16, and its value (2^126 for E2M1, 2^120
// for E4M3). Scales above 2^1 (2^7) do not fit: all scales of the group are then lowered by one
// power of two, and the group's sums multiplied by it (`out_scale`, 1 for released weights).
namespace hadal::cuda {

// Bytes of a checkpoint matrix and of its scales.
int64_t source_bytes(const ops::WeightSource& source);
int64_t source_scales(const ops::WeightSource& source);

inline constexpr int kStripRows = 16;
inline constexpr int kBlockK = 32;

// Blocks of a slice of kFp8Tile, at most (k up to 16384).
inline constexpr int kMaxSliceFields = 64;

// Device memory of one owner, zero at first.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  static core::Result<DeviceBytes> make(uint64_t bytes);
  DeviceBytes(DeviceBytes&& other) noexcept { *this = std::move(other); }
  DeviceBytes& operator=(DeviceBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceBytes();
  uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

// What a kernel needs to know of packed matrices: `n_groups` of one shape.
struct PackedView {
  int32_t n = 0, k = 0;  // of one group
  int32_t n_groups = 0;
  int32_t n_strips = 0, n_blocks = 0;
  int32_t head_bytes = 0;  // exponent fields before the blocks of a slice, kFp8Tile only
  int64_t strip_bytes = 0;
  int64_t group_bytes = 0;
  const uint8_t* weight = nullptr;
  const float* out_scale = nullptr;  // [n_groups]
  // kFp4Row, for products in E4M3: a group's largest field, and what a block of that field's codes
  // times 2^kMaxFp4Power (fp8_places.h) lack of the weights' values.
  const int32_t* top_field = nullptr;  // [n_groups]
  const float* fp4_scale = nullptr;    // [n_groups]
};

// Owner of `n_groups` matrices [n, k].
class Packed {
 public:
  Packed() = default;
  static core::Result<Packed> make(ops::WeightFormat format, int64_t n_groups, int64_t n,
                                   int64_t k);

  ops::WeightFormat format() const { return format_; }
  bool quantises() const {
    return format_ == ops::WeightFormat::kFp8Tile || format_ == ops::WeightFormat::kFp4Row;
  }
  const PackedView& view() const { return view_; }
  // kFp4Row: are the scales of each group so close that every weight is one power of two of the
  // group away from an E4M3 number?
  bool fp4_exact_in_fp8() const;
  uint64_t bytes() const {
    return weight_.size() + out_scale_.size() + top_field_.size() + fp4_scale_.size();
  }

 private:
  friend class Packer;
  ops::WeightFormat format_ = ops::WeightFormat::kBf16;
  PackedView view_;
  int scale_binades_ = 0;  // from the smallest to the largest scale of a group, the widest group's
  DeviceBytes weight_, out_scale_, top_field_, fp4_scale_;
};

// Copies matrices of the checkpoint (pageable host memory) through a buffer on the device and
// repacks them there. Bounded memory: 32 MiB for the largest matrix.
class Packer {
 public:
  static core::Result<Packer> make();
  Packer(Packer&& other) noexcept = default;
  ~Packer();

  // The matrices of `stack`, one under the other, become group `group` of `packed`. Errors: a scale
  // that is not a number; FP8 matrices whose tiles of scales do not begin with a strip.
  core::Status pack(std::span<const ops::WeightSource> stack, int64_t group, Packed& packed);

 private:
  struct StreamDeleter {
    void operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }
  };
  core::Status pack_rows(const ops::WeightSource& source, int shift, int64_t first, int64_t group,
                         Packed& packed);
  Packer() = default;
  DeviceBytes weight_, scale_;
  std::unique_ptr<CUstream_st, StreamDeleter> stream_;
};

}  // namespace hadal::cuda
