#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/attend_fetch.cuh"
#include "compute/backends/cuda/attend_hopper.h"
#include "compute/backends/cuda/attend_remote.cuh"
#include "compute/backends/cuda/attend_softmax.cuh"

// The same sums as attend_hopper.cu for a handful of rows, in a fraction of the time: a cluster of
// eight blocks shares a row. Block b scores tile b of 64 keys and a quarter of tile 8 + b / 4; the
// blocks tell each other their maxima, then their weights; and each sums 64 channels of the output
// over all keys, in the order of the keys. So the bits are those of one block that walks them.
//
//   shared memory    Q 64 KiB | its 80 keys 80 KiB | 64 channels of the first 8 tiles 64 KiB
//   later            weights and their sums 115 KiB, over Q and keys | 64 channels of tiles 8 and
//                    9, over the last keys | of the first 8 tiles
//
// The first warpgroup multiplies, the others prepare the output's channels meanwhile.
namespace hadal::cuda {
namespace {

constexpr int kBlocks = 8;  // of a cluster; each has 64 of 512 channels
constexpr int kMostTiles = 10;
constexpr int kMostPlaces = kMostTiles * kBlockPlaces;
constexpr int kQuarters = 4 * kMostTiles;  // of 16 keys: what a weight's block is
constexpr int kScorers = 128;
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kKeys = kBlockPlaces + 16;
constexpr int kKeyColumnBytes = kKeys * 128;
// A quarter's weights: two halves of eight keys, each eight groups of eight heads. The gaps let the
// four lanes of a row store to different banks.
constexpr int kGroupBytes = 8 * 16 + 32;
constexpr int kHalfBytes = 8 * kGroupBytes + 64;
constexpr int kQuarterBytes = 2 * kHalfBytes;
constexpr int kQuarterSent = kH * 16 * 2 + kH * 4;  // weights and their sums
constexpr int kQAt = 0;
constexpr int kKeysAt = kTileBytes;
constexpr int kLateValuesAt = kKeysAt + 8 * kBlockPlaces * 128;  // tiles 8 ...
constexpr int kValuesAt = kKeysAt + 8 * kKeyColumnBytes;         // tiles 0 ... 7
constexpr int kWeightsAt = 0;                                    // [kQuarters]
constexpr int kSumsAt = kQuarters * kQuarterBytes;               // [kBlocks][kH][4] of a tile
constexpr int kLateSumsAt = kSumsAt + kBlocks * kH * 16;         // [kBlocks][kH] of later quarters
constexpr int kAddressesAt = kValuesAt + kBlocks * kColumnBytes;
constexpr int kMaximaAt = kAddressesAt + kMostPlaces * 8;   // [2 kBlocks][kH]: tiles, then quarters
constexpr int kMineAt = kMaximaAt + 2 * kBlocks * kH * 4;   // [2][kH], to be sent
constexpr int kFadesAt = kMineAt + 2 * kH * 4;              // [kMostTiles][kH]
constexpr int kFactorsAt = kFadesAt + kMostTiles * kH * 4;  // [kH]
constexpr int kPresentAt = kFactorsAt + kH * 4;
constexpr int kBarriersAt = kPresentAt + kMostPlaces / 8;
constexpr int kSharedBytes = kBarriersAt + 2 * 8 + 1024;  // room to align to 1024
static_assert(kSharedBytes <= 227 * 1024 && kBarriersAt % 8 == 0);
static_assert(kLateValuesAt + 2 * kColumnBytes == kValuesAt);
static_assert(kLateSumsAt + kBlocks * kH * 4 <= kLateValuesAt);
static_assert(kGroupBytes % 128 == 32 && kHalfBytes % 128 == 64);

struct Block {
  const AttendJob& job;
  uint8_t* shared;
  uint32_t shared_at;
  int row, block, tiles;

