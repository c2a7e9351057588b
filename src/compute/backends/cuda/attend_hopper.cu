#include <algorithm>

#include "compute/backends/cuda/attend_hopper.h"
#include "compute/backends/cuda/attend_tile.cuh"
#include "compute/backends/cuda/elements.cuh"

// One block walks rows; a row is 64 heads by 512 channels. Two warpgroups multiply: each scores
// half of a block's 64 keys, both weights meet in shared memory, and each sums 256 of the output's
// channels. A third warpgroup fetches the records of coming key blocks and writes them as bf16.
//
//   shared memory    Q 64 KiB | keys 2 x 64 KiB | weights 8 KiB | record addresses | maxima, sums
//
// Q, keys and weights lie in columns of 64 values (attend_mma.cuh). The order of every sum is fixed
// by the row's key list.
namespace hadal::cuda {
namespace {

constexpr int kMostPlaces = 1152;
constexpr int kConsumers = 256;
constexpr int kThreads = kConsumers + 128;
constexpr int kQAt = 0;
constexpr int kKeysAt = kTileBytes;
constexpr int kWeightsAt = 3 * kTileBytes;
constexpr int kAddressesAt = kWeightsAt + kColumnBytes;
constexpr int kMaximaAt = kAddressesAt + 2 * kMostPlaces * 8;
constexpr int kSumsAt = kMaximaAt + 2 * kH * 4;
constexpr int kBarriersAt = kSumsAt + 2 * kH * 4;
constexpr int kSharedBytes = kBarriersAt + 4 * 8 + 1024;  // room to align to 1024

// The fetching warpgroup's part of a unit of work: four keys of a warp, eight lanes a key, 32 bytes
// a lane: half of a window record or a whole entry.
struct Unit {
  uint4 codes[2];
  uint32_t scale[2];
};

struct Fetcher {
  const uint64_t* addresses;  // of this row's records, null: nothing there
  int warp, key_of_lane;
  int part;               // which eighth of a record's piece
  uint32_t window_chunk;  // where the lane's first stores go in its rows
  uint32_t entry_chunk;

  __device__ Fetcher(const uint64_t* a, int thread)
      : addresses(a), warp(thread / 32), key_of_lane(thread % 32 / 8), part(thread % 8) {
    // Lanes of a quarter warp that would meet in a bank begin with different chunks of their 128
    // bytes: the upper half of the window's lanes with the second one, the entries' by their
    // column.
    const int rows = (warp * 16 + key_of_lane) * 128;
    window_chunk = static_cast<uint32_t>(rows + part / 4 * kColumnBytes +
                                         ((part % 4 * 2 + part / 4) ^ key_of_lane) * 16);
    entry_chunk = static_cast<uint32_t>(rows + part / 2 * kColumnBytes +
                                        ((part % 2 * 4 + part / 2) ^ key_of_lane) * 16);
  }
  __device__ int key(int group) const { return warp * 16 + group * 4 + key_of_lane; }

  __device__ __forceinline__ Unit fetch(int tile, bool window, int unit) const {
    Unit u{};
    const int group = window ? unit / 2 : unit;
    const auto* record =
        reinterpret_cast<const uint8_t*>(addresses[tile * kBlockPlaces + key(group)]);
    if (record == nullptr) return u;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int piece = window ? unit % 2 * 2 + i : i;  // of 128 bytes
      u.codes[i] = fetch16(record + 128 * piece + 16 * part);
      u.scale[i] =
          window
              ? __ldg(record + kD + 4 * piece + part / 2)
              : __ldg(reinterpret_cast<const uint16_t*>(record + kD / 2 + 16 * piece + 2 * part));
    }
    return u;
  }

  __device__ __forceinline__ void store(const Unit& u, uint32_t tile_at, bool window,
                                        int unit) const {
    const int group = window ? unit / 2 : unit;
    const uint32_t rows_at = tile_at + group * 4 * 128, turn = group % 2 * 64;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (window)
        store_window(u.codes[i], u.scale[i], rows_at + (unit % 2 * 2 + i) * 2 * kColumnBytes,
                     window_chunk ^ turn);
      else
        store_entry(u.codes[i], u.scale[i], rows_at + i * 4 * kColumnBytes, entry_chunk ^ turn);
    }
  }

