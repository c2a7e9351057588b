#include "engine/grammar/constraint_book.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/grammar/json_schema.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/tool_calls.h"

namespace hadal::grammar {
namespace {

using Kind = types::Constraint::Kind;

core::Result<std::shared_ptr<const Grammar>> compile(const types::Constraint& constraint) {
  switch (constraint.kind) {
    case Kind::kJsonObject:
      return any_json_object();
    case Kind::kJsonSchema:
      return compile_json_schema(constraint.text);
    case Kind::kRegex:
      return compile_regex(constraint.text);
    case Kind::kToolCalls:
      return compile_tool_calls(constraint.text);
    case Kind::kNone:
      break;
  }
  return core::Error{core::Code::kInternal, "a constraint of no kind"};
}

}  // namespace

ConstraintBook::ConstraintBook(const tokenizer::Tokenizer& tokenizer, uint32_t n_slots)
    : tokenizer_(tokenizer), trie_(tokenizer), slots_(n_slots) {}

core::Result<ConstraintBook::Compiled> ConstraintBook::compiled(
    const types::Constraint& constraint) {
  const std::string key =
      std::string(1, static_cast<char>('0' + static_cast<int>(constraint.kind))) + constraint.text;
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::find_if(compiled_.begin(), compiled_.end(),
                                    [&](const auto& one) { return one.first == key; });
    if (known != compiled_.end()) {
      compiled_.splice(compiled_.begin(), compiled_, known);
      return known->second;
    }
  }
  // Not under the lock: another request's compiling must not hold up the engine.
  HADAL_TRY(const Compiled made, compile(constraint));
  const std::lock_guard lock(mutex_);
  compiled_.emplace_front(key, made);
  size_t n_nodes = 0, n_kept = 0;
  for (const auto& [text, grammar] : compiled_) {
    n_nodes += grammar->nodes().size();
    if (n_kept > 0 && (n_nodes > kMaxNodesKept || n_kept == kMaxCompiled)) break;
    ++n_kept;
  }
  compiled_.resize(n_kept);
  return made;
}

core::Status ConstraintBook::check(const types::Constraint& constraint) {
  if (constraint.kind == Kind::kNone) return {};
  for (const std::string& token : {constraint.begins_after, constraint.marker}) {
    if (token.empty() || tokenizer_.id_of(token) >= 0) continue;
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("the vocabulary has no token {}", token), constraint.path};
  }
  const auto grammar = compiled(constraint);
  if (grammar) return check_begun(constraint, *grammar);
  core::Error error = grammar.error();
  // The tools' compiler knows the fields itself.
  if (constraint.kind != Kind::kToolCalls || error.param.empty()) {
    error.param = constraint.path + request_path(error.param);
  }
  return error;
}

core::Status ConstraintBook::check_begun(const types::Constraint& constraint,
                                         const Compiled& grammar) {
  if (constraint.begun.empty()) return {};
  Automaton automaton(grammar);
  if (automaton.next(automaton.start(), constraint.begun) != Automaton::kDead) return {};
  return core::Error{core::Code::kInvalidRequest,
                     "no text of the form that is asked for begins with the prefix; change one of "
                     "the two",
                     constraint.path};
}

std::shared_ptr<TokenMasks> ConstraintBook::masks_of(const Compiled& grammar) {
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

// Looks for the beginning in what is new; true: it has begun.
bool ConstraintBook::find_beginning(Slot& at, const types::Constraint& constraint,
                                    std::span<const types::TokenId> generated) const {
  if (!at.found && !constraint.begins_after.empty()) {
    const types::TokenId end = tokenizer_.id_of(constraint.begins_after);
    while (at.n_read < generated.size() && !at.found) at.found = generated[at.n_read++] == end;
    if (!at.found) return false;
  }
  at.found = true;
  if (!constraint.on_marker) return true;
  const types::TokenId marker = tokenizer_.id_of(constraint.marker);
  while (at.n_read < generated.size()) {
    if (generated[at.n_read++] == marker) return true;
  }
  return false;
}

ConstraintBook::Place ConstraintBook::waiting(const Slot& at, const types::Constraint& constraint,
                                              std::span<const types::TokenId> generated) const {
  Place out;
  out.waits = true;
  // An output that must have a form cannot end before it; one that may, can.
  out.may_end = constraint.on_marker;
  if (constraint.marker.empty()) return out;
  const bool opens = at.found && constraint.on_marker && !generated.empty() &&
                     tokenizer_.bytes_of(generated.back()).ends_with('<');
  if (!opens) out.banned = tokenizer_.id_of(constraint.marker);
  return out;
}

core::Result<ConstraintBook::Place> ConstraintBook::place(
    uint32_t slot, const types::Constraint& constraint, std::span<const types::TokenId> generated) {
  Slot& at = slots_[slot];
  const bool crowded = at.masks != nullptr && at.masks->automaton().n_states() >= kManyStates;
  if (crowded) at = {};
  if (at.masks == nullptr) {
    if (!find_beginning(at, constraint, generated)) return waiting(at, constraint, generated);
    HADAL_TRY(const Compiled grammar, compiled(constraint));
    at.masks = masks_of(grammar);
    Automaton& begun = at.masks->automaton();
    at.state = begun.next(begun.start(), constraint.begun);
  }
  Automaton& automaton = at.masks->automaton();
  const types::TokenId marker =
      constraint.marker.empty() ? -1 : tokenizer_.id_of(constraint.marker);
  for (; at.n_read < generated.size(); ++at.n_read) {
    const types::TokenId id = generated[at.n_read];
    at.state = id == marker ? automaton.next(at.state, Grammar::kControl)
                            : automaton.next(at.state, tokenizer_.bytes_of(id));
  }
  if (at.state == Automaton::kDead) {
    return core::Error{core::Code::kInternal, "the output left the form that it must have"};
  }
  Place out;
  out.may_end = automaton.accepts(at.state);
  out.allowed = at.masks->mask(at.state);
  if (out.allowed.empty()) {
    return core::Error{core::Code::kInvalidRequest,
                       "the form that the output must have can be read in too many ways at once; "
                       "give its alternatives different beginnings",
                       constraint.path};
  }
  if (automaton.next(at.state, Grammar::kControl) != Automaton::kDead) out.control = marker;
  return out;
}

void ConstraintBook::forget(uint32_t slot) {
  slots_[slot] = {};
}

}  // namespace hadal::grammar
