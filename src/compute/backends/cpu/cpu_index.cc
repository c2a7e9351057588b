#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compute/backends/cpu/cpu_ops.h"
#include "compute/backends/cpu/select.h"
#include "compute/ops/step_batch.h"

// Index search (model.md 3.6). Rows are done in tiles whose scores fit the scratch; within a tile
// the work is cut into blocks of rows of one sequence times chunks of entries, so that prefill
// shares the unpacked keys among rows and a single decode row still fills all lanes.
namespace hadal::cpu {
namespace {

constexpr int64_t kRowBlock = 8;
constexpr int64_t kChunk = 512;  // entries; a multiple of 16

// Values of the e2m1 codes times two: small integers, so that products add exactly.
constexpr float kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};

float exponent_value(uint8_t b) {
  const uint32_t u = b == 0 ? 0x00400000u : static_cast<uint32_t>(b) << 23;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

float rounded_bf16(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return x;
  u = (u + 0x7FFFu + ((u >> 16) & 1u)) & 0xFFFF0000u;
  std::memcpy(&x, &u, 4);
  return x;
}

// The entries that a row may choose from, numbered 0 ... count - 1 in ascending order.
struct Domain {
  int64_t count = 0;
  const int32_t* blocks = nullptr;  // candidate blocks, or null: entry i is number i
  int32_t block = 1;
  int64_t entry(int64_t i) const {
    return blocks == nullptr ? i : static_cast<int64_t>(blocks[i / block]) * block + i % block;
  }
};

struct Search {
  const ops::IndexArgs& args;
  const RowKernels& row;
  const ops::KvSource& source;

  int64_t visible(int64_t t) const { return (args.rows->positions[t] + 1) / source.ratio; }

  bool pooled(int64_t t) const { return args.use_pool && args.n_pool[t] >= 0; }

  Domain domain(int64_t t) const {
    const int64_t n = visible(t);
    if (!pooled(t)) return {n, nullptr, 1};
    const int64_t kept = args.n_pool[t], size = args.pool_block;
    if (kept == 0) return {};
    const int64_t last = args.pool.row(t)[kept - 1];
    const int64_t tail = std::min((last + 1) * size, n) - last * size;
    return {(kept - 1) * size + tail, args.pool.row(t), args.pool_block};
  }

  // Every visible entry is chosen and kept, whatever its score.
  bool trivial(int64_t t) const {
    const int64_t n = visible(t);
    const int64_t blocks = args.make_pool ? (n + args.pool_block - 1) / args.pool_block : 0;
    return domain(t).count <= args.top_k && (!args.make_pool || blocks <= args.pool.n_cols);
  }

  void unpack(const Domain& domain, int64_t t, int64_t first, int64_t n, float* codes,
              float* scales) const {
    const ops::StepRows& rows = *args.rows;
    const uint32_t* table = rows.tables + rows.seqs[rows.seq_of[t]].table_offset;
    const int64_t half = args.d_index / 2, groups = args.d_index / 32;
    for (int64_t j = 0; j < 16; ++j) {
      if (j >= n) {
        for (int64_t i = 0; i < args.d_index; ++i) codes[i * 16 + j] = 0;
        for (int64_t g = 0; g < groups; ++g) scales[g * 16 + j] = 0;
        continue;
      }
      const int64_t e = domain.entry(first + j);
      const auto* slab = reinterpret_cast<const uint8_t*>(
          args.kv->slabs +
          static_cast<int64_t>(table[e / source.n_entries]) * args.layout->slab_bytes);
      const int64_t at = e % source.n_entries;
      const uint8_t* key = slab + source.key_offset + at * source.key_code_bytes;
      const uint8_t* scale = slab + source.key_scale_offset + at * source.key_scale_bytes;
      for (int64_t i = 0; i < half; ++i) {
        codes[(2 * i) * 16 + j] = kDoubled[key[i] & 15];
        codes[(2 * i + 1) * 16 + j] = kDoubled[key[i] >> 4];
      }
      for (int64_t g = 0; g < groups; ++g) scales[g * 16 + j] = exponent_value(scale[g]);
    }
  }

  void unpack_query(int64_t t, float* codes, float* scales, float* weight) const {
    const int64_t half = args.d_index / 2, groups = args.d_index / 32;
    const int64_t record = ops::key_record_bytes(args.d_index);
    for (int64_t h = 0; h < args.n_heads; ++h) {
      const uint8_t* q = args.iq.row(t) + h * record;
      for (int64_t i = 0; i < half; ++i) {
        codes[h * args.d_index + 2 * i] = kDoubled[q[i] & 15];
        codes[h * args.d_index + 2 * i + 1] = kDoubled[q[i] >> 4];
      }
      for (int64_t g = 0; g < groups; ++g)
        scales[h * groups + g] = exponent_value(q[half + g]) * 0.25f;
      weight[h] = rounded_bf16(args.hw.row(t)[h]);
    }
  }

  // Scores of entries [first, end) of rows [t0, t0 + n), which share sequence and domain.
  void score_block(int64_t t0, int64_t n, int64_t first, int64_t end, float* const* scores,
                   Carver carver) const {
    const int64_t width = args.n_heads * args.d_index, groups = args.d_index / 32;
    ScoreQuery queries[kRowBlock];
    for (int64_t r = 0; r < n; ++r) {
      auto* codes = carver.take<float>(width);
      auto* scales = carver.take<float>(args.n_heads * groups);
      auto* weight = carver.take<float>(args.n_heads);
      unpack_query(t0 + r, codes, scales, weight);
      queries[r] = {codes, scales, weight};
    }
    auto* codes = carver.take<float>(16 * static_cast<int64_t>(args.d_index));
    auto* scales = carver.take<float>(16 * groups);
    Domain last;  // of the row that sees most; rows of unlike depth are not in order of position
    for (int64_t r = 0; r < n; ++r) {
      const Domain d = domain(t0 + r);
      if (d.count > last.count) last = d;
    }
    const auto constant =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.d_index) * args.n_heads));
    for (int64_t e = first; e < std::min(end, last.count); e += 16) {
      unpack(last, t0, e, std::min<int64_t>(16, last.count - e), codes, scales);
      float* out[kRowBlock];
      for (int64_t r = 0; r < n; ++r) out[r] = scores[r] + e;
      row.score({codes, scales}, queries, static_cast<int32_t>(n), args.n_heads, args.d_index,
                constant, out);
    }
  }

  void make_pool(int64_t t, float* score, float* block_score) const {
    const int64_t n = visible(t), size = args.pool_block, blocks = (n + size - 1) / size;
    if (blocks <= args.pool.n_cols) {
      args.n_pool[t] = -1;
      return;
    }
    for (int64_t b = 0; b < blocks; ++b) {
      float top = -std::numeric_limits<float>::infinity();
      for (int64_t i = b * size; i < std::min(n, (b + 1) * size); ++i)
        top = score[i] > top ? score[i] : top;
      block_score[b] = top;
    }
    float& newest = block_score[blocks - 1];
    if (newest > -std::numeric_limits<float>::infinity())
      newest = std::numeric_limits<float>::infinity();
    args.n_pool[t] =
        static_cast<int32_t>(select_top(block_score, blocks, args.pool.n_cols, args.pool.row(t)));
  }

  void choose(int64_t t, float* score, float* block_score) const {
    const Domain d = domain(t);
    int32_t* list = args.list.row(t);
    if (trivial(t)) {
      for (int64_t i = 0; i < d.count; ++i) list[i] = static_cast<int32_t>(d.entry(i));
      args.n_list[t] = static_cast<int32_t>(d.count);
      if (args.make_pool) args.n_pool[t] = -1;
      return;
    }
    const int64_t n = select_top(score, d.count, args.top_k, list);
    for (int64_t i = 0; i < n; ++i) list[i] = static_cast<int32_t>(d.entry(list[i]));
    args.n_list[t] = static_cast<int32_t>(n);
    if (args.make_pool) make_pool(t, score, block_score);
  }
};