  __device__ float* maxima() const { return reinterpret_cast<float*>(shared + kMaximaAt); }
  // Of the weights of a tile's quarters and head `h`.
  __device__ float4 sums(int tile, int h) const {
    if (tile < kBlocks) return reinterpret_cast<const float4*>(shared + kSumsAt)[tile * kH + h];
    const float* late =
        reinterpret_cast<const float*>(shared + kLateSumsAt) + (tile - kBlocks) * 4 * kH + h;
    return {late[0], late[kH], late[2 * kH], late[3 * kH]};
  }
  __device__ float* fades() const { return reinterpret_cast<float*>(shared + kFadesAt); }
  __device__ float* factors() const { return reinterpret_cast<float*>(shared + kFactorsAt); }
  __device__ float* mine() const { return reinterpret_cast<float*>(shared + kMineAt); }
  __device__ const uint32_t* present() const {
    return reinterpret_cast<const uint32_t*>(shared + kPresentAt);
  }
  __device__ uint32_t maxima_barrier() const { return shared_at + kBarriersAt; }
  __device__ uint32_t weights_barrier() const { return shared_at + kBarriersAt + 8; }
  __device__ bool is_window(int tile) const { return tile * kBlockPlaces < job.window; }
  // What the block scores: a tile, and a quarter of one behind the first eight.
  __device__ bool has_tile() const { return block < tiles; }
  __device__ int shared_tile() const { return kBlocks + block / 4; }
  __device__ bool has_quarter() const { return shared_tile() < tiles; }
  __device__ int first_quarter() const { return 4 * block; }
  __device__ int last_quarter() const { return 4 * kBlocks + block; }
  __device__ int early_tiles() const { return tiles < kBlocks ? tiles : kBlocks; }
};

// Work of a warp in preparing a block, in three stages: its keys; 64 channels of the first eight
// tiles; and of the others, whose place the keys have until then.
struct Filler {
  const Block& b;
  int warp, lane;

