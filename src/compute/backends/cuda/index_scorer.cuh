#pragma once

#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/index_job.cuh"

// Scores of 32 heads of 128 on the integer matrix units. A product of two codes (e2m1 values times
// two) is a small integer, and one instruction sums exactly the 32 of a scale group, so that groups
// and heads can then be added in the reference's order: its bits.
//
// A warp scores 16 keys of any scales against one row. Its lanes hold, of every group, four codes
// each of keys `lane / 4` and + 8; of the products, those keys with the eight heads 8 (lane % 4)
// ... + 7.
namespace hadal::cuda {
inline constexpr int kHeads = 32;
inline constexpr int kGroups = 4;

// Four nibbles at a time to e2m1 values times two plus 12: unsigned bytes. In a byte permutation a
// selector with its high bit set gives the selected byte's sign, 0 here; so one look-up answers for
// the positive codes and one for the negative ones.
__device__ __forceinline__ uint32_t permuted(uint32_t low, uint32_t high, uint32_t nibbles) {
  uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(out) : "r"(low), "r"(high), "r"(nibbles));
  return out;
}
__device__ __forceinline__ uint32_t shifted(uint32_t nibbles, uint32_t flipped) {
  return permuted(0x0F0E0D0Cu, 0x18141210u, nibbles) | permuted(0x090A0B0Cu, 0x00040608u, flipped);
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
inline constexpr int32_t kFloatBias = 0x4B400000;
inline constexpr float kFloatOffset = 12582912.0f;

struct Keys {
  uint32_t codes[2][kGroups];
  uint32_t scales[2];  // a byte a group
};

// A row's query as its products take it, in shared memory.
struct Query {
  uint2 b[kHeads / 8][kGroups][32];  // by lane
  // Of the two columns of a lane's quad place: a quarter of the group's scale, and kFloatOffset
  // plus what the shift of the keys adds.
  float4 scale_offset[kHeads / 8][kGroups][4];
  float2 weight[kHeads / 8][4];
};

struct Scorer {
  const IndexJob& job;
  const uint32_t* table;
  int lane;

  // Head of the product column `column` of the n-th group of eight.
  __device__ static int head(int n, int column) { return column / 2 * 8 + 2 * n + column % 2; }

  // The n-th group of eight heads, by a warp.
  __device__ __forceinline__ void prepare(int row, int n, Query& q) const {
    const uint8_t* iq = job.iq + row * job.iq_stride;
    constexpr int kRecord = 68;
    const uint8_t* record = iq + head(n, lane / 4) * kRecord;
    uint32_t words[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
      words[g] = __ldg(reinterpret_cast<const uint32_t*>(record + 16 * g + lane % 4 * 4));
    uint32_t scales[2];
    float weight[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int h = head(n, lane % 4 * 2 + j);
      scales[j] = __ldg(reinterpret_cast<const uint32_t*>(iq + h * kRecord + 64));
      weight[j] = snap_bf16(job.hw[row * job.hw_stride + h]);
    }
    if (lane < 4) q.weight[n][lane] = {weight[0], weight[1]};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const uint2 b = {doubled(words[g] & 0xFFFFu), doubled(words[g] >> 16)};
      q.b[n][g][lane] = b;
      // Sum of the column's 32 codes, of which the four lanes of a quad hold eight each.
      int sum = __dp4a(static_cast<int>(b.x), 0x01010101, 0);
      sum = __dp4a(static_cast<int>(b.y), 0x01010101, sum);
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
      float scale[2], offset[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {  // this lane's product columns, from the quad that has them
        offset[j] = kFloatOffset +
                    static_cast<float>(12 * __shfl_sync(0xFFFFFFFFu, sum, (lane % 4 * 2 + j) * 4));
        scale[j] = e8m0_to_float(scales[j] >> 8 * g & 0xFFu) * 0.25f;
      }
      if (lane < 4) q.scale_offset[n][g][lane] = {scale[0], scale[1], offset[0], offset[1]};
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
        const uint2 b = q.b[n][g][lane];
        multiply(c, a[g], b.x, b.y);
        const float4 so = q.scale_offset[n][g][lane % 4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float sum = __int_as_float(c[i]) - (i % 2 == 0 ? so.z : so.w);
          // The product is exact, so the fused sum rounds once, as the reference's does.
          dot[i / 2][i % 2] =
              fmaf(sum, scale[i / 2][g] * (i % 2 == 0 ? so.x : so.y), dot[i / 2][i % 2]);
        }
      }
      const float2 weight = q.weight[n][lane % 4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        term[i / 2][2 * n + i % 2] =
            fmaxf(dot[i / 2][i % 2], 0.0f) * (i % 2 == 0 ? weight.x : weight.y);
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

}  // namespace hadal::cuda