struct Block {
  int32_t first, n;  // rows
};

}  // namespace

void CpuOps::index_select(const ops::IndexArgs& args, Scratch scratch, ops::Stream&) {
  const Search search{args, row_, args.layout->sources[static_cast<size_t>(args.source)]};
  int64_t most = 1;
  for (int32_t t = 0; t < args.n_rows; ++t)
    if (!search.trivial(t)) most = std::max(most, search.domain(t).count);
  const int64_t stride = (most + 31) / 16 * 16;
  Carver carver(scratch);
  const int64_t tile = std::clamp<int64_t>((carver.left() - 64) / (stride * 4), 1, 1024);
  auto* scores = carver.take<float>(tile * stride);
  const int64_t query_bytes =
      kRowBlock * (padded64(args.n_heads * args.d_index * 4) +
                   padded64(args.n_heads * args.d_index / 8) + padded64(args.n_heads * 4)) +
      padded64(64 * args.d_index) + padded64(2 * args.d_index);
  HADAL_CHECK(query_bytes <= pool_.scratch_bytes(), "lane scratch is too small to search");
  for (int64_t t0 = 0; t0 < args.n_rows; t0 += tile) {
    const int64_t t1 = std::min<int64_t>(args.n_rows, t0 + tile);
    Block blocks[1024];
    int64_t n_blocks = 0;
    for (int64_t t = t0; t < t1; ++t) {
      if (search.trivial(t)) continue;
      Block* last = n_blocks > 0 ? &blocks[n_blocks - 1] : nullptr;
      const bool joins = last != nullptr && last->first + last->n == t && last->n < kRowBlock &&
                         args.rows->seq_of[t] == args.rows->seq_of[last->first] &&
                         !search.pooled(t) && !search.pooled(last->first);
      if (joins) {
        ++last->n;
      } else {
        blocks[n_blocks++] = {static_cast<int32_t>(t), 1};
      }
    }
    const int64_t chunks = (most + kChunk - 1) / kChunk;
    pool_.run([&](const Lane& lane) {
      // Chunk-major and dealt in turn: late chunks are shorter for early rows.
      for (int64_t i = lane.index; i < n_blocks * chunks; i += lane.count) {
        const Block& b = blocks[i % n_blocks];
        float* rows[kRowBlock];
        for (int64_t r = 0; r < b.n; ++r) rows[r] = scores + (b.first + r - t0) * stride;
        const int64_t first = i / n_blocks * kChunk;
        search.score_block(b.first, b.n, first, first + kChunk, rows,
                           Carver(lane.scratch, pool_.scratch_bytes()));
      }
      lane.barrier();
      auto* block_score = reinterpret_cast<float*>(lane.scratch);
      for (int64_t t = t0 + lane.index; t < t1; t += lane.count)
        search.choose(t, scores + (t - t0) * stride, block_score);
    });
  }
}

}  // namespace hadal::cpu
