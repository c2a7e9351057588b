#include <algorithm>

#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/index_fast.h"

// Scores of 32 heads of 128 on the integer matrix units. A product of two codes (e2m1 values times
// two) is a small integer, and one instruction sums exactly the 32 of a scale group, so that groups
// and heads can then be added in the reference's order: its bits.
//
// A warp scores 16 keys against one row. Its lanes hold, of every group, four codes each of keys
// `lane / 4` and + 8; of the products, those keys with the eight heads 8 (lane % 4) ... + 7.
namespace hadal::cuda {
namespace {

constexpr int kHeads = 32;
constexpr int kGroups = 4;
constexpr int kWarps = 4;
constexpr int kTile = 16;  // keys of a warp's turn

// Four nibbles at a time to e2m1 values times two plus 12: unsigned bytes. In a byte permutation a
// selector with its high bit set gives the selected byte's sign, 0 here; so one look-up answers for
// the positive codes and one for the negative ones.
__device__ __forceinline__ uint32_t shifted(uint32_t nibbles, uint32_t flipped) {
  uint32_t positive, negative;
  asm("prmt.b32 %0, %1, %2, %3;\n"
      : "=r"(positive)
      : "r"(0x0F0E0D0Cu), "r"(0x18141210u), "r"(nibbles));
  asm("prmt.b32 %0, %1, %2, %3;\n"
      : "=r"(negative)
      : "r"(0x090A0B0Cu), "r"(0x00040608u), "r"(flipped));
  return positive | negative;
}
// The same as signed bytes without the shift.
__device__ __forceinline__ uint32_t doubled(uint32_t nibbles) {
  return __vsub4(shifted(nibbles, nibbles ^ 0x8888u), 0x0C0C0C0Cu);
}

// c += a b over 32 codes: a unsigned [16 keys][32], b signed [32][8 heads].
__device__ __forceinline__ void multiply(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// An integer n below 2^22 in size, added to this as an integer, reads as the float 1.5 2^23 + n.
constexpr int32_t kFloatBias = 0x4B400000;
constexpr float kFloatOffset = 12582912.0f;

struct Keys {
  uint32_t codes[2][kGroups];
  uint32_t scales[2];  // a byte a group
};

struct Query {
  uint32_t b[kHeads / 8][kGroups][2];
  float scale[kHeads / 8][2][kGroups];   // a quarter of the group's
  float offset[kHeads / 8][2][kGroups];  // kFloatOffset plus what the shift of the keys adds
  float weight[kHeads / 8][2];
};

struct Scorer {
  const IndexJob& job;
  const uint32_t* table;
  int lane;

  // Head of the product column `column` of the n-th group of eight.
  __device__ static int head(int n, int column) { return column / 2 * 8 + 2 * n + column % 2; }

  __device__ __forceinline__ void load_query(int row, Query& q) const {
    const uint8_t* iq = job.iq + row * job.iq_stride;
    constexpr int kRecord = 68;
#pragma unroll
    for (int n = 0; n < kHeads / 8; ++n) {
      const uint8_t* record = iq + head(n, lane / 4) * kRecord;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const uint32_t word = *reinterpret_cast<const uint32_t*>(record + 16 * g + lane % 4 * 4);
        q.b[n][g][0] = doubled(word & 0xFFFFu);
        q.b[n][g][1] = doubled(word >> 16);
        // Sum of the column's 32 codes, of which the four lanes of a quad hold eight each.
        int sum = __dp4a(static_cast<int>(q.b[n][g][0]), 0x01010101, 0);
        sum = __dp4a(static_cast<int>(q.b[n][g][1]), 0x01010101, sum);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
#pragma unroll
        for (int j = 0; j < 2; ++j)  // this lane's product columns, from the quad that has them
          q.offset[n][j][g] =
              kFloatOffset +
              static_cast<float>(12 * __shfl_sync(0xFFFFFFFFu, sum, (lane % 4 * 2 + j) * 4));
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int h = head(n, lane % 4 * 2 + j);
        const uint32_t scales = *reinterpret_cast<const uint32_t*>(iq + h * kRecord + 64);
#pragma unroll
        for (int g = 0; g < kGroups; ++g)
          q.scale[n][j][g] = e8m0_to_float(scales >> 8 * g & 0xFFu) * 0.25f;
        q.weight[n][j] = snap_bf16(job.hw[row * job.hw_stride + h]);
      }
    }
  }

  __device__ __forceinline__ Keys load_keys(const Domain& domain, int first) const {
    Keys keys{};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int i = first + lane / 4 + 8 * e;
      if (i >= domain.count) break;
      const int entry = domain.entry(i);
      const int at = entry & (job.source.n_entries - 1);
      const uint8_t* slab =
          job.source.slabs +
          static_cast<int64_t>(table[entry >> job.source.shift]) * job.source.slab_bytes;
      const uint8_t* codes = slab + job.source.key_offset + at * 64 + lane % 4 * 4;
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        keys.codes[e][g] = __ldg(reinterpret_cast<const uint32_t*>(codes + 16 * g));
      keys.scales[e] =
          __ldg(reinterpret_cast<const uint32_t*>(slab + job.source.key_scale_offset + at * 4));
    }
    return keys;
  }

