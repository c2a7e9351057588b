#include <algorithm>

#include "base/core/check.h"
#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/fragments.cuh"
#include "compute/backends/cuda/product_roles.h"
#include "compute/backends/cuda/ring.cuh"
#include "compute/backends/cuda/wgmma.cuh"
#include "compute/backends/cuda/wide.h"

// Products of many rows. A block goes through jobs of (64 rows) x (128 or 256 outputs): one warp
// brings weights and rows to a ring of stages in shared memory, two warpgroups turn the weights to
// bf16 in registers, where wgmma takes them, and multiply. An output's slices of k come one after
// the other, their sums are added in order; or, where there are few outputs, each slice is a job of
// its own and a second kernel adds them.
namespace hadal::cuda {
namespace {

using ops::WeightFormat;

constexpr int kRingBytes = 200 << 10;

// kM m64 products of a warpgroup side by side.
template <WeightFormat F, int kM>
struct Shape {
  static constexpr int kStrips = kWarpgroups * kM * 4;
  static constexpr int kBlocks = F == WeightFormat::kBf16 ? 2 : 4;  // of a stage
  static constexpr int kStripBytes =
      kBlocks * BlockBytes<F>::kBytes + (F == WeightFormat::kFp8Tile ? kMaxSliceFields : 0);
  static constexpr int kWeightBytes = (kStrips * kStripBytes + 127) / 128 * 128;
  static constexpr int kTileBytes = kBlocks * 512;  // of 8 rows
  static constexpr int kStageBytes = kWeightBytes + kTileRows / 8 * kTileBytes;
  static constexpr int kStages = kRingBytes / kStageBytes < 8 ? kRingBytes / kStageBytes : 8;
  static constexpr int kBarriersAt = kStages * kStageBytes;
  static constexpr int kSharedBytes = kBarriersAt + 2 * kStages * 8;
};

struct Call {
  PackedView w;
  const uint16_t* x;
  int64_t x_blocks;  // of a row of x
  const RowTile* tiles;
  const int32_t* n_tiles;
  WideSpace space;  // without a list
  uint16_t* y;
  float* y_f32;
  int64_t y_stride;
  float* slices;  // [kSlices, n_rows, n_groups * n]
};

using Job = WideJob;

__device__ int64_t count_jobs(const Call& call, int strips) {
  if (call.tiles != nullptr)
    return static_cast<int64_t>(*call.n_tiles) * strip_jobs(call.w.n_strips, strips);
  return count_wide_jobs(call.space, strips);
}

__device__ Job job_at(const Call& call, int strips, int64_t index) {
  if (call.tiles == nullptr) return wide_job_at(call.space, strips, index);
  const int across = strip_jobs(call.w.n_strips, strips);
  Job job;
  job.tile = call.tiles[index / across];
  job.first_strip = static_cast<int>(index % across) * strips;
  job.n_strips = min(strips, call.w.n_strips - job.first_strip);
  return job;
}

// The warp that brings a job's stages.
template <WeightFormat F, int kM>
__device__ void produce(const Call& call, const Job& job, Ring<Shape<F, kM>>& ring) {
  using S = Shape<F, kM>;
  constexpr int kBytes = BlockBytes<F>::kBytes;
  const PackedView& w = call.w;
  const int lane = threadIdx.x % 32;
  const int n_row_tiles = (job.tile.n_rows + 7) / 8;
  const uint8_t* weight = w.weight + job.tile.group * w.group_bytes +
                          (job.first_strip + min(lane, job.n_strips - 1)) * w.strip_bytes;
  const int64_t x_block =
      call.tiles == nullptr ? static_cast<int64_t>(job.tile.group) * w.n_blocks : 0;
  const auto* x =
      reinterpret_cast<const uint8_t*>(call.x) +
      ((job.tile.first / 8 + min(lane, n_row_tiles - 1)) * call.x_blocks + x_block) * 512;
  for (int slice = job.first_slice; slice < job.last_slice; ++slice) {
    const int begin = slice_begin(slice, w.n_blocks), end = slice_begin(slice + 1, w.n_blocks);
    for (int block = begin; block < end; block += S::kBlocks) {
      const int n = min(S::kBlocks, end - block);
      const int head = block == begin ? w.head_bytes : 0;
      const uint32_t weight_bytes = n * kBytes + head, x_bytes = n * 512;
      barrier_wait(ring.empty + ring.at, ring.phase ^ 1);
      uint64_t* full = ring.full + ring.at;
      if (lane == 0)
        barrier_arrive_expect(full, job.n_strips * weight_bytes + n_row_tiles * x_bytes);
      __syncwarp();
      if (lane < job.n_strips) {
        bulk_copy(ring.stage() + lane * S::kStripBytes,
                  weight + static_cast<int64_t>(block) * kBytes + slice * w.head_bytes +
                      (w.head_bytes - head),
                  weight_bytes, full);
      }
      if (lane < n_row_tiles) {
        bulk_copy(ring.stage() + S::kWeightBytes + lane * S::kTileBytes,
                  x + static_cast<int64_t>(block) * 512, x_bytes, full);
      }
      ring.next();
    }
  }
}

__device__ __forceinline__ void store(const Call& call, const Job& job, int row, int out, float v) {
  const int64_t list_row = job.tile.first + row;
  const int64_t column =
      (call.tiles == nullptr ? static_cast<int64_t>(job.tile.group) * call.w.n : 0) + out;
  if (call.space.split) {
    const int64_t width = static_cast<int64_t>(call.w.n_groups) * call.w.n;
    call.slices[(job.first_slice * static_cast<int64_t>(call.space.n_rows) + list_row) * width +
                column] = v;
  } else if (call.y_f32 != nullptr) {
    call.y_f32[list_row * call.y_stride + column] = v;
  } else {
    call.y[list_row * call.y_stride + column] = bf16_from_float(v);
  }
}

// A warpgroup's part of a job of up to kRows rows.
template <WeightFormat F, int kM, int kRows>
__device__ void consume(const Call& call, const Job& job, Ring<Shape<F, kM>>& ring) {
  using S = Shape<F, kM>;
  constexpr int kBytes = BlockBytes<F>::kBytes;
  constexpr bool kFields = F == WeightFormat::kFp8Tile;
  const PackedView& w = call.w;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_strip = warp / 4 * (kM * 4) + warp % 4;  // of the job; the others 4 apart
  float total[kM][kRows / 2] = {}, sum[kM][kRows / 2];
  for (int slice = job.first_slice; slice < job.last_slice; ++slice) {
    const int n_blocks = slice_begin(slice + 1, w.n_blocks) - slice_begin(slice, w.n_blocks);
    if (n_blocks == 0) continue;
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) sum[m][i] = 0;
    uint32_t fields[kM][2] = {};
    int done_stage = -1;  // read, but not free until the products of its last block are complete
    for (int block = 0; block < n_blocks; block += S::kBlocks) {
      barrier_wait(ring.full + ring.at, ring.phase);
      const uint8_t* stage = ring.stage();
      const uint8_t* strip = stage + first_strip * S::kStripBytes;
      if (kFields && block == 0) {
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          fields[m][0] = strip[m * 4 * S::kStripBytes + min(lane, w.head_bytes - 1)];
          fields[m][1] = strip[m * 4 * S::kStripBytes + min(lane + 32, w.head_bytes - 1)];
        }
        strip += w.head_bytes;
      }
      const uint32_t x = shared_address(stage + S::kWeightBytes);
      const auto multiply = [&](int i, uint32_t(&a)[kM][2][4]) {
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          BlockBytes<F> bytes;
          bytes.load(strip + m * 4 * S::kStripBytes + i * kBytes, lane);
          uint32_t field = 0;
          if constexpr (kFields) {
            const int at = block + i;
            field = __shfl_sync(0xFFFFFFFFu, at < 32 ? fields[m][0] : fields[m][1], at % 32);
          }
          BlockPairs pairs;
          bytes.pairs(field, pairs);
          pairs.operand(0, a[m][0]);
          pairs.operand(1, a[m][1]);
        }
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const uint64_t b = wgmma_operand(x + i * 512 + s * 256, S::kTileBytes);
#pragma unroll
          for (int m = 0; m < kM; ++m) wgmma<kRows>(sum[m], a[m][s], b, 1);
        }
        wgmma_commit();
      };
      const auto release = [&] {
        if (done_stage >= 0 && lane == 0) barrier_arrive(ring.empty + done_stage);
      };
      if (block + S::kBlocks <= n_blocks) {
        uint32_t a[2][kM][2][4];
#pragma unroll
        for (int i = 0; i < S::kBlocks; ++i) {
          multiply(i, a[i % 2]);
          wgmma_wait<1>();
          if (i == 0) release();
        }
      } else {
        wgmma_wait<0>();
        release();
#pragma unroll 1
        for (int i = 0; block + i < n_blocks; ++i) {
          uint32_t a[kM][2][4];
          multiply(i, a);
          wgmma_wait<0>();
        }
      }
      done_stage = ring.at;
      ring.next();
    }
    wgmma_wait<0>();
    if (lane == 0) barrier_arrive(ring.empty + done_stage);
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) total[m][i] += sum[m][i];
  }
  const float out_scale = call.space.split ? 1.0f : w.out_scale[job.tile.group];
  const int g = lane / 4, c = lane % 4;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      const int out = (job.first_strip + first_strip + m * 4) * kStripRows + g + i / 2 % 2 * 8;
      const int row = i / 4 * 8 + c * 2 + i % 2;
      if (out < w.n && row < job.tile.n_rows) store(call, job, row, out, total[m][i] * out_scale);
    }
  }
}

