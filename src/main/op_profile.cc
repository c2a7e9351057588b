#include "main/op_profile.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "compute/ops/step_batch.h"

namespace hadal::main {
namespace {

using Clock = std::chrono::steady_clock;

double source_bytes(const ops::WeightSource& s) {
  const double n = static_cast<double>(s.n) * static_cast<double>(s.k);
  switch (s.format) {
    case ops::WeightFormat::kFp8Tile:
      return n * (1 + 1.0 / 1024);
    case ops::WeightFormat::kFp4Row:
      return n * (0.5 + 1.0 / 32);
    case ops::WeightFormat::kBf16:
      return n * 2;
    case ops::WeightFormat::kF32:
      return n * 4;
  }
  return 0;
}
double source_macs(const ops::WeightSource& s) {
  return static_cast<double>(s.n) * static_cast<double>(s.k);
}

// What reading weights takes and what multiplying one row by them takes.
struct Work {
  double bytes = 0, macs = 0;
};
Work work_of(const ops::WeightSource& s) {
  return {source_bytes(s), source_macs(s)};
}
Work work_of(const ops::ExpertSource& s) {
  return {source_bytes(s.w1) + source_bytes(s.w2) + source_bytes(s.w3),
          source_macs(s.w1) + source_macs(s.w2) + source_macs(s.w3)};
}

class ProfiledOps final : public ops::Ops {
 public:
  ProfiledOps(ops::Ops& inner, OpProfile& profile) : inner_(inner), profile_(profile) {}
  std::string_view name() const override { return inner_.name(); }

  core::Result<std::unique_ptr<ops::Linear>> make_linear(
      std::span<const ops::WeightSource> stack) override {
    Work work;
    for (const ops::WeightSource& s : stack) {
      work.bytes += source_bytes(s);
      work.macs += source_macs(s);
    }
    return noted(inner_.make_linear(stack), work);
  }
  core::Result<std::unique_ptr<ops::Linear>> make_grouped(const ops::WeightSource& source,
                                                          int32_t n_groups) override {
    return noted(inner_.make_grouped(source, n_groups), work_of(source));
  }
  core::Result<std::unique_ptr<ops::Linear>> make_mix(const ops::WeightSource& source,
                                                      int32_t n_streams) override {
    return noted(inner_.make_mix(source, n_streams), work_of(source));
  }
  core::Result<std::unique_ptr<ops::Experts>> make_experts(
      std::span<const ops::ExpertSource> routed, const ops::ExpertSource& shared) override {
    HADAL_TRY(std::unique_ptr<ops::Experts> made, inner_.make_experts(routed, shared));
    experts_[made.get()] = {work_of(routed[0]), work_of(shared)};
    return made;
  }

