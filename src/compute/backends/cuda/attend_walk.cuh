#pragma once

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/attend_fetch.cuh"

// One block walks rows; a row is 64 heads by 512 channels. Its warpgroups hand tiles of 64 keys
// down a line:
//
//   fetchers (2)   records of the cache to bf16, two tiles ahead
//   scorers (1)    Q times keys, running maxima, weights
//   mixers (2)     256 of the output's channels each: weights times keys
//
// so that one tile is scored while the one before is mixed. The scorers keep all that a row's
// softmax has to know; the mixers are told by how much the sums so far fade, then have the tile's
// weights, and with a row's last what the sums are multiplied with in the end.
//
//   shared memory    Q 64 KiB | keys 2 x 64 KiB | weights 2 x 8 KiB | addresses of two rows |
//                    presence, fades
//
// Q, keys and weights lie in columns of 64 values (attend_tile.cuh). The order of every sum is
// fixed by the row's key list.
//
// Here: shared memory, its barriers and the fetchers.
namespace hadal::cuda::row_walk {

inline constexpr int kMostPlaces = 1024;
inline constexpr int kScorers = 128;
inline constexpr int kMixers = 256;
inline constexpr int kFetchers = 256;
inline constexpr int kThreads = kScorers + kMixers + kFetchers;
inline constexpr int kFetchWarps = kFetchers / 32;
inline constexpr int kQAt = 0;
inline constexpr int kKeysAt = kTileBytes;
inline constexpr int kWeightsAt = 3 * kTileBytes;
inline constexpr int kAddressesAt = kWeightsAt + 2 * kColumnBytes;
inline constexpr int kPresentAt = kAddressesAt + 2 * kMostPlaces * 8;  // of four rows
inline constexpr int kFadesAt = kPresentAt + 4 * kMostPlaces / 8;      // [2][kH]
inline constexpr int kFactorsAt = kFadesAt + 2 * kH * 4;               // [2][kH], with a row's last
inline constexpr int kTilesAt = kFactorsAt + 2 * kH * 4;               // [2], of rows
inline constexpr int kBarriersAt = kTilesAt + 2 * 4;
inline constexpr int kSharedBytes = kBarriersAt + 10 * 8 + 1024;  // room to align to 1024
static_assert(kSharedBytes <= 227 * 1024);

// Tile n of a block goes through buffer n % 2 of keys, of weights and of fades.
struct Barriers {
  uint32_t at;
  __device__ uint32_t filled(int n) const { return at + 8 * (n % 2); }        // keys
  __device__ uint32_t free(int n) const { return at + 16 + 8 * (n % 2); }     // keys
  __device__ uint32_t weighed(int n) const { return at + 32 + 8 * (n % 2); }  // weights
  __device__ uint32_t mixed(int n) const { return at + 48 + 8 * (n % 2); }    // weights
  __device__ uint32_t faded(int n) const { return at + 64 + 8 * (n % 2); }    // fades
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

// A fetching warp has eight keys of a tile. A batch are all of their entries, or four of their
// window records, so that a window's tile takes two; of it a lane holds four pieces of 16 bytes.
inline constexpr int kWarpKeys = kBlockPlaces / kFetchWarps;
struct Batches {
  int tiles, window_tiles;
  __device__ int count() const { return tiles + min(tiles, window_tiles); }
  __device__ bool window(int batch) const { return batch < 2 * window_tiles; }
  __device__ int tile(int batch) const { return window(batch) ? batch / 2 : batch - window_tiles; }
};
struct Pieces {
  uint4 codes[4];
  uint32_t scales[4];
};

// A record's address, from the list of them at `at` in shared memory.
__device__ __forceinline__ const uint8_t* record_at(uint32_t at) {
  const uint2 word = shared_load2(at);
  return reinterpret_cast<const uint8_t*>(word.x | static_cast<uint64_t>(word.y) << 32);
}

// Eight lanes load from four records, of each two pieces that lie side by side or one apart; they
// read whole sectors, and they store to different banks.
//
// Of entries: piece i is 32 channels of key 4 (i % 2) + lane % 4, from channel 64 (lane / 8) + 32
// (lane / 4 % 2) + 256 (i / 2) on.
__device__ __forceinline__ void fetch_entries(Pieces& p, uint32_t addresses) {
  const int lane = static_cast<int>(threadIdx.x) % 32, piece = lane / 8 * 2 + lane / 4 % 2;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const uint8_t* record = record_at(addresses + (4 * k + lane % 4) * 8);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      p.codes[2 * half + k] = fetch16(record + piece * 16 + half * 128);
      p.scales[2 * half + k] =
          __ldg(reinterpret_cast<const uint16_t*>(record + kD / 2 + piece * 2 + half * 16));
    }
  }
}
__device__ __forceinline__ void store_entries(const Pieces& p, uint32_t keys_at) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t to =
      keys_at + lane / 8 * kColumnBytes + lane % 4 * 128 + ((lane & 4) ^ lane % 4) * 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t factors[2];
    entry_factors(p.scales[i], factors);
    const uint32_t words[4] = {p.codes[i].x, p.codes[i].y, p.codes[i].z, p.codes[i].w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t out[4];
      decode_e2m1(words[w], factors[w / 2], out);
      store16((to ^ (i % 2 * 64u + w * 16u)) + i % 2 * 512 + i / 2 * 4 * kColumnBytes, out);
    }
  }
}

