#pragma once

#include "compute/backends/cuda/index_scorer.cuh"

// Scores whose groups are added before they are scaled. Where the scales of a key's four groups lie
// within a factor of four of each other, and those of a query's head within eight, every sum of the
// reference is an integer below 2^24 times a power of two: exact in any order. So the codes are
// shifted to the smallest scale of their key or head, all 128 products of a key and a head are one
// sum of integers, and the two powers of two come last: the reference's bits. Other keys and rows
// go the long way (index_scorer.cuh).
//
// A warp's turn is 32 keys. Lane 4 r + c has the codes of group c of keys r, r + 8, r + 16, r + 24:
// 16 bytes of each, and the scales of key r + 8 c.
namespace hadal::cuda {

inline constexpr int kTurn = 32;        // keys
inline constexpr int kTermStride = 36;  // floats a key of a warp's terms: no bank conflicts
inline constexpr uint32_t kMostKeyShift = 2, kMostHeadShift = 3;
// Scales and weights are at most 2^24 away from 1, so that no product leaves the normal numbers.
inline constexpr uint32_t kLeastExponent = 127 - 24, kExponents = 48;

__device__ __forceinline__ uint32_t byte_of(uint32_t x, int i) {
  return x >> 8 * i & 0xFFu;
}

// Four exponents relative to the least of them; whether they are close and moderate.
struct Spread {
  uint32_t least, shifts;
  bool fits;
  __device__ __forceinline__ Spread(uint32_t scales, uint32_t most) {
    const uint32_t a = byte_of(scales, 0), b = byte_of(scales, 1);
    const uint32_t c = byte_of(scales, 2), d = byte_of(scales, 3);
    least = min(min(a, b), min(c, d));
    const uint32_t highest = max(max(a, b), max(c, d));
    shifts = scales - least * 0x01010101u;
    fits = highest - least <= most && least - kLeastExponent <= kExponents;
  }
};

// What a lane keeps of a row's query: of the n-th eight heads (Scorer::head) the codes of group
// lane % 4 of column lane / 4, and of its two product columns what the keys' shift adds and the
// weight times the head's scale.
struct JointQuery {
  uint2 b[kHeads / 8][kGroups];
  float4 offset_weight[kHeads / 8];
};
// The same on its way from the warps that prepare it.
struct JointStage {
  uint2 b[kHeads / 8][kGroups][32];
  float4 offset_weight[kHeads / 8][4];
};

// Every code of the keys is shifted by this.
inline constexpr uint32_t kKeyOffset = 48;

// The n-th eight heads, by a warp; whether they fit.
__device__ __forceinline__ bool prepare_joint(const IndexJob& job, int row, int n, int lane,
                                              JointStage& stage) {
  constexpr int kRecord = 68;
  const uint8_t* iq = job.iq + row * job.iq_stride;
  const uint8_t* record = iq + Scorer::head(n, lane / 4) * kRecord;
  const Spread column(__ldg(reinterpret_cast<const uint32_t*>(record + 64)), kMostHeadShift);
  const uint32_t shift = byte_of(column.shifts, lane % 4) & 7u;
  const uint32_t stays = (0xFFu << shift & 0xFFu) * 0x01010101u;
  int sum = 0;
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const uint32_t word = __ldg(reinterpret_cast<const uint32_t*>(record + lane % 4 * 16 + 4 * j));
    const uint2 b = {doubled(word & 0xFFFFu) << shift & stays,
                     doubled(word >> 16) << shift & stays};
    stage.b[n][j][lane] = b;
    sum = __dp4a(static_cast<int>(b.x), 0x01010101, sum);
    sum = __dp4a(static_cast<int>(b.y), 0x01010101, sum);
  }
  sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
  sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
  float offset[2], weight[2];
  bool fits = column.fits;
#pragma unroll
  for (int j = 0; j < 2; ++j) {  // this lane's product columns
    const int at = lane % 4 * 2 + j, h = Scorer::head(n, at);
    offset[j] = kFloatOffset + static_cast<float>(static_cast<int>(kKeyOffset) *
                                                  __shfl_sync(0xFFFFFFFFu, sum, at * 4));
    const uint32_t least = __shfl_sync(0xFFFFFFFFu, column.least, at * 4);
    const float w = snap_bf16(job.hw[row * job.hw_stride + h]);
    const uint32_t exponent = __float_as_uint(w) >> 23 & 0xFFu;
    fits = fits && (w == 0.0f || exponent - kLeastExponent <= kExponents);
    weight[j] = w * (e8m0_to_float(least) * 0.25f);
  }
  if (lane < 4) stage.offset_weight[n][lane] = {offset[0], offset[1], weight[0], weight[1]};
  return __all_sync(0xFFFFFFFFu, fits) != 0;
}

struct TurnKeys {
  uint4 codes[kTurn / 8];
  uint32_t scales;
};

__device__ __forceinline__ uint4 sixteen_bytes(const uint8_t* from, bool aligned) {
  if (aligned) return __ldg(reinterpret_cast<const uint4*>(from));
  const auto* words = reinterpret_cast<const uint32_t*>(from);
  return {__ldg(words), __ldg(words + 1), __ldg(words + 2), __ldg(words + 3)};
}

