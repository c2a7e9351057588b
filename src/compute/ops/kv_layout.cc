#include "compute/ops/kv_layout.h"

#include "base/core/check.h"

namespace hadal::ops {
namespace {

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace

KvLayouts make_kv_layouts(const KvShape& shape, int32_t block_tokens) {
  KvLayouts out;
  KvLayout& kv = out.kv;
  SlotLayout& slot = out.slot;
  kv.block_tokens = block_tokens;
  slot.n_history = shape.max_ngram > 0 ? shape.max_ngram - 1 : 0;
  slot.group_offset = round_up(4 * (1 + slot.n_history), 64);
  int64_t group = slot.group_offset;
  int64_t at = 0;
  for (size_t i = 0; i < shape.source_layers.size(); ++i) {
    KvSource s;
    s.layer = shape.source_layers[i];
    s.ratio = shape.source_ratios[i];
    HADAL_CHECK(s.ratio > 0 && block_tokens % s.ratio == 0,
                "block_tokens is no multiple of a compression ratio");
    s.n_entries = block_tokens / s.ratio;
    s.entry_bytes = entry_record_bytes(shape.d_head);
    s.key_code_bytes = shape.d_index / 2;
    s.key_scale_bytes = shape.d_index / 32;
    s.entry_offset = at;
    s.key_offset = s.entry_offset + s.n_entries * s.entry_bytes;
    s.key_scale_offset = s.key_offset + s.n_entries * s.key_code_bytes;
    at = s.key_scale_offset + s.n_entries * s.key_scale_bytes;
    s.group_offset = group;
    group += static_cast<int64_t>(s.ratio - 1) * 2 * shape.d_head * 4;
    kv.sources.push_back(s);
  }
  kv.slab_bytes = round_up(at, 4096);
  slot.group_bytes = group - slot.group_offset;
  slot.n_ring_layers = shape.n_layers;
  slot.ring_tokens = shape.ring_tokens > 0 ? shape.ring_tokens : shape.window;
  HADAL_CHECK(slot.ring_tokens >= shape.window, "a ring shorter than the window");
  slot.window_bytes = window_record_bytes(shape.d_head);
  slot.ring_offset = round_up(group, 64);
  slot.slot_bytes = round_up(slot.ring_offset + shape.n_layers * slot.ring_bytes(), 256);
  return out;
}

}  // namespace hadal::ops
