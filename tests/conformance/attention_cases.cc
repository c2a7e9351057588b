#include <memory>

#include "base/core/check.h"
#include "compute/ops/step_batch.h"
#include "conformance/op_cases.h"

namespace hadal::test {
namespace {

constexpr int32_t kHead = 64, kRope = 16, kIndex = 32, kIndexHeads = 16, kHeads = 6, kLora = 96;
// One code in 200: a bf16 rounding of a product on the other side, seldom a code's too.
constexpr double kBehindProduct = 0.005;
constexpr int32_t kWindow = 20, kTop = 24, kBlock = 8, kPoolBlocks = 6, kPoolBlock = 4;

template <class T>
std::unique_ptr<T> must(core::Result<std::unique_ptr<T>> result) {
  HADAL_CHECK(result.has_value(), result.has_value() ? "" : result.error().message);
  return std::move(result).value();
}

// One attention layer of its own: a source of ratio 2 or 1 with its search, driven over two steps
// of two sequences (prefill, then a mixed step), so that rings, open groups and pages all matter.
struct Layer {
  Bench& b;
  Draw d;
  int32_t ratio;
  ops::KvLayouts layouts;
  ops::KvView kv;
  std::vector<std::vector<uint16_t>> host;  // weights of packed matrices
  std::unique_ptr<ops::Linear> wk, wq, index_wq, wo_a, wo_b;
  std::vector<uint8_t> codes, scale, out_codes, out_scale;
  const uint16_t *kv_norm, *c_norm, *k_norm, *q_norm;
  const float* sink;

  std::unique_ptr<ops::Linear> bf16_linear(int64_t n, int64_t k) {
    host.push_back(d.bf16(n * k, 0.15f));
    const ops::WeightSource s[] = {
        {.format = ops::WeightFormat::kBf16, .n = n, .k = k, .weight = host.back().data()}};
    return must(b.ops().make_linear(s));
  }

  Layer(Bench& bench, int32_t r) : b(bench), d(static_cast<uint64_t>(r) + 11), ratio(r) {
    ops::KvShape shape;
    shape.n_layers = 1;
    shape.window = kWindow;
    shape.d_head = kHead;
    shape.d_index = kIndex;
    shape.max_ngram = 3;
    shape.source_layers = {0};
    shape.source_ratios = {r};
    layouts = ops::make_kv_layouts(shape, kBlock);
    kv.n_blocks = 64;
    kv.n_slots = 2;
    kv.slabs = reinterpret_cast<std::byte*>(b.room<uint8_t>(64 * layouts.kv.slab_bytes));
    kv.slots = reinterpret_cast<std::byte*>(b.room<uint8_t>(2 * layouts.slot.slot_bytes));
    wk = bf16_linear(kIndex, kHead);
    wq = bf16_linear(kHeads * kHead, kLora);
    index_wq = bf16_linear(kIndexHeads * kIndex, kLora);
    codes = d.e4m3(2 * 32 * kHeads / 2 * kHead);
    scale = d.scales(2 * kHeads / 2 * kHead / 32, 117);
    wo_a = must(b.ops().make_grouped({.format = ops::WeightFormat::kFp8Tile,
                                      .n = 64,
                                      .k = kHeads / 2 * kHead,
                                      .weight = codes.data(),
                                      .scale = scale.data()},
                                     2));
    out_codes = d.e4m3(96 * 64);
    out_scale = d.scales(3 * 2, 117);
    const ops::WeightSource out[] = {{.format = ops::WeightFormat::kFp8Tile,
                                      .n = 96,
                                      .k = 64,
                                      .weight = out_codes.data(),
                                      .scale = out_scale.data()}};
    wo_b = must(b.ops().make_linear(out));
    kv_norm = b.put(d.bf16(kHead, 0.3f, 1));
    c_norm = b.put(d.bf16(kHead, 0.3f, 1));
    k_norm = b.put(d.bf16(kIndex, 0.3f, 1));
    q_norm = b.put(d.bf16(kLora, 0.3f, 1));
    sink = b.put(d.f32(kHeads));
  }

