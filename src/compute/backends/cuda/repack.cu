#include "compute/backends/cuda/packed.h"
#include "compute/backends/cuda/repack.h"

namespace hadal::cuda {
namespace {

using ops::WeightFormat;

__device__ uint8_t field(uint8_t scale, int exponent) {
  const int f = scale + exponent;
  return static_cast<uint8_t>(f < 0 ? 0 : f);
}

// One thread: 8 inputs of one output.
template <WeightFormat F>
__global__ void repack_kernel(RepackSlab slab) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t c = i % 4, block = i / 4 % slab.n_blocks, row = i / 4 / slab.n_blocks;
  if (row >= slab.n_rows) return;
  const int64_t out = slab.first + row, strip = out / 16, half = out % 16 / 8, g = out % 8;
  const int64_t lane = g * 4 + c, k0 = block * 32 + c * 8;
  const uint8_t* from = slab.weight + row * slab.row_bytes;
  if constexpr (F == WeightFormat::kFp4Row) {
    uint8_t* to = slab.packed + strip * slab.strip_bytes + block * 272;
    uint32_t word = 0;
    for (int j = 0; j < 8; ++j) {
      if (k0 + j >= slab.k) break;
      const uint32_t code = from[(k0 + j) / 2] >> ((k0 + j) % 2 * 4) & 15u;
      word |= fp4_in_word(code, j);
    }
    reinterpret_cast<uint32_t*>(to)[lane * 2 + half] = word;
    if (c == 0)
      to[256 + 2 * g + half] = field(slab.scale[row * slab.n_blocks + block], slab.exponent);
  } else if constexpr (F == WeightFormat::kFp8Tile) {
    const auto n_blocks = static_cast<int>(slab.n_blocks);
    int slice = 0;
    while (slice_begin(slice + 1, n_blocks) <= block) ++slice;
    uint8_t* head = slab.packed + strip * slab.strip_bytes + slice * slab.head_bytes +
                    slice_begin(slice, n_blocks) * 512;
    uint8_t* to = slab.packed + strip * slab.strip_bytes + (slice + 1) * slab.head_bytes +
                  block * 512 + lane * 16 + half * 8;
    uint32_t word[2] = {};
    for (int j = 0; j < 8; ++j)
      if (k0 + j < slab.k) word[j / 4] |= fp8_in_word(from[k0 + j], j % 4);
    *reinterpret_cast<uint2*>(to) = make_uint2(word[0], word[1]);
    if (c == 0 && g == 0 && half == 0) {
      head[block - slice_begin(slice, n_blocks)] =
          field(slab.scale[row / 32 * slab.n_blocks + block], slab.exponent);
    }
  } else {
    auto* to = reinterpret_cast<uint16_t*>(slab.packed + strip * slab.strip_bytes + block * 1024 +
                                           half * 512 + lane * 16);
    const auto* values = reinterpret_cast<const uint16_t*>(from);
    for (int j = 0; j < 8; ++j) to[j] = k0 + j < slab.k ? values[k0 + j] : uint16_t{0};
  }
}

}  // namespace

void launch_repack(ops::WeightFormat format, const RepackSlab& slab, cudaStream_t stream) {
  const int64_t threads = slab.n_rows * slab.n_blocks * 4;
  const auto grid = static_cast<unsigned>((threads + 255) / 256);
  switch (format) {
    case WeightFormat::kFp4Row:
      repack_kernel<WeightFormat::kFp4Row><<<grid, 256, 0, stream>>>(slab);
      break;
    case WeightFormat::kFp8Tile:
      repack_kernel<WeightFormat::kFp8Tile><<<grid, 256, 0, stream>>>(slab);
      break;
    default:
      repack_kernel<WeightFormat::kBf16><<<grid, 256, 0, stream>>>(slab);
  }
}

}  // namespace hadal::cuda
