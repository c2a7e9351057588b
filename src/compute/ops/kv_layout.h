#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hadal::ops {

// Bytes of the three records (docs/model.md): a window latent is E4M3 values and one E8M0 scale per
// 32; a compressed entry E2M1 pairs and one E4M3 scale per 16; an index key E2M1 pairs and one E8M0
// scale per 32. At released sizes 528, 288 and 68.
constexpr int64_t window_record_bytes(int64_t d_head) {
  return d_head + d_head / 32;
}
constexpr int64_t entry_record_bytes(int64_t d_head) {
  return d_head / 2 + d_head / 16;
}
constexpr int64_t key_record_bytes(int64_t d_index) {
  return d_index / 2 + d_index / 32;
}

// Where one KV source (a layer that writes global cache) lives inside a block's slab. Entry j of a
// sequence covers tokens [j * ratio, (j + 1) * ratio) and lies in block j / n_entries.
struct KvSource {
  int32_t layer = 0;
  int32_t ratio = 1;
  int64_t n_entries = 0;     // per block: block_tokens / ratio
  int64_t entry_offset = 0;  // latents inline: n_entries x entry_bytes
  int64_t key_offset = 0;    // index keys planar: n_entries x key_code_bytes, then the scales
  int64_t key_scale_offset = 0;
  int64_t entry_bytes = 0;      // d_head/2 + d_head/16
  int64_t key_code_bytes = 0;   // d_index / 2
  int64_t key_scale_bytes = 0;  // d_index / 32
  int64_t group_offset = 0;     // in a slot: f32 [ratio - 1][2][d_head], unused at ratio 1
};

// One block id is one slab: a fixed interval of `block_tokens` tokens with a part per source.
// kKvLayoutVersion goes into every file, frame and header that carries slabs or slots.
inline constexpr uint32_t kKvLayoutVersion = 1;
struct KvLayout {
  int32_t block_tokens = 0;
  int64_t slab_bytes = 0;  // padded to 4 KiB
  std::vector<KvSource> sources;
};

// What a sequence owns besides its blocks: window rings, open groups, n-gram history.
//   header   int32: n_committed (the sequence's length), then the last max_ngram - 1 compressed
//   ids,
//            oldest first, -1 for image tokens and for places before the start
//   groups   per source of ratio > 1: f32 [ratio - 1][2][d_head], the value and gate rows of the
//            tokens of the open group
//   rings    [n_ring_layers][ring_tokens][window_bytes]; position p is in slot p % ring_tokens
struct SlotLayout {
  int32_t n_history = 0;  // max_ngram - 1, 0 without Engram
  int32_t n_ring_layers = 0;
  int32_t ring_tokens = 0;  // a plan value, at least the window
  int64_t window_bytes = 0;
  int64_t group_offset = 0;
  int64_t group_bytes = 0;
  int64_t ring_offset = 0;
  int64_t slot_bytes = 0;  // padded to 256

  int64_t ring_bytes() const { return ring_tokens * window_bytes; }
};

// Device memory of the cache: slabs of the pool and slots of the running sequences. Who owns them
// decides how many; ops only address them.
struct KvView {
  std::byte* slabs = nullptr;  // [n_blocks][slab_bytes]
  std::byte* slots = nullptr;  // [n_slots][slot_bytes]
  uint32_t n_blocks = 0;
  uint32_t n_slots = 0;
};

struct KvShape {
  int32_t n_layers = 0;  // rings
  int32_t window = 0;
  int32_t ring_tokens = 0;  // 0: the window
  int32_t d_head = 0;
  int32_t d_index = 0;
  int32_t max_ngram = 0;  // 0: no Engram
  std::vector<int32_t> source_layers;
  std::vector<int32_t> source_ratios;
};

struct KvLayouts {
  KvLayout kv;
  SlotLayout slot;
};

// REQUIRES: block_tokens is a multiple of every ratio, ring_tokens is 0 or >= window.
KvLayouts make_kv_layouts(const KvShape& shape, int32_t block_tokens);

}  // namespace hadal::ops
