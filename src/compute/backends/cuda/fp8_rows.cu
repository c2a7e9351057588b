#include <algorithm>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/fp8_places.h"
#include "compute/backends/cuda/fp8_rows.h"
#include "compute/backends/cuda/staging.cuh"
#include "compute/backends/cuda/wide.h"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int64_t kMaxGrid = 4096;

// A warp makes a tile: lane (r, c) has the octets c of the four blocks of row r.
struct RowWindow {
  Octet octet[kWindowBlocks];
};

// Codes of AQ8 and then of the window's power, from bf16.
__device__ __forceinline__ void store_window(const RowWindow& w, uint8_t* tile, float* scale) {
  const int lane = threadIdx.x % 32, r = lane / 4, c = lane % 4;
  uint32_t byte[kWindowBlocks], top = 0;
#pragma unroll
  for (int b = 0; b < kWindowBlocks; ++b) {
    byte[b] = octet_scale(w.octet[b]);
    top = max(top, byte[b]);
  }
#pragma unroll
  for (int b = 0; b < kWindowBlocks; ++b) {
    const float down = __uint_as_float((254u - byte[b]) << 23);
    // Below 2^-126 every code is zero.
    const float to_top = __uint_as_float(max(127 + static_cast<int>(byte[b] - top), 0) << 23);
    uint32_t code[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 v =
          make_float2(bf16_low(w.octet[b].pair[j]) * down, bf16_high(w.octet[b].pair[j]) * down);
      const float2 q = e4m3x2_to_float(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E4M3));
      code[j] = __nv_cvt_float2_to_fp8x2(make_float2(q.x * to_top, q.y * to_top), __NV_SATFINITE,
                                         __NV_E4M3);
    }
    // Inputs 0 .. 3 and 4 .. 7, then in the order of fp8_code_input.
    const uint32_t low = code[0] | code[1] << 16, high = code[2] | code[3] << 16;
    auto* core = reinterpret_cast<uint32_t*>(tile + b * 256) + r * 4 + c;
    core[0] = __byte_perm(low, high, 0x3726);
    core[32] = __byte_perm(low, high, 0x1504);
  }
  if (c == 0) scale[r] = __uint_as_float(top << 23);
}

// `load(row, block)` is an octet of place `row`.
template <class Load>
__device__ __forceinline__ void make_tiles(const int32_t* index, int64_t n_rows, int64_t x_rows,
                                           int64_t n_blocks, uint8_t* out, Load load) {
  wait_for_previous();
  let_next_start();
  const int64_t n_windows = (n_blocks + kWindowBlocks - 1) / kWindowBlocks;
  const int64_t row_tiles = (n_rows + 7) / 8;
  const int64_t n_tiles = row_tiles * n_windows;
  const int r = threadIdx.x % 32 / 4;
  for (int64_t tile = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; tile < n_tiles;
       tile += static_cast<int64_t>(gridDim.x) * kWarps) {
    const int64_t place = tile / n_windows * 8 + r, first = tile % n_windows * kWindowBlocks;
    const int64_t row = index != nullptr ? index[place] : place < x_rows ? place : kNoRow;
    if (__shfl_sync(0xFFFFFFFFu, static_cast<int>(row), 0) == kUnusedRow) continue;
    RowWindow w = {};
#pragma unroll
    for (int b = 0; b < kWindowBlocks; ++b)
      if (row >= 0 && first + b < n_blocks) w.octet[b] = load(place, row, first + b);
    uint8_t* rows = out + tile % n_windows * fp8_window_bytes(n_rows);
    const int64_t at = tile / n_windows;
    store_window(w, rows + at * kRowTileBytes,
                 reinterpret_cast<float*>(rows + row_tiles * kRowTileBytes) + at * 8);
  }
}

__global__ void __launch_bounds__(kWarps * 32)
    rows_kernel(const uint16_t* x, int64_t stride, int64_t x_rows, int64_t k, bool aligned,
                const int32_t* index, int64_t n_rows, uint8_t* out) {
  make_tiles(index, n_rows, x_rows, (k + 31) / 32, out, [&](int64_t, int64_t row, int64_t block) {
    return load_octet(x + row * stride, block * 32 + threadIdx.x % 4 * 8, k, aligned);
  });
}

__global__ void __launch_bounds__(kWarps * 32)
    swiglu_kernel(const uint16_t* up, const float* weight, const int32_t* index, int64_t n,
                  int32_t d_inter, float limit, uint8_t* out) {
  make_tiles(index, n, n, d_inter / 32, out, [&](int64_t place, int64_t, int64_t block) {
    return gated_octet(up + place * 2 * d_inter, block * 32 + threadIdx.x % 4 * 8, d_inter, limit,
                       weight[place]);
  });
}

unsigned grid_of(int64_t n_rows, int64_t k) {
  const int64_t tiles = (n_rows + 7) / 8 * ((k + kWindow - 1) / kWindow);
  return static_cast<unsigned>(std::min<int64_t>((tiles + kWarps - 1) / kWarps, kMaxGrid));
}

}  // namespace

void launch_fp8_rows(device::Matrix<const uint16_t> x, const int32_t* index, int64_t n_rows,
                     uint8_t* out, cudaStream_t stream) {
  if (n_rows == 0) return;
  const bool aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0;
  launch_overlapped(rows_kernel, dim3(grid_of(n_rows, x.n_cols)), dim3(kWarps * 32), 0, stream,
                    x.data, x.stride, x.n_rows, x.n_cols, aligned, index, n_rows, out);
}

void launch_fp8_swiglu(const uint16_t* up, const float* weight, const int32_t* row, int64_t n,
                       int32_t d_inter, float limit, uint8_t* out, cudaStream_t stream) {
  launch_overlapped(swiglu_kernel, dim3(grid_of(n, d_inter)), dim3(kWarps * 32), 0, stream, up,
                    weight, row, n, d_inter, limit, out);
}

}  // namespace hadal::cuda