  __device__ __forceinline__ void store_window(const uint4& codes, uint32_t scale, uint32_t at,
                                               uint32_t chunk) const {
    const uint32_t factor = window_factor(scale);
    const bool swap = part >= 4;
    const uint32_t words[4] = {swap ? codes.z : codes.x, swap ? codes.w : codes.y,
                               swap ? codes.x : codes.z, swap ? codes.y : codes.w};
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      uint32_t out[4];
      decode_e4m3(words[2 * w], factor, out);
      decode_e4m3(words[2 * w + 1], factor, out + 2);
      store16(at + (chunk ^ 16u * w), out);
    }
  }

  __device__ __forceinline__ void store_entry(const uint4& codes, uint32_t scale, uint32_t at,
                                              uint32_t chunk) const {
    // Word w goes to chunk w ^ (part / 2) of the lane's four.
    uint4 c = codes;
    uint32_t low = scale & 0xFFu, high = scale >> 8;
    if ((part & 2) != 0) c = {c.y, c.x, c.w, c.z};
    if ((part & 4) != 0) {
      c = {c.z, c.w, c.x, c.y};
      const uint32_t s = low;
      low = high;
      high = s;
    }
    const uint32_t factors[2] = {entry_factor(low), entry_factor(high)};
    const uint32_t words[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t out[4];
      decode_e2m1(words[w], factors[w / 2], out);
      store16(at + (chunk ^ 16u * w), out);
    }
  }
};

__device__ __forceinline__ int tiles_of(int n_places) {
  return (n_places + kBlockPlaces - 1) / kBlockPlaces;
}

struct Barriers {
  uint32_t at;
  __device__ uint32_t full(int buffer) const { return at + 8 * buffer; }
  __device__ uint32_t empty(int buffer) const { return at + 16 + 8 * buffer; }
};

__device__ void fetch_rows(const AttendJob& job, uint8_t* shared, uint32_t shared_at,
                           Barriers barriers) {
  const int thread = static_cast<int>(threadIdx.x) - kConsumers, lane = thread % 32;
  int n = 0, parity = 0;  // key blocks so far; which address list
  for (int row = static_cast<int>(blockIdx.x); row < job.n_rows;
       row += static_cast<int>(gridDim.x), parity ^= 1) {
    auto* addresses = reinterpret_cast<uint64_t*>(shared + kAddressesAt) + parity * kMostPlaces;
    const RowKeys keys(job, row);
    const int tiles = tiles_of(keys.n_places());
    // The block two before is done with, and with it the last row that used this address list.
    if (n >= 2) barrier_wait(barriers.empty(n % 2), (n / 2 - 1) % 2);
    for (int p = thread; p < tiles * kBlockPlaces; p += 128)
      addresses[p] = reinterpret_cast<uint64_t>(keys.record(p));
    named_barrier(2, 128);
    const Fetcher fetcher(addresses, thread);
    Unit units[4];
#pragma unroll
    for (int s = 0; s < 4; ++s) units[s] = fetcher.fetch(0, keys.is_window(0), s);
    for (int tile = 0; tile < tiles; ++tile, ++n) {
      const bool window = keys.is_window(tile * kBlockPlaces);
      const uint32_t tile_at = shared_at + kKeysAt + n % 2 * kTileBytes;
      if (n >= 2) barrier_wait(barriers.empty(n % 2), (n / 2 - 1) % 2);
      const int rounds = window ? 2 : 1;
      for (int round = 0; round < rounds; ++round) {
        const bool next_tile = round + 1 == rounds;
        const int to = next_tile ? tile + 1 : tile;
        const bool to_window = keys.is_window(to * kBlockPlaces);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          fetcher.store(units[s], tile_at, window, round * 4 + s);
          if (to < tiles) units[s] = fetcher.fetch(to, to_window, next_tile ? s : 4 + s);
        }
      }
      fence_async();
      __syncwarp();
      if (lane == 0) barrier_arrive(barriers.full(n % 2));
    }
  }
}