  uint64_t workspace_bytes(const Limits& limits) const override {
    return inner_.workspace_bytes(limits);
  }
  void rope(const ops::RopeArgs& a, ops::Stream& s) override {
    timed("rope", {}, [&] { inner_.rope(a, s); });
  }
  void embed_streams(const ops::EmbedArgs& a, ops::Stream& s) override {
    timed("embed_streams", {}, [&] { inner_.embed_streams(a, s); });
  }
  void boundary(const ops::BoundaryArgs& a, Scratch scratch, ops::Stream& s) override {
    const Work mix = a.site.fn != nullptr ? of(*a.site.fn, a.n_mix) : Work{};
    timed("boundary", mix, [&] { inner_.boundary(a, scratch, s); });
  }
  void linear(const ops::LinearArgs& a, Scratch scratch, ops::Stream& s) override {
    timed(fmt::format("linear {}x{}", a.weight->n(), a.weight->k()), of(*a.weight, a.x.n_rows),
          [&] { inner_.linear(a, scratch, s); });
  }
  void latent_write(const ops::LatentArgs& a, ops::Stream& s) override {
    timed("latent_write", {}, [&] { inner_.latent_write(a, s); });
  }
  void compress(const ops::CompressArgs& a, Scratch scratch, ops::Stream& s) override {
    const int32_t ratio = a.layout->sources[static_cast<size_t>(a.source)].ratio;
    timed("compress", of(*a.wk, a.n_rows / ratio), [&] { inner_.compress(a, scratch, s); });
  }
  void query(const ops::QueryArgs& a, Scratch scratch, ops::Stream& s) override {
    Work work = of(*a.wq, a.q_raw.n_rows);
    if (a.index_wq != nullptr) {
      const Work index = of(*a.index_wq, a.q_raw.n_rows);
      work = {work.bytes + index.bytes, work.macs + index.macs};
    }
    timed("query", work, [&] { inner_.query(a, scratch, s); });
  }
  void index_select(const ops::IndexArgs& a, Scratch scratch, ops::Stream& s) override {
    const int32_t ratio = a.layout->sources[static_cast<size_t>(a.source)].ratio;
    double scored = 0;  // rows that see no more than they may choose need no scores
    for (int32_t t = 0; t < a.n_rows; ++t) {
      const int32_t visible = (a.rows->positions[t] + 1) / ratio;
      if (visible > a.top_k) scored += visible;
    }
    timed("index_select", {0, scored * a.n_heads * a.d_index},
          [&] { inner_.index_select(a, scratch, s); });
  }
  void sparse_attend(const ops::AttendArgs& a, Scratch scratch, ops::Stream& s) override {
    double keys = 0;
    for (int32_t t = 0; t < a.n_rows; ++t) {
      keys += std::min(a.window, a.rows->positions[t] + 1);
      if (a.source >= 0) keys += a.n_list[t];
    }
    timed("sparse_attend", {0, 2 * keys * static_cast<double>(a.q.n_cols)},
          [&] { inner_.sparse_attend(a, scratch, s); });
  }
  void out_proj(const ops::OutArgs& a, Scratch scratch, ops::Stream& s) override {
    const Work first = of(*a.wo_a, a.o.n_rows), second = of(*a.wo_b, a.o.n_rows);
    timed("out_proj", {first.bytes + second.bytes, first.macs + second.macs},
          [&] { inner_.out_proj(a, scratch, s); });
  }
  void route(const ops::RouteArgs& a, ops::Stream& s) override {
    timed("route", {}, [&] { inner_.route(a, s); });
  }
  void moe_ffn(const ops::MoeArgs& a, Scratch scratch, ops::Stream& s) override {
    std::set<int32_t> chosen;
    for (int64_t t = 0; t < a.expert.n_rows; ++t) {
      chosen.insert(a.expert.row(t), a.expert.row(t) + a.expert.n_cols);
    }
    const auto& [routed, shared] = experts_.at(a.experts);
    const auto rows = static_cast<double>(a.h.n_rows);
    timed("moe_ffn",
          {static_cast<double>(chosen.size()) * routed.bytes + shared.bytes,
           rows * (static_cast<double>(a.expert.n_cols) * routed.macs + shared.macs)},
          [&] { inner_.moe_ffn(a, scratch, s); });
  }
  void engram_gather(const ops::GatherArgs& a, ops::Stream& s) override {
    timed("engram_gather", {}, [&] { inner_.engram_gather(a, s); });
  }
  void engram_apply(const ops::EngramArgs& a, ops::Stream& s) override {
    timed("engram_apply", {}, [&] { inner_.engram_apply(a, s); });
  }
  void final_norm(const ops::FinalArgs& a, ops::Stream& s) override {
    timed("final_norm", {}, [&] { inner_.final_norm(a, s); });
  }
  void commit(const ops::CommitArgs& a, ops::Stream& s) override {
    timed("commit", {}, [&] { inner_.commit(a, s); });
  }

 private:
  core::Result<std::unique_ptr<ops::Linear>> noted(core::Result<std::unique_ptr<ops::Linear>> made,
                                                   Work work) {
    if (made.has_value()) linears_[made.value().get()] = work;
    return made;
  }
  Work of(const ops::Linear& linear, int64_t n_rows) const {
    const Work& work = linears_.at(&linear);
    return {n_rows > 0 ? work.bytes : 0, work.macs * static_cast<double>(n_rows)};
  }
  template <typename F>
  void timed(const std::string& name, Work work, const F& f) {
    const Clock::time_point start = Clock::now();
    f();
    profile_.add(name, std::chrono::duration<double>(Clock::now() - start).count(), work.bytes,
                 work.macs);
  }

  ops::Ops& inner_;
  OpProfile& profile_;
  std::map<const ops::Linear*, Work> linears_;
  std::map<const ops::Experts*, std::pair<Work, Work>> experts_;  // a routed one, the shared one
};

class ProfiledBackend final : public ops::Backend {
 public:
  ProfiledBackend(std::unique_ptr<ops::Backend> inner, OpProfile& profile)
      : inner_(std::move(inner)), ops_(inner_->ops(), profile) {}
  std::string_view name() const override { return inner_->name(); }
  device::Device& device() override { return inner_->device(); }
  ops::Ops& ops() override { return ops_; }
  core::Result<std::unique_ptr<ops::Sampler>> make_sampler(
      const ops::SamplerShape& shape) override {
    return inner_->make_sampler(shape);
  }
  core::Result<ops::Peaks> measure_peaks() override { return inner_->measure_peaks(); }

 private:
  std::unique_ptr<ops::Backend> inner_;
  ProfiledOps ops_;
};

}  // namespace

void OpProfile::add(const std::string& name, double seconds, double bytes, double macs) {
  auto at = std::find_if(ops_.begin(), ops_.end(), [&](const OpTime& o) { return o.name == name; });
  if (at == ops_.end()) at = ops_.insert(at, OpTime{.name = name});
  ++at->n_calls;
  at->seconds += seconds;
  at->bytes += bytes;
  at->macs += macs;
}

std::vector<OpTime> OpProfile::by_time() const {
  std::vector<OpTime> sorted = ops_;
  std::sort(sorted.begin(), sorted.end(),
            [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  return sorted;
}

std::unique_ptr<ops::Backend> profiled(std::unique_ptr<ops::Backend> backend, OpProfile& profile) {
  return std::make_unique<ProfiledBackend>(std::move(backend), profile);
}

}  // namespace hadal::main
