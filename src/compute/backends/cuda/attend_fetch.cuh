#pragma once

#include "compute/backends/cuda/attend_tile.cuh"

// Records of the cache to tiles of bf16 in shared memory.
namespace hadal::cuda {

// What a thread holds of a record between its load and its store: 32 bytes of codes, 32 channels of
// the window or 64 of an entry, and four scales: an entry's, or of 128 channels of the window.
struct Unit {
  uint4 codes[2];
  uint32_t scales;
};

// What stands for a record that is not there: its values are zeros, and loads need no branch.
static __device__ const uint4 no_record[(kD + kD / 32) / 16] = {};

// 32 bytes from `from` on of a record.
__device__ __forceinline__ Unit fetch_unit(const uint8_t* record, bool window, int from) {
  Unit u;
  u.codes[0] = fetch16(record + from);
  u.codes[1] = fetch16(record + from + 16);
  // One load for both: two into one register would wait for each other.
  u.scales = __ldg(reinterpret_cast<const uint32_t*>(
      record + (window ? kD + from / 128 * 4 : kD / 2 + from / 8)));
  return u;
}
// To four or eight chunks of 16 bytes: chunk c goes to `at` ^ 16 c. A window unit was fetched from
// byte `from` on.
__device__ __forceinline__ void store_window(const Unit& u, int from, uint32_t at) {
  const uint32_t factor = window_factor(u.scales >> from / 32 % 4 * 8 & 0xFFu);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t words[4] = {u.codes[i].x, u.codes[i].y, u.codes[i].z, u.codes[i].w};
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      uint32_t out[4];
      decode_e4m3(words[2 * w], factor, out);
      decode_e4m3(words[2 * w + 1], factor, out + 2);
      store16(at ^ (2 * i + w) * 16u, out);
    }
  }
}
__device__ __forceinline__ void store_entry(const Unit& u, uint32_t at) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t factors[2];
    entry_factors(u.scales >> 16 * i, factors);
    const uint32_t words[4] = {u.codes[i].x, u.codes[i].y, u.codes[i].z, u.codes[i].w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t out[4];
      decode_e2m1(words[w], factors[w / 2], out);
      store16(at ^ (4 * i + w) * 16u, out);
    }
  }
}

// A warp takes eight keys at a time, four lanes a key: lanes of a quarter warp store the same chunk
// of eight different rows, which the swizzle spreads over all banks. A key is two units a lane,
// four in the window: pieces of 128 bytes, of which a lane has its part.
struct LanePart {
  int key, part;
  __device__ explicit LanePart(int lane) : key(lane % 8), part(lane / 8) {}
  __device__ int from(int piece) const { return 128 * piece + 32 * part; }
  // Where the chunks go in the key's row, from its tile's begin; columns of `column_bytes`.
  __device__ uint32_t to(bool window, int piece, uint32_t column_bytes) const {
    return window ? (2 * piece + part / 2) * column_bytes + (key ^ part % 2 * 4) * 16
                  : (4 * piece + part) * column_bytes + key * 16;
  }
};

__device__ __forceinline__ int tiles_of(int n_places) {
  return (n_places + kBlockPlaces - 1) / kBlockPlaces;
}

inline constexpr int kMostWindow = 128;

// Where the records of a row lie, and which places have one. REQUIRES: a window of at most
// kMostWindow places, and blocks of a power of two entries.
template <int kThreads, int kMostPlaces>
__device__ void list_addresses(const RowKeys& keys, int thread, uint64_t* addresses,
                               uint32_t* present) {
  static_assert(kThreads >= kMostWindow);
  const AttendJob& job = keys.job;
  const int places = tiles_of(keys.n_places()) * kBlockPlaces;
  constexpr int kTurns = (kMostPlaces + kThreads - 1) / kThreads;
  int entry[kTurns];
  const uint8_t* slab[kTurns] = {};
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int listed = i * kThreads + thread - job.window;
    entry[i] = listed >= 0 && listed < keys.n_list ? keys.list[listed] : -1;
  }
  const uint32_t* table = job.step.tables + keys.seq.table_offset;
#pragma unroll
  for (int i = 0; i < kTurns; ++i)
    if (entry[i] >= 0)
      slab[i] = job.source.slabs +
                static_cast<int64_t>(table[entry[i] >> job.source.shift]) * job.source.slab_bytes;
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int place = i * kThreads + thread;
    if (place / 32 * 32 >= places) break;
    const uint8_t* record = nullptr;
    if (i == 0 && place < job.window)
      record = keys.record(place);
    else if (entry[i] >= 0)
      record = slab[i] + job.source.entry_offset +
               (entry[i] & (job.source.n_entries - 1)) * job.source.entry_bytes;
    const uint32_t there = __ballot_sync(0xFFFFFFFFu, record != nullptr);
    if (thread % 32 == 0) present[place / 32] = there;
    if (record == nullptr) record = reinterpret_cast<const uint8_t*>(no_record);
    addresses[place] = reinterpret_cast<uint64_t>(record);
  }
}

}  // namespace hadal::cuda
