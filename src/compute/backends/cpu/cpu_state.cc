#include <algorithm>
#include <cmath>
#include <cstring>

#include "compute/backends/cpu/cpu_ops.h"
#include "compute/ops/step_batch.h"

// Engram, and what a step leaves in the slots.
namespace hadal::cpu {
namespace {

constexpr int32_t kDead = -1;

// Compressed id of the token at `position` of the row's sequence; kDead for image tokens and places
// before the start.
struct History {
  const ops::StepRows& rows;
  const int32_t* token_map;
  int32_t n_history;

  int32_t at(const ops::BatchSeq& seq, const int32_t* header, int32_t position) const {
    if (position < 0) return kDead;
    if (position < seq.first_position) {
      const int32_t back = seq.first_position - position;
      return back <= n_history ? header[1 + n_history - back] : kDead;
    }
    const int32_t row = rows.row_of[seq.first_index + position - seq.first_position];
    return rows.image[row] != 0 ? kDead : token_map[rows.ids[row]];
  }
};

uint16_t table_value(uint8_t code, uint8_t scale) {
  const uint32_t u = static_cast<uint32_t>(code & 0x80) << 24 | static_cast<uint32_t>(code & 0x7F)
                                                                    << 20;
  const uint32_t e = scale == 0 ? 0x00400000u : static_cast<uint32_t>(scale) << 23;
  float v, s;
  std::memcpy(&v, &u, 4);
  std::memcpy(&s, &e, 4);
  v = v * 0x1p120f * s;  // exact: at most four significant bits
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace

void CpuOps::engram_gather(const ops::GatherArgs& args, ops::Stream&) {
  const History history{*args.rows, args.token_map, args.slot->n_history};
  pool_.run([&](const Lane& lane) {
    const Range rows = share(args.n_rows, lane);
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      const ops::BatchSeq& seq = args.rows->seqs[args.rows->seq_of[t]];
      const auto* header =
          reinterpret_cast<const int32_t*>(args.kv->slots + seq.slot * args.slot->slot_bytes);
      uint64_t z = 0;
      bool blocked = false;
      for (int32_t i = 0; i < args.max_ngram; ++i) {
        const int32_t id = history.at(seq, header, args.rows->positions[t] - i);
        blocked = blocked || id == kDead;
        z ^= static_cast<uint64_t>(blocked ? args.pad : id) *
             static_cast<uint64_t>(args.multipliers[i]);
        for (int32_t head = 0; i > 0 && head < args.n_heads; ++head) {
          const int32_t column = (i - 1) * args.n_heads + head;
          const int64_t row = static_cast<int64_t>(z) % args.primes[column] + args.offsets[column];
          const uint8_t* codes = args.table + row * args.width;
          const uint8_t* scale = args.scale + row * (args.width / 32);
          uint16_t* e = args.e.row(t) + static_cast<int64_t>(column) * args.width;
          for (int32_t c = 0; c < args.width; ++c) e[c] = table_value(codes[c], scale[c / 32]);
        }
      }
    }
  });
}

void CpuOps::engram_apply(const ops::EngramArgs& args, ops::Stream&) {
  const int64_t d = args.d_hidden;
  const int32_t c = args.n_streams;
  const auto width = static_cast<float>(d);
  const auto constant = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  pool_.run([&](const Lane& lane) {
    const Range items = share(static_cast<int64_t>(args.n_rows) * c, lane);
    for (int64_t i = items.begin; i < items.end; ++i) {
      const int64_t t = i / c, j = i % c;
      if (args.rows->image[t] != 0) continue;
      uint16_t* h = args.streams + i * d;
      float sum[3];
      row_.engram_sums(h, args.q_weight + j * d, args.k_weight + j * d, args.kv.row(t) + j * d, d,
                       sum);
      const float dot = sum[0] * (1.0f / std::sqrt(sum[1] / width + args.eps)) *
                        (1.0f / std::sqrt(sum[2] / width + args.eps)) * constant;
      const float x = std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot);
      const float gate = 1.0f / (1.0f + static_cast<float>(row_.exp(-x)));
      row_.add_scaled(args.kv.row(t) + c * d, gate, d, h);
    }
  });
}

namespace {

void commit_rings(const ops::CommitArgs& args, const ops::BatchSeq& seq, int32_t accepted,
                  std::byte* slot, int64_t layer) {
  const ops::SlotLayout& layout = *args.slot;
  const int32_t end = seq.first_position + accepted;
  std::byte* ring = slot + layout.ring_offset + layer * layout.ring_bytes();
  const uint8_t* latents = args.latents + layer * args.row_capacity * layout.window_bytes;
  for (int32_t p = std::max(seq.first_position, end - layout.ring_tokens); p < end; ++p) {
    const int32_t row = args.rows->row_of[seq.first_index + p - seq.first_position];
    if (row >= args.n_latent[layer]) continue;
    std::memcpy(ring + (p % layout.ring_tokens) * layout.window_bytes,
                latents + row * layout.window_bytes, static_cast<size_t>(layout.window_bytes));
  }
}

void commit_groups(const ops::CommitArgs& args, const ops::BatchSeq& seq, int32_t end,
                   std::byte* slot) {
  for (size_t s = 0; s < args.layout->sources.size(); ++s) {
    const ops::KvSource& source = args.layout->sources[s];
    const size_t bytes = static_cast<size_t>(args.d_head) * 2 * sizeof(float);
    for (int32_t p = end - end % source.ratio; p < end; ++p) {
      if (p < seq.first_position) continue;  // already in the slot
      const int64_t row = args.rows->row_of[seq.first_index + p - seq.first_position];
      std::memcpy(slot + source.group_offset + static_cast<size_t>(p % source.ratio) * bytes,
                  args.groups[s] + row * 2 * args.d_head, bytes);
    }
  }
}

}  // namespace

void CpuOps::commit(const ops::CommitArgs& args, ops::Stream&) {
  const ops::StepRows& rows = *args.rows;
  const History history{rows, args.token_map, args.slot->n_history};
  const int64_t layers = args.slot->n_ring_layers;
  pool_.run([&](const Lane& lane) {
    const Range items = share(rows.n_seqs * layers, lane);
    for (int64_t i = items.begin; i < items.end; ++i) {
      const ops::BatchSeq& seq = rows.seqs[i / layers];
      const int32_t accepted = args.n_accepted[i / layers];
      if (accepted == 0) continue;
      std::byte* slot = args.kv->slots + seq.slot * args.slot->slot_bytes;
      commit_rings(args, seq, accepted, slot, i % layers);
      if (i % layers != 0) continue;
      const int32_t end = seq.first_position + accepted;
      commit_groups(args, seq, end, slot);
      auto* header = reinterpret_cast<int32_t*>(slot);
      int32_t fresh[16];
      HADAL_CHECK(args.slot->n_history <= 16, "n-grams longer than 17");
      for (int32_t h = 0; h < args.slot->n_history; ++h)
        fresh[h] = history.at(seq, header, end - args.slot->n_history + h);
      std::copy_n(fresh, args.slot->n_history, header + 1);
      header[0] = end;
    }
  });
}

}  // namespace hadal::cpu
