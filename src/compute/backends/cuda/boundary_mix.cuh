#pragma once

#include "compute/backends/cuda/boundary_terms.cuh"
#include "compute/backends/cuda/mix_pack.h"

// The mix of packed shapes. First kernel: block (part, tiles) multiplies one part of tiles of 16
// rows. Second: a warp per row adds the parts in their order and finishes the row.
namespace hadal::cuda {

inline constexpr int kFewTilesWarps = 3;   // of one tile, each 8 columns of the three pieces
inline constexpr int kManyTilesWarps = 4;  // each a tile of its own
inline constexpr int kFinishRows = 4;      // rows of a block, a warp each
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

// The product of one part and `kSets` sets of 8 columns (of 24) with one tile, written to `to`
// [16][24]. `set` is the first.
template <int kSets>
__device__ __forceinline__ void multiply_tile(const BoundaryTerms& p, int64_t first,
                                              int64_t channel, int stream, int n_units, int set,
                                              const uint4* weights, uint32_t arrived, float* to) {
  const int lane = threadIdx.x % 32, low = lane / 4, high = low + 8;
  const auto n = static_cast<int>(min(static_cast<int64_t>(kTileRows), p.n_mix - first));
  float d[kSets][3][4] = {};
  // One tile: all loads at once. Many: half of them, so that four blocks have room for registers.
  constexpr int kHeld = kSets == 1 ? kMaxUnits : kMaxUnits / 2;
#pragma unroll
  for (int begin = 0; begin < kMaxUnits; begin += kHeld) {
    uint4 x[kHeld][2];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int u = begin + i;
      const uint16_t* at =
          p.streams + (first * 4 + stream + u % 2) * p.d + channel + u / 2 * MixShape::kChunk;
      x[i][0] = x[i][1] = make_uint4(0, 0, 0, 0);
      if (u < n_units && low < n)
        x[i][0] = *reinterpret_cast<const uint4*>(at + static_cast<int64_t>(low) * 4 * p.d);
      if (u < n_units && high < n)
        x[i][1] = *reinterpret_cast<const uint4*>(at + static_cast<int64_t>(high) * 4 * p.d);
    }
    if (begin == 0) barrier_wait(arrived);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int u = begin + i;
      if (u >= n_units) break;
#pragma unroll
      for (int s = 0; s < kSets; ++s) {
#pragma unroll
        for (int piece = 0; piece < 3; ++piece)
          multiply_unit(d[s][piece], x[i][0], x[i][1],
                        weights[(u * 9 + piece * 3 + set + s) * 32 + lane]);
      }
    }
  }
#pragma unroll
  for (int s = 0; s < kSets; ++s) {
    float sum[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = d[s][0][i] + (d[s][1][i] + d[s][2][i]);
    float* at = to + (set + s) * 8 + lane % 4 * 2;
    if (low < n)
      *reinterpret_cast<float2*>(at + low * MixShape::kOutputs) = make_float2(sum[0], sum[1]);
    if (high < n)
      *reinterpret_cast<float2*>(at + high * MixShape::kOutputs) = make_float2(sum[2], sum[3]);
  }
}

