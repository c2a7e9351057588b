#pragma once

#include "compute/backends/cuda/boundary_terms.cuh"
#include "compute/backends/cuda/mix_pack.h"

// The mix of packed shapes: block (part, tiles) multiplies one part of tiles of 16 rows; the last
// block of a tile adds the parts in their order and finishes the rows.
namespace hadal::cuda {

inline constexpr int kMixThreads = 128;  // three warps multiply, all finish
inline constexpr int kMaxUnits = 2 * MixShape::kGroupChunks;
inline constexpr int kMixSmem = kMaxUnits * MixShape::kUnitBytes;

// d += a b, 16 x 8 x 16: rows of a tile by columns of the weights, bf16, f32 sums.
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// One unit: 32 channels as two instructions. `low` and `high` are channels 8 t to 8 t + 7 of the
// rows g and g + 8; which channel stands at which k of an instruction is the same on both sides.
__device__ __forceinline__ void multiply_unit(float (&d)[4], uint4 low, uint4 high, uint4 b) {
  multiply(d, {low.x, high.x, low.y, high.y}, b.x, b.y);
  multiply(d, {low.z, high.z, low.w, high.w}, b.z, b.w);
}

__device__ __forceinline__ uint32_t smem_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier)
      : "memory");
}

// The sum over all parts of a tile, for row `row` and output `i`.
__device__ __forceinline__ float sum_parts(const float* tile, int n_groups, int row, int i) {
  constexpr int kPart = kTileRows * MixShape::kOutputs;
  const float* from = tile + row * MixShape::kOutputs + i;
  float total = 0;
#pragma unroll 4
  for (int group = 0; group < n_groups; group += 2) {
    float slice = 0;
#pragma unroll
    for (int part = 0; part < MixShape::kParts; ++part) {
      float s = __ldcg(from + (group * MixShape::kParts + part) * kPart);
      if (group + 1 < n_groups) s += __ldcg(from + ((group + 1) * MixShape::kParts + part) * kPart);
      slice = part == 0 ? s : slice + s;
    }
    total = group == 0 ? slice : total + slice;
  }
  return total;
}

// pre, post and comb of up to 16 rows from their mixed sums `m` [16][24] in shared memory, which
// must be complete. All threads of the block.
__device__ inline void finish_rows(const BoundaryTerms& p, int64_t first, int n, float* m) {
  constexpr int kOut = MixShape::kOutputs;
  for (int at = threadIdx.x; at < n * kOut; at += blockDim.x)
    m[at] = mix_term(p, first + at / kOut, 4, at % kOut, m[at]);
  __syncthreads();
  for (int at = threadIdx.x; at < n * 16; at += blockDim.x) {
    const float* row = m + at / 16 * kOut + 8 + at % 16 / 4 * 4;
    const float top = fmaxf(fmaxf(row[0], row[1]), fmaxf(row[2], row[3]));
    const auto e = static_cast<float>(exp_f64(row[at % 4] - top));
    p.comb[(first + at / 16) * 16 + at % 16] = e;
  }
  __syncthreads();
  if (threadIdx.x >= n) return;
  auto* comb = reinterpret_cast<float4*>(p.comb + (first + threadIdx.x) * 16);
  float a[16];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float4 v = comb[j];
    a[4 * j] = v.x, a[4 * j + 1] = v.y, a[4 * j + 2] = v.z, a[4 * j + 3] = v.w;
  }
  sinkhorn<4>(a, p.sinkhorn_iters, p.hc_eps);
#pragma unroll
  for (int j = 0; j < 4; ++j) comb[j] = {a[4 * j], a[4 * j + 1], a[4 * j + 2], a[4 * j + 3]};
}

