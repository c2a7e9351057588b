#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/staging.cuh"
#include "compute/backends/cuda/wide.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

struct Call {
  const uint16_t* x;
  int64_t stride, x_rows, k;
  const int32_t* index;
  int64_t n_rows;  // of the result, a multiple of 8
  int32_t n_blocks;
  int32_t runs;  // of kRun blocks in a row
  bool aligned;
  uint16_t* out;
};

// A warp takes 8 rows by kRun blocks. Lane (r, c) = (lane / 4, lane % 4) has 8 columns of row r of
// each block: the four lanes of a row read 64 bytes, and word j of all lanes is core matrix j, so
// that a warp writes 128 bytes at a time.
template <bool kQuantise, int kRun>
__global__ void __launch_bounds__(kThreads) tile_rows_kernel(const __grid_constant__ Call call) {
  wait_for_previous();
  let_next_start();
  const int lane = threadIdx.x % 32, r = lane / 4, c = lane % 4;
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  const int64_t tile = unit / call.runs;
  const int first = static_cast<int>(unit % call.runs) * kRun;
  if (tile * 8 >= call.n_rows) return;
  const int64_t i = tile * 8 + r;
  const int64_t row = call.index != nullptr ? call.index[i] : i < call.x_rows ? i : kNoRow;
  const uint16_t* x = call.x + row * call.stride;
  Octet octets[kRun];
#pragma unroll
  for (int b = 0; b < kRun; ++b) {
    octets[b] = {};
    if (row >= 0 && first + b < call.n_blocks)
      octets[b] = load_octet(x, (first + b) * kBlockK + c * 8, call.k, call.aligned);
  }
  auto* to = reinterpret_cast<uint32_t*>(call.out) + (tile * call.n_blocks + first) * 128 + lane;
#pragma unroll
  for (int b = 0; b < kRun; ++b) {
    if constexpr (kQuantise) snap_octet(octets[b]);
    if (row == kUnusedRow || first + b >= call.n_blocks) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) to[b * 128 + j * 32] = octets[b].pair[j];
  }
}

template <int kRun>
void launch(Call call, bool quantise, cudaStream_t stream) {
  call.runs = (call.n_blocks + kRun - 1) / kRun;
  const int64_t warps = call.n_rows / 8 * call.runs;
  const dim3 grid(static_cast<unsigned>((warps + kThreads / 32 - 1) / (kThreads / 32)));
  launch_overlapped(quantise ? tile_rows_kernel<true, kRun> : tile_rows_kernel<false, kRun>, grid,
                    dim3(kThreads), 0, stream, call);
}

}  // namespace

void launch_tile_rows(device::Matrix<const uint16_t> x, const int32_t* index, int64_t n_rows,
                      bool quantise, uint16_t* out, cudaStream_t stream) {
  Call call = {};
  call.x = x.data;
  call.stride = x.stride;
  call.x_rows = x.n_rows;
  call.k = x.n_cols;
  call.index = index;
  call.n_rows = (n_rows + 7) / 8 * 8;
  call.n_blocks = static_cast<int32_t>((x.n_cols + kBlockK - 1) / kBlockK);
  call.aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0;
  call.out = out;
  if (call.n_rows == 0) return;
  // Few rows: more warps instead of more loads in flight of each.
  if (call.n_rows * call.n_blocks < 8 * 4096) return launch<1>(call, quantise, stream);
  launch<4>(call, quantise, stream);
}

}  // namespace hadal::cuda
