#pragma once

#include "compute/backends/cuda/attend_tile.cuh"

// Records of the cache to tiles of bf16 in shared memory.
namespace hadal::cuda {

// A fetching warp's unit of work: four keys, eight lanes a key, 32 bytes a lane: half of a window
// record or a whole entry. A warp has eight keys of a block: four or two units.
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
    const int rows = (warp * 8 + key_of_lane) * 128;
    window_chunk = static_cast<uint32_t>(rows + part / 4 * kColumnBytes +
                                         ((part % 4 * 2 + part / 4) ^ key_of_lane) * 16);
    entry_chunk = static_cast<uint32_t>(rows + part / 2 * kColumnBytes +
                                        ((part % 2 * 4 + part / 2) ^ key_of_lane) * 16);
  }
  __device__ int key(int group) const { return warp * 8 + group * 4 + key_of_lane; }

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

// Where the records of a row lie, and which places have one.
template <int kThreads, int kMostPlaces>
__device__ void list_addresses(const AttendJob& job, int row, int thread, uint64_t* addresses,
                               uint32_t* present) {
  const RowKeys keys(job, row);
  const int places = tiles_of(keys.n_places()) * kBlockPlaces;
  constexpr int kTurns = (kMostPlaces + kThreads - 1) / kThreads;
  int entry[kTurns];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int listed = i * kThreads + thread - job.window;
    entry[i] = listed >= 0 && listed < keys.n_list ? keys.list[listed] : -1;
  }
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int place = i * kThreads + thread;
    if (place / 32 * 32 >= places) break;
    const uint8_t* record = place < job.window ? keys.record(place)
                            : entry[i] >= 0    ? keys.entry(entry[i])
                                               : nullptr;
    addresses[place] = reinterpret_cast<uint64_t>(record);
    const uint32_t there = __ballot_sync(0xFFFFFFFFu, record != nullptr);
    if (thread % 32 == 0) present[place / 32] = there;
  }
}

}  // namespace hadal::cuda