template <bool kManyTiles>
__global__ void __launch_bounds__((kManyTiles ? kManyTilesWarps : kFewTilesWarps) * 32,
                                  kManyTiles ? 4 : 1)
    boundary_mix_kernel(BoundaryTerms p, MixShape shape) {
  extern __shared__ __align__(128) uint4 weights[];  // [units][9][32]
  __shared__ __align__(8) uint64_t arrived;
  asm volatile("griddepcontrol.launch_dependents;");
  const int group = blockIdx.x / MixShape::kParts, part = blockIdx.x % MixShape::kParts;
  const int first_chunk = group * MixShape::kGroupChunks;
  const int n_units = 2 * min(MixShape::kGroupChunks, shape.n_chunks() - first_chunk);
  const uint32_t barrier = smem_address(&arrived);
  if (threadIdx.x == 0) {
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
  const int warp = threadIdx.x / 32;
  const int64_t channel =
      first_chunk * MixShape::kChunk + part / 2 * 32 + static_cast<int64_t>(threadIdx.x % 4) * 8;
  const int n_parts = shape.n_groups() * MixShape::kParts;
  const int step = gridDim.y * (kManyTiles ? kManyTilesWarps : 1);
  for (int tile = blockIdx.y + (kManyTiles ? warp * gridDim.y : 0); tile < p.n_tiles();
       tile += step) {
    float* to = p.partial + (static_cast<int64_t>(tile) * n_parts + blockIdx.x) * kTileRows *
                                MixShape::kOutputs;
    multiply_tile<kManyTiles ? 3 : 1>(p, static_cast<int64_t>(tile) * kTileRows, channel,
                                      part % 2 * 2, n_units, kManyTiles ? 0 : warp, weights,
                                      barrier, to);
  }
}

// The sum over all parts of a tile for one row and output: absent groups count as zero.
__device__ __forceinline__ float sum_parts(const float* from, int n_groups) {
  constexpr int kPart = kTileRows * MixShape::kOutputs;
  // One address and constant distances, not one address computed anew for each of 64 loads.
  asm volatile("" : "+l"(from));
  float v[MixShape::kMaxSlices][MixShape::kParts][2];
#pragma unroll
  for (int s = 0; s < MixShape::kMaxSlices; ++s) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int group = 2 * s + i;
#pragma unroll
      for (int part = 0; part < MixShape::kParts; ++part) {
        v[s][part][i] =
            group < n_groups ? __ldcg(from + (group * MixShape::kParts + part) * kPart) : 0;
      }
    }
  }
  float total = 0;
#pragma unroll
  for (int s = 0; s < MixShape::kMaxSlices; ++s) {
    float slice = v[s][0][0] + v[s][0][1];
#pragma unroll
    for (int part = 1; part < MixShape::kParts; ++part) slice += v[s][part][0] + v[s][part][1];
    total += slice;
  }
  return total;
}

// pre, post and comb of a row. Lanes 0 to 23 have its outputs, lanes 8 to 23 then those of comb.
__global__ void __launch_bounds__(kFinishRows * 32)
    boundary_finish_kernel(BoundaryTerms p, MixShape shape) {
  constexpr uint32_t kAll = 0xFFFFFFFFu;
  constexpr int kOut = MixShape::kOutputs;
  const int lane = threadIdx.x % 32, output = min(lane, kOut - 1);
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kFinishRows + threadIdx.x / 32;
  const SiteTerm site = site_term(p, 4, output);
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (t >= p.n_mix) return;
  const int64_t tile = t / kTileRows;
  const float* from = p.partial + tile * shape.n_groups() * MixShape::kParts * kTileRows * kOut +
                      t % kTileRows * kOut + output;
  const float mean = __fdiv_rn(__ldcg(p.squares + t), static_cast<float>(4 * p.d));
  const float r = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, p.norm_eps)));
  const float m = __fmul_rn(sum_parts(from, shape.n_groups()), r);
  const float logit = lane < kOut ? mix_term(p, t, 4, output, m, site) : 0;
  float top = fmaxf(logit, __shfl_xor_sync(kAll, logit, 1));
  top = fmaxf(top, __shfl_xor_sync(kAll, top, 2));
  const float e = expf(logit - top);
  float sum = e + __shfl_xor_sync(kAll, e, 1);
  sum += __shfl_xor_sync(kAll, sum, 2);
  const float start = __fadd_rn(__fdiv_rn(e, sum), p.hc_eps);
  float a[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) a[i] = __shfl_sync(kAll, start, 8 + i);
  sinkhorn<4>(a, p.sinkhorn_iters, p.hc_eps);
  if (lane != 0) return;
  auto* comb = reinterpret_cast<float4*>(p.comb + t * 16);
#pragma unroll
  for (int j = 0; j < 4; ++j) comb[j] = {a[4 * j], a[4 * j + 1], a[4 * j + 2], a[4 * j + 3]};
}

}  // namespace hadal::cuda