template <WeightFormat F, int kM>
__global__ void __launch_bounds__(kThreads, 1) wide_kernel(const __grid_constant__ Call call) {
  using S = Shape<F, kM>;
  extern __shared__ __align__(128) uint8_t shared[];
  Ring<S> ring(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(ring.full + i, 1);
      barrier_init(ring.empty + i, kConsumers / 32);
    }
    barrier_init_done();
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  const int64_t n_jobs = count_jobs(call, S::kStrips);
  if (threadIdx.x >= kConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopyRegisters));
    if (threadIdx.x >= kConsumers + 32) return;
    for (int64_t index = blockIdx.x; index < n_jobs; index += gridDim.x)
      produce<F, kM>(call, job_at(call, S::kStrips, index), ring);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kProductRegisters));
    for (int64_t index = blockIdx.x; index < n_jobs; index += gridDim.x) {
      const Job job = job_at(call, S::kStrips, index);
      if (job.tile.n_rows <= 8) {
        consume<F, kM, 8>(call, job, ring);
      } else if (job.tile.n_rows <= 32) {
        consume<F, kM, 32>(call, job, ring);
      } else {
        consume<F, kM, 64>(call, job, ring);
      }
    }
  }
}

// y = the slices' sums in order, times the group's power of two.
__global__ void __launch_bounds__(256) add_slices_kernel(Call call) {
  wait_for_previous();
  let_next_start();
  const int64_t width = static_cast<int64_t>(call.w.n_groups) * call.w.n;
  const int64_t n = width * call.space.n_rows;
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
    float total = 0;
#pragma unroll
    for (int s = 0; s < kSlices; ++s) total += call.slices[s * n + i];
    const int64_t row = i / width, column = i % width;
    total *= call.w.out_scale[column / call.w.n];
    if (call.y_f32 != nullptr) {
      call.y_f32[row * call.y_stride + column] = total;
    } else {
      call.y[row * call.y_stride + column] = bf16_from_float(total);
    }
  }
}

