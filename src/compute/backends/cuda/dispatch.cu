#include "base/core/check.h"
#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/dispatch.h"
#include "compute/backends/cuda/fp8_places.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;

// Exclusive sums of two values over the block; `total` gets the sums of all. `partial`: kWarps.
__device__ int2 block_scan(int2 value, int2* partial, int2& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto warp_scan = [lane](int2 sum) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int x = __shfl_up_sync(0xFFFFFFFFu, sum.x, step);
      const int y = __shfl_up_sync(0xFFFFFFFFu, sum.y, step);
      if (lane >= step) sum = make_int2(sum.x + x, sum.y + y);
    }
    return sum;
  };
  const int2 sum = warp_scan(value);
  if (lane == 31) partial[warp] = sum;
  __syncthreads();
  const int2 warps = warp_scan(partial[lane]);
  const int before_x = __shfl_sync(0xFFFFFFFFu, warps.x, max(warp - 1, 0));
  const int before_y = __shfl_sync(0xFFFFFFFFu, warps.y, max(warp - 1, 0));
  total = make_int2(__shfl_sync(0xFFFFFFFFu, warps.x, 31), __shfl_sync(0xFFFFFFFFu, warps.y, 31));
  return make_int2(sum.x - value.x + (warp > 0 ? before_x : 0),
                   sum.y - value.y + (warp > 0 ? before_y : 0));
}

struct Call {
  const int32_t* expert;
  int64_t expert_stride;
  const float* weight;
  int64_t weight_stride;
  int32_t n, top_k, n_experts, max_places;
  int32_t n_parts, part;  // blocks, and the choices of each
  Dispatch out;

  __device__ int expert_of(int i) const { return expert[i / top_k * expert_stride + i % top_k]; }
};

// count[e] = choices of expert e in [begin, end), by all threads.
__device__ void count_choices(const Call& call, int begin, int end, int32_t* count) {
  const int tid = threadIdx.x;
  if (tid < call.n_experts) count[tid] = 0;
  __syncthreads();
  for (int i = begin + tid; i < end; i += kThreads) atomicAdd(&count[call.expert_of(i)], 1);
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) count_kernel(Call call) {
  extern __shared__ int32_t shared[];
  wait_for_previous();
  let_next_start();
  const int tid = threadIdx.x, begin = blockIdx.x * call.part;
  count_choices(call, begin, min(call.n, begin + call.part), shared);
  if (tid < call.n_experts)
    call.out.counts[static_cast<int64_t>(blockIdx.x) * call.n_experts + tid] = shared[tid];
}

