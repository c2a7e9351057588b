#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/core/result.h"

namespace hadal::ops {

// How deep the rows of a prompt go (docs/forward.md, "Tails"). Layers above the last KV source own
// nothing that later tokens need except window rings, so most prompt rows may stop at that source.
enum class Replay : uint8_t {
  kExact,    // shrinking tail: bit-equal to running every layer on every row
  kBounded,  // only the last window of the prompt runs the upper layers, with windows cut at its
             // first row
};

// The rows of one sequence in one step: consecutive positions.
struct SeqChunk {
  uint32_t slot = 0;                      // sequence state in KvView::slots
  int32_t position = 0;                   // of ids[0]; equals the slot's committed length
  std::span<const int32_t> ids = {};      // tokens to run
  std::span<const uint8_t> image = {};    // empty, or 1 for every row of an image span
  std::span<const uint32_t> blocks = {};  // block table of the sequence, long enough for these rows
  int32_t n_logits = 1;                   // the last n_logits rows want logits
  // Rows at this position and above run every layer; those below only what they and later tokens
  // need. A prompt's last position; 0 (every row whole) for decode, verification and scoring.
  // The same in every chunk of a prompt, and never above a row that wants logits.
  int32_t depth_from = 0;
  Replay replay = Replay::kExact;
  // Bounded prefix replay (model.md 4.5): no window looks below `window_floor`, and entries whose
  // last token is before `write_from` are already in the cache and not written again.
  int32_t window_floor = 0;
  int32_t write_from = 0;
};

// What the plan needs to know of the model.
struct BatchShape {
  int32_t n_layers = 0;
  int32_t window = 0;
  int32_t split = 0;  // the last KV source layer: rows of least depth still run its producers
};

struct BatchSeq {
  uint32_t slot = 0;
  int32_t first_position = 0;
  int32_t n_rows = 0;
  int32_t first_index = 0;  // into row_of: the row of position p is row_of[first_index + p - first]
  int32_t window_floor = 0;
  int32_t upper_floor = 0;  // the same for layers above `split`
  int32_t write_from = 0;
  int32_t table_offset = 0;  // into `tables`
};

// One step as plain data. Rows are sorted by depth, deepest first, so that layer l runs whole on
// the rows [0, n_full[l]) and makes its window latents (and global entries) on [0, n_latent[l]).
// The rows of one sequence keep their order. A row's result depends on its sequence only, never on
// its place.
struct StepBatch {
  std::vector<BatchSeq> seqs;
  std::vector<uint32_t> tables;
  // per row
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;
  std::vector<int32_t> seq_of;
  std::vector<uint8_t> image;
  // sequence-major: first_index of a sequence plus a position's distance from its first
  std::vector<int32_t> row_of;
  // rows that want logits, in the order of the chunks and of their positions
  std::vector<int32_t> logit_rows;
  std::vector<int32_t> n_full;    // [n_layers]
  std::vector<int32_t> n_latent;  // [n_layers], >= n_full
  int32_t max_end = 0;            // the largest position plus one

  int32_t n_rows() const { return static_cast<int32_t>(ids.size()); }
  int32_t n_seqs() const { return static_cast<int32_t>(seqs.size()); }
};

// Number of layers that the row at `position` runs whole; at least shape.split.
int32_t row_depth(const BatchShape& shape, Replay replay, int32_t position, int32_t depth_from);

// Rebuilds `batch` (reusing its memory) from the chunks of a step.
// REQUIRES: every chunk has at least one row, n_logits <= its rows, no slot twice.
void build_step_batch(const BatchShape& shape, std::span<const SeqChunk> chunks, StepBatch& batch);

}  // namespace hadal::ops