__device__ void copy_q(const AttendJob& job, int row, uint32_t shared_at) {
  const uint16_t* q = job.q + row * job.q_stride;
#pragma unroll
  for (int i = 0; i < kH * kD / 8 / kConsumers; ++i) {
    const int piece = i * kConsumers + static_cast<int>(threadIdx.x);  // of 16 bytes
    const int h = piece / (kD / 8), c = piece % (kD / 8) * 8;
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(shared_at + kQAt + place_of(h, c)),
        "l"(q + h * kD + c)
        : "memory");
  }
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Two rows of the 64 that a thread of a multiplying warpgroup has a part of: r and r + 8.
struct RowPair {
  float v[2];
};

struct Consumer {
  const AttendJob& job;
  uint8_t* shared;
  uint32_t shared_at;
  int half;     // which warpgroup: keys 32 half ..., channels 256 half ...
  int lane, r;  // r: the first of the thread's rows
  float o[128];
  RowPair max, den;

  // Scores of this half of the block's keys, scaled; -inf where no key is.
  __device__ __forceinline__ void score(uint32_t keys_at, const uint64_t* addresses,
                                        float (&s)[16]) {
    mma_fence();
    for (int c = 0; c < kD / 64; ++c) {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        mma_n32(s, k_major_operand(shared_at + kQAt + c * kColumnBytes + 32 * k),
                k_major_operand(keys_at + c * kColumnBytes + half * 32 * 128 + 32 * k),
                c > 0 || k > 0);
    }
    mma_commit();
    const uint32_t there =
        __ballot_sync(0xFFFFFFFFu, addresses[half * 32 + lane] != 0) >> 2 * (lane % 4);
    mma_wait();
    settle(s);
    const float scale = job.scale * kRecordUnscale;
#pragma unroll
    for (int i = 0; i < 16; ++i)
      s[i] = (there >> (8 * (i / 4) + i % 2) & 1) != 0 ? s[i] * scale : -INFINITY;
  }

  // Running maximum over the whole block: both halves meet.
  __device__ __forceinline__ RowPair raise_max(const float (&s)[16]) {
    auto* maxima = reinterpret_cast<float*>(shared + kMaximaAt);
    RowPair top;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float m = -INFINITY;
#pragma unroll
      for (int j = 0; j < 4; ++j) m = fmaxf(m, fmaxf(s[4 * j + 2 * e], s[4 * j + 2 * e + 1]));
      top.v[e] = quad_max(m);
      if (lane % 4 == 0) maxima[half * kH + r + 8 * e] = top.v[e];
    }
    named_barrier(1, kConsumers);
#pragma unroll
    for (int e = 0; e < 2; ++e)
      top.v[e] = fmaxf(max.v[e], fmaxf(top.v[e], maxima[(1 - half) * kH + r + 8 * e]));
    return top;
  }

  // Weights into shared memory as bf16, sums, and what earlier sums fade by.
  __device__ __forceinline__ void weigh(const float (&s)[16], const RowPair& top) {
    RowPair fade, sum;
    const uint32_t weights_at = shared_at + kWeightsAt;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      fade.v[e] = exp2_fast((max.v[e] - top.v[e]) * kLog2e);
      float part[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float a = exp2_fast((s[4 * j + 2 * e] - top.v[e]) * kLog2e);
        const float b = exp2_fast((s[4 * j + 2 * e + 1] - top.v[e]) * kLog2e);
        part[j] = a + b;
        const __nv_bfloat162 pair = __floats2bfloat162_rn(a * kRecordUnscale, b * kRecordUnscale);
        const int c = 32 * half + 8 * j + 2 * (lane % 4);
        asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(weights_at + place_of(r + 8 * e, c)),
                     "r"(*reinterpret_cast<const uint32_t*>(&pair))
                     : "memory");
      }
      sum.v[e] = quad_sum((part[0] + part[1]) + (part[2] + part[3]));
      den.v[e] = den.v[e] * fade.v[e] + sum.v[e];
    }
    max = top;
    fence_async();
    if (__any_sync(0xFFFFFFFFu, fade.v[0] != 1.0f || fade.v[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < 128; ++i) o[i] = o[i] * fade.v[i / 2 % 2];
    }
    named_barrier(1, kConsumers);
  }

  __device__ __forceinline__ void mix(uint32_t keys_at) {
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      mma_n256(o, k_major_operand(shared_at + kWeightsAt + 32 * k),
               m_major_operand(keys_at + half * 4 * kColumnBytes + k * 16 * 128, kColumnBytes),
               true);
    mma_commit();
    mma_wait();
    settle(o);
  }

  // Divides, rotates back and stores a row.
  __device__ __forceinline__ void finish(int row) {
    auto* sums = reinterpret_cast<float*>(shared + kSumsAt);
    if (lane % 4 == 0)
      for (int e = 0; e < 2; ++e) sums[half * kH + r + 8 * e] = den.v[e];
    named_barrier(1, kConsumers);
    const float* angles = job.rope + static_cast<int64_t>(row) * job.d_rope;
    const int column = 2 * (lane % 4);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int h = r + 8 * e;
      const float all = (sums[h] + sums[kH + h]) + exp2_fast((job.sink[h] - max.v[e]) * kLog2e);
      uint16_t* out = job.o + row * job.o_stride + h * kD + half * 256;
#pragma unroll
      for (int j = 0; j < 32; ++j) {
        float x0 = snap_bf16(__fdiv_rn(o[4 * j + 2 * e], all));
        float x1 = snap_bf16(__fdiv_rn(o[4 * j + 2 * e + 1], all));
        const int at = half * 256 + 8 * j + column - (kD - job.d_rope);
        if (at >= 0) {
          const float c = angles[at], s = -angles[at + 1], x = x0;
          x0 = x * c - x1 * s;
          x1 = x * s + x1 * c;
        }
        *reinterpret_cast<uint32_t*>(out + 8 * j + column) = bf16_pair(x0, x1);
      }
    }
  }
};