// A counting sort whose places do not depend on timing: 1024 choices a turn, each warp ranks its
// own, warps are added up in order. A block places its part of the choices, behind those of the
// blocks before it (count_kernel); all find out where experts begin, one writes it.
template <int kTile>
__global__ void __launch_bounds__(kThreads) dispatch_kernel(Call call) {
  extern __shared__ int32_t shared[];
  int32_t* count = shared;                     // [n_experts] rows of an expert; then next place
  int32_t* of_warp = shared + call.n_experts;  // [kWarps][n_experts]
  __shared__ int2 partial[kWarps];
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int begin = blockIdx.x * call.part, end = min(call.n, begin + call.part);
  const bool first_block = blockIdx.x == 0;
  wait_for_previous();
  let_next_start();
  int mine = 0, earlier = 0;  // rows of expert tid: all, of earlier blocks
  if (call.n_parts == 1) {
    count_choices(call, 0, call.n, count);
    if (tid < call.n_experts) mine = count[tid];
  } else if (tid < call.n_experts) {
#pragma unroll 8
    for (int part = 0; part < call.n_parts; ++part) {
      if (part == static_cast<int>(blockIdx.x)) earlier = mine;
      mine += call.out.counts[static_cast<int64_t>(part) * call.n_experts + tid];
    }
  }
  const int padded = (mine + 7) / 8 * 8;
  const TileCut cut(mine, kTile);
  int2 totals;  // places, tiles
  const int2 before = block_scan(make_int2(padded, cut.n_tiles), partial, totals);
  const int first = before.x, total = totals.x;
  int first_tile = before.y;
  if (first_block && call.out.class_ends != nullptr) {
    int class_end = 0;
#pragma unroll 1
    for (int c = 0; c < kTileClasses; ++c) {
      const int of_class = tile_class(cut.most_rows()) == c ? cut.n_tiles : 0;
      int2 class_totals;
      __syncthreads();  // `partial` is read before it is written again
      const int2 below = block_scan(make_int2(of_class, 0), partial, class_totals);
      if (of_class > 0) first_tile = class_end + below.x;
      class_end += class_totals.x;
      if (tid == 0) call.out.class_ends[c] = class_end;
    }
  }
  if (tid < call.n_experts) count[tid] = first + earlier;
  if (first_block && tid < call.n_experts) {
    for (int i = mine; i < padded; ++i) call.out.row[first + i] = kNoRow;
    for (int i = 0; i < cut.n_tiles; ++i)
      call.out.tiles[first_tile + i] = {tid, first + cut.first(i), cut.rows(i)};
  }
  if (first_block && tid == 0) *call.out.n_tiles = totals.y;
  const int of_all = blockIdx.x * kThreads + tid, n_threads = call.n_parts * kThreads;
  for (int i = total + of_all; i < call.max_places; i += n_threads) call.out.row[i] = kUnusedRow;
  const int n_rows = call.n / call.top_k;
  for (int i = of_all; i < (n_rows + 7) / 8 * 8; i += n_threads)
    call.out.row[call.max_places + i] = i < n_rows ? i : kNoRow;
  for (int base = begin; base < end; base += kThreads) {
    for (int i = tid; i < kWarps * call.n_experts; i += kThreads) of_warp[i] = 0;
    __syncthreads();
    const int i = base + tid;
    const int e = i < end ? call.expert_of(i) : -1;
    const unsigned same = __match_any_sync(0xFFFFFFFFu, e);
    const int rank = __popc(same & ((1u << lane) - 1u));
    if (e >= 0 && rank == 0) of_warp[warp * call.n_experts + e] = __popc(same);
    __syncthreads();
    if (tid < call.n_experts) {
      int next = count[tid];
#pragma unroll 1
      for (int w = 0; w < kWarps; w += 8) {
        int n[8];  // read together, so that they do not wait for each other
#pragma unroll
        for (int j = 0; j < 8; ++j) n[j] = of_warp[(w + j) * call.n_experts + tid];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          of_warp[(w + j) * call.n_experts + tid] = next;
          next += n[j];
        }
      }
      count[tid] = next;
    }
    __syncthreads();
    if (e >= 0) {
      const int place = of_warp[warp * call.n_experts + e] + rank;
      const int row = i / call.top_k;
      call.out.row[place] = row;
      call.out.weight[place] = call.weight[row * call.weight_stride + i % call.top_k];
      call.out.place[i] = place;
    }
    __syncthreads();
  }
}

}  // namespace

void launch_dispatch(const int32_t* expert, int64_t expert_stride, const float* weight,
                     int64_t weight_stride, int32_t n_rows, int32_t top_k, int32_t n_experts,
                     int32_t tile_rows, const Dispatch& out, cudaStream_t stream) {
  HADAL_CHECK(n_experts <= kMaxExperts, "more experts than a block has threads");
  Call call = {};
  call.expert = expert;
  call.expert_stride = expert_stride;
  call.weight = weight;
  call.weight_stride = weight_stride;
  call.n = n_rows * top_k;
  call.top_k = top_k;
  call.n_experts = n_experts;
  call.max_places = static_cast<int32_t>(max_places(call.n, n_experts));
  // Whole turns a block. A second kernel takes as long as two turns of one block.
  const int32_t turns = (call.n + kThreads - 1) / kThreads;
  const int32_t turns_of_part = turns <= 2 ? turns : (turns + kDispatchParts - 1) / kDispatchParts;
  call.part = turns_of_part * kThreads;
  call.n_parts = (turns + turns_of_part - 1) / turns_of_part;
  call.out = out;
  const int bytes = (kWarps + 1) * n_experts * 4;
  auto* kernel = dispatch_kernel<kTileRows>;
  if (tile_rows == kLongTileRows) {
    kernel = dispatch_kernel<kLongTileRows>;
  } else if (tile_rows == kFp8TileRows) {
    kernel = dispatch_kernel<kFp8TileRows>;
  } else {
    HADAL_CHECK(tile_rows == kTileRows, "tiles of other rows");
  }
  const dim3 grid(static_cast<unsigned>(call.n_parts));
  if (call.n_parts > 1) {
    launch_overlapped(count_kernel, grid, dim3(kThreads), static_cast<size_t>(n_experts * 4),
                      stream, call);
  }
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  launch_overlapped(kernel, grid, dim3(kThreads), static_cast<size_t>(bytes), stream, call);
}

}  // namespace hadal::cuda
