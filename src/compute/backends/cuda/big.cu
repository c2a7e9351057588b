#include <algorithm>

#include "base/core/check.h"
#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/big.h"
#include "compute/backends/cuda/big_store.cuh"
#include "compute/backends/cuda/big_wgmma.cuh"
#include "compute/backends/cuda/fragments.cuh"

// Products of many rows. A block goes through jobs of kRows rows by 128 outputs: one warp brings
// weights and rows to a ring of stages in shared memory; each of two warpgroups turns the weights
// of 64 outputs to bf16 in registers, where wgmma takes them, and multiplies them with all the
// rows. The sum of a slice of k and the total of the slices before it take kRows registers of a
// thread together, so 192 rows is the most. The blocks of a cluster have the same rows: each of
// them brings a part, to all.
namespace hadal::cuda {
namespace {

using ops::WeightFormat;

constexpr int kWarpgroups = 2;
constexpr int kConsumers = kWarpgroups * 128;
constexpr int kThreads = kConsumers + 128;  // the copying warp takes a warpgroup's place
constexpr int kCopyRegisters = 56, kProductRegisters = 224;  // of the 168 a thread starts with
constexpr int kStageBlocks = 2;
constexpr int kMaxFields = 32;  // of a slice of FP8: one a lane
constexpr int kRingBytes = 206 << 10;

template <WeightFormat F, int kRows>
struct Shape {
  static constexpr int kStripBytes =
      kStageBlocks * BlockBytes<F>::kBytes + (F == WeightFormat::kFp8Tile ? kMaxFields : 0);
  static constexpr int kWeightBytes = kBigStrips * kStripBytes;
  static constexpr int kTileBytes = kStageBlocks * 512;  // of 8 rows
  static constexpr int kStageBytes = kWeightBytes + kRows / 8 * kTileBytes;
  static constexpr int kStages = kRingBytes / kStageBytes < 8 ? kRingBytes / kStageBytes : 8;
  static constexpr int kStoreAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kStoreAt + kWarpgroups * kStoreBytes;
  static constexpr int kSharedBytes = kBarriersAt + 2 * kStages * 8;
  static_assert(kWeightBytes % 128 == 0, "core matrices");
};

struct Call {
  PackedView w;
  const uint16_t* x;
  int64_t x_blocks;  // of a row of x
  BigSpace space;
  uint16_t* y;
  float* y_f32;
  int64_t y_stride;
  bool aligned;
};

template <class S>
struct Ring {
  uint8_t* stages;
  uint64_t* full;
  uint64_t* empty;
  int at = 0;
  uint32_t phase = 0;

