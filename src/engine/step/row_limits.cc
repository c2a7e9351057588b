#include "engine/step/row_limits.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/sampling/thinking_budget.h"
#include "engine/sampling/token_path.h"

namespace hadal::step {

using Kind = types::Constraint::Kind;

RowLimiter::RowLimiter(uint32_t n_vocab, uint32_t n_slots, const tokenizer::Tokenizer* tokenizer)
    : n_vocab_(n_vocab), masks_(n_slots), banned_(n_slots) {
  if (tokenizer != nullptr) {
    constraints_ = std::make_unique<grammar::ConstraintBook>(*tokenizer, n_slots);
  }
}

core::Status RowLimiter::accept(const types::Request& request) {
  const auto known = [&](types::TokenId id) {
    return id >= 0 && static_cast<uint32_t>(id) < n_vocab_;
  };
  if (request.thinking_budget) {
    for (const types::TokenId id : request.thinking_budget->end) {
      if (known(id)) continue;
      return core::Error{core::Code::kInvalidRequest,
                         fmt::format("the model has no token {} to end its thinking with", id),
                         "thinking.budget_tokens"};
    }
  }
  if (request.path) {
    for (const auto& state : request.path->states) {
      for (const types::TokenPath::Edge& edge : state) {
        if (known(edge.token) && edge.next < request.path->states.size()) continue;
        return core::Error{core::Code::kInvalidRequest,
                           "the way to the call leads outside the model's vocabulary",
                           "tool_choice"};
      }
    }
  }
  if (request.constraint.kind == Kind::kNone) return {};
  if (constraints_ == nullptr) {
    return core::Error{core::Code::kInvalidRequest, "this engine keeps to no form of output",
                       request.constraint.path};
  }
  return constraints_->check(request.constraint);
}

std::vector<uint32_t>& RowLimiter::empty_mask(uint32_t slot) {
  masks_[slot].assign((n_vocab_ + 31) / 32, 0);
  return masks_[slot];
}

void RowLimiter::allow(std::vector<uint32_t>& mask, types::TokenId id) const {
  if (id < 0 || static_cast<uint32_t>(id) >= n_vocab_) return;
  mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
}

core::Result<RowLimits> RowLimiter::limits(const RunChunk& chunk) {
  const types::Request& request = *chunk.request;
  const auto generated = chunk.history.subspan(chunk.n_prompt);
  RowLimits out;
  if (chunk.n_generated < request.min_tokens) out.banned = request.end_tokens;
  if (request.thinking_budget) {
    if (const auto forced = sampling::forced_by_budget(*request.thinking_budget, generated)) {
      std::vector<uint32_t>& mask = empty_mask(chunk.slot);
      allow(mask, *forced);
      out.allowed = mask;
      return out;
    }
  }
  if (request.path) {
    const sampling::PathPlace place = sampling::place_on_path(*request.path, generated);
    if (place.waits) out.banned = request.path->not_before;
    if (!place.edges.empty()) {
      std::vector<uint32_t>& mask = empty_mask(chunk.slot);
      for (const types::TokenPath::Edge& edge : place.edges) allow(mask, edge.token);
      out.allowed = mask;
      return out;
    }
  }
  if (request.constraint.kind == Kind::kNone) return out;
  HADAL_TRY(const grammar::ConstraintBook::Place place,
            constraints_->place(chunk.slot, request.constraint, generated));
  if (place.waits) {
    std::vector<types::TokenId>& banned = banned_[chunk.slot];
    banned.assign(out.banned.begin(), out.banned.end());
    if (!place.may_end) banned = request.end_tokens;
    if (place.banned >= 0) banned.push_back(place.banned);
    out.banned = banned;
    return out;
  }
  std::vector<uint32_t>& mask = empty_mask(chunk.slot);
  std::copy_n(place.allowed.begin(), std::min(place.allowed.size(), mask.size()), mask.begin());
  if (place.may_end) {
    for (const types::TokenId id : request.end_tokens) allow(mask, id);
  }
  if (place.control >= 0) allow(mask, place.control);
  out.allowed = mask;
  return out;
}

void RowLimiter::forget(uint32_t slot) {
  if (constraints_ != nullptr) constraints_->forget(slot);
}

}  // namespace hadal::step