  __device__ int items(int stage) const {
    if (stage == 0)
      return b.has_tile() ? (b.is_window(b.block) ? 32 : 16) + (b.has_quarter() ? 4 : 0) : 0;
    if (stage == 2) return 2 * (b.tiles - b.early_tiles());
    const int window_tiles = min(b.early_tiles(), b.job.window / kBlockPlaces);
    return 2 * (b.early_tiles() + window_tiles);
  }
  struct Item {
    int place, from;
    uint32_t to;
    bool window;
  };
  __device__ __forceinline__ Item item(int stage, int i) const {
    Item out;
    if (stage == 0) {
      const LanePart part(lane);
      out.window = b.is_window(b.block);
      const int own = out.window ? 32 : 16;
      const bool quarter = i >= own;
      out.window = out.window && !quarter;
      if (quarter) i -= own;
      const int piece = out.window ? i % 4 : i % 2, group = out.window ? i / 4 : i / 2;
      out.place =
          (quarter ? b.shared_tile() * kBlockPlaces + b.block % 4 * 16 : b.block * kBlockPlaces) +
          group * 8 + part.key;
      out.from = part.from(piece);
      out.to = kKeysAt + ((quarter ? kBlockPlaces : 0) + group * 8 + part.key) * 128 +
               part.to(out.window, piece, kKeyColumnBytes);
      return out;
    }
    const int window_items = 4 * min(b.early_tiles(), b.job.window / kBlockPlaces);
    out.window = stage == 1 && i < window_items;
    const int group = stage == 2   ? 2 * kBlocks + i
                      : out.window ? i / 2
                                   : window_items / 2 + (i - window_items);
    const int piece = out.window ? i % 2 : 0;
    out.place = group * 32 + lane;
    out.from = out.window ? 64 * b.block + 32 * piece : 32 * b.block;
    out.to = (stage == 2 ? kLateValuesAt - kBlocks * kColumnBytes : kValuesAt) + out.place * 128 +
             ((lane % 8) ^ (piece * 4)) * 16;
    return out;
  }
  __device__ __forceinline__ Unit fetch(const Item& item) const {
    const auto* addresses = reinterpret_cast<const uint64_t*>(b.shared + kAddressesAt);
    return fetch_unit(reinterpret_cast<const uint8_t*>(addresses[item.place]), item.window,
                      item.from);
  }
};

// The other blocks of the cluster, as a thread that gives them weights sees them.
struct Others {
  uint32_t at[kBlocks - 1];  // where their shared memory begins
  __device__ explicit Others(const Block& b) {
#pragma unroll
    for (int i = 0; i < kBlocks - 1; ++i) at[i] = remote(b.shared_at, (b.block + 1 + i) % kBlocks);
  }
  // To the same place in all blocks, this one too.
  __device__ __forceinline__ void give(const Block& b, int place, float4 v) const {
    *reinterpret_cast<float4*>(b.shared + place) = v;
#pragma unroll
    for (int i = 0; i < kBlocks - 1; ++i)
      send16(at[i] + place, v, at[i] + (b.weights_barrier() - b.shared_at));
  }
  __device__ __forceinline__ void give(const Block& b, int place, float v) const {
    *reinterpret_cast<float*>(b.shared + place) = v;
#pragma unroll
    for (int i = 0; i < kBlocks - 1; ++i)
      send4(at[i] + place, v, at[i] + (b.weights_barrier() - b.shared_at));
  }
};

// Weights of a quarter against the running maximum `top`, to all blocks; returns their sums. Of the
// four lanes that share two rows each takes the eight keys of one of them.
__device__ __forceinline__ RowPair weigh(const Block& b, const Others& others, const float* s,
                                         const RowPair& top, int quarter) {
  const int lane = static_cast<int>(threadIdx.x) % 32, r = first_row(static_cast<int>(threadIdx.x));
  uint32_t words[4];
  const RowPair sum = weigh_quarter(s, top, product_scale(b.job),
                                    [&](int e, int j, uint32_t pair) { words[2 * e + j] = pair; });
  turn_quad(words);
  const int e = lane % 4 / 2, half = lane % 2;
  others.give(b,
              kWeightsAt + quarter * kQuarterBytes + half * kHalfBytes + (r / 8 + e) * kGroupBytes +
                  r % 8 * 16,
              {__uint_as_float(words[0]), __uint_as_float(words[1]), __uint_as_float(words[2]),
               __uint_as_float(words[3])});
  return quarter_sums(sum);
}

// Largest product of a tile.
__device__ __forceinline__ float tile_maximum(const Block& b, int tile, int h) {
  if (tile < kBlocks) return b.maxima()[tile * kH + h];
  const float* quarters = b.maxima() + (kBlocks + (tile - kBlocks) * 4) * kH + h;
  return fmaxf(fmaxf(quarters[0], quarters[kH]), fmaxf(quarters[2 * kH], quarters[3 * kH]));
}

// Scores the block's keys and gives all blocks the weights.
__device__ __forceinline__ void score(const Block& b) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, r = first_row(thread);
  float s[kKeys / 2];
  score_keys<kKeys>(b.shared_at + kQAt, b.shared_at + kKeysAt, kKeyColumnBytes, s);
  if (b.tiles > kBlocks) named_arrive(2, kThreads);
  mask_keys(s, 32, b.present()[2 * b.block]);
  mask_keys(s + 16, 32, b.present()[2 * b.block + 1]);
  if (b.has_quarter())
    mask_keys(s + 32, 16,
              b.present()[2 * b.shared_tile() + b.block % 4 / 2] >> b.block % 2 * 16 | 0xFFFF0000u);
  const RowPair tops[2] = {row_maximum<64>(s), row_maximum<16>(s + 32)};
  if (lane % 4 == 0) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      for (int e = 0; e < 2; ++e) b.mine()[i * kH + r + 8 * e] = tops[i].v[e];
  }
  named_barrier(1, kScorers);
  // Sixteen threads tell one block.
  const int to = thread / 16, piece = thread % 16 * 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (i == 1 && !b.has_quarter()) break;
    const float* from = b.mine() + i * kH + piece;
    send16(remote(b.shared_at + kMaximaAt + ((i * kBlocks + b.block) * kH + piece) * 4, to),
           *reinterpret_cast<const float4*>(from), remote(b.maxima_barrier(), to));
  }
  barrier_wait(b.maxima_barrier(), 0);  // so all blocks' products are done
  RowPair top = {kNoMaximum, kNoMaximum};
#pragma unroll
  for (int t = 0; t < kBlocks; ++t) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float of_tile = b.maxima()[t * kH + r + 8 * e];
      if (t <= b.block) top.v[e] = fmaxf(top.v[e], of_tile);
    }
  }
  const Others others(b);
  // Two of a row's four lanes give its sums.
  const int e = lane % 4;
  RowPair sums[4];
