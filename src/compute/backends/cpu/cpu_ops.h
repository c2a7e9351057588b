#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compute/backends/cpu/cpu_level.h"
#include "compute/backends/cpu/linear.h"
#include "compute/backends/cpu/pack.h"
#include "compute/backends/cpu/row_kernels.h"
#include "compute/backends/cpu/thread_pool.h"
#include "compute/ops/ops.h"

namespace hadal::cpu {

class CpuLinear final : public ops::Linear {
 public:
  CpuLinear(PackedLinear packed, int64_t n) : packed_(std::move(packed)), n_(n) {}
  int64_t n() const override { return n_; }
  int64_t k() const override { return packed_.k(); }
  uint64_t bytes() const override { return static_cast<uint64_t>(packed_.bytes()); }
  const PackedLinear& packed() const { return packed_; }
  bool quantises() const {
    return packed_.format() == WeightFormat::kFP8 || packed_.format() == WeightFormat::kFP4;
  }

 private:
  PackedLinear packed_;
  int64_t n_;  // of one group
};

// up: gate rows, then up rows of every expert in one stack; down: w2.
class CpuExperts final : public ops::Experts {
 public:
  PackedLinear up, down, shared_up, shared_down;
  int64_t d_inter = 0;
  int64_t d_hidden = 0;
  uint64_t bytes() const override {
    return static_cast<uint64_t>(up.bytes() + down.bytes() + shared_up.bytes() +
                                 shared_down.bytes());
  }
};

// The reference implementation of the op set. Every op is one fork-join over the pool; lanes share
// rows, panels or heads, never a sum, so that the number of threads changes no bit.
class CpuOps final : public ops::Ops {
 public:
  CpuOps(ThreadPool& pool, CpuLevel level);
  std::string_view name() const override { return "cpu"; }

  core::Result<std::unique_ptr<ops::Linear>> make_linear(
      std::span<const ops::WeightSource> stack) override;
  core::Result<std::unique_ptr<ops::Linear>> make_grouped(const ops::WeightSource& source,
                                                          int32_t n_groups) override;
  core::Result<std::unique_ptr<ops::Linear>> make_mix(const ops::WeightSource& source,
                                                      int32_t n_streams) override;
  core::Result<std::unique_ptr<ops::Experts>> make_experts(
      std::span<const ops::ExpertSource> routed, const ops::ExpertSource& shared) override;

  uint64_t workspace_bytes(const Limits& limits) const override;
  void rope(const ops::RopeArgs& args, ops::Stream& stream) override;
  void embed_streams(const ops::EmbedArgs& args, ops::Stream& stream) override;
  void boundary(const ops::BoundaryArgs& args, Scratch scratch, ops::Stream& stream) override;
  void linear(const ops::LinearArgs& args, Scratch scratch, ops::Stream& stream) override;
  void latent_write(const ops::LatentArgs& args, ops::Stream& stream) override;
  void compress(const ops::CompressArgs& args, Scratch scratch, ops::Stream& stream) override;
  void query(const ops::QueryArgs& args, Scratch scratch, ops::Stream& stream) override;
  void index_select(const ops::IndexArgs& args, Scratch scratch, ops::Stream& stream) override;
  void sparse_attend(const ops::AttendArgs& args, Scratch scratch, ops::Stream& stream) override;
  void out_proj(const ops::OutArgs& args, Scratch scratch, ops::Stream& stream) override;
  void route(const ops::RouteArgs& args, ops::Stream& stream) override;
  void moe_ffn(const ops::MoeArgs& args, Scratch scratch, ops::Stream& stream) override;
  void engram_gather(const ops::GatherArgs& args, ops::Stream& stream) override;
  void engram_apply(const ops::EngramArgs& args, ops::Stream& stream) override;
  void final_norm(const ops::FinalArgs& args, ops::Stream& stream) override;
  void commit(const ops::CommitArgs& args, ops::Stream& stream) override;

 private:
  ThreadPool& pool_;
  const LinearKernels& linear_;
  const RowKernels& row_;
};

// Cuts a scratch area into arrays of 64-byte alignment; checks that they fit.
class Carver {
 public:
  explicit Carver(ops::Ops::Scratch scratch) : at_(scratch.data), end_(at_ + scratch.bytes) {}
  Carver(std::byte* data, int64_t bytes) : at_(data), end_(data + bytes) {}
  template <class T>
  T* take(int64_t n) {
    auto* p = reinterpret_cast<T*>(at_);
    at_ += (n * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    HADAL_CHECK(at_ <= end_, "op scratch is too small");
    return p;
  }
  int64_t left() const { return end_ - at_; }

 private:
  std::byte* at_;
  std::byte* end_;
};

// Index scores of one tile of rows; a single row may take more.
inline constexpr int64_t kScoreBytes = 32 << 20;

constexpr int64_t padded64(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace hadal::cpu
