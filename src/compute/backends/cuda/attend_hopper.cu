#include <algorithm>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/attend_hopper.h"
#include "compute/backends/cuda/attend_softmax.cuh"
#include "compute/backends/cuda/attend_walk.cuh"
#include "compute/backends/cuda/elements.cuh"

// One block walks rows (attend_walk.cuh): the scorers, the mixers and the kernel.
namespace hadal::cuda {
namespace {

using namespace row_walk;

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
      RowPair top = row_maximum<64>(s), fade;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        top.v[e] = fmaxf(max.v[e], top.v[e]);
        fade.v[e] = fade_of(max.v[e], top.v[e], scale);
      }
      max = top;
      // Their place is free: tile n's keys came when tile n - 2 was mixed.
      if (lane % 4 == 0) {
        auto* fades = reinterpret_cast<float*>(shared + kFadesAt) + n % 2 * kH;
#pragma unroll
        for (int e = 0; e < 2; ++e) fades[r + 8 * e] = fade.v[e];
      }
      arrive_warp(barriers.faded(n));
      wait_reuse(barriers.mixed(n), n);
      const uint32_t row_at =
          shared_at + kWeightsAt + n % 2 * kColumnBytes + r * 128 + lane % 4 * 4;
      RowPair parts[4], sum[4];
#pragma unroll
      for (int q = 0; q < 4; ++q)
        parts[q] = weigh_quarter(s + 8 * q, top, scale, [&](int e, int j, uint32_t pair) {
          const uint32_t chunk = ((2 * q + j) ^ (lane / 4)) * 16;
          asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(row_at + e * 1024 + chunk), "r"(pair)
                       : "memory");
        });
      // The mixers may go on; what follows is for the row's last tile.
      if (!last) {
        fence_async();
        arrive_warp(barriers.weighed(n));
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) sum[q] = quarter_sums(parts[q]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 2; ++e)
          den[half].v[e] =
              den[half].v[e] * fade.v[e] + (sum[2 * half].v[e] + sum[2 * half + 1].v[e]);
      }
      if (!last) continue;
      if (lane % 4 == 0) {
        auto* factors = reinterpret_cast<float*>(shared + kFactorsAt) + n % 2 * kH;
#pragma unroll
        for (int e = 0; e < 2; ++e)
          factors[r + 8 * e] = final_factor(den[0].v[e], den[1].v[e], sink[e], max.v[e], scale);
      }
      fence_async();
      arrive_warp(barriers.weighed(n));
    }
    // Behind the fence, which would wait for it.
    if (row + step < job.n_rows) {
      named_barrier(1, kScorers);  // all four warps' products are done
      copy_q(job, row + step, shared_at);
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
      // The sums so far fade while the weights are made.
      wait_use(barriers.faded(n), n);
      const auto* fades = reinterpret_cast<const float*>(shared + kFadesAt) + n % 2 * kH + r;
      const RowPair fade = {fades[0], fades[8]};
      if (tile > 0 && __any_sync(0xFFFFFFFFu, fade.v[0] != 1.0f || fade.v[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < 128; ++i) o[i / 64][i % 64] = o[i / 64][i % 64] * fade.v[i / 2 % 2];
      }
      wait_use(barriers.weighed(n), n);
      if (tile + 1 == tiles) {
        const auto* factors = reinterpret_cast<const float*>(shared + kFactorsAt) + n % 2 * kH + r;
        factor = {factors[0], factors[8]};
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
      shared_barrier_init(barriers.faded(b), kScorers / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __syncthreads();
  follow_previous(job.overlap);
  // 640 times the 96 registers that the block starts with.
  if (threadIdx.x < kScorers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 64;\n");
    score_rows(job, shared, shared_at, barriers);
  } else if (threadIdx.x < kScorers + kMixers) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;\n");
    mix_rows(job, shared, shared_at, barriers);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 48;\n");
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