#pragma unroll
  for (int q = 0; q < 4; ++q) sums[q] = weigh(b, others, s + 8 * q, top, b.first_quarter() + q);
  if (e < 2) {
    const auto of = [&](int q) { return e == 0 ? sums[q].v[0] : sums[q].v[1]; };
    others.give(b, kSumsAt + (b.block * kH + r + 8 * e) * 16, {of(0), of(1), of(2), of(3)});
  }
  if (b.has_quarter()) {
#pragma unroll
    for (int t = 0; t < 2 * kBlocks; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float of_tile = b.maxima()[t * kH + r + 8 * i];
        if (t < kBlocks + 4 || b.block >= 4) top.v[i] = fmaxf(top.v[i], of_tile);
      }
    }
    const RowPair late = weigh(b, others, s + 32, top, b.last_quarter());
    if (e < 2)
      others.give(b, kLateSumsAt + (b.block * kH + r + 8 * e) * 4, e == 0 ? late.v[0] : late.v[1]);
  }
  fence_async();
  __syncwarp();
  if (lane == 0) shared_barrier_arrive(b.weights_barrier());
}

// What a head's sums fade by with each tile: a thread a head, as soon as all maxima are there.
// Returns the maximum over all.
__device__ __forceinline__ float find_fades(const Block& b, int h) {
  const float scale = product_scale(b.job);
  float max = kNoMaximum;
#pragma unroll 2
  for (int tile = 0; tile < b.tiles; ++tile) {
    const float top = fmaxf(max, tile_maximum(b, tile, h));
    b.fades()[tile * kH + h] = fade_of(max, top, scale);
    max = top;
  }
  return max;
}
// What its sums are multiplied with in the end, as soon as all weights are there.
__device__ __forceinline__ void find_factor(const Block& b, int h, float max, float sink) {
  float den[2] = {0, 0};
#pragma unroll 2
  for (int tile = 0; tile < b.tiles; ++tile) {
    const float fade = b.fades()[tile * kH + h];
    const float4 sums = b.sums(tile, h);
    den[0] = den[0] * fade + (sums.x + sums.y);
    den[1] = den[1] * fade + (sums.z + sums.w);
  }
  b.factors()[h] = final_factor(den[0], den[1], sink, max, product_scale(b.job));
}

// Sums 64 channels over all keys and stores them.
__device__ __forceinline__ void sum_channels(const Block& b) {
  const AttendJob& job = b.job;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int r = first_row(static_cast<int>(threadIdx.x));
  const bool rotary = b.block == kBlocks - 1;
  float2 angles[8] = {};
  if (rotary) {
    const float* from = job.rope + static_cast<int64_t>(b.row) * 64 + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < 8; ++j) angles[j] = __ldg(reinterpret_cast<const float2*>(from + 8 * j));
  }
  barrier_wait(b.weights_barrier(), 0);
  fence_async();                    // matrix products see what other blocks stored
  named_barrier(5, kScorers + kH);  // the fades are there
  float o[32];
  RowPair fade = {1, 1};
#pragma unroll 1
  for (int tile = 0; tile < b.tiles; ++tile) {
    if (tile > 0) {
#pragma unroll
      for (int i = 0; i < 32; ++i) o[i] = o[i] * fade.v[i / 2 % 2];
    }
    const uint32_t values_at =
        b.shared_at + (tile < kBlocks ? kValuesAt : kLateValuesAt - kBlocks * kColumnBytes) +
        tile * kColumnBytes;
    const uint64_t values = m_major_operand(values_at, kColumnBytes);
    const uint64_t weights =
        plain_operand(b.shared_at + kWeightsAt + tile * 4 * kQuarterBytes, kHalfBytes, kGroupBytes);
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      mma_n64(o, weights + further(k * kQuarterBytes), values + further(k * 16 * 128),
              tile > 0 || k > 0);
    mma_commit();
    const float* next = b.fades() + min(tile + 1, b.tiles - 1) * kH + r;
    fade = {next[0], next[8]};
    mma_wait();
    settle(o);
  }
  named_barrier(3, kScorers + kH);  // the factors are there
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int h = r + 8 * e;
    const float factor = b.factors()[h];
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

// Q on its way to its place: a thread has the same 16 bytes of every eighth head.
__device__ __forceinline__ void copy_q(const Block& b) {
  static_assert(kThreads * 8 == 8 * kD);
  const int thread = static_cast<int>(threadIdx.x);
  const uint16_t* from = b.job.q + b.row * b.job.q_stride + thread * 8;
  const uint32_t to = b.shared_at + kQAt + place_of(thread * 8 / kD, thread * 8 % kD);
#pragma unroll
  for (int i = 0; i < kH / 8; ++i)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to + i * 8 * 128),
                 "l"(from + i * 8 * kD)
                 : "memory");
}

