#include <cooperative_groups.h>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/attend_fetch.cuh"
#include "compute/backends/cuda/attend_hopper.h"
#include "compute/backends/cuda/attend_softmax.cuh"

// The same sums as attend_hopper.cu for a handful of rows, in a fraction of the time: a cluster of
// eight blocks shares a row. Block b scores key blocks b and b + 8; the blocks tell each other
// their maxima, then their weights; and each sums 64 channels of the output over all keys, in the
// order of the keys. So the bits are those of one block that walks them.
//
//   shared memory    Q 64 KiB | keys 64 KiB | 64 channels of all keys: 8 KiB a key block
//   later            weights: 8 KiB a key block, over Q and keys
namespace hadal::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kBlocks = 8;  // of a cluster; each has 64 of 512 channels
constexpr int kMostTiles = 10;
constexpr int kMostPlaces = kMostTiles * kBlockPlaces;
constexpr int kScorers = 256;  // two warpgroups; two more prepare the output's channels
constexpr int kThreads = 512;
constexpr int kQAt = 0;
constexpr int kKeysAt = kTileBytes;
constexpr int kWeightsAt = 0;
constexpr int kValuesAt = 2 * kTileBytes;
constexpr int kAddressesAt = kValuesAt + kMostTiles * kColumnBytes;
constexpr int kMaximaAt = kAddressesAt + kMostPlaces * 8;     // [kMostTiles][kH], all blocks'
constexpr int kSumsAt = kMaximaAt + kMostTiles * kH * 4;      // [kMostTiles][2][kH], all blocks'
constexpr int kHalvesAt = kSumsAt + kMostTiles * 2 * kH * 4;  // [2][2][kH], this block's maxima
constexpr int kPresentAt = kHalvesAt + 4 * kH * 4;
constexpr int kSharedBytes = kPresentAt + kMostPlaces / 8 + 1024;  // room to align to 1024
static_assert(kMostTiles * kColumnBytes <= 2 * kTileBytes && kMostTiles <= 2 * kBlocks);

struct Block {
  const AttendJob& job;
  uint8_t* shared;
  uint32_t shared_at;
  int row, block, tiles;

  __device__ float* maxima() const { return reinterpret_cast<float*>(shared + kMaximaAt); }
  __device__ float* sums() const { return reinterpret_cast<float*>(shared + kSumsAt); }
  __device__ float* halves() const { return reinterpret_cast<float*>(shared + kHalvesAt); }
  __device__ const uint32_t* present() const {
    return reinterpret_cast<const uint32_t*>(shared + kPresentAt);
  }
  __device__ const uint64_t* addresses() const {
    return reinterpret_cast<const uint64_t*>(shared + kAddressesAt);
  }
  __device__ bool is_window(int tile) const { return tile * kBlockPlaces < job.window; }

  __device__ void copy_q() const {
    const uint16_t* q = job.q + row * job.q_stride;
    for (int i = static_cast<int>(threadIdx.x); i < kH * kD / 8; i += kThreads) {
      const int h = i / (kD / 8), c = i % (kD / 8) * 8;
      asm volatile(
          "cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(shared_at + kQAt + place_of(h, c)),
          "l"(q + h * kD + c)
          : "memory");
    }
    asm volatile("cp.async.commit_group;\n" ::: "memory");
  }

  // A key block as bf16, by the scoring warps.
  __device__ void fill_keys(int tile) const {
    const Fetcher fetcher(addresses(), static_cast<int>(threadIdx.x));
    const bool window = is_window(tile);
    Unit units[4];
#pragma unroll
    for (int u = 0; u < 4; ++u)
      if (u < 2 || window) units[u] = fetcher.fetch(tile, window, u);
#pragma unroll
    for (int u = 0; u < 4; ++u)
      if (u < 2 || window) fetcher.store(units[u], shared_at + kKeysAt, window, u);
  }

