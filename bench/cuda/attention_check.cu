// The attention ops of the CUDA backend against the CPU's, at released and odd shapes, and their
// times. Stands alone: no model, no source tree. Without arguments it checks; "attend" and "index"
// measure; "one N" and "search N" measure N rows of as many sequences, "prompt N" of one, for a
// profiler.
#include "attention_rig.h"
#include "attention_time.h"

namespace hadal::test {
namespace {

// A matrix with one 1 a row: y[i] = x[i * 7 % k], exact on every backend, so that what follows a
// product can be compared to the bit.
struct PickLinear final : ops::Linear {
  int64_t rows, width;
  PickLinear(int64_t n, int64_t k) : rows(n), width(k) {}
  int64_t n() const override { return rows; }
  int64_t k() const override { return width; }
  uint64_t bytes() const override { return 0; }
};

__global__ void pick_kernel(const uint16_t* x, int64_t x_stride, uint16_t* y, int64_t y_stride,
                            int n, int k) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
    y[blockIdx.x * y_stride + i] = x[blockIdx.x * x_stride + i * 7 % k];
}

}  // namespace
}  // namespace hadal::test

namespace hadal::cuda {
// Stands in for the backend's product: these programs check everything around it.
void launch_linear(const ops::LinearArgs& args, ops::Ops::Scratch, const Gpu&,
                   cudaStream_t stream) {
  const int64_t n = args.weight->n(), k = args.weight->k();
  test::pick_kernel<<<static_cast<unsigned>(args.x.n_rows), 128, 0, stream>>>(
      args.x.data, args.x.stride, args.y.data, args.y.stride, static_cast<int>(n),
      static_cast<int>(k));
}
}  // namespace hadal::cuda