// Blocks of the cache hold a multiple of 32 entries, so keys that follow each other in number lie
// together; those of a pool do in eights.
__device__ __forceinline__ TurnKeys load_turn(const IndexJob& job, const Domain& domain,
                                              const uint32_t* table, int first, int lane) {
  TurnKeys keys{};
  if (first >= domain.count) return keys;
  const SourceView& source = job.source;
  const auto slab_of = [&](int entry) {
    return source.slabs + static_cast<int64_t>(table[entry >> source.shift]) * source.slab_bytes;
  };
  const auto codes_at = [&](int entry) {
    return source.key_offset + (entry & (source.n_entries - 1)) * 64 + lane / 4 * 64 +
           lane % 4 * 16;
  };
  const auto scales_at = [&](int entry) {
    return source.key_scale_offset + (entry & (source.n_entries - 1)) * 4 + lane / 4 * 4;
  };
  if (domain.blocks == nullptr) {
    const uint8_t* slab = slab_of(first);
    const uint8_t* codes = slab + codes_at(first);
#pragma unroll
    for (int q = 0; q < kTurn / 8; ++q) keys.codes[q] = sixteen_bytes(codes + q * 512, job.aligned);
    keys.scales = __ldg(reinterpret_cast<const uint32_t*>(slab + scales_at(first) + lane % 4 * 32));
    return keys;
  }
#pragma unroll
  for (int q = 0; q < kTurn / 8; ++q) {
    if (first + 8 * q >= domain.count) break;
    const int entry = domain.entry(first + 8 * q);
    const uint8_t* slab = slab_of(entry);
    keys.codes[q] = sixteen_bytes(slab + codes_at(entry), job.aligned);
    if (q == lane % 4)
      keys.scales = __ldg(reinterpret_cast<const uint32_t*>(slab + scales_at(entry)));
  }
  return keys;
}

// The score of key `lane` of the turn, if `fits` says that all keys of the turn do. `terms` is the
// warp's own.
__device__ __forceinline__ float joint_score(const TurnKeys& keys, int n_keys, int lane,
                                             const JointQuery& query, float constant,
                                             float (*terms)[kTermStride], bool& fits) {
  const Spread own(keys.scales, kMostKeyShift);
  fits = __all_sync(0xFFFFFFFFu, own.fits || lane / 4 + lane % 4 * 8 >= n_keys) != 0;
  if (!fits) return 0;
#pragma unroll
  for (int t = 0; t < kTurn / 16; ++t) {
    uint32_t a[kGroups][4];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int q = 2 * t + e;
      const uint32_t shifts = __shfl_sync(0xFFFFFFFFu, own.shifts, (lane & ~3) + q);
      const uint32_t factor = 1u << (byte_of(shifts, lane % 4) & 3u);
      // Codes times two, shifted, plus 48, of the positive codes and of the negative ones (see
      // shifted() of index_scorer.cuh).
      const uint32_t p0 = 0x30303030u + factor * 0x03020100u;
      const uint32_t p1 = 0x30303030u + factor * 0x0C080604u;
      const uint32_t n0 = 0x30303030u - factor * 0x03020100u;
      const uint32_t n1 = 0x30303030u - factor * 0x0C080604u;
      const uint32_t words[kGroups] = {keys.codes[q].x, keys.codes[q].y, keys.codes[q].z,
                                       keys.codes[q].w};
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        const uint32_t word = words[j], flipped = word ^ 0x88888888u;
        a[j][e] = permuted(p0, p1, word) | permuted(n0, n1, flipped);
        a[j][2 + e] = permuted(p0, p1, word >> 16) | permuted(n0, n1, flipped >> 16);
      }
    }
    float term[2][kHeads / 4];
#pragma unroll
    for (int n = 0; n < kHeads / 8; ++n) {
      int32_t c[4] = {kFloatBias, kFloatBias, kFloatBias, kFloatBias};
#pragma unroll
      for (int j = 0; j < kGroups; ++j) multiply(c, a[j], query.b[n][j].x, query.b[n][j].y);
      const float4 ow = query.offset_weight[n];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        term[i / 2][2 * n + i % 2] =
            fmaxf(__int_as_float(c[i]) - (i % 2 == 0 ? ow.x : ow.y), 0.0f) *
            (i % 2 == 0 ? ow.z : ow.w);
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      auto* to = reinterpret_cast<float4*>(&terms[16 * t + 8 * e + lane / 4][lane % 4 * 8]);
      to[0] = {term[e][0], term[e][1], term[e][2], term[e][3]};
      to[1] = {term[e][4], term[e][5], term[e][6], term[e][7]};
    }
  }
  __syncwarp();
  // Key `lane`, heads in order.
  float total = 0;
  const auto* from = reinterpret_cast<const float4*>(terms[lane]);
#pragma unroll
  for (int i = 0; i < kHeads / 4; ++i) {
    const float4 four = from[i];
    total = total + four.x;
    total = total + four.y;
    total = total + four.z;
    total = total + four.w;
  }
  __syncwarp();
  const uint32_t least = __shfl_sync(0xFFFFFFFFu, own.least, lane % 8 * 4 + lane / 8);
  return total * e8m0_to_float(least) * constant;
}

}  // namespace hadal::cuda