  ops::StepRows upload(const ops::StepBatch& batch) {
    ops::StepRows rows;
    rows.n_rows = batch.n_rows();
    rows.n_seqs = batch.n_seqs();
    rows.max_end = batch.max_end;
    rows.ids = b.put(batch.ids);
    rows.positions = b.put(batch.positions);
    rows.seq_of = b.put(batch.seq_of);
    rows.image = b.put(batch.image);
    rows.row_of = b.put(batch.row_of);
    rows.seqs = b.put(batch.seqs);
    rows.tables = b.put(batch.tables);
    return rows;
  }

  const float* angles(const ops::StepRows& rows, int32_t back) {
    static const std::vector<float> freq = {1.0f,  0.3f,   0.1f,   0.03f,
                                            0.01f, 0.003f, 0.001f, 0.0003f};
    auto* out = b.room<float>(rows.n_rows * kRope);
    ops::RopeArgs r;
    r.positions = rows.positions;
    r.n_rows = rows.n_rows;
    r.back = back;
    r.inv_freq = freq;
    r.out = out;
    b.ops().rope(r, b.stream());
    return out;
  }

  void step(const ops::StepBatch& batch, const std::vector<int32_t>& accepted,
            const std::string& tag, std::vector<Output>& out) {
    const ops::StepRows rows = upload(batch);
    const int64_t n = rows.n_rows;
    const float* here = angles(rows, 0);
    const int64_t record = layouts.slot.window_bytes;
    auto* latents = b.room<uint8_t>(n * record);
    ops::LatentArgs l;
    l.kv = {b.put(d.bf16(n * kHead)), n, kHead};
    l.norm = kv_norm;
    l.eps = 1e-20f;
    l.rope = here;
    l.d_rope = kRope;
    l.out = {latents, n, record};
    b.ops().latent_write(l, b.stream());
    out.push_back(b.get(tag + " latents", OutType::kBytes, 0, latents, n * record));

    const int64_t width = ratio > 1 ? 2 * kHead : kHead;
    ops::CompressArgs c;
    c.rows = &rows;
    c.n_rows = rows.n_rows;
    c.vg = {b.put(d.f32(n * width)), n, width};
    c.kv = &kv;
    c.layout = &layouts.kv;
    c.slot = &layouts.slot;
    c.norm = c_norm;
    c.wk = wk.get();
    c.k_norm = k_norm;
    c.eps = 1e-20f;
    c.rope = angles(rows, ratio - 1);
    c.d_rope = kRope;
    c.d_head = kHead;
    c.d_index = kIndex;
    b.ops().compress(c, b.scratch(), b.stream());
    out.push_back(b.get(tag + " slabs", OutType::kBytes, 0, reinterpret_cast<uint8_t*>(kv.slabs),
                        64 * layouts.kv.slab_bytes, kBehindProduct));

    const int64_t keys = kIndexHeads * ops::key_record_bytes(kIndex);
    auto* q = b.room<uint16_t>(n * kHeads * kHead);
    auto* iq = b.room<uint8_t>(n * keys);
    ops::QueryArgs query;
    query.q_raw = {b.put(d.bf16(n * kLora)), n, kLora};
    query.norm = q_norm;
    query.eps = 1e-20f;
    query.wq = wq.get();
    query.index_wq = index_wq.get();
    query.rope = here;
    query.d_rope = kRope;
    query.d_head = kHead;
    query.d_index = kIndex;
    query.q = {q, n, kHeads * kHead};
    query.iq = {iq, n, keys};
    b.ops().query(query, b.scratch(), b.stream());
    out.push_back(b.get(tag + " q", OutType::kBf16, 2, q, n * kHeads * kHead));
    out.push_back(b.get(tag + " index q", OutType::kBytes, 0, iq, n * keys, kBehindProduct));

    auto* list = b.room<int32_t>(n * kTop);
    auto* n_list = b.room<int32_t>(n);
    auto* pool = b.room<int32_t>(n * kPoolBlocks);
    auto* n_pool = b.room<int32_t>(n);
    ops::IndexArgs s;
    s.rows = &rows;
    s.n_rows = rows.n_rows;
    s.kv = &kv;
    s.layout = &layouts.kv;
    s.n_heads = kIndexHeads;
    s.d_index = kIndex;
    s.iq = {iq, n, keys};
    s.hw = {b.put(d.f32(n * kIndexHeads)), n, kIndexHeads};
    s.top_k = kTop;
    s.list = {list, n, kTop};
    s.n_list = n_list;
    s.make_pool = true;
    s.pool_block = kPoolBlock;
    s.pool = {pool, n, kPoolBlocks};
    s.n_pool = n_pool;
    b.ops().index_select(s, b.scratch(), b.stream());
    out.push_back(b.get(tag + " counts", OutType::kI32, 0, n_list, n));
    out.push_back(b.get(tag + " list", OutType::kI32, 0, list, n * kTop));
    out.push_back(b.get(tag + " pool", OutType::kI32, 0, pool, n * kPoolBlocks));
    s.make_pool = false;
    s.use_pool = true;  // search again, inside the pool
    b.ops().index_select(s, b.scratch(), b.stream());
    out.push_back(b.get(tag + " list in pool", OutType::kI32, 0, list, n * kTop));

    for (const int32_t source : {-1, 0}) {
      auto* o = b.room<uint16_t>(n * kHeads * kHead);
      ops::AttendArgs a;
      a.rows = &rows;
      a.n_rows = rows.n_rows;
      a.kv = &kv;
      a.layout = &layouts.kv;
      a.slot = &layouts.slot;
      a.source = source;
      a.window = kWindow;
      a.latents = {latents, n, record};
      a.list = {list, n, kTop};
      a.n_list = n_list;
      a.q = {q, n, kHeads * kHead};
      a.sink = sink;
      a.rope = here;
      a.d_rope = kRope;
      a.d_head = kHead;
      a.o = {o, n, kHeads * kHead};
      b.ops().sparse_attend(a, b.scratch(), b.stream());
      out.push_back(b.get(tag + (source < 0 ? " window" : " sparse"), OutType::kBf16, 2, o,
                          n * kHeads * kHead));
      auto* u = b.room<uint16_t>(n * 64);
      auto* y = b.room<uint16_t>(n * 96);
      ops::OutArgs p;
      p.o = a.o;
      p.wo_a = wo_a.get();
      p.wo_b = wo_b.get();
      p.u = {u, n, 64};
      p.y = {y, n, 96};
      b.ops().out_proj(p, b.scratch(), b.stream());
      out.push_back(b.get(tag + " projection", OutType::kBf16, 2, y, n * 96));
    }
    commit(rows, batch, accepted, latents, c.vg.data);
    out.push_back(b.get(tag + " slots", OutType::kBytes, 0, reinterpret_cast<uint8_t*>(kv.slots),
                        2 * layouts.slot.slot_bytes));
  }