  // This block's 64 channels of all keys, a key a thread.
  __device__ void fill_values(int thread) const {
    for (int place = thread; place < tiles * kBlockPlaces; place += kThreads - kScorers) {
      const auto* record = reinterpret_cast<const uint8_t*>(addresses()[place]);
      const bool window = is_window(place / kBlockPlaces);
      const int r = place % kBlockPlaces;
      const uint32_t at = shared_at + kValuesAt + place / kBlockPlaces * kColumnBytes + r * 128;
      uint4 codes[4] = {};
      uint32_t scales = 0;
      if (record != nullptr && window) {
#pragma unroll
        for (int i = 0; i < 4; ++i) codes[i] = fetch16(record + 64 * block + 16 * i);
        scales = __ldg(reinterpret_cast<const uint16_t*>(record + kD + 2 * block));
      } else if (record != nullptr) {
#pragma unroll
        for (int i = 0; i < 2; ++i) codes[i] = fetch16(record + 32 * block + 16 * i);
        scales = __ldg(reinterpret_cast<const uint32_t*>(record + kD / 2 + 4 * block));
      }
      if (window) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t factor = window_factor(scales >> i / 2 * 8 & 0xFFu);
          const uint32_t words[4] = {codes[i].x, codes[i].y, codes[i].z, codes[i].w};
#pragma unroll
          for (int w = 0; w < 2; ++w) {
            uint32_t out[4];
            decode_e4m3(words[2 * w], factor, out);
            decode_e4m3(words[2 * w + 1], factor, out + 2);
            store16(at + ((2 * i + w) ^ r % 8) * 16, out);
          }
        }
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t words[4] = {codes[i].x, codes[i].y, codes[i].z, codes[i].w};
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            uint32_t out[4];
            decode_e2m1(words[w], entry_factor(scales >> (2 * i + w / 2) * 8 & 0xFFu), out);
            store16(at + ((4 * i + w) ^ r % 8) * 16, out);
          }
        }
      }
    }
  }

  // Largest products of the block's key blocks, to all blocks of the cluster.
  __device__ void tell_maxima(const cg::cluster_group& cluster) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int turn = thread / kH, h = thread % kH, tile = block + turn * kBlocks;
    if (turn > 1 || tile >= tiles) return;
    const float* mine = halves() + turn * 2 * kH + h;
    const float top = fmaxf(mine[0], mine[kH]);
    for (int b = 0; b < kBlocks; ++b) cluster.map_shared_rank(maxima(), b)[tile * kH + h] = top;
  }

  // Copies the weights of the block's key blocks to the other blocks.
  __device__ void tell_weights(const cg::cluster_group& cluster) const {
    constexpr int kPieces = kColumnBytes / 16;
    static_assert(kPieces == kThreads);
    for (int tile = block; tile < tiles; tile += kBlocks) {
      auto* from = reinterpret_cast<uint4*>(shared + kWeightsAt + tile * kColumnBytes);
      const uint4 piece = from[threadIdx.x];
      for (int b = 1; b < kBlocks; ++b)
        cluster.map_shared_rank(from, (block + b) % kBlocks)[threadIdx.x] = piece;
    }
  }
};

// Sums 64 channels over all keys and stores them: the first warpgroup.
__device__ void sum_channels(const Block& b) {
  const AttendJob& job = b.job;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int r = first_row(static_cast<int>(threadIdx.x));
  const float scale = product_scale(job);
  float2 angles[8] = {};
  const bool rotary = b.block == kBlocks - 1;
  if (rotary) {
    const float* from = job.rope + static_cast<int64_t>(b.row) * 64 + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < 8; ++j) angles[j] = __ldg(reinterpret_cast<const float2*>(from + 8 * j));
  }
  float o[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) o[i] = 0;
  RowPair max = {kNoMaximum, kNoMaximum}, den[2] = {{0, 0}, {0, 0}};
  fence_async();  // weights came by ordinary stores of all blocks
  for (int tile = 0; tile < b.tiles; ++tile) {
    RowPair fade;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int h = r + 8 * e;
      const float top = fmaxf(max.v[e], b.maxima()[tile * kH + h]);
      fade.v[e] = fade_of(max.v[e], top, scale);
      max.v[e] = top;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        den[half].v[e] = den[half].v[e] * fade.v[e] + b.sums()[(tile * 2 + half) * kH + h];
    }
    if (__any_sync(0xFFFFFFFFu, fade.v[0] != 1.0f || fade.v[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < 32; ++i) o[i] = o[i] * fade.v[i / 2 % 2];
    }
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      mma_n64(o, k_major_operand(b.shared_at + kWeightsAt + tile * kColumnBytes + 32 * k),
              m_major_operand(b.shared_at + kValuesAt + tile * kColumnBytes + k * 16 * 128,
                              kColumnBytes),
              true);
    mma_commit();
    mma_wait();
    settle(o);
  }
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int h = r + 8 * e;
    const float factor =
        final_factor(den[0].v[e], den[1].v[e], __ldg(job.sink + h), max.v[e], scale);
    uint16_t* out = job.o + b.row * job.o_stride + h * kD + b.block * 64 + 8 * (lane % 4);
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (j + i) + 2 * e;
        words[i] = output_pair(o[at] * factor, o[at + 1] * factor, rotary, angles[j + i]);
      }
      turn_quad(words);
      *reinterpret_cast<uint4*>(out + 8 * j) = {words[0], words[1], words[2], words[3]};
    }
  }
}