// Fills keys and values; the multiplying warps only take part in the first stage.
__device__ __forceinline__ void fill(const Block& b, int warp, bool scores) {
  const Filler filler{b, warp, static_cast<int>(threadIdx.x) % 32};
  Filler::Item item = filler.item(0, warp);
  Unit unit{};
  if (warp < filler.items(0)) unit = filler.fetch(item);
  cluster_wait();  // all blocks have begun: while loads are under way
#pragma unroll 1
  for (int stage = 0; stage < 3; ++stage) {
    const int n = filler.items(stage), step = stage == 0 ? kWarps : kWarps - kScorers / 32;
#pragma unroll 1
    for (int i = stage == 0 ? warp : warp - kScorers / 32; i < n; i += step) {
      const Filler::Item now = item;
      const Unit u = unit;
      if (i + step < n) {
        item = filler.item(stage, i + step);
        unit = filler.fetch(item);
      }
      if (now.window)
        store_window(u, now.from, b.shared_at + now.to);
      else
        store_entry(u, b.shared_at + now.to);
    }
    if (stage == 0) asm volatile("cp.async.wait_all;\n" ::: "memory");
    fence_async();
    if (stage < 2 && !scores && warp - kScorers / 32 < filler.items(stage + 1)) {
      item = filler.item(stage + 1, warp - kScorers / 32);
      unit = filler.fetch(item);
    }
    if (stage == 0) {
      __syncthreads();
      if (scores) return;
    } else if (stage == 1) {
      if (b.tiles <= kBlocks) return;
      named_barrier(2, kThreads);  // the keys are used
    }
  }
}

__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 1)
    attend_cluster_kernel(const __grid_constant__ AttendJob job) {
  extern __shared__ uint8_t raw[];
  uint8_t* shared =
      raw + (1024 - static_cast<uint32_t>(__cvta_generic_to_shared(raw)) % 1024) % 1024;
  const auto shared_at = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int row = static_cast<int>(blockIdx.x) / kBlocks;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    shared_barrier_init(shared_at + kBarriersAt, 1);
    // Whoever says which bytes will come, and the warps that weigh here.
    shared_barrier_init(shared_at + kBarriersAt + 8, 1 + kScorers / 32);
    barrier_init_done();
  }
  __syncwarp();
  cluster_arrive();
  follow_previous(job.overlap);
  const RowKeys keys(job, row);
  const Block b{job,
                shared,
                shared_at,
                row,
                static_cast<int>(blockIdx.x) % kBlocks,
                tiles_of(keys.n_places())};
  if (b.has_tile()) copy_q(b);
  if (thread == 0) {
    const int late = 4 * (b.tiles - b.early_tiles());
    const int own = b.has_tile() ? 4 + b.has_quarter() : 0;
    shared_barrier_expect(b.maxima_barrier(), (b.early_tiles() + late) * kH * 4);
    shared_barrier_expect(b.weights_barrier(), (4 * b.tiles - own) * kQuarterSent);
  }
  __syncwarp();
  list_addresses<kThreads, kMostPlaces>(keys, thread,
                                        reinterpret_cast<uint64_t*>(shared + kAddressesAt),
                                        reinterpret_cast<uint32_t*>(shared + kPresentAt));
  __syncthreads();
  const int warp = __shfl_sync(0xFFFFFFFFu, thread / 32, 0);
  const bool scores = warp < kScorers / 32;
  fill(b, warp, scores);
  if (scores) {
    if (b.has_tile())
      score(b);
    else if (thread % 32 == 0)
      shared_barrier_arrive(b.weights_barrier());
    named_barrier(4, kThreads);  // the channels are prepared
    sum_channels(b);
  } else {
    named_arrive(4, kThreads);
    if (warp < kScorers / 32 + kH / 32) {
      const int h = thread - kScorers;
      const float sink = __ldg(job.sink + h);
      barrier_wait(b.maxima_barrier(), 0);
      const float max = find_fades(b, h);
      named_arrive(5, kScorers + kH);
      barrier_wait(b.weights_barrier(), 0);
      find_factor(b, h, max, sink);
      named_arrive(3, kScorers + kH);
    }
  }
  // A block ends when all that others store here has come, so nobody has to wait for it.
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