  void commit(const ops::StepRows& rows, const ops::StepBatch& batch,
              const std::vector<int32_t>& accepted, const uint8_t* latents, const float* vg) {
    std::vector<int32_t> map(256);
    for (int32_t i = 0; i < 256; ++i) map[static_cast<size_t>(i)] = i / 2;
    ops::CommitArgs c;
    c.rows = &rows;
    c.n_accepted = b.put(accepted);
    c.kv = &kv;
    c.layout = &layouts.kv;
    c.slot = &layouts.slot;
    c.n_latent = b.put(batch.n_latent);
    c.latents = latents;
    c.row_capacity = rows.n_rows;
    c.groups = b.put(std::vector<const float*>{vg});
    c.d_head = kHead;
    c.token_map = b.put(map);
    b.ops().commit(c, b.stream());
    b.sync();
  }
};

std::vector<Output> attention(Bench& b, int32_t ratio) {
  Layer layer(b, ratio);
  const ops::BatchShape shape{.n_layers = 1, .window = kWindow, .split = 1};
  std::vector<int32_t> ids(160);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 37 % 256);
  std::vector<uint32_t> blocks[2];
  for (uint32_t i = 0; i < 16; ++i) {
    blocks[0].push_back(2 * i);
    blocks[1].push_back(63 - 2 * i);
  }
  std::vector<Output> out;
  ops::StepBatch batch;
  const auto chunk = [&](uint32_t slot, int32_t at, int32_t n) {
    ops::SeqChunk c;
    c.slot = slot;
    c.position = at;
    c.ids = std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(n));
    c.blocks = blocks[slot];
    return c;
  };
  const ops::SeqChunk first[] = {chunk(0, 0, 71), chunk(1, 0, 12)};
  build_step_batch(shape, first, batch);
  layer.step(batch, {71, 12}, "prefill", out);
  const ops::SeqChunk second[] = {chunk(0, 71, 1), chunk(1, 12, 5)};
  build_step_batch(shape, second, batch);
  layer.step(batch, {1, 3}, "mixed", out);
  const ops::SeqChunk third[] = {chunk(1, 15, 40), chunk(0, 72, 2)};
  build_step_batch(shape, third, batch);
  layer.step(batch, {40, 0}, "again", out);
  return out;
}