namespace hadal::test {
namespace {

void check_latents(Machine& m, World& w, const std::string& tag) {
  const int64_t n = w.batch.n_rows(), d = w.dims.d_head, record = w.layouts.slot.window_bytes;
  Twin<uint16_t> kv(w.draw.bf16(n * d)), norm(w.draw.bf16(d, 0.3f, 1));
  Twin<float> rope(angles(w.batch.positions, w.dims.d_rope, 0));
  Twin<uint8_t> out(n * record);
  out.poison();
  const auto args = [&](bool gpu) {
    ops::LatentArgs a;
    a.kv = {kv.at(gpu), n, d};
    a.norm = norm.at(gpu);
    a.eps = 1e-20f;
    a.rope = rope.at(gpu);
    a.d_rope = w.dims.d_rope;
    a.out = {out.at(gpu), n, record};
    return a;
  };
  m.reference().latent_write(args(false), *m.cpu_stream);
  cuda::launch_latent_write(args(true), m.gpu, nullptr);
  m.sync("latent_write");
  same(out, tag + " latent_write");
}

void check_compress(Machine& m, World& w, const std::string& tag) {
  const int64_t n = w.batch.n_rows(), d = w.dims.d_head;
  const int64_t width = w.dims.ratio > 1 ? 2 * d : d;
  Twin<float> vg(w.draw.f32(n * width));
  Twin<uint16_t> norm(w.draw.bf16(d, 0.3f, 1)), k_norm(w.draw.bf16(w.dims.d_index, 0.3f, 1));
  Twin<float> rope(angles(w.batch.positions, w.dims.d_rope, w.dims.ratio - 1));
  const auto wk = m.pick(w.dims.d_index, d);
  const PickLinear gpu_wk(w.dims.d_index, d);
  const auto run = [&](bool gpu) {
    const ops::StepRows rows = w.rows(gpu);
    const ops::KvView kv = w.view(gpu);
    ops::CompressArgs a;
    a.rows = &rows;
    a.n_rows = rows.n_rows;
    a.vg = {vg.at(gpu), n, width};
    a.kv = &kv;
    a.layout = &w.layouts.kv;
    a.slot = &w.layouts.slot;
    a.norm = norm.at(gpu);
    a.wk = gpu ? &gpu_wk : wk.get();
    a.k_norm = k_norm.at(gpu);
    a.eps = 1e-20f;
    a.rope = rope.at(gpu);
    a.d_rope = w.dims.d_rope;
    a.d_head = w.dims.d_head;
    a.d_index = w.dims.d_index;
    if (gpu)
      cuda::launch_compress(a, m.scratch(), m.gpu, nullptr);
    else
      m.reference().compress(a, m.host_scratch(), *m.cpu_stream);
  };
  run(false);
  run(true);
  m.sync("compress");
  same(*w.slabs, tag + " compress");
}

void check_query(Machine& m, World& w, const std::string& tag) {
  const int64_t n = w.batch.n_rows(), wide = w.dims.heads * w.dims.d_head;
  const int64_t index_wide = w.dims.index_heads * w.dims.d_index;
  const int64_t keys = w.dims.index_heads * ops::key_record_bytes(w.dims.d_index);
  Twin<uint16_t> raw(w.draw.bf16(n * w.dims.lora)), norm(w.draw.bf16(w.dims.lora, 0.3f, 1));
  Twin<float> rope(angles(w.batch.positions, w.dims.d_rope, 0));
  Twin<uint16_t> q(n * wide);
  Twin<uint8_t> iq(n * keys);
  q.poison();
  iq.poison();
  const auto wq = m.pick(wide, w.dims.lora), index_wq = m.pick(index_wide, w.dims.lora);
  const PickLinear gpu_wq(wide, w.dims.lora), gpu_index_wq(index_wide, w.dims.lora);
  const auto args = [&](bool gpu) {
    ops::QueryArgs a;
    a.q_raw = {raw.at(gpu), n, w.dims.lora};
    a.norm = norm.at(gpu);
    a.eps = 1e-20f;
    a.wq = gpu ? &gpu_wq : wq.get();
    a.index_wq = gpu ? &gpu_index_wq : index_wq.get();
    a.rope = rope.at(gpu);
    a.d_rope = w.dims.d_rope;
    a.d_head = w.dims.d_head;
    a.d_index = w.dims.d_index;
    a.q = {q.at(gpu), n, wide};
    a.iq = {iq.at(gpu), n, keys};
    return a;
  };
  m.reference().query(args(false), m.host_scratch(), *m.cpu_stream);
  cuda::launch_query(args(true), m.scratch(), m.gpu, nullptr);
  m.sync("query");
  same(q, tag + " query q");
  same(iq, tag + " query index q");
}

// The listed part of each row: places behind it are nobody's.
bool same_lists(Twin<int32_t>& list, Twin<int32_t>& counts, int64_t width,
                const std::string& what) {
  const std::vector<int32_t> got = list.download(), n = counts.download();
  for (size_t t = 0; t < n.size(); ++t) {
    const int32_t* a = got.data() + static_cast<int64_t>(t) * width;
    const int32_t* b = list.host().data() + static_cast<int64_t>(t) * width;
    if (n[t] == counts.host()[t] && std::equal(a, a + std::max(n[t], 0), b)) continue;
    report(false, what + " row " + std::to_string(t) + ": " + std::to_string(n[t]) + " listed, " +
                      std::to_string(counts.host()[t]) + " wanted");
    return false;
  }
  report(true, what);
  return true;
}

void check_index(Machine& m, World& w, Search& s, const std::string& tag) {
  for (const bool gpu : {false, true}) s.run(m, gpu, true, false);
  m.sync("index_select");
  same_lists(s.list, s.n_list, w.dims.top_k, tag + " index_select");
  same_lists(s.pool, s.n_pool, w.dims.pool_blocks, tag + " pool");
  for (const bool gpu : {false, true}) s.run(m, gpu, false, true);
  m.sync("index_select");
  same_lists(s.list, s.n_list, w.dims.top_k, tag + " index_select in pool");
  for (const bool gpu : {false, true}) s.run(m, gpu, false, false);
  m.sync("index_select");
  same_lists(s.list, s.n_list, w.dims.top_k, tag + " index_select without pool");
}

// Bound: half a unit of bf16 in the result and, relative to the row's largest output, a weight that
// lies at a rounding border and goes the other way (2^-8 of its share). Few do: all outputs
// together are much closer.
void compare_outputs(Attention& a, const std::string& what) {
  const std::vector<uint16_t> got = a.o.download();
  double worst = 0, error = 0, norm = 0;
  for (int64_t t = 0; t < a.n; ++t) {
    double top = 0;
    for (int64_t i = 0; i < a.wide; ++i)
      top = std::max(top, std::fabs(static_cast<double>(formats::bf16_to_float(
                              a.o.host()[static_cast<size_t>(t * a.wide + i)]))));
    for (int64_t i = 0; i < a.wide; ++i) {
      const auto at = static_cast<size_t>(t * a.wide + i);
      const double x = formats::bf16_to_float(got[at]), y = formats::bf16_to_float(a.o.host()[at]);
      const double e = std::fabs(x - y);
      error += e * e;
      norm += y * y;
      const double share = e / (std::fabs(y) / 128 + top / 512);
      worst = std::isfinite(share) ? std::max(worst, share) : 1e9;
    }
  }
  char text[160];
  std::snprintf(text, sizeof text, "%s: relative error %.2e, worst share of the bound %.2f",
                what.c_str(), std::sqrt(error / std::max(norm, 1e-30)), worst);
  report(worst <= 1 && error <= 1e-7 * norm, text);
}

void check_attend(Machine& m, World& w, Search& s, const std::string& tag) {
  Attention a(w, s);
  for (const bool source : {false, true}) {
    a.o.poison();
    a.run(m, false, source);
    a.run(m, true, source);
    m.sync("sparse_attend");
    compare_outputs(a, tag + (source ? " sparse_attend" : " window attend"));
  }
}

void check_commit(Machine& m, World& w, const std::string& tag) {
  const int64_t n = w.batch.n_rows(), d = w.dims.d_head;
  Twin<uint8_t> latents(w.window_records(n));
  Twin<float> vg(w.draw.f32(n * 2 * d));
  std::vector<int32_t> map(256), take;
  for (int32_t i = 0; i < 256; ++i) map[static_cast<size_t>(i)] = i / 3;
  for (const ops::BatchSeq& s : w.batch.seqs)
    take.push_back(static_cast<int32_t>(w.draw.bits() % static_cast<uint32_t>(s.n_rows + 1)));
  Twin<int32_t> token_map(map), accepted(take), n_latent(w.batch.n_latent);
  Twin<const float*> groups(std::vector<const float*>{nullptr});
  const float* device_group = vg.at(true);
  must(cudaMemcpy(groups.at(true), &device_group, sizeof(float*), cudaMemcpyHostToDevice), "copy");
  groups.host()[0] = vg.at(false);
  const auto run = [&](bool gpu) {
    const ops::StepRows rows = w.rows(gpu);
    const ops::KvView kv = w.view(gpu);
    ops::CommitArgs c;
    c.rows = &rows;
    c.n_accepted = accepted.at(gpu);
    c.kv = &kv;
    c.layout = &w.layouts.kv;
    c.slot = &w.layouts.slot;
    c.n_latent = n_latent.at(gpu);
    c.latents = latents.at(gpu);
    c.row_capacity = n;
    c.groups = groups.at(gpu);
    c.d_head = w.dims.d_head;
    c.token_map = token_map.at(gpu);
    if (gpu)
      cuda::launch_commit(c, m.gpu, nullptr);
    else
      m.reference().commit(c, *m.cpu_stream);
  };
  run(false);
  run(true);
  m.sync("commit");
  same(*w.slots, tag + " commit");
}

void check_all(Machine& m, const std::string& tag, const Dims& dims,
               const std::vector<SeqSpec>& specs, int32_t n_blocks) {
  World w(dims, specs, n_blocks, 7 + specs.size(), true);
  check_latents(m, w, tag);
  check_query(m, w, tag);
  Search s(w);
  check_index(m, w, s, tag);
  check_attend(m, w, s, tag);
  // Blocks are shared among sequences when there are too few, and then two rows may write one
  // entry.
  int32_t longest = 0;
  for (const SeqSpec& spec : specs) longest = std::max(longest, spec.position + spec.n_rows);
  if (static_cast<int64_t>(specs.size()) * (longest / dims.block_tokens + 1) <= n_blocks)
    check_compress(m, w, tag);
  check_commit(m, w, tag);
}

// A row alone, in a batch and at other places of it: the same bits.
void check_rows_alone(Machine& m, const Dims& dims) {
  std::vector<SeqSpec> specs;
  for (int32_t i = 0; i < 64; ++i) specs.push_back({700 + 37 * i, i % 3 == 0 ? 3 : 1});
  World w(dims, specs, 4096, 3, true);
  Search s(w);
  s.run(m, true, true, false);
  m.sync("index_select");
  Attention a(w, s);
  a.run(m, true, true);
  m.sync("sparse_attend");
  const std::vector<uint16_t> together = a.o.download();
  const std::vector<int32_t> lists = s.list.download(), counts = s.n_list.download();
  bool good = true;
  for (const int64_t t : {int64_t{0}, int64_t{5}, a.n / 2, a.n - 1}) {
    const ops::StepRows all = w.rows(true);
    const ops::KvView kv = w.view(true);
    Twin<int32_t> position(std::vector{w.batch.positions[static_cast<size_t>(t)]});
    Twin<int32_t> seq_of(std::vector{w.batch.seq_of[static_cast<size_t>(t)]});
    ops::StepRows rows = all;
    rows.n_rows = 1;
    rows.positions = position.at(true);
    rows.seq_of = seq_of.at(true);
    Twin<uint16_t> o(a.wide);
    ops::AttendArgs x;
    x.rows = &rows;
    x.n_rows = 1;
    x.kv = &kv;
    x.layout = &w.layouts.kv;
    x.slot = &w.layouts.slot;
    x.source = 0;
    x.window = dims.window;
    x.latents = {a.latents.at(true), a.n, w.layouts.slot.window_bytes};
    x.list = {s.list.at(true) + t * dims.top_k, 1, dims.top_k};
    x.n_list = s.n_list.at(true) + t;
    x.q = {a.q.at(true) + t * a.wide, 1, a.wide};
    x.sink = a.sink.at(true);
    x.rope = a.rope.at(true) + t * dims.d_rope;
    x.d_rope = dims.d_rope;
    x.d_head = dims.d_head;
    x.o = {o.at(true), 1, a.wide};
    cuda::launch_sparse_attend(x, m.scratch(), m.gpu, nullptr);
    Twin<int32_t> list(dims.top_k), n_list(1), pool(dims.pool_blocks), n_pool(1);
    ops::IndexArgs i;
    i.rows = &rows;
    i.n_rows = 1;
    i.kv = &kv;
    i.layout = &w.layouts.kv;
    i.n_heads = dims.index_heads;
    i.d_index = dims.d_index;
    i.iq = {s.iq.at(true) + t * s.keys, 1, s.keys};
    i.hw = {s.hw.at(true) + t * dims.index_heads, 1, dims.index_heads};
    i.top_k = dims.top_k;
    i.list = {list.at(true), 1, dims.top_k};
    i.n_list = n_list.at(true);
    i.make_pool = true;
    i.pool_block = dims.pool_block;
    i.pool = {pool.at(true), 1, dims.pool_blocks};
    i.n_pool = n_pool.at(true);
    cuda::launch_index_select(i, m.scratch(), m.gpu, nullptr);
    m.sync("one row");
    const std::vector<uint16_t> alone = o.download();
    good = good && std::equal(alone.begin(), alone.end(), together.begin() + t * a.wide);
    const std::vector<int32_t> one = list.download(), count = n_list.download();
    good = good && count[0] == counts[static_cast<size_t>(t)] &&
           std::equal(one.begin(), one.begin() + count[0], lists.begin() + t * dims.top_k);
  }
  report(good, "rows alone and in a batch of " + std::to_string(a.n));
}

// `small`: what a memory checker gets through in a minute.
void check(Machine& m, bool small_only) {
  const Dims tiny{6, 64, 16, 96, 16, 32, 24, 20, 20, 2, 4, 6, 8};
  Dims tiny1 = tiny;
  tiny1.ratio = 1;
  const std::vector<SeqSpec> small = {{0, 71}, {71, 1}, {12, 5, 5, 0}, {40, 33, 22, 41}, {1, 1}};
  check_all(m, "tiny ratio 2", tiny, small, 64);
  check_all(m, "tiny ratio 1", tiny1, small, 64);
  const Dims demo{8, 64, 16, 128, 8, 32, 128, 128, 131, 1, 4, 64, 16};
  check_all(m, "demo", demo, {{0, 300}, {900, 1}, {417, 6}}, 160);
  const Dims odd{5, 96, 32, 64, 3, 64, 40, 33, 40, 3, 5, 9, 12};
  check_all(m, "odd", odd, {{0, 100}, {97, 1}, {98, 2}, {155, 7}}, 64);
  Dims rank = kReleased;  // one rank of eight
  rank.heads = 8;
  check_all(m, "8 heads", rank, {{3000, 2}, {5, 3}}, 64);
  if (small_only) {
    Dims fast = kReleased;
    fast.top_k = 128;
    check_all(m, "released sizes, clusters", fast, {{700, 2}}, 16);
    check_all(m, "released sizes, blocks", fast, {{0, 18}, {300, 1}}, 16);
    return;
  }
  Dims narrow = kReleased;  // a rotary part that the fast kernels are not made for
  narrow.d_rope = 32;
  check_all(m, "rotary 32", narrow, {{300, 3}, {5, 2}}, 64);
  Dims full = kReleased;
  check_all(m, "released ratio 2", full, {{0, 131}, {2500, 3}, {40000, 2}, {1, 1}, {126, 2, 60, 0}},
            1600);
  full.ratio = 1;
  check_all(m, "released ratio 1", full, {{5000, 3}, {131072, 2}, {640, 1}, {600, 1}}, 4200);
  check_rows_alone(m, kReleased);
}

}  // namespace
}  // namespace hadal::test

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  hadal::test::Machine m;
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "check" || mode == "small") hadal::test::check(m, mode == "small");
  if (mode == "attend") hadal::test::attention_times(m);
  if (mode == "index") hadal::test::index_times(m);
  const int n = argc > 2 ? std::atoi(argv[2]) : 1;
  if (mode == "search") hadal::test::time_index(m, n, 1, 131071);
  if (mode == "one") hadal::test::time_attend(m, n, 1, 20000);
  if (mode == "prompt") hadal::test::time_attend(m, 1, n, n);
  std::printf("%d failures\n", hadal::test::failures);
  return hadal::test::failures == 0 ? 0 : 1;
}
