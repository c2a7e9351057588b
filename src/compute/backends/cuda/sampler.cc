#include "compute/backends/cuda/sampler.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "base/core/check.h"
#include "compute/backends/cuda/cuda_device.h"

namespace hadal::cuda {
namespace {

constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

template <class T>
uint64_t bytes_of(const std::vector<T>& v) {
  return aligned(v.size() * sizeof(T));
}

}  // namespace

core::Result<std::unique_ptr<ops::Sampler>> CudaSampler::make(const ops::SamplerShape& shape,
                                                              const Gpu& gpu,
                                                              device::Device& device) {
  const uint64_t needed = sample_slice_bytes(shape.n_vocab) + sample_static_bytes();
  if (needed > gpu.smem_optin) {
    return core::Error{
        core::Code::kInvalidRequest,
        fmt::format("a vocabulary of {} needs {} bytes of shared memory to be sampled on the GPU, "
                    "which has {} for a block",
                    shape.n_vocab, needed, gpu.smem_optin)};
  }
  std::unique_ptr<CudaSampler> made(new CudaSampler(shape, device));
  const auto slots = static_cast<uint64_t>(shape.n_slots);
  const auto rows = static_cast<uint64_t>(shape.max_rows);
  const auto vocab = static_cast<uint64_t>(shape.n_vocab);
  HADAL_TRY(made->counts_,
            device.allocate(slots * vocab * sizeof(uint32_t), device::Memory::kDevice));
  HADAL_TRY(made->out_, device.allocate(rows * sizeof(ops::SampledToken), device::Memory::kHost));
  const cudaError_t prepared = prepare_sample(shape.n_vocab);
  if (prepared != cudaSuccess) return cuda_error("preparing the sampler", prepared);
  return std::unique_ptr<ops::Sampler>(std::move(made));
}

core::Status CudaSampler::reserve(device::Buffer& buffer, uint64_t bytes, device::Stream& stream) {
  if (bytes <= buffer.size()) return {};
  HADAL_TRY_VOID(stream.synchronize());
  HADAL_TRY(buffer, device_.allocate(bytes + bytes / 2, device::Memory::kDevice));
  return {};
}

void CudaSampler::clear(int32_t slot, device::Stream& stream) {
  HADAL_CHECK(slot >= 0 && slot < shape_.n_slots, "a slot of the sampler");
  const auto bytes = static_cast<size_t>(shape_.n_vocab) * sizeof(uint32_t);
  cudaMemsetAsync(counts_.data() + static_cast<size_t>(slot) * bytes, 0, bytes, raw(stream));
}

core::Status CudaSampler::count(int32_t slot, std::span<const int32_t> tokens, bool output,
                                device::Stream& stream) {
  HADAL_CHECK(slot >= 0 && slot < shape_.n_slots, "a slot of the sampler");
  counted_.clear();
  for (const int32_t token : tokens) {
    HADAL_CHECK(token >= 0 && token < shape_.n_vocab, "token outside the vocabulary");
    counted_.push_back({token, output ? 1 : 0});
  }
  const uint64_t bytes = counted_.size() * sizeof(TokenCount);
  HADAL_TRY_VOID(reserve(tokens_, bytes, stream));
  device_.copy(stream, tokens_.data(), counted_.data(), bytes);
  auto* counts =
      reinterpret_cast<uint32_t*>(counts_.data()) + static_cast<int64_t>(slot) * shape_.n_vocab;
  launch_count(counts, reinterpret_cast<const TokenCount*>(tokens_.data()),
               static_cast<int32_t>(counted_.size()), raw(stream));
  return {};
}

void CudaSampler::pack(std::span<const ops::SampleRow> rows) {
  terms_.clear();
  edits_.clear();
  words_.clear();
  const auto in_vocab = [&](int32_t token) { return token >= 0 && token < shape_.n_vocab; };
  for (const ops::SampleRow& row : rows) {
    const bool penalties =
        row.slot >= 0 && (row.repetition != 1.0f || row.presence != 0.0f || row.frequency != 0.0f);
    SampleTerms t = {
        .seed = row.seed,
        .position = row.position,
        .row = static_cast<int64_t>(terms_.size()),
        .temperature = row.temperature,
        .top_p = row.top_p,
        .min_p = row.min_p,
        .repetition = row.repetition,
        .presence = row.presence,
        .frequency = row.frequency,
        .top_k = row.top_k,
        .slot = penalties ? row.slot : -1,
        .stream = row.stream,
        .n_top = std::clamp(row.n_top, 0, ops::SampledToken::kMaxTop),
        .logprobs = row.logprobs ? 1 : 0,
        .first_edit = static_cast<int32_t>(edits_.size()),
        .n_edits = 0,
        .first_word = static_cast<int32_t>(words_.size()),
        .n_words = row.allowed.empty() ? -1 : static_cast<int32_t>(row.allowed.size())};
    for (const auto& [token, bias] : row.bias)
      if (in_vocab(token)) edits_.push_back({token, bias});
    for (const int32_t token : row.banned)
      if (in_vocab(token)) edits_.push_back({token, -std::numeric_limits<float>::infinity()});
    std::stable_sort(edits_.begin() + t.first_edit, edits_.end(),
                     [](const LogitEdit& a, const LogitEdit& b) { return a.token < b.token; });
    t.n_edits = static_cast<int32_t>(edits_.size()) - t.first_edit;
    words_.insert(words_.end(), row.allowed.begin(), row.allowed.end());
    terms_.push_back(t);
  }
  const auto streamed = std::stable_partition(
      terms_.begin(), terms_.end(),
      [&](const SampleTerms& t) { return sample_streams(t, shape_.n_vocab); });
  n_streamed_ = static_cast<int32_t>(streamed - terms_.begin());
}

core::Status CudaSampler::sample(device::Matrix<const float> logits,
                                 std::span<const ops::SampleRow> rows, device::Stream& stream) {
  n_rows_ = static_cast<int32_t>(rows.size());
  HADAL_CHECK(
      n_rows_ <= shape_.max_rows && logits.n_rows >= n_rows_ && logits.n_cols == shape_.n_vocab,
      "rows of a sampler");
  if (n_rows_ == 0) return {};
  pack(rows);
  SampleArrays arrays = {.logits = logits.data,
                         .stride = logits.stride,
                         .n_vocab = shape_.n_vocab,
                         .rows = nullptr,
                         .edits = nullptr,
                         .words = nullptr,
                         .counts = reinterpret_cast<const uint32_t*>(counts_.data()),
                         .out = reinterpret_cast<ops::SampledToken*>(out_.data())};
  if (n_rows_ <= kGivenRows && n_streamed_ == n_rows_ && words_.empty()) {
    launch_given(arrays, terms_, raw(stream));
    return {};
  }
  const uint64_t edits_at = bytes_of(terms_), words_at = edits_at + bytes_of(edits_);
  packed_.resize(words_at + bytes_of(words_));
  std::memcpy(packed_.data(), terms_.data(), terms_.size() * sizeof(SampleTerms));
  if (!edits_.empty())
    std::memcpy(packed_.data() + edits_at, edits_.data(), edits_.size() * sizeof(LogitEdit));
  if (!words_.empty())
    std::memcpy(packed_.data() + words_at, words_.data(), words_.size() * sizeof(uint32_t));
  HADAL_TRY_VOID(reserve(step_, packed_.size(), stream));
  device_.copy(stream, step_.data(), packed_.data(), packed_.size());
  arrays.rows = reinterpret_cast<const SampleTerms*>(step_.data());
  arrays.edits = reinterpret_cast<const LogitEdit*>(step_.data() + edits_at);
  arrays.words = reinterpret_cast<const uint32_t*>(step_.data() + words_at);
  launch_sample(arrays, n_streamed_, n_rows_ - n_streamed_, raw(stream));
  return {};
}

std::span<const ops::SampledToken> CudaSampler::results() const {
  return {reinterpret_cast<const ops::SampledToken*>(out_.data()), static_cast<size_t>(n_rows_)};
}

}  // namespace hadal::cuda