std::vector<Output> gather(Bench& b) {
  Draw d(21);
  ops::KvShape shape;
  shape.n_layers = 1;
  shape.window = 4;
  shape.d_head = 32;
  shape.d_index = 32;
  shape.max_ngram = 4;
  const ops::KvLayouts layouts = ops::make_kv_layouts(shape, 8);
  std::vector<uint8_t> slot(static_cast<size_t>(layouts.slot.slot_bytes));
  const int32_t header[] = {9, 5, -1, 17};
  std::copy_n(reinterpret_cast<const uint8_t*>(header), sizeof header, slot.begin());
  ops::KvView kv;
  kv.slots = reinterpret_cast<std::byte*>(b.put(slot));
  kv.n_slots = 1;
  const std::vector<int32_t> ids = {3, 99, 14, 14, 60};
  ops::SeqChunk c;
  c.position = 9;
  c.ids = ids;
  const std::vector<uint8_t> image = {0, 0, 1, 0, 0};
  c.image = image;
  ops::StepBatch batch;
  build_step_batch({.n_layers = 1, .window = 4, .split = 1}, std::span(&c, 1), batch);
  ops::StepRows rows;
  rows.n_rows = 5;
  rows.n_seqs = 1;
  rows.ids = b.put(batch.ids);
  rows.positions = b.put(batch.positions);
  rows.seq_of = b.put(batch.seq_of);
  rows.image = b.put(batch.image);
  rows.row_of = b.put(batch.row_of);
  rows.seqs = b.put(batch.seqs);
  std::vector<int32_t> map(100);
  for (int32_t i = 0; i < 100; ++i) map[static_cast<size_t>(i)] = i * 3 % 71;
  constexpr int32_t kColumns = 6, kWidth = 32;
  constexpr int64_t kRows = 101 + 103 + 107 + 109 + 113 + 127;
  auto* e = b.room<uint16_t>(5 * kColumns * kWidth);
  ops::GatherArgs g;
  g.rows = &rows;
  g.n_rows = 5;
  g.kv = &kv;
  g.slot = &layouts.slot;
  g.token_map = b.put(map);
  g.pad = 2;
  g.max_ngram = 4;
  g.n_heads = 2;
  g.multipliers =
      b.put(std::vector<int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391});
  g.primes = b.put(std::vector<int64_t>{101, 103, 107, 109, 113, 127});
  g.offsets = b.put(std::vector<int64_t>{0, 101, 204, 311, 420, 533});
  g.table = b.put(d.e4m3(kRows * kWidth));
  g.scale = b.put(d.scales(kRows, 120));
  g.width = kWidth;
  g.e = {e, 5, kColumns * kWidth};
  b.ops().engram_gather(g, b.stream());
  return {b.get("rows", OutType::kBf16, 0, e, 5 * kColumns * kWidth)};
}

}  // namespace

std::vector<OpCase> attention_cases() {
  return {{"attention ratio 1", [](Bench& b) { return attention(b, 1); }},
          {"attention ratio 2", [](Bench& b) { return attention(b, 2); }},
          {"engram gather", gather}};
}

}  // namespace hadal::test