__global__ void __launch_bounds__(kMixThreads)
    boundary_mix_kernel(BoundaryTerms p, MixShape shape, int tiles_per_block) {
  constexpr int kOut = MixShape::kOutputs;
  extern __shared__ __align__(128) uint4 weights[];  // [units][9][32]
  __shared__ __align__(8) uint64_t arrived;
  __shared__ float m[kTileRows * kOut];
  __shared__ bool is_last;
  const int group = blockIdx.x / MixShape::kParts, part = blockIdx.x % MixShape::kParts;
  const int first_chunk = group * MixShape::kGroupChunks;
  const int n_chunks = min(MixShape::kGroupChunks, shape.n_chunks() - first_chunk);
  const int n_units = 2 * n_chunks;
  if (threadIdx.x == 0) {
    const uint32_t barrier = smem_address(&arrived);
    const std::byte* from =
        p.mix + static_cast<int64_t>(first_chunk * 8 + part * n_units) * MixShape::kUnitBytes;
    const uint32_t bytes = n_units * MixShape::kUnitBytes;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(bytes));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(smem_address(weights)),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
  }
  __syncthreads();
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t channel =
      first_chunk * MixShape::kChunk + part / 2 * 32 + static_cast<int64_t>(lane % 4) * 8;
  const int n_parts = shape.n_groups() * MixShape::kParts;
  const int end = min(p.n_tiles(), static_cast<int>(blockIdx.y + 1) * tiles_per_block);
  for (int tile = blockIdx.y * tiles_per_block; tile < end; ++tile) {
    const int64_t first = static_cast<int64_t>(tile) * kTileRows;
    const int n = static_cast<int>(min(static_cast<int64_t>(kTileRows), p.n_mix - first));
    if (warp < 3) {
      const int low = lane / 4, high = low + 8;
      uint4 x[kMaxUnits][2];
#pragma unroll
      for (int u = 0; u < kMaxUnits; ++u) {
        const uint16_t* at = p.streams + (first * 4 + part % 2 * 2 + u % 2) * p.d + channel +
                             u / 2 * MixShape::kChunk;
        x[u][0] = x[u][1] = make_uint4(0, 0, 0, 0);
        if (u < n_units && low < n)
          x[u][0] = *reinterpret_cast<const uint4*>(at + static_cast<int64_t>(low) * 4 * p.d);
        if (u < n_units && high < n)
          x[u][1] = *reinterpret_cast<const uint4*>(at + static_cast<int64_t>(high) * 4 * p.d);
      }
      barrier_wait(smem_address(&arrived));
      float d[3][4] = {};
#pragma unroll
      for (int u = 0; u < kMaxUnits; ++u) {
        if (u >= n_units) break;
#pragma unroll
        for (int piece = 0; piece < 3; ++piece)
          multiply_unit(d[piece], x[u][0], x[u][1],
                        weights[(u * 9 + piece * 3 + warp) * 32 + lane]);
      }
      float* to = p.partial +
                  (static_cast<int64_t>(tile) * n_parts + blockIdx.x) * kTileRows * kOut +
                  warp * 8 + lane % 4 * 2;
      float sum[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] = d[0][i] + (d[1][i] + d[2][i]);
      if (low < n) *reinterpret_cast<float2*>(to + low * kOut) = make_float2(sum[0], sum[1]);
      if (high < n) *reinterpret_cast<float2*>(to + high * kOut) = make_float2(sum[2], sum[3]);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
      is_last = atomicAdd(p.tickets + tile, 1u) == static_cast<uint32_t>(n_parts) - 1;
    __syncthreads();
    if (!is_last) continue;
    __threadfence();
    const float* parts = p.partial + static_cast<int64_t>(tile) * n_parts * kTileRows * kOut;
    for (int at = threadIdx.x; at < n * kOut; at += kMixThreads) {
      const float mean = __fdiv_rn(p.squares[first + at / kOut], static_cast<float>(4 * p.d));
      const float r = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, p.norm_eps)));
      m[at] = __fmul_rn(sum_parts(parts, shape.n_groups(), at / kOut, at % kOut), r);
    }
    __syncthreads();
    finish_rows(p, first, n, m);
    __syncthreads();
  }
}

}  // namespace hadal::cuda