  __device__ explicit Ring(uint8_t* shared)
      : stages(shared),
        full(reinterpret_cast<uint64_t*>(shared + S::kBarriersAt)),
        empty(full + S::kStages) {}
  __device__ void next() {
    if (++at == S::kStages) {
      at = 0;
      phase ^= 1;
    }
  }
  __device__ uint8_t* stage() const { return stages + at * S::kStageBytes; }
};

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
// To the same place in every block of `mask`, completing on the barrier of each.
__device__ __forceinline__ void bulk_copy_to_all(void* to, const void* from, uint32_t bytes,
                                                 uint64_t* barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "h"(mask)
      : "memory");
}

// The warps that bring a job's stages. A copy is issued by one lane after the other, so each warp
// has eight.
template <WeightFormat F, int kRows>
__device__ void produce(const Call& call, const BigJob& job, int rank,
                        Ring<Shape<F, kRows>>& ring) {
  using S = Shape<F, kRows>;
  constexpr int kBytes = BlockBytes<F>::kBytes;
  const PackedView& w = call.w;
  const int lane = threadIdx.x % 32, warp = (threadIdx.x - kConsumers) / 32;
  const int cluster = call.space.cluster, n_row_tiles = (job.n_rows + 7) / 8;
  const int item = (warp - 1) * 8 + lane;  // row tile of warps 1 to 3; strip of warp 0: lane
  const bool weights = warp == 0;
  const bool brings =
      lane < 8 && (weights ? lane < job.n_strips : item < n_row_tiles && item % cluster == rank);
  const uint8_t* from = weights ? w.weight + job.group * w.group_bytes +
                                      static_cast<int64_t>(job.first_strip + lane) * w.strip_bytes
                                : reinterpret_cast<const uint8_t*>(call.x) +
                                      ((job.first_row / 8 + item) * call.x_blocks +
                                       static_cast<int64_t>(job.group) * w.n_blocks) *
                                          512;
  const int to = weights ? lane * S::kStripBytes : S::kWeightBytes + item * S::kTileBytes;
  const int block_bytes = weights ? kBytes : 512;
  for (int slice = 0; slice < kSlices; ++slice) {
    const int begin = slice_begin(slice, w.n_blocks), end = slice_begin(slice + 1, w.n_blocks);
    for (int block = begin; block < end; block += kStageBlocks) {
      const int n = end - block < kStageBlocks ? end - block : kStageBlocks;
      const int head = block == begin ? w.head_bytes : 0;
      barrier_wait(ring.empty + ring.at, ring.phase ^ 1);
      uint64_t* full = ring.full + ring.at;
      if (weights && lane == 0)
        barrier_arrive_expect(full, job.n_strips * (n * kBytes + head) + n_row_tiles * n * 512);
      __syncwarp();
      if (brings) {
        const int skip = weights ? (slice + 1) * w.head_bytes - head : 0;
        const uint8_t* at = from + static_cast<int64_t>(block) * block_bytes + skip;
        const uint32_t bytes = n * block_bytes + (weights ? head : 0);
        if (weights || cluster == 1)
          bulk_copy(ring.stage() + to, at, bytes, full);
        else
          bulk_copy_to_all(ring.stage() + to, at, bytes, full,
                           static_cast<uint16_t>((1 << cluster) - 1));
      }
      ring.next();
    }
  }
}

// A warpgroup's half of a job.
template <WeightFormat F, int kRows>
__device__ void consume(const Call& call, const BigJob& job, uint8_t* shared,
                        Ring<Shape<F, kRows>>& ring) {
  using S = Shape<F, kRows>;
  constexpr int kBytes = BlockBytes<F>::kBytes;
  constexpr bool kFields = F == WeightFormat::kFp8Tile;
  const PackedView& w = call.w;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float total[kRows / 2] = {}, sum[kRows / 2];
  const auto release = [&](int stage) {
    if (lane < call.space.cluster) barrier_arrive_at(shared_address(ring.empty + stage), lane);
  };
  for (int slice = 0; slice < kSlices; ++slice) {
    const int n_blocks = slice_begin(slice + 1, w.n_blocks) - slice_begin(slice, w.n_blocks);
    if (n_blocks == 0) continue;
    uint32_t fields = 0;
    int done_stage = -1;  // read, but not free until the products of its last block are complete
    for (int block = 0; block < n_blocks; block += kStageBlocks) {
      barrier_wait(ring.full + ring.at, ring.phase);
      const uint8_t* stage = ring.stage();
      const uint8_t* strip = stage + warp * S::kStripBytes;
      if (kFields && block == 0) {
        fields = strip[lane < w.head_bytes ? lane : 0];
        strip += w.head_bytes;
      }
      const uint32_t x = shared_address(stage + S::kWeightBytes);
      const auto multiply = [&](int i, uint32_t(&operand)[2][4]) {
        BlockBytes<F> bytes;
        bytes.load(strip + i * kBytes, lane);
        const uint32_t field = kFields ? __shfl_sync(0xFFFFFFFFu, fields, block + i) : 0;
        BlockPairs pairs;
        bytes.pairs(field, pairs);
        pairs.operand(0, operand[0]);
        pairs.operand(1, operand[1]);
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 2; ++s)
          wgmma_rows(sum, operand[s], wgmma_operand(x + i * 512 + s * 256, S::kTileBytes),
                     i + s > 0 ? 1 : block);
        wgmma_commit();
      };
      if (block + kStageBlocks <= n_blocks) {
        uint32_t a[2][2][4];
        multiply(0, a[0]);
        wgmma_wait<1>();
        if (done_stage >= 0) release(done_stage);
        multiply(1, a[1]);
        wgmma_wait<1>();
      } else {
        wgmma_wait<0>();
        if (done_stage >= 0) release(done_stage);
        uint32_t a[2][4];
        multiply(0, a);
        wgmma_wait<0>();
      }
      done_stage = ring.at;
      ring.next();
    }
    wgmma_wait<0>();
    release(done_stage);
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) total[i] += sum[i];
  }
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
    for (int index = first; index < turns; index += step)
      produce<F, kRows>(call, big_job_at(call.space, index, rank), rank, ring);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kProductRegisters));
    for (int index = first; index < turns; index += step)
      consume<F, kRows>(call, big_job_at(call.space, index, rank), shared, ring);
  }
  cluster_sync();  // no block leaves while another one may still arrive at its barriers
}

template <WeightFormat F, int kRows>
void launch(const Call& call, const Gpu& gpu, cudaStream_t stream) {
  using S = Shape<F, kRows>;
  const int cluster = call.space.cluster;
  const auto clusters = std::min(call.space.turns(), gpu.sm_count / cluster);
  cudaFuncSetAttribute(big_kernel<F, kRows>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       S::kSharedBytes);
  launch_following(true, static_cast<unsigned>(cluster), big_kernel<F, kRows>,
                   dim3(static_cast<unsigned>(clusters * cluster)), dim3(kThreads), S::kSharedBytes,
                   stream, call);
}

template <WeightFormat F>
void launch(const Call& call, const Gpu& gpu, cudaStream_t stream) {
  if (call.space.tile_rows == 64) return launch<F, 64>(call, gpu, stream);
  if (call.space.tile_rows == 128) return launch<F, 128>(call, gpu, stream);
  launch<F, 192>(call, gpu, stream);
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
  call.x = p.x;
  call.x_blocks = p.x_columns / kBlockK;
  call.space = space;
  call.y = p.y;
  call.y_f32 = p.y_f32;
  call.y_stride = p.y_stride;
  call.aligned = p.y != nullptr && p.y_f32 == nullptr && call.w.n % 8 == 0 && p.y_stride % 8 == 0 &&
                 reinterpret_cast<uintptr_t>(p.y) % 16 == 0;
  if (p.weight->format() == WeightFormat::kFp8Tile)
    launch<WeightFormat::kFp8Tile>(call, gpu, stream);
  else
    launch<WeightFormat::kBf16>(call, gpu, stream);
}

void launch_big(const WideProduct& p, const Gpu& gpu, cudaStream_t stream) {
  const PackedView& w = p.weight->view();
  launch_big(p, choose_big(w.n_groups, w.n_strips, p.n_rows, gpu.sm_count), gpu, stream);
}

}  // namespace hadal::cuda
