#include <algorithm>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/attend_fetch.cuh"
#include "compute/backends/cuda/attend_hopper.h"
#include "compute/backends/cuda/attend_softmax.cuh"
#include "compute/backends/cuda/elements.cuh"

// One block walks rows; a row is 64 heads by 512 channels. Its warpgroups hand tiles of 64 keys
// down a line:
//
//   fetchers (1)   records of the cache to bf16, two tiles ahead
//   scorers (1)    Q times keys, running maxima, weights
//   mixers (2)     256 of the output's channels each: weights times keys
//
// so that one tile is scored while the one before is mixed. The scorers keep all that a row's
// softmax has to know; with each tile's weights the mixers are told by how much the sums so far
// fade, and what they are multiplied with in the end.
//
//   shared memory    Q 64 KiB | keys 2 x 64 KiB | weights 2 x 8 KiB | addresses | presence, fades
//
// Q, keys and weights lie in columns of 64 values (attend_tile.cuh). The order of every sum is
// fixed by the row's key list.
namespace hadal::cuda {
namespace {

constexpr int kMostPlaces = 1152;
constexpr int kScorers = 128;
constexpr int kMixers = 256;
constexpr int kFetchers = 128;
constexpr int kThreads = kScorers + kMixers + kFetchers;
constexpr int kFetchWarps = kFetchers / 32;
constexpr int kQAt = 0;
constexpr int kKeysAt = kTileBytes;
constexpr int kWeightsAt = 3 * kTileBytes;
constexpr int kAddressesAt = kWeightsAt + 2 * kColumnBytes;
constexpr int kPresentAt = kAddressesAt + kMostPlaces * 8;  // of four rows
constexpr int kFadesAt = kPresentAt + 4 * kMostPlaces / 8;  // [2][kH], with the weights
constexpr int kFactorsAt = kFadesAt + 2 * kH * 4;           // [2][kH], with a row's last
constexpr int kBarriersAt = kFactorsAt + 2 * kH * 4;
constexpr int kSharedBytes = kBarriersAt + 8 * 8 + 1024;  // room to align to 1024
static_assert(kSharedBytes <= 227 * 1024);

// Tile n of a block goes through buffer n % 2 of keys and of weights.
struct Barriers {
  uint32_t at;
  __device__ uint32_t filled(int n) const { return at + 8 * (n % 2); }        // keys
  __device__ uint32_t free(int n) const { return at + 16 + 8 * (n % 2); }     // keys
  __device__ uint32_t weighed(int n) const { return at + 32 + 8 * (n % 2); }  // weights, fades
  __device__ uint32_t mixed(int n) const { return at + 48 + 8 * (n % 2); }    // weights, fades
};
__device__ __forceinline__ void wait_use(uint32_t barrier, int n) {
  barrier_wait(barrier, n / 2 % 2);
}
// For the use of tile n - 2 to be over.
__device__ __forceinline__ void wait_reuse(uint32_t barrier, int n) {
  if (n >= 2) barrier_wait(barrier, (n / 2 - 1) % 2);
}
__device__ __forceinline__ void arrive_warp(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) shared_barrier_arrive(barrier);
}

// What a fetching thread holds at a time: its part of two keys, whole entries or half of their
// window records. So a window's tile takes two batches.
constexpr int kUnits = 4;
struct Batches {
  int tiles, window_tiles;
  __device__ int count() const { return tiles + min(tiles, window_tiles); }
  __device__ bool window(int batch) const { return batch < 2 * window_tiles; }
  __device__ int tile(int batch) const { return window(batch) ? batch / 2 : batch - window_tiles; }
  // Which eight of a warp's sixteen keys, and which 128 bytes of theirs.
  __device__ int group(int batch, int unit) const { return window(batch) ? batch % 2 : unit / 2; }
  __device__ int piece(int batch, int unit) const { return window(batch) ? unit : unit % 2; }
};

__device__ void fetch_rows(const AttendJob& job, uint8_t* shared, uint32_t shared_at,
                           Barriers barriers) {
  const int thread = static_cast<int>(threadIdx.x) - kScorers - kMixers;
  auto* addresses = reinterpret_cast<uint64_t*>(shared + kAddressesAt);
  auto* all_present = reinterpret_cast<uint32_t*>(shared + kPresentAt);
  int n = 0, turn = 0;  // tiles and rows so far
#pragma unroll 1
  for (int row = static_cast<int>(blockIdx.x); row < job.n_rows;
       row += static_cast<int>(gridDim.x), ++turn) {
    // The presence list was last read three rows ago.
    const RowKeys keys(job, row);
    list_addresses<kFetchers, kMostPlaces>(keys, thread, addresses,
                                           all_present + turn % 4 * (kMostPlaces / 32));
    named_barrier(2, kFetchers);
    const Batches batches{tiles_of(keys.n_places()), job.window / kBlockPlaces};
    const LanePart lane(thread % 32);
    const int key = thread / 32 * (kBlockPlaces / kFetchWarps) + lane.key;
    const int count = batches.count();
    Unit units[kUnits];
#pragma unroll 1
    for (int b = -1; b < count; ++b) {
      if (b >= 0) {
        const uint32_t tile_at = shared_at + kKeysAt + n % 2 * kTileBytes;
        const bool window = batches.window(b);
        if (!window || b % 2 == 0) wait_reuse(barriers.free(n), n);
        const uint32_t row_at = tile_at + key * 128;
        if (window) {
#pragma unroll
          for (int u = 0; u < kUnits; ++u)
            store_window(units[u], lane.from(u),
                         row_at + b % 2 * 1024 + lane.to(true, u, kColumnBytes));
        } else {
#pragma unroll
          for (int u = 0; u < kUnits; ++u)
            store_entry(units[u], row_at + u / 2 * 1024 + lane.to(false, u % 2, kColumnBytes));
        }
        if (!window || b % 2 == 1) {
          fence_async();
          arrive_warp(barriers.filled(n));
          ++n;
        }
      }
      if (b + 1 < count) {
        const bool window = batches.window(b + 1);
        const uint64_t* at = addresses + batches.tile(b + 1) * kBlockPlaces + key;
#pragma unroll
        for (int u = 0; u < kUnits; ++u)
          units[u] = fetch_unit(reinterpret_cast<const uint8_t*>(at[batches.group(b + 1, u) * 8]),
                                window, lane.from(batches.piece(b + 1, u)));
      }
    }
    named_barrier(2, kFetchers);  // all have the addresses that they need
  }
}

// Eight lanes take 128 bytes of a head; the scorers two heads at a time.
__device__ __forceinline__ void copy_q(const AttendJob& job, int row, uint32_t shared_at) {
  const int thread = static_cast<int>(threadIdx.x), head = thread / 64, piece = thread % 64;
  const uint16_t* from = job.q + row * job.q_stride + head * kD + piece * 8;
  const uint32_t to = shared_at + kQAt + piece / 8 * kColumnBytes + head * 128;
#pragma unroll 8
  for (int i = 0; i < kH / 2; ++i)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(
                     to + i * 256 + ((piece % 8 ^ (2 * i + head) % 8) * 16)),
                 "l"(from + i * 2 * kD)
                 : "memory");
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// On its way to L2 a row early, to be there when the row before is done with its place.
__device__ __forceinline__ void expect_q(const AttendJob& job, int row) {
  if (threadIdx.x == 0 && row < job.n_rows)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(job.q + row * job.q_stride),
                 "n"(kTileBytes)
                 : "memory");
}

