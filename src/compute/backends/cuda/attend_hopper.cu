#include <algorithm>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/attend_fetch.cuh"
#include "compute/backends/cuda/attend_hopper.h"
#include "compute/backends/cuda/attend_softmax.cuh"
#include "compute/backends/cuda/elements.cuh"

// One block walks rows; a row is 64 heads by 512 channels. Two warpgroups multiply: each scores
// half of a block's 64 keys, both weights meet in shared memory, and each sums 256 of the output's
// channels. Two more fetch the records of coming key blocks and write them as bf16.
//
//   shared memory    Q 64 KiB | keys 2 x 64 KiB | weights 8 KiB | addresses | presence, maxima,
//   sums
//
// Q, keys and weights lie in columns of 64 values (attend_tile.cuh). The order of every sum is
// fixed by the row's key list.
namespace hadal::cuda {
namespace {

constexpr int kMostPlaces = 1152;
constexpr int kConsumers = 256;
constexpr int kFetchers = 256;
constexpr int kThreads = kConsumers + kFetchers;
constexpr int kQAt = 0;
constexpr int kKeysAt = kTileBytes;
constexpr int kWeightsAt = 3 * kTileBytes;
constexpr int kAddressesAt = kWeightsAt + kColumnBytes;         // of two rows
constexpr int kPresentAt = kAddressesAt + 2 * kMostPlaces * 8;  // of four rows
constexpr int kMaximaAt = kPresentAt + 4 * kMostPlaces / 8;
constexpr int kSumsAt = kMaximaAt + 2 * kH * 4;
constexpr int kBarriersAt = kSumsAt + 2 * kH * 4;
constexpr int kSharedBytes = kBarriersAt + 4 * 8 + 1024;  // room to align to 1024

struct Barriers {
  uint32_t at;
  __device__ uint32_t full(int buffer) const { return at + 8 * buffer; }
  __device__ uint32_t empty(int buffer) const { return at + 16 + 8 * buffer; }
};

// The batch of key blocks that a fetcher's four units make: a block of the window, or two of
// entries.
struct Batches {
  int tiles, window_tiles;
  __device__ int count() const {
    return tiles <= window_tiles ? tiles : window_tiles + (tiles - window_tiles + 1) / 2;
  }
  __device__ bool window(int batch) const { return batch < window_tiles; }
  __device__ int tile(int batch, int slot) const {
    return window(batch) ? batch : window_tiles + 2 * (batch - window_tiles) + slot / 2;
  }
  __device__ static int unit(bool window, int slot) { return window ? slot : slot % 2; }
};

__device__ void fetch_rows(const AttendJob& job, uint8_t* shared, uint32_t shared_at,
                           Barriers barriers) {
  const int thread = static_cast<int>(threadIdx.x) - kConsumers, lane = thread % 32;
  auto* all_addresses = reinterpret_cast<uint64_t*>(shared + kAddressesAt);
  auto* all_present = reinterpret_cast<uint32_t*>(shared + kPresentAt);
  const int step = static_cast<int>(gridDim.x);
  int n = 0;  // key blocks so far
  list_addresses<kFetchers, kMostPlaces>(job, static_cast<int>(blockIdx.x), thread, all_addresses,
                                         all_present);
  int turn = 0;  // rows so far
  for (int row = static_cast<int>(blockIdx.x); row < job.n_rows; row += step, ++turn) {
    named_barrier(2, kFetchers);  // the row's addresses are listed
    const Batches batches{tiles_of(RowKeys(job, row).n_places()), job.window / kBlockPlaces};
    const Fetcher fetcher(all_addresses + turn % 2 * kMostPlaces, thread);
    const int count = batches.count();
    Unit units[4];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const bool window = batches.window(0);
      if (batches.tile(0, s) < batches.tiles)
        units[s] = fetcher.fetch(batches.tile(0, s), window, Batches::unit(window, s));
    }
    for (int b = 0; b < count; ++b) {
      const bool window = batches.window(b), to_window = batches.window(b + 1);
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        const int tile = batches.tile(b, s);
        if (tile >= batches.tiles) break;
        const bool first = s == 0 || (s == 2 && !window);
        const bool last = s == 3 || (s == 1 && !window);
        const uint32_t tile_at = shared_at + kKeysAt + n % 2 * kTileBytes;
        if (first && n >= 2) barrier_wait(barriers.empty(n % 2), (n / 2 - 1) % 2);
        fetcher.store(units[s], tile_at, window, Batches::unit(window, s));
        if (b + 1 < count && batches.tile(b + 1, s) < batches.tiles)
          units[s] = fetcher.fetch(batches.tile(b + 1, s), to_window, Batches::unit(to_window, s));
        if (last) {
          fence_async();
          __syncwarp();
          if (lane == 0) barrier_arrive(barriers.full(n % 2));
          ++n;
        }
      }
      // The next row's addresses, while the multiplying warps have blocks to go on with. Its
      // presence list was last read three rows ago.
      if (b == min(1, count - 1) && row + step < job.n_rows)
        list_addresses<kFetchers, kMostPlaces>(job, row + step, thread,
                                               all_addresses + (turn + 1) % 2 * kMostPlaces,
                                               all_present + (turn + 1) % 4 * (kMostPlaces / 32));
    }
  }
}

