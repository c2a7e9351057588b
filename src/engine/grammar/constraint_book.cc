#include "engine/grammar/constraint_book.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/grammar/json_schema.h"
#include "engine/grammar/regex.h"

namespace hadal::grammar {
namespace {

// "#/properties/a" as a path of the request: ".properties.a".
std::string as_path(std::string_view pointer) {
  std::string out;
  for (const char c : pointer.substr(std::min<size_t>(1, pointer.size())))
    out += c == '/' ? '.' : c;
  return out;
}

}  // namespace

ConstraintBook::ConstraintBook(const tokenizer::Tokenizer& tokenizer, uint32_t n_slots)
    : tokenizer_(tokenizer), trie_(tokenizer), slots_(n_slots) {}

core::Result<ConstraintBook::Compiled> ConstraintBook::compiled(
    const types::Constraint& constraint) {
  using Kind = types::Constraint::Kind;
  const std::string key =
      std::string(1, static_cast<char>('0' + static_cast<int>(constraint.kind))) + constraint.text;
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(compiled_.begin(), compiled_.end(),
                                  [&](const auto& one) { return one.first == key; });
  if (known != compiled_.end()) {
    compiled_.splice(compiled_.begin(), compiled_, known);
    return known->second;
  }
  Compiled made;
  if (constraint.kind == Kind::kJsonObject) {
    made = any_json_object();
  } else if (constraint.kind == Kind::kRegex) {
    HADAL_TRY(made, compile_regex(constraint.text));
  } else {
    HADAL_TRY(made, compile_json_schema(constraint.text));
  }
  compiled_.emplace_front(key, made);
  if (compiled_.size() > kMaxCompiled) compiled_.pop_back();
  return made;
}

core::Status ConstraintBook::check(const types::Constraint& constraint) {
  using Kind = types::Constraint::Kind;
  if (constraint.kind == Kind::kNone) return {};
  if (constraint.kind == Kind::kEbnf) {
    return core::Error{core::Code::kInvalidRequest,
                       "output that must match a grammar is not available", constraint.path};
  }
  if (!constraint.begins_after.empty() && tokenizer_.id_of(constraint.begins_after) < 0) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("the vocabulary has no token {}", constraint.begins_after),
                       constraint.path};
  }
  const auto grammar = compiled(constraint);
  if (grammar) return {};
  core::Error error = grammar.error();
  error.param = constraint.path + as_path(error.param);
  return error;
}

std::shared_ptr<TokenMasks> ConstraintBook::masks_of(const types::Constraint&,
                                                     const Compiled& grammar) {
  const auto known = std::find_if(masks_.begin(), masks_.end(),
                                  [&](const auto& one) { return one.first == grammar; });
  if (known != masks_.end() && known->second->automaton().n_states() < kManyStates) {
    masks_.splice(masks_.begin(), masks_, known);
    return known->second;
  }
  if (known != masks_.end()) masks_.erase(known);
  masks_.emplace_front(grammar, std::make_shared<TokenMasks>(grammar, trie_));
  if (masks_.size() > kMaxMasks) masks_.pop_back();
  return masks_.front().second;
}

core::Result<ConstraintBook::Place> ConstraintBook::place(
    uint32_t slot, const types::Constraint& constraint, std::span<const types::TokenId> generated) {
  Slot& at = slots_[slot];
  const bool crowded = at.masks != nullptr && at.masks->automaton().n_states() >= kManyStates;
  if (crowded) at = {};
  if (!at.begun) {
    if (!constraint.begins_after.empty()) {
      const types::TokenId marker = tokenizer_.id_of(constraint.begins_after);
      const auto found = std::find(generated.begin() + static_cast<std::ptrdiff_t>(at.n_read),
                                   generated.end(), marker);
      at.n_read = static_cast<size_t>(found - generated.begin());
      if (found == generated.end()) return Place{.waits = true, .may_end = false, .allowed = {}};
      ++at.n_read;
    }
    HADAL_TRY(const Compiled grammar, compiled(constraint));
    at.begun = true;
    at.masks = masks_of(constraint, grammar);
    at.state = at.masks->automaton().start();
  }
  Automaton& automaton = at.masks->automaton();
  for (; at.n_read < generated.size(); ++at.n_read) {
    at.state = automaton.next(at.state, tokenizer_.bytes_of(generated[at.n_read]));
  }
  if (at.state == Automaton::kDead) {
    return core::Error{core::Code::kInternal, "the output left the form that it must have"};
  }
  return Place{
      .waits = false, .may_end = automaton.accepts(at.state), .allowed = at.masks->mask(at.state)};
}

void ConstraintBook::forget(uint32_t slot) {
  slots_[slot] = {};
}

}  // namespace hadal::grammar