__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 1)
    attend_cluster_kernel(const __grid_constant__ AttendJob job) {
  extern __shared__ uint8_t raw[];
  uint8_t* shared =
      raw + (1024 - static_cast<uint32_t>(__cvta_generic_to_shared(raw)) % 1024) % 1024;
  follow_previous(job.overlap);
  const cg::cluster_group cluster = cg::this_cluster();
  const int row = static_cast<int>(blockIdx.x) / kBlocks;
  const int thread = static_cast<int>(threadIdx.x);
  const Block b{job,
                shared,
                static_cast<uint32_t>(__cvta_generic_to_shared(shared)),
                row,
                static_cast<int>(cluster.block_rank()),
                tiles_of(RowKeys(job, row).n_places())};
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
  b.copy_q();
  list_addresses<kThreads, kMostPlaces>(job, row, thread,
                                        reinterpret_cast<uint64_t*>(shared + kAddressesAt),
                                        reinterpret_cast<uint32_t*>(shared + kPresentAt));
  __syncthreads();
  const int scorer = __shfl_sync(0xFFFFFFFFu, thread / 128, 0);  // warpgroup: 0 and 1 score
  const bool scores = scorer < 2;
  if (!scores)
    b.fill_values(thread - kScorers);
  else if (b.block < b.tiles)
    b.fill_keys(b.block);
  asm volatile("cp.async.wait_all;\n" ::: "memory");
  fence_async();
  __syncthreads();
  float s[2][16];
  const int lane = thread % 32, r = first_row(thread);
  if (scores) {
#pragma unroll
    for (int turn = 0; turn < 2; ++turn) {
      const int tile = b.block + turn * kBlocks;
      if (tile >= b.tiles) break;
      if (turn > 0) {
        named_barrier(1, kScorers);  // the keys before are used
        b.fill_keys(tile);
        fence_async();
        named_barrier(1, kScorers);
      }
      score_half(b.shared_at + kQAt, b.shared_at + kKeysAt + scorer * 32 * 128,
                 b.present()[2 * tile + scorer], s[turn]);
      const RowPair top = half_maximum(s[turn]);
      if (lane % 4 == 0)
        for (int e = 0; e < 2; ++e) b.halves()[(turn * 2 + scorer) * kH + r + 8 * e] = top.v[e];
    }
  }
  __syncthreads();
  asm volatile("barrier.cluster.wait.aligned;\n" ::: "memory");  // all blocks have begun
  b.tell_maxima(cluster);
  cluster.sync();  // every block's products are done: Q and keys may be written over
  if (scores) {
#pragma unroll
    for (int turn = 0; turn < 2; ++turn) {
      const int tile = b.block + turn * kBlocks;
      if (tile >= b.tiles) break;
      RowPair top = {kNoMaximum, kNoMaximum};
      for (int t = 0; t <= tile; ++t)
#pragma unroll
        for (int e = 0; e < 2; ++e) top.v[e] = fmaxf(top.v[e], b.maxima()[t * kH + r + 8 * e]);
      const RowPair sum = weigh_half(s[turn], top, product_scale(job),
                                     b.shared_at + kWeightsAt + tile * kColumnBytes, scorer);
      // The four lanes of a row tell two blocks each.
      for (int to = 2 * (lane % 4); to < 2 * (lane % 4) + 2; ++to)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          cluster.map_shared_rank(b.sums(), to)[(tile * 2 + scorer) * kH + r + 8 * e] = sum.v[e];
    }
  }
  __syncthreads();
  b.tell_weights(cluster);
  cluster.sync();
  if (scorer == 0) sum_channels(b);
}

}  // namespace

bool attend_cluster_takes(const AttendJob& job, int most_places, const Gpu& gpu) {
  // Clusters do not cross the GPU's processor groups, so not every multiprocessor takes part; and a
  // second round of clusters takes as long as blocks that walk.
  return most_places <= kMostPlaces && gpu.smem_optin >= kSharedBytes &&
         job.n_rows * (kBlocks + 1) <= gpu.sm_count;
}

void launch_attend_cluster(const AttendJob& job, cudaStream_t stream) {
  cudaFuncSetAttribute(attend_cluster_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       kSharedBytes);
  launch_following(job.overlap, 1, attend_cluster_kernel,
                   dim3(static_cast<unsigned>(job.n_rows * kBlocks)), dim3(kThreads), kSharedBytes,
                   stream, job);
}

}  // namespace hadal::cuda