// Eight lanes take 128 bytes of a head; a block of 256 threads four heads at a time.
__device__ __forceinline__ void copy_q(const AttendJob& job, int row, uint32_t shared_at) {
  const int thread = static_cast<int>(threadIdx.x), head = thread / 64, piece = thread % 64;
  const uint16_t* from = job.q + row * job.q_stride + head * kD + piece * 8;
  const uint32_t chunk = (piece % 8 ^ head) * 16;
  const uint32_t to = shared_at + kQAt + piece / 8 * kColumnBytes + head * 128;
#pragma unroll
  for (int i = 0; i < kH / 4; ++i)
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to + i * 512 + (chunk ^ i % 2 * 64)),
        "l"(from + i * 4 * kD)
        : "memory");
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

struct Consumer {
  const AttendJob& job;
  uint8_t* shared;
  uint32_t shared_at;
  int half;     // which warpgroup: keys 32 half ..., channels 256 half ...
  int lane, r;  // r: the first of the thread's rows
  float scale;
  float o[2][64];    // of each 128 channels
  RowPair max, den;  // in products; times 2^8, as the weights are

  // Running maximum over the whole block: both halves meet.
  __device__ __forceinline__ RowPair raise_max(const float (&s)[16]) {
    auto* maxima = reinterpret_cast<float*>(shared + kMaximaAt);
    RowPair top = half_maximum(s);
    if (lane % 4 == 0)
      for (int e = 0; e < 2; ++e) maxima[half * kH + r + 8 * e] = top.v[e];
    named_barrier(1, kConsumers);
#pragma unroll
    for (int e = 0; e < 2; ++e)
      top.v[e] = fmaxf(max.v[e], fmaxf(top.v[e], maxima[(1 - half) * kH + r + 8 * e]));
    return top;
  }

  __device__ __forceinline__ void weigh(const float (&s)[16], const RowPair& top) {
    const RowPair sum = weigh_half(s, top, scale, shared_at + kWeightsAt, half);
    RowPair fade;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      fade.v[e] = fade_of(max.v[e], top.v[e], scale);
      den.v[e] = den.v[e] * fade.v[e] + sum.v[e];
    }
    max = top;
    fence_async();
    if (__any_sync(0xFFFFFFFFu, fade.v[0] != 1.0f || fade.v[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < 128; ++i) o[i / 64][i % 64] = o[i / 64][i % 64] * fade.v[i / 2 % 2];
    }
    named_barrier(1, kConsumers);
  }

  __device__ __forceinline__ void mix(uint32_t keys_at) {
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int c = 0; c < 2; ++c)
        mma_n128(o[c], k_major_operand(shared_at + kWeightsAt + 32 * k),
                 m_major_operand(keys_at + (half * 4 + c * 2) * kColumnBytes + k * 16 * 128,
                                 kColumnBytes),
                 true);
    }
    mma_commit();
    mma_wait();
    settle(o[0]);
    settle(o[1]);
  }

  // Divides, rotates back and stores a row.
  __device__ __forceinline__ void finish(int row) {
    auto* sums = reinterpret_cast<float*>(shared + kSumsAt);
    float2 angles[8] = {};  // of the second warpgroup's last 64 channels
    if (half == 1) {
      const float* from = job.rope + static_cast<int64_t>(row) * 64 + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < 8; ++j) angles[j] = __ldg(reinterpret_cast<const float2*>(from + 8 * j));
    }
    if (lane % 4 == 0)
      for (int e = 0; e < 2; ++e) sums[half * kH + r + 8 * e] = den.v[e];
    named_barrier(1, kConsumers);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int h = r + 8 * e;
      const float factor =
          final_factor(sums[h], sums[kH + h], __ldg(job.sink + h), max.v[e], scale);
      uint16_t* out = job.o + row * job.o_stride + h * kD + half * 256 + 8 * (lane % 4);
#pragma unroll
      for (int j = 0; j < 32; j += 4) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 4 * (j + i) + 2 * e;
          words[i] = output_pair(o[at / 64][at % 64] * factor, o[at / 64][at % 64 + 1] * factor,
                                 j >= 24 && half == 1, angles[(j + i) % 8]);
        }
        turn_quad(words);
        *reinterpret_cast<uint4*>(out + 8 * j) = {words[0], words[1], words[2], words[3]};
      }
    }
  }
};