__device__ void score_rows(const AttendJob& job, uint8_t* shared, uint32_t shared_at,
                           Barriers barriers) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, r = first_row(thread);
  const float scale = product_scale(job);
  const int step = static_cast<int>(gridDim.x);
  float sink[2];
  for (int e = 0; e < 2; ++e) sink[e] = __ldg(job.sink + r + 8 * e);
  int n = 0, turn = 0;
  copy_q(job, static_cast<int>(blockIdx.x), shared_at);
#pragma unroll 1
  for (int row = static_cast<int>(blockIdx.x); row < job.n_rows; row += step, ++turn) {
    const auto* all_present =
        reinterpret_cast<const uint32_t*>(shared + kPresentAt) + turn % 4 * (kMostPlaces / 32);
    const int tiles = tiles_of(RowKeys(job, row).n_places());
    RowPair max = {kNoMaximum, kNoMaximum}, den[2] = {{0, 0}, {0, 0}};
    expect_q(job, row + step);
    asm volatile("cp.async.wait_all;\n" ::: "memory");
    fence_async();
    named_barrier(1, kScorers);
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, ++n) {
      const uint32_t keys_at =
          __shfl_sync(0xFFFFFFFFu, shared_at + kKeysAt + n % 2 * kTileBytes, 0);
      wait_use(barriers.filled(n), n);
      float s[32];
      score_keys<64>(shared_at + kQAt, keys_at, kColumnBytes, s);
      for (int half = 0; half < 2; ++half)
        mask_keys(s + 16 * half, 32, all_present[2 * tile + half]);
      const bool last = tile + 1 == tiles;
      if (last && row + step < job.n_rows) {
        named_barrier(1, kScorers);  // all four warps' products are done
        copy_q(job, row + step, shared_at);
      }
      RowPair top = row_maximum<64>(s), fade;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        top.v[e] = fmaxf(max.v[e], top.v[e]);
        fade.v[e] = fade_of(max.v[e], top.v[e], scale);
      }
      max = top;
      wait_reuse(barriers.mixed(n), n);
      const uint32_t row_at =
          shared_at + kWeightsAt + n % 2 * kColumnBytes + r * 128 + lane % 4 * 4;
      RowPair sum[4];
