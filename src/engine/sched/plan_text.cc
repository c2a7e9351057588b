#include <charconv>

#include <fmt/format.h>

#include "engine/sched/plan.h"

namespace hadal::sched {
namespace {

void add_list(std::string& out, std::string_view verb, const std::vector<SeqKey>& list) {
  if (list.empty()) return;
  out += fmt::format("{}{}", out.empty() ? "" : "; ", verb);
  for (const SeqKey seq : list) out += fmt::format(" {}", static_cast<uint64_t>(seq));
}

// Takes `text`'s first word off, split at `separator`.
std::string_view take(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view word = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return word;
}

template <typename T>
bool number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// SEQ@BEGIN+ROWS[*NEW][!]
bool chunk_from_text(std::string_view word, Chunk& chunk) {
  if (word.ends_with('!')) {
    chunk.last = true;
    word.remove_suffix(1);
  }
  uint64_t seq = 0;
  if (!number(take(word, '@'), seq)) return false;
  chunk.seq = SeqKey{seq};
  if (!number(take(word, '+'), chunk.begin)) return false;
  if (!number(take(word, '*'), chunk.n_rows)) return false;
  return word.empty() || number(word, chunk.n_new_blocks);
}

}  // namespace

std::string to_text(const StepPlan& plan) {
  std::string out;
  add_list(out, "expire", plan.expire);
  add_list(out, "preempt", plan.preempt);
  add_list(out, "admit", plan.admit);
  if (plan.chunks.empty()) return out;
  out += out.empty() ? "run" : "; run";
  for (const Chunk& c : plan.chunks) {
    out += fmt::format(" {}@{}+{}", static_cast<uint64_t>(c.seq), c.begin, c.n_rows);
    if (c.n_new_blocks > 0) out += fmt::format("*{}", c.n_new_blocks);
    if (c.last) out += '!';
  }
  return out;
}

core::Result<StepPlan> plan_from_text(std::string_view text) {
  StepPlan plan;
  const auto wrong = [](std::string_view word) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("\"{}\" is no part of a step plan; write for example "
                                   "\"preempt 7; admit 9; run 1@130+1! 9@0+128*1\"",
                                   word)};
  };
  while (!text.empty()) {
    std::string_view part = take(text, ';');
    while (part.starts_with(' ')) part.remove_prefix(1);
    const std::string_view verb = take(part, ' ');
    std::vector<SeqKey>* list = verb == "expire"    ? &plan.expire
                                : verb == "preempt" ? &plan.preempt
                                : verb == "admit"   ? &plan.admit
                                                    : nullptr;
    if (list == nullptr && verb != "run") return wrong(verb);
    while (!part.empty()) {
      const std::string_view word = take(part, ' ');
      if (word.empty()) continue;
      uint64_t seq = 0;
      Chunk chunk;
      if (list != nullptr ? !number(word, seq) : !chunk_from_text(word, chunk)) return wrong(word);
      if (list != nullptr) {
        list->push_back(SeqKey{seq});
      } else {
        plan.chunks.push_back(chunk);
      }
    }
  }
  return plan;
}

}  // namespace hadal::sched
