#include "compute/backends/cuda/packed.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/core/check.h"
#include "compute/backends/cuda/fp8_places.h"
#include "compute/backends/cuda/repack.h"

namespace hadal::cuda {
namespace {

using ops::WeightFormat;

constexpr int64_t kStagingBytes = 32 << 20;

core::Error failed(const char* what, cudaError_t error) {
  return {core::Code::kDeviceLost, fmt::format("{}: {}", what, cudaGetErrorString(error))};
}

int64_t block_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFp4Row:
      return 272;
    case WeightFormat::kFp8Tile:
      return 512;
    case WeightFormat::kBf16:
      return 1024;
    case WeightFormat::kF32:
      break;
  }
  return 0;
}
int64_t row_bytes(WeightFormat format, int64_t k) {
  switch (format) {
    case WeightFormat::kFp4Row:
      return (k + 1) / 2;
    case WeightFormat::kFp8Tile:
      return k;
    case WeightFormat::kBf16:
      return 2 * k;
    case WeightFormat::kF32:
      return 4 * k;
  }
  return 0;
}
bool has_scales(WeightFormat format) {
  return format == WeightFormat::kFp4Row || format == WeightFormat::kFp8Tile;
}
// Distance between a code's bits read as bf16 and its value.
int code_exponent(WeightFormat format) {
  return format == WeightFormat::kFp4Row ? 126 : 120;
}

}  // namespace

int64_t source_bytes(const ops::WeightSource& s) {
  return s.n * row_bytes(s.format, s.k);
}
int64_t source_scales(const ops::WeightSource& s) {
  if (!has_scales(s.format)) return 0;
  return (s.format == WeightFormat::kFp8Tile ? (s.n + 31) / 32 : s.n) * ((s.k + 31) / 32);
}

core::Result<DeviceBytes> DeviceBytes::make(uint64_t bytes) {
  DeviceBytes out;
  if (bytes == 0) return out;
  void* p = nullptr;
  if (const cudaError_t e = cudaMalloc(&p, bytes); e != cudaSuccess) {
    cudaGetLastError();  // not sticky: the next call starts clean
    return core::Error{
        core::Code::kOverloaded,
        fmt::format("{} MiB of device memory for weights: {}", bytes >> 20, cudaGetErrorString(e))};
  }
  out.data_ = static_cast<uint8_t*>(p);
  out.size_ = bytes;
  // The Packer's stream does not wait for the legacy one, in which memory is cleared.
  cudaError_t e = cudaMemset(p, 0, bytes);
  if (e == cudaSuccess) e = cudaStreamSynchronize(cudaStreamLegacy);
  if (e != cudaSuccess) return failed("clearing memory for weights", e);
  return out;
}

DeviceBytes::~DeviceBytes() {
  if (data_ != nullptr) cudaFree(data_);
}

core::Result<Packed> Packed::make(ops::WeightFormat format, int64_t n_groups, int64_t n,
                                  int64_t k) {
  HADAL_CHECK(n_groups > 0 && n > 0 && k > 0, "an empty product");
  if (has_scales(format) && k % kBlockK != 0) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("a quantised matrix of {} inputs: the count must be a multiple "
                                   "of 32, the group of its scales",
                                   k)};
  }
  Packed out;
  out.format_ = format;
  PackedView& v = out.view_;
  v.n = static_cast<int32_t>(n);
  v.k = static_cast<int32_t>(k);
  v.n_groups = static_cast<int32_t>(n_groups);
  v.n_strips = static_cast<int32_t>((n + kStripRows - 1) / kStripRows);
  v.n_blocks = static_cast<int32_t>((k + kBlockK - 1) / kBlockK);
  if (format == WeightFormat::kFp8Tile) {
    const int32_t fields = (v.n_blocks + kSlices - 1) / kSlices;
    if (fields > kMaxSliceFields) {
      return core::Error{core::Code::kInvalidRequest,
                         fmt::format("an FP8 matrix of {} inputs: at most {}", k,
                                     kSlices * kMaxSliceFields * kBlockK)};
    }
    v.head_bytes = (fields + 15) / 16 * 16;
  }
  v.strip_bytes = v.n_blocks * block_bytes(format) + kSlices * v.head_bytes;
  v.group_bytes = format == WeightFormat::kF32 ? n * k * 4 : v.n_strips * v.strip_bytes;
  HADAL_TRY(out.weight_, DeviceBytes::make(static_cast<uint64_t>(n_groups * v.group_bytes)));
  HADAL_TRY(out.out_scale_, DeviceBytes::make(static_cast<uint64_t>(n_groups) * sizeof(float)));
  v.weight = out.weight_.data();
  v.out_scale = reinterpret_cast<const float*>(out.out_scale_.data());
  if (format == WeightFormat::kFp4Row) {
    HADAL_TRY(out.top_field_, DeviceBytes::make(static_cast<uint64_t>(n_groups) * sizeof(int32_t)));
    HADAL_TRY(out.fp4_scale_, DeviceBytes::make(static_cast<uint64_t>(n_groups) * sizeof(float)));
    v.top_field = reinterpret_cast<const int32_t*>(out.top_field_.data());
    v.fp4_scale = reinterpret_cast<const float*>(out.fp4_scale_.data());
  }
  return out;
}

bool Packed::fp4_exact_in_fp8() const {
  return format_ == WeightFormat::kFp4Row && scale_binades_ < kFp4Powers;
}