#pragma unroll
      for (int q = 0; q < 4; ++q)
        sum[q] = weigh_quarter(s + 8 * q, top, scale, [&](int e, int j, uint32_t pair) {
          const uint32_t chunk = ((2 * q + j) ^ (lane / 4)) * 16;
          asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(row_at + e * 1024 + chunk), "r"(pair)
                       : "memory");
        });
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 2; ++e)
          den[half].v[e] =
              den[half].v[e] * fade.v[e] + (sum[2 * half].v[e] + sum[2 * half + 1].v[e]);
      }
      if (lane % 4 == 0) {
        auto* fades = reinterpret_cast<float*>(shared + kFadesAt) + n % 2 * kH;
        auto* factors = reinterpret_cast<float*>(shared + kFactorsAt) + n % 2 * kH;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          fades[r + 8 * e] = fade.v[e];
          if (last)
            factors[r + 8 * e] = final_factor(den[0].v[e], den[1].v[e], sink[e], max.v[e], scale);
        }
      }
      fence_async();
      arrive_warp(barriers.weighed(n));
    }
  }
}

// Multiplies, rotates back and stores a row's 256 channels of a warpgroup.
__device__ __forceinline__ void store_row(const AttendJob& job, int row, int half,
                                          const float (&o)[2][64], const RowPair& factor) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int r = first_row(static_cast<int>(threadIdx.x));
  const float* angles = job.rope + static_cast<int64_t>(row) * 64 + 2 * (lane % 4);
  uint16_t* out = job.o + row * job.o_stride + r * kD + half * 256 + 8 * (lane % 4);
#pragma unroll
  for (int j = 0; j < 32; j += 4) {
    const bool rotary = j >= 24 && half == 1;  // the last 64 channels
    float2 angle[4] = {};
    if (rotary) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        angle[i] = __ldg(reinterpret_cast<const float2*>(angles + 8 * ((j + i) % 8)));
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (j + i) + 2 * e;
        words[i] = output_pair(o[at / 64][at % 64] * factor.v[e],
                               o[at / 64][at % 64 + 1] * factor.v[e], rotary, angle[i]);
      }
      turn_quad(words);
      *reinterpret_cast<uint4*>(out + e * 8 * kD + 8 * j) = {words[0], words[1], words[2],
                                                             words[3]};
    }
  }
}