// Of window records: piece i is 16 channels of key lane % 4, from channel 64 (lane / 16) + 128 i
// on, and of those 64 the 16 from window_piece() on; the scales are those of the key.
__device__ __forceinline__ uint32_t window_piece() {
  return threadIdx.x / 8 % 2 + threadIdx.x / 4 % 2 * 2;
}
__device__ __forceinline__ void fetch_window(Pieces& p, uint32_t addresses) {
  const uint32_t lane = threadIdx.x % 32, piece = lane / 16 * 4 + window_piece();
  const uint8_t* record = record_at(addresses + lane % 4 * 8);
#pragma unroll
  for (int i = 0; i < 4; ++i) p.codes[i] = fetch16(record + piece * 16 + i * 128);
  const uint4 scales = fetch16(record + kD);
  p.scales[0] = scales.x;
  p.scales[1] = scales.y;
  p.scales[2] = scales.z;
  p.scales[3] = scales.w;
}
// `half`: which four of the warp's keys.
__device__ __forceinline__ void store_window(const Pieces& p, uint32_t keys_at, uint32_t half) {
  const uint32_t lane = threadIdx.x % 32, key = 4 * half + lane % 4;
  const uint32_t to =
      keys_at + lane / 16 * kColumnBytes + key * 128 + (window_piece() * 2 ^ key) * 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t factor =
        window_factor(p.scales[i] >> (lane / 16 * 16 + lane / 4 % 2 * 8) & 0xFFu);
    const uint32_t words[4] = {p.codes[i].x, p.codes[i].y, p.codes[i].z, p.codes[i].w};
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      uint32_t out[4];
      decode_e4m3(words[2 * w], factor, out);
      decode_e4m3(words[2 * w + 1], factor, out + 2);
      store16((to ^ w * 16u) + i * 2 * kColumnBytes, out);
    }
  }
}

__device__ inline void fetch_rows(const AttendJob& job, uint8_t* shared, uint32_t shared_at,
                                  Barriers barriers) {
  const int thread = static_cast<int>(threadIdx.x) - kScorers - kMixers;
  const int warp = __shfl_sync(0xFFFFFFFFu, thread / 32, 0);
  auto* lists = reinterpret_cast<uint64_t*>(shared + kAddressesAt);  // of this row and the next
  auto* all_present = reinterpret_cast<uint32_t*>(shared + kPresentAt);
  auto* row_tiles = reinterpret_cast<int*>(shared + kTilesAt);
  const int step = static_cast<int>(gridDim.x);
  int n = 0, turn = 0;  // tiles and rows so far
  const RowKeys keys(job, static_cast<int>(blockIdx.x));
  int tiles = tiles_of(keys.n_places());
  list_addresses<kFetchers, kMostPlaces>(keys, thread, lists, all_present);
  named_barrier(2, kFetchers);
#pragma unroll 1
  for (int row = static_cast<int>(blockIdx.x); row < job.n_rows; row += step, ++turn) {
    const uint32_t addresses =
        shared_at + kAddressesAt + (turn % 2 * kMostPlaces + warp * kWarpKeys) * 8;
    const Batches batches{tiles, job.window / kBlockPlaces};
    const int count = batches.count();
    Pieces pieces;
    const auto fetch = [&](int batch) {
      const uint32_t at = addresses + batches.tile(batch) * kBlockPlaces * 8;
      if (batches.window(batch))
        fetch_window(pieces, at + batch % 2 * 4 * 8);
      else
        fetch_entries(pieces, at);
    };
    const auto store = [&](int batch) {
      const bool window = batches.window(batch);
      if (!window || batch % 2 == 0) wait_reuse(barriers.free(n), n);
      const uint32_t keys_at = shared_at + kKeysAt + n % 2 * kTileBytes + warp * kWarpKeys * 128;
      if (window)
        store_window(pieces, keys_at, batch % 2);
      else
        store_entries(pieces, keys_at);
      if (!window || batch % 2 == 1) {
        fence_async();
        arrive_warp(barriers.filled(n));
        ++n;
      }
    };
    fetch(0);
#pragma unroll 1
    for (int b = 0; b < count; ++b) {
      store(b);
      if (b + 1 < count) fetch(b + 1);
    }
    if (row + step < job.n_rows) {
      // The presence list was last read three rows ago.
      const RowKeys after(job, row + step);
      if (thread == 0) row_tiles[turn % 2] = tiles_of(after.n_places());
      list_addresses<kFetchers, kMostPlaces>(after, thread, lists + (turn + 1) % 2 * kMostPlaces,
                                             all_present + (turn + 1) % 4 * (kMostPlaces / 32));
    }
    // All have the addresses that they need, and the next row's are there.
    named_barrier(2, kFetchers);
    tiles = row_tiles[turn % 2];
  }
}

}  // namespace hadal::cuda::row_walk