template <WeightFormat F, int kM>
void launch(const Call& call, int64_t max_jobs, const Gpu& gpu, cudaStream_t stream) {
  using S = Shape<F, kM>;
  const auto grid = static_cast<unsigned>(std::clamp<int64_t>(max_jobs, 1, gpu.sm_count));
  cudaFuncSetAttribute(wide_kernel<F, kM>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       S::kSharedBytes);
  launch_overlapped(wide_kernel<F, kM>, dim3(grid), dim3(kThreads), S::kSharedBytes, stream, call);
}

template <WeightFormat F>
void launch(Call call, const WideProduct& p, const Gpu& gpu, cudaStream_t stream) {
  const int64_t n_outputs = static_cast<int64_t>(call.w.n_groups) * call.w.n;
  const WideChoice choice = choose_wide(call.space, Shape<F, 1>::kStrips, p.tiles != nullptr,
                                        p.max_tiles, n_outputs, p.slices != nullptr, gpu.sm_count);
  call.space.split = choice.split;
  if (choice.twice) return launch<F, 2>(call, choice.max_jobs, gpu, stream);
  launch<F, 1>(call, choice.max_jobs, gpu, stream);
  if (!choice.split) return;
  const auto grid = static_cast<unsigned>(std::min<int64_t>(
      (call.space.n_rows * n_outputs + 255) / 256, static_cast<int64_t>(gpu.sm_count) * 8));
  launch_overlapped(add_slices_kernel, dim3(grid), dim3(256), 0, stream, call);
}

}  // namespace

void launch_wide(const WideProduct& p, const Gpu& gpu, cudaStream_t stream) {
  Call call = {};
  call.w = p.weight->view();
  call.x = p.x;
  call.x_blocks = p.x_columns / kBlockK;
  call.tiles = p.tiles;
  call.n_tiles = p.n_tiles;
  call.space = {call.w.n_groups, call.w.n_strips, p.n_rows, false};
  call.y = p.y;
  call.y_f32 = p.y_f32;
  call.y_stride = p.y_stride;
  call.slices = p.slices;
  if (p.tiles == nullptr && p.n_rows == 0) return;
  switch (p.weight->format()) {
    case WeightFormat::kFp4Row:
      launch<WeightFormat::kFp4Row>(call, p, gpu, stream);
      break;
    case WeightFormat::kFp8Tile:
      launch<WeightFormat::kFp8Tile>(call, p, gpu, stream);
      break;
    case WeightFormat::kBf16:
      launch<WeightFormat::kBf16>(call, p, gpu, stream);
      break;
    case WeightFormat::kF32:
      HADAL_CHECK(false, "f32 weights have no strips");
  }
}

}  // namespace hadal::cuda
