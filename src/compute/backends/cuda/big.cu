#include <algorithm>

#include "base/core/check.h"
#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/big.h"
#include "compute/backends/cuda/big_boxes.cuh"
#include "compute/backends/cuda/big_slices.cuh"
#include "compute/backends/cuda/big_store.cuh"
#include "compute/backends/cuda/fragments.cuh"
#include "compute/backends/cuda/product_roles.h"
#include "compute/backends/cuda/ring.cuh"

// Products of many rows. A block goes through jobs of kRows rows by 128 outputs: one warp brings
// weights and rows to a ring of stages in shared memory; each of two warpgroups turns the weights
// of 64 outputs to bf16 in registers, where wgmma takes them, and multiplies them with all the
// rows. The sum of a slice of k and the total of the slices before it take kRows registers of a
// thread together, so 192 rows is the most. The blocks of a cluster have the same rows: each of
// them brings a part, to all.
namespace hadal::cuda {
namespace {

using ops::WeightFormat;

constexpr int kStageBlocks = 2;
constexpr int kRingBytes = 206 << 10;

// A stage: strips of weights, the exponent fields of a slice with its first stage, rows.
template <WeightFormat F, int kRows>
struct Shape {
  static constexpr int kStripBytes = kStageBlocks * BlockBytes<F>::kBytes;
  static constexpr int kFieldsAt = kBigStrips * kStripBytes;
  static constexpr int kFieldBytes = F == WeightFormat::kFp8Tile ? kBigStrips * kMaxFields : 0;
  static constexpr int kRowsAt = kFieldsAt + kFieldBytes;
  static constexpr int kTileBytes = kStageBlocks * 512;  // of 8 rows
  static constexpr int kStageBytes = kRowsAt + kRows / 8 * kTileBytes;
  static constexpr int kStages = kRingBytes / kStageBytes < 8 ? kRingBytes / kStageBytes : 8;
  static constexpr int kStoreAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kStoreAt + kWarpgroups * kStoreBytes;
  static constexpr int kSharedBytes = kBarriersAt + 2 * kStages * 8;
  static_assert(kRowsAt % 128 == 0 && kStageBytes % 128 == 0, "boxes and core matrices");
};

struct Call {
  CUtensorMap weights[kStageBlocks], rows[kStageBlocks];  // boxes of 1 and 2 blocks
  CUtensorMap fields;
  PackedView w;
  BigSpace space;
  uint16_t* y;
  float* y_f32;
  int64_t y_stride;
  bool aligned;
};

// The thread that brings a job's stages.
template <WeightFormat F, int kRows>
__device__ void produce(const Call& call, const BigJob& job, int rank,
                        Ring<Shape<F, kRows>>& ring) {
  using S = Shape<F, kRows>;
  constexpr int kBytes = BlockBytes<F>::kBytes;
  const PackedView& w = call.w;
  const int cluster = call.space.cluster;
  const int strip = job.group * w.n_strips + job.first_strip;
  const int part = kRows / 8 / cluster;  // row tiles that this block brings
  const int row_tile = job.first_row / 8 + rank * part, group_block = job.group * w.n_blocks;
  for (int slice = 0; slice < kSlices; ++slice) {
    const int begin = slice_begin(slice, w.n_blocks);
    const int n_blocks = slice_begin(slice + 1, w.n_blocks) - begin;
    for (int block = 0; block < n_blocks;) {
      const int n = stage_blocks(block, n_blocks);
      barrier_wait(ring.empty + ring.at, ring.phase ^ 1);
      uint64_t* full = ring.full + ring.at;
      uint8_t* stage = ring.stage();
      const bool with_fields = S::kFieldBytes > 0 && block == 0;
      barrier_arrive_expect(
          full, n * (kBigStrips * kBytes + kRows / 8 * 512) + (with_fields ? S::kFieldBytes : 0));
      const int at = (begin + block) * kBytes + slice * w.head_bytes;
      if (with_fields) copy_box(stage + S::kFieldsAt, call.fields, at, strip, full);
      copy_box(stage, call.weights[n - 1], at + w.head_bytes, strip, full);
      uint8_t* rows = stage + S::kRowsAt + rank * part * n * 512;
      const int column = (group_block + begin + block) * 512;
      if (cluster == 1) {
        copy_box(rows, call.rows[n - 1], column, row_tile, full);
      } else {
        copy_box_to_all(rows, call.rows[n - 1], column, row_tile, full,
                        static_cast<uint16_t>((1 << cluster) - 1));
      }
      ring.next();
      block += n;
    }
  }
}

// A warpgroup's half of a job.
template <WeightFormat F, int kRows>
__device__ void consume(const Call& call, const BigJob& job, uint8_t* shared,
                        Ring<Shape<F, kRows>>& ring) {
  using S = Shape<F, kRows>;
  const PackedView& w = call.w;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float total[kRows / 2] = {};
  add_slices<F, kRows>(w, call.space.cluster, ring, total);
  const float out_scale = w.out_scale[job.group];
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) total[i] *= out_scale;
  const int group = warp / 4, first_out = job.first_strip * kStripRows + group * 64;
  const int64_t at =
      job.first_row * call.y_stride + static_cast<int64_t>(job.group) * w.n + first_out;
  const BigResult result = {call.y + at,     call.y_f32 == nullptr ? nullptr : call.y_f32 + at,
                            call.y_stride,   job.n_rows,
                            w.n - first_out, call.aligned};
  if (call.aligned) {
    store_rows<kRows>(result, total, shared + S::kStoreAt + group * kStoreBytes, 1 + group,
                      warp % 4, lane);
  } else {
    store_plain<kRows>(result, total, warp % 4, lane);
  }
}

template <WeightFormat F, int kRows>
__global__ void __launch_bounds__(kThreads, 1) big_kernel(const __grid_constant__ Call call) {
  using S = Shape<F, kRows>;
  extern __shared__ __align__(128) uint8_t shared[];
  Ring<S> ring(shared);
  const int cluster = call.space.cluster, rank = static_cast<int>(cluster_rank());
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(ring.full + i, 1);
      barrier_init(ring.empty + i, kConsumers / 32 * cluster);
    }
    barrier_init_done();
  }
  cluster_sync();
  wait_for_previous();
  let_next_start();
  const int turns = call.space.turns();
  const int first = static_cast<int>(blockIdx.x) / cluster;
  const int step = static_cast<int>(gridDim.x) / cluster;
  if (threadIdx.x >= kConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopyRegisters));
    if (threadIdx.x == kConsumers) {
      for (int index = first; index < turns; index += step)
        produce<F, kRows>(call, big_job_at(call.space, index, rank), rank, ring);
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kProductRegisters));
    for (int index = first; index < turns; index += step)
      consume<F, kRows>(call, big_job_at(call.space, index, rank), shared, ring);
  }
  cluster_sync();  // no block leaves while another one may still arrive at its barriers
}

