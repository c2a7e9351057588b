#include "compute/ops/step_batch.h"

#include <algorithm>
#include <numeric>

#include "base/core/check.h"

namespace hadal::ops {
namespace {

// Depth of every row, sequence-major, and the batch's sequence table.
void add_chunk(const BatchShape& shape, const SeqChunk& chunk, StepBatch& batch,
               std::vector<int32_t>& depth) {
  const auto n = static_cast<int32_t>(chunk.ids.size());
  HADAL_CHECK(n > 0 && chunk.n_logits >= 0 && chunk.n_logits <= n, "an empty or short chunk");
  HADAL_CHECK(chunk.image.empty() || chunk.image.size() == chunk.ids.size(), "image flags");
  const int32_t end = chunk.position + n;
  HADAL_CHECK(chunk.n_logits == 0 || chunk.depth_from <= end - chunk.n_logits,
              "a row that wants logits does not run every layer");
  BatchSeq seq;
  seq.slot = chunk.slot;
  seq.first_position = chunk.position;
  seq.n_rows = n;
  seq.first_index = static_cast<int32_t>(depth.size());
  seq.window_floor = chunk.window_floor;
  seq.upper_floor = chunk.window_floor;
  if (chunk.replay == Replay::kBounded)
    seq.upper_floor = std::max(seq.upper_floor, chunk.depth_from + 1 - shape.window);
  seq.write_from = chunk.write_from;
  seq.table_offset = static_cast<int32_t>(batch.tables.size());
  batch.seqs.push_back(seq);
  batch.tables.insert(batch.tables.end(), chunk.blocks.begin(), chunk.blocks.end());
  batch.max_end = std::max(batch.max_end, end);
  for (int32_t i = 0; i < n; ++i)
    depth.push_back(row_depth(shape, chunk.replay, chunk.position + i, chunk.depth_from));
}

}  // namespace

int32_t row_depth(const BatchShape& shape, Replay replay, int32_t position, int32_t depth_from) {
  const int32_t below = depth_from - position;
  if (below <= 0) return shape.n_layers;
  if (replay == Replay::kBounded) return below < shape.window ? shape.n_layers : shape.split;
  // Row q of layer l looks at the latents of q - window + 1 .. q in the same layer, hence at whole
  // rows of the layer before: each layer costs window - 1 rows.
  const int32_t reach = std::max(shape.window - 1, 1);
  return std::max(shape.split, shape.n_layers - (below + reach - 1) / reach);
}

void build_step_batch(const BatchShape& shape, std::span<const SeqChunk> chunks, StepBatch& batch) {
  batch.seqs.clear();
  batch.tables.clear();
  batch.logit_rows.clear();
  batch.max_end = 0;
  std::vector<int32_t> depth;
  for (const SeqChunk& chunk : chunks) add_chunk(shape, chunk, batch, depth);
  const size_t n = depth.size();
  std::vector<int32_t> order(n);  // row -> sequence-major index
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return depth[static_cast<size_t>(a)] > depth[static_cast<size_t>(b)];
  });
  batch.ids.resize(n);
  batch.positions.resize(n);
  batch.seq_of.resize(n);
  batch.image.resize(n);
  batch.row_of.resize(n);
  std::vector<int32_t> seq_at(n);
  for (size_t s = 0; s < batch.seqs.size(); ++s) {
    const BatchSeq& seq = batch.seqs[s];
    std::fill_n(seq_at.begin() + seq.first_index, seq.n_rows, static_cast<int32_t>(s));
  }
  for (size_t row = 0; row < n; ++row) {
    const auto at = static_cast<size_t>(order[row]);
    const auto s = static_cast<size_t>(seq_at[at]);
    const size_t i = at - static_cast<size_t>(batch.seqs[s].first_index);
    batch.row_of[at] = static_cast<int32_t>(row);
    batch.ids[row] = chunks[s].ids[i];
    batch.positions[row] = batch.seqs[s].first_position + static_cast<int32_t>(i);
    batch.seq_of[row] = static_cast<int32_t>(s);
    batch.image[row] = chunks[s].image.empty() ? uint8_t{0} : chunks[s].image[i];
  }
  for (size_t s = 0; s < chunks.size(); ++s) {
    const BatchSeq& seq = batch.seqs[s];
    for (int32_t i = seq.n_rows - chunks[s].n_logits; i < seq.n_rows; ++i)
      batch.logit_rows.push_back(batch.row_of[static_cast<size_t>(seq.first_index + i)]);
  }
  batch.n_full.assign(static_cast<size_t>(shape.n_layers), 0);
  batch.n_latent.assign(static_cast<size_t>(shape.n_layers), 0);
  for (int32_t l = 0; l < shape.n_layers; ++l) {
    const auto whole = [&](int32_t d) { return d > l; };
    const auto latent = [&](int32_t d) { return d >= l; };
    batch.n_full[static_cast<size_t>(l)] =
        static_cast<int32_t>(std::count_if(depth.begin(), depth.end(), whole));
    batch.n_latent[static_cast<size_t>(l)] =
        static_cast<int32_t>(std::count_if(depth.begin(), depth.end(), latent));
  }
}

}  // namespace hadal::ops