__device__ void multiply_rows(const AttendJob& job, uint8_t* shared, uint32_t shared_at,
                              Barriers barriers) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  Consumer c{job, shared, shared_at, thread / 128, lane, thread % 128 / 32 * 16 + lane / 4,
             {},  {},     {}};
  int n = 0, parity = 0;
  copy_q(job, static_cast<int>(blockIdx.x), shared_at);
  for (int row = static_cast<int>(blockIdx.x); row < job.n_rows;
       row += static_cast<int>(gridDim.x), parity ^= 1) {
    const auto* addresses =
        reinterpret_cast<const uint64_t*>(shared + kAddressesAt) + parity * kMostPlaces;
    const int tiles = tiles_of(RowKeys(job, row).n_places());
#pragma unroll
    for (int i = 0; i < 128; ++i) c.o[i] = 0;
    c.max = {-1e30f, -1e30f};
    c.den = {0, 0};
    asm volatile("cp.async.wait_all;\n" ::: "memory");
    fence_async();
    named_barrier(1, kConsumers);
    for (int tile = 0; tile < tiles; ++tile, ++n) {
      const uint32_t keys_at = shared_at + kKeysAt + n % 2 * kTileBytes;
      barrier_wait(barriers.full(n % 2), n / 2 % 2);
      float s[16];
      c.score(keys_at, addresses + tile * kBlockPlaces, s);
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
      barrier_init(barriers.full(b), 4);                 // fetching warps
      barrier_init(barriers.empty(b), kConsumers / 32);  // multiplying warps
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __syncthreads();
  // 256 threads of 208 registers and 128 of 88 are the 384 of 168 that the block starts with.
  if (threadIdx.x < kConsumers) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;\n");
    multiply_rows(job, shared, shared_at, barriers);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 88;\n");
    fetch_rows(job, shared, shared_at, barriers);
  }
}

bool aligned16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

}  // namespace

bool attend_hopper_takes(const AttendJob& job, int most_places, const Gpu& gpu) {
  return gpu.cc_major == 9 && gpu.smem_optin >= kSharedBytes && job.n_heads == kH &&
         job.d_head == kD && job.window % kBlockPlaces == 0 && most_places <= kMostPlaces &&
         job.q_stride % 8 == 0 && aligned16(job.q) && job.window_bytes % 16 == 0 &&
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
  attend_hopper_kernel<<<grid, kThreads, kSharedBytes, stream>>>(job);
}

}  // namespace hadal::cuda