__device__ void mix_rows(const AttendJob& job, uint8_t* shared, uint32_t shared_at,
                         Barriers barriers) {
  const int thread = static_cast<int>(threadIdx.x) - kScorers, r = first_row(thread);
  // Read from one lane, so that operands' addresses are known to be the warp's.
  const int half = __shfl_sync(0xFFFFFFFFu, thread / 128, 0);
  float o[2][64];
  int n = 0;
#pragma unroll 1
  for (int row = static_cast<int>(blockIdx.x); row < job.n_rows;
       row += static_cast<int>(gridDim.x)) {
    const int tiles = tiles_of(RowKeys(job, row).n_places());
    RowPair factor = {1, 1};
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, ++n) {
      const uint32_t buffer = __shfl_sync(0xFFFFFFFFu, n % 2, 0);
      const uint64_t weights = k_major_operand(shared_at + kWeightsAt + buffer * kColumnBytes);
      const uint64_t keys = m_major_operand(
          shared_at + kKeysAt + buffer * kTileBytes + half * 4 * kColumnBytes, kColumnBytes);
      wait_use(barriers.weighed(n), n);
      const auto* fades = reinterpret_cast<const float*>(shared + kFadesAt) + n % 2 * kH + r;
      const RowPair fade = {fades[0], fades[8]};
      if (tile + 1 == tiles) factor = {fades[2 * kH], fades[2 * kH + 8]};
      if (tile > 0 && __any_sync(0xFFFFFFFFu, fade.v[0] != 1.0f || fade.v[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < 128; ++i) o[i / 64][i % 64] = o[i / 64][i % 64] * fade.v[i / 2 % 2];
      }
      mma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int c = 0; c < 2; ++c)
          mma_n128(o[c], weights + further(32 * k),
                   keys + further(c * 2 * kColumnBytes + k * 16 * 128), tile > 0 || k > 0);
      }
      mma_commit();
      mma_wait();
      settle(o[0]);
      settle(o[1]);
      arrive_warp(barriers.free(n));
      if (thread % 32 == 0) shared_barrier_arrive(barriers.mixed(n));
    }
    store_row(job, row, half, o, factor);
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
      shared_barrier_init(barriers.filled(b), kFetchWarps);
      shared_barrier_init(barriers.free(b), kMixers / 32);
      shared_barrier_init(barriers.weighed(b), kScorers / 32);
      shared_barrier_init(barriers.mixed(b), kMixers / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __syncthreads();
  follow_previous(job.overlap);
  // 512 times the 128 registers that the block starts with.
  if (threadIdx.x < kScorers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 80;\n");
    score_rows(job, shared, shared_at, barriers);
  } else if (threadIdx.x < kScorers + kMixers) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;\n");
    mix_rows(job, shared, shared_at, barriers);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 112;\n");
    fetch_rows(job, shared, shared_at, barriers);
  }
}

bool aligned16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

}  // namespace

bool attend_hopper_takes(const AttendJob& job, int most_places, const Gpu& gpu) {
  return gpu.cc_major == 9 && gpu.smem_optin >= kSharedBytes && job.n_heads == kH &&
         job.d_head == kD && job.window % kBlockPlaces == 0 && job.window <= kMostWindow &&
         job.d_rope == 64 && most_places <= kMostPlaces && job.q_stride % 8 == 0 &&
         aligned16(job.q) && job.o_stride % 8 == 0 && aligned16(job.o) &&
         reinterpret_cast<uintptr_t>(job.rope) % 8 == 0 && job.window_bytes % 16 == 0 &&
         job.slot_bytes % 16 == 0 && job.ring_offset % 16 == 0 && aligned16(job.slots) &&
         job.latent_stride % 16 == 0 && aligned16(job.latents) &&
         (!job.has_source || (job.source.shift >= 0 && job.source.slab_bytes % 16 == 0 &&
                              job.source.entry_offset % 16 == 0 &&
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