  // Scores of the lane's two keys, in lanes 3 of each quad.
  __device__ __forceinline__ void score(const Keys& keys, const Query& q, float (&out)[2]) const {
    uint32_t a[kGroups][4];
    float scale[2][kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const uint32_t word = keys.codes[e][g], flipped = word ^ 0x88888888u;
        a[g][e] = shifted(word, flipped);
        a[g][2 + e] = shifted(word >> 16, flipped >> 16);
        scale[e][g] = e8m0_to_float(keys.scales[e] >> 8 * g & 0xFFu);
      }
    }
    float term[2][kHeads / 4];  // relu times weight, heads in order
#pragma unroll
    for (int n = 0; n < kHeads / 8; ++n) {
      float dot[2][2] = {};
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        int32_t c[4] = {kFloatBias, kFloatBias, kFloatBias, kFloatBias};
        multiply(c, a[g], q.b[n][g][0], q.b[n][g][1]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float sum = __int_as_float(c[i]) - q.offset[n][i % 2][g];
          // The product is exact, so the fused sum rounds once, as the reference's does.
          dot[i / 2][i % 2] = fmaf(sum, scale[i / 2][g] * q.scale[n][i % 2][g], dot[i / 2][i % 2]);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        term[i / 2][2 * n + i % 2] = fmaxf(dot[i / 2][i % 2], 0.0f) * q.weight[n][i % 2];
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      // Lane after lane of the quad adds its eight heads to what the lane before it has.
      float total = 0;
#pragma unroll
      for (int turn = 0; turn < 4; ++turn) {
        const float before = __shfl_up_sync(0xFFFFFFFFu, total, 1, 4);
        float sum = turn == 0 ? 0.0f : before;
#pragma unroll
        for (int i = 0; i < kHeads / 4; ++i) sum = sum + term[e][i];
        total = lane % 4 == turn ? sum : total;
      }
      out[e] = total * job.constant;
    }
  }
};

// Warps of a block share a row's keys (warps_per_row 4), or take a row each of as many (1).
__global__ void __launch_bounds__(kWarps * 32, 2)
    score_mma_kernel(const __grid_constant__ IndexJob job, int warps_per_row, int n_rows) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int of_tile =
      static_cast<int>(blockIdx.y) * (kWarps / warps_per_row) + warp / warps_per_row;
  if (of_tile >= n_rows) return;
  const int row = job.first_row + of_tile;
  const Domain domain(job, row);
  if (trivial(job, row, domain)) return;
  int first = (static_cast<int>(blockIdx.x) * warps_per_row + warp % warps_per_row) * kTile;
  const int step = static_cast<int>(gridDim.x) * warps_per_row * kTile;
  if (first >= domain.count) return;
  const Scorer scorer{job, job.step.tables + job.step.seq(row).table_offset, lane};
  Keys keys = scorer.load_keys(domain, first);
  Query query;
  scorer.load_query(row, query);
  uint32_t* ranks = job.ranks + of_tile * job.stride;
  for (; first < domain.count; first += step) {
    const Keys now = keys;
    keys = scorer.load_keys(domain, first + step);
    float score[2];
    scorer.score(now, query, score);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int i = first + lane / 4 + 8 * e;
      if (lane % 4 == 3 && i < domain.count) ranks[i] = rank_of(score[e]);
    }
  }
}

}  // namespace

bool index_mma_takes(const IndexJob& job) {
  return job.n_heads == kHeads && job.d_index == 32 * kGroups && job.source.shift >= 0 &&
         job.source.key_offset % 4 == 0 && job.source.key_scale_offset % 4 == 0 &&
         job.source.slab_bytes % 4 == 0 && job.iq_stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(job.source.slabs) % 4 == 0 &&
         reinterpret_cast<uintptr_t>(job.iq) % 4 == 0;
}

void launch_score_mma(const IndexJob& job, int rows, const Gpu& gpu, cudaStream_t stream) {
  const int warps_per_row = rows <= 2 * gpu.sm_count ? kWarps : 1;
  const int in_y = (rows * warps_per_row + kWarps - 1) / kWarps;
  const int64_t keys = static_cast<int64_t>(warps_per_row) * kTile;
  const int64_t most = (job.stride + keys - 1) / keys;
  const int64_t wanted = std::max<int64_t>(1, (3 * gpu.sm_count + in_y - 1) / in_y);
  const dim3 grid(static_cast<unsigned>(std::min(most, wanted)), static_cast<unsigned>(in_y));
  score_mma_kernel<<<grid, kWarps * 32, 0, stream>>>(job, warps_per_row, rows);
}

}  // namespace hadal::cuda