core::Result<Packer> Packer::make() {
  Packer out;
  HADAL_TRY(out.weight_, DeviceBytes::make(kStagingBytes));
  HADAL_TRY(out.scale_, DeviceBytes::make(kStagingBytes / 16));
  cudaStream_t stream = nullptr;
  if (const cudaError_t e = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      e != cudaSuccess)
    return failed("a stream for loading", e);
  out.stream_.reset(stream);
  return out;
}

Packer::~Packer() = default;

core::Status Packer::pack(std::span<const ops::WeightSource> stack, int64_t group, Packed& packed) {
  int highest = 0, lowest = 255;
  for (const ops::WeightSource& s : stack) {
    HADAL_CHECK(s.format == packed.format_ && s.k == packed.view_.k, "a stack of unlike matrices");
    if (!has_scales(s.format)) continue;
    uint8_t top = 0, bottom = 255;
    for (int64_t i = 0; i < source_scales(s); ++i) {
      top = std::max(top, s.scale[i]);
      bottom = std::min(bottom, s.scale[i]);
    }
    if (top == 255)
      return core::Error{core::Code::kCorrupt, "a scale of a matrix is not a number (byte 255)"};
    highest = std::max<int>(highest, top);
    lowest = std::min<int>(lowest, bottom);
  }
  const int lowered = std::max(0, highest + code_exponent(packed.format_) - 254);
  int64_t first = 0;
  for (const ops::WeightSource& s : stack) {
    if (s.format == WeightFormat::kFp8Tile && first % kStripRows != 0) {
      return core::Error{core::Code::kInvalidRequest,
                         fmt::format("a matrix begins at output {} of a stack: an FP8 matrix must "
                                     "begin at a multiple of {}",
                                     first, kStripRows)};
    }
    HADAL_TRY_VOID(pack_rows(s, code_exponent(s.format) - lowered, first, group, packed));
    first += s.n;
  }
  HADAL_CHECK(first == packed.view_.n, "the outputs of a stack");
  const float out_scale = std::ldexp(1.0f, lowered);
  cudaMemcpyAsync(packed.out_scale_.data() + group * 4, &out_scale, sizeof out_scale,
                  cudaMemcpyHostToDevice, stream_.get());
  const int top_field = highest + code_exponent(packed.format_) - lowered;
  const float fp4_scale =
      std::ldexp(out_scale, top_field - 127 - code_exponent(WeightFormat::kFp4Row) - kMaxFp4Power);
  if (packed.format_ == WeightFormat::kFp4Row) {
    packed.scale_binades_ = std::max(packed.scale_binades_, highest - lowest);
    cudaMemcpyAsync(packed.top_field_.data() + group * 4, &top_field, sizeof top_field,
                    cudaMemcpyHostToDevice, stream_.get());
    cudaMemcpyAsync(packed.fp4_scale_.data() + group * 4, &fp4_scale, sizeof fp4_scale,
                    cudaMemcpyHostToDevice, stream_.get());
  }
  if (const cudaError_t e = cudaStreamSynchronize(stream_.get()); e != cudaSuccess)
    return failed("repacking weights", e);
  return {};
}

core::Status Packer::pack_rows(const ops::WeightSource& s, int exponent, int64_t first,
                               int64_t group, Packed& packed) {
  const PackedView& v = packed.view_;
  const int64_t bytes = row_bytes(s.format, s.k);
  uint8_t* weight = packed.weight_.data() + group * v.group_bytes;
  const auto* from = static_cast<const uint8_t*>(s.weight);
  if (s.format == WeightFormat::kF32) {
    const cudaError_t e =
        cudaMemcpyAsync(weight + first * bytes, from, static_cast<size_t>(s.n * bytes),
                        cudaMemcpyHostToDevice, stream_.get());
    if (e != cudaSuccess) return failed("copying weights", e);
    return {};
  }
  const int64_t slab_rows = std::max<int64_t>(32, kStagingBytes / bytes / 32 * 32);
  if (slab_rows * bytes > kStagingBytes) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("a matrix of {} inputs is wider than this backend takes", s.k)};
  }
  for (int64_t row = 0; row < s.n; row += slab_rows) {
    const RepackSlab slab = {.weight = weight_.data(),
                             .scale = scale_.data(),
                             .row_bytes = bytes,
                             .n_rows = std::min(slab_rows, s.n - row),
                             .k = s.k,
                             .n_blocks = v.n_blocks,
                             .first = first + row,
                             .exponent = exponent,
                             .head_bytes = v.head_bytes,
                             .strip_bytes = v.strip_bytes,
                             .packed = weight};
    cudaMemcpyAsync(weight_.data(), from + row * bytes, static_cast<size_t>(slab.n_rows * bytes),
                    cudaMemcpyHostToDevice, stream_.get());
    if (has_scales(s.format)) {
      const bool tiles = s.format == WeightFormat::kFp8Tile;
      const int64_t scale_rows = tiles ? (slab.n_rows + 31) / 32 : slab.n_rows;
      const int64_t scale_first = tiles ? row / 32 : row;
      cudaMemcpyAsync(scale_.data(), s.scale + scale_first * v.n_blocks,
                      static_cast<size_t>(scale_rows * v.n_blocks), cudaMemcpyHostToDevice,
                      stream_.get());
    }
    launch_repack(s.format, slab, stream_.get());
    if (const cudaError_t e = cudaGetLastError(); e != cudaSuccess)
      return failed("repacking weights", e);
  }
  return {};
}

}  // namespace hadal::cuda