__device__ void multiply_rows(const AttendJob& job, uint8_t* shared, uint32_t shared_at,
                              Barriers barriers) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  // Read from one lane, so that operands' addresses are known to be the warp's.
  const int half = __shfl_sync(0xFFFFFFFFu, thread / 128, 0);
  Consumer c{job, shared, shared_at, half, lane, first_row(thread), product_scale(job), {}, {}, {}};
  int n = 0, turn = 0;
  copy_q(job, static_cast<int>(blockIdx.x), shared_at);
  for (int row = static_cast<int>(blockIdx.x); row < job.n_rows;
       row += static_cast<int>(gridDim.x), ++turn) {
    const auto* present = reinterpret_cast<const uint32_t*>(shared + kPresentAt) +
                          turn % 4 * (kMostPlaces / 32) + half;
    const int tiles = tiles_of(RowKeys(job, row).n_places());
#pragma unroll
    for (int i = 0; i < 128; ++i) c.o[i / 64][i % 64] = 0;
    c.max = {kNoMaximum, kNoMaximum};
    c.den = {0, 0};
    asm volatile("cp.async.wait_all;\n" ::: "memory");
    fence_async();
    named_barrier(1, kConsumers);
    for (int tile = 0; tile < tiles; ++tile, ++n) {
      const uint32_t keys_at =
          __shfl_sync(0xFFFFFFFFu, shared_at + kKeysAt + n % 2 * kTileBytes, 0);
      barrier_wait(barriers.full(n % 2), n / 2 % 2);
      float s[16];
      score_half(shared_at + kQAt, keys_at + half * 32 * 128, present[2 * tile], s);
      const RowPair top = c.raise_max(s);
      const int next = row + static_cast<int>(gridDim.x);
      if (tile + 1 == tiles && next < job.n_rows) copy_q(job, next, shared_at);
      c.weigh(s, top);
      c.mix(keys_at);
      if (lane == 0) barrier_arrive(barriers.empty(n % 2));
    }
    c.finish(row);
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    attend_hopper_kernel(const __grid_constant__ AttendJob job) {
  extern __shared__ uint8_t raw[];
  uint8_t* shared =
      raw + (1024 - static_cast<uint32_t>(__cvta_generic_to_shared(raw)) % 1024) % 1024;
  const auto shared_at = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const Barriers barriers{shared_at + kBarriersAt};
  if (threadIdx.x == 0) {
    for (int b = 0; b < 2; ++b) {
      barrier_init(barriers.full(b), kFetchers / 32);
      barrier_init(barriers.empty(b), kConsumers / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __syncthreads();
  follow_previous(job.overlap);
  // 256 threads of 176 registers and 256 of 80 are the 512 of 128 that the block starts with.
  if (threadIdx.x < kConsumers) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 176;\n");
    multiply_rows(job, shared, shared_at, barriers);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 80;\n");
    fetch_rows(job, shared, shared_at, barriers);
  }
}

bool aligned16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

}  // namespace

bool attend_hopper_takes(const AttendJob& job, int most_places, const Gpu& gpu) {
  return gpu.cc_major == 9 && gpu.smem_optin >= kSharedBytes && job.n_heads == kH &&
         job.d_head == kD && job.window % kBlockPlaces == 0 && job.d_rope == 64 &&
         most_places <= kMostPlaces && job.q_stride % 8 == 0 && aligned16(job.q) &&
         job.o_stride % 8 == 0 && aligned16(job.o) &&
         reinterpret_cast<uintptr_t>(job.rope) % 8 == 0 && job.window_bytes % 16 == 0 &&
         job.slot_bytes % 16 == 0 && job.ring_offset % 16 == 0 && aligned16(job.slots) &&
         job.latent_stride % 16 == 0 && aligned16(job.latents) &&
         (!job.has_source ||
          (job.source.slab_bytes % 16 == 0 && job.source.entry_offset % 16 == 0 &&
           job.source.entry_bytes % 16 == 0 && aligned16(job.source.slabs)));
}

void launch_attend_hopper(const AttendJob& job, const Gpu& gpu, cudaStream_t stream) {
  cudaFuncSetAttribute(attend_hopper_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       kSharedBytes);
  const auto grid = static_cast<unsigned>(std::min(job.n_rows, gpu.sm_count));
  launch_following(job.overlap, 1, attend_hopper_kernel, dim3(grid), dim3(kThreads), kSharedBytes,
                   stream, job);
}

}  // namespace hadal::cuda