template <WeightFormat F, int kRows>
void launch(Call call, const WideProduct& p, const Gpu& gpu, cudaStream_t stream) {
  using S = Shape<F, kRows>;
  const int cluster = call.space.cluster;
  const PackedView& w = call.w;
  const int64_t n_strips = static_cast<int64_t>(w.n_groups) * w.n_strips;
  for (int n = 1; n <= kStageBlocks; ++n) {
    call.weights[n - 1] =
        make_tile_map(w.weight, w.strip_bytes, n_strips, n * BlockBytes<F>::kBytes, kBigStrips);
    call.rows[n - 1] =
        make_tile_map(p.x, p.x_columns * 16, (p.n_rows + 7) / 8, n * 512, kRows / 8 / cluster);
  }
  if (S::kFieldBytes > 0)
    call.fields = make_tile_map(w.weight, w.strip_bytes, n_strips, kMaxFields, kBigStrips);
  const auto clusters = std::min(call.space.turns(), gpu.sm_count / cluster);
  cudaFuncSetAttribute(big_kernel<F, kRows>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       S::kSharedBytes);
  launch_following(true, static_cast<unsigned>(cluster), big_kernel<F, kRows>,
                   dim3(static_cast<unsigned>(clusters * cluster)), dim3(kThreads), S::kSharedBytes,
                   stream, call);
}

template <WeightFormat F>
void launch(const Call& call, const WideProduct& p, const Gpu& gpu, cudaStream_t stream) {
  if (call.space.tile_rows == 64) return launch<F, 64>(call, p, gpu, stream);
  if (call.space.tile_rows == 128) return launch<F, 128>(call, p, gpu, stream);
  launch<F, 192>(call, p, gpu, stream);
}

}  // namespace

bool big_fits(const Packed& weight, int64_t n_rows, const Gpu& gpu) {
  const bool fp8 = weight.format() == WeightFormat::kFp8Tile;
  const PackedView& w = weight.view();
  return (fp8 || weight.format() == WeightFormat::kBf16) && w.head_bytes <= kMaxFields &&
         gpu.cc_major == 9 && big_enough(w.n_groups, w.n_strips, n_rows, gpu.sm_count);
}

void launch_big(const WideProduct& p, const BigSpace& space, const Gpu& gpu, cudaStream_t stream) {
  HADAL_CHECK(p.tiles == nullptr, "a big product has no tiles");
  Call call = {};
  call.w = p.weight->view();
  call.space = space;
  call.y = p.y;
  call.y_f32 = p.y_f32;
  call.y_stride = p.y_stride;
  call.aligned = p.y != nullptr && p.y_f32 == nullptr && call.w.n % 8 == 0 && p.y_stride % 8 == 0 &&
                 reinterpret_cast<uintptr_t>(p.y) % 16 == 0;
  if (p.weight->format() == WeightFormat::kFp8Tile)
    launch<WeightFormat::kFp8Tile>(call, p, gpu, stream);
  else
    launch<WeightFormat::kBf16>(call, p, gpu, stream);
}

void launch_big(const WideProduct& p, const Gpu& gpu, cudaStream_t stream) {
  const PackedView& w = p.weight->view();
  launch_big(p, choose_big(w.n_groups, w.n_strips, p.n_rows, gpu.sm_count), gpu, stream);
}

}  // namespace hadal::cuda
