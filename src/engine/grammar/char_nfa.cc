#include "engine/grammar/char_nfa.h"

namespace hadal::grammar {
namespace {

using Kind = Regex::Node::Kind;

class Builder {
 public:
  Builder(const Regex& regex, size_t max_nodes) : r_(regex), max_(max_nodes) {}

  std::optional<CharNfa> run(uint32_t root) {
    nfa_.start = node();
    nfa_.end = node();
    const uint32_t behind = add(root, nfa_.start);
    free(behind, nfa_.end);
    if (nfa_.nodes.size() > max_) return std::nullopt;
    return std::move(nfa_);
  }

 private:
  bool is_full() const { return nfa_.nodes.size() > max_; }

  uint32_t node() {
    nfa_.nodes.emplace_back();
    return static_cast<uint32_t>(nfa_.nodes.size() - 1);
  }
  void free(uint32_t from, uint32_t to, CharNfa::Free when = CharNfa::Free::kAlways) {
    nfa_.nodes[from].free.emplace_back(to, when);
  }

  // What the node `at` of the expression reads, from `from` on; returns the node behind it.
  uint32_t add(uint32_t at, uint32_t from) {
    if (is_full()) return from;
    const Regex::Node& part = r_.nodes[at];
    switch (part.kind) {
      case Kind::kEmpty:
        return from;
      case Kind::kBegin:
      case Kind::kEnd: {
        const uint32_t to = node();
        free(from, to, part.kind == Kind::kBegin ? CharNfa::Free::kAtBegin : CharNfa::Free::kAtEnd);
        return to;
      }
      case Kind::kChars: {
        // A node of its own reads: `from` may have other ways out.
        const uint32_t reads = node(), to = node();
        free(from, reads);
        nfa_.nodes[reads].chars = &part.chars;
        nfa_.nodes[reads].to = to;
        return to;
      }
      case Kind::kSequence:
        for (const uint32_t one : part.of) from = add(one, from);
        return from;
      case Kind::kChoice: {
        const uint32_t to = node();
        for (const uint32_t one : part.of) {
          const uint32_t begin = node();
          free(from, begin);
          free(add(one, begin), to);
        }
        return to;
      }
      case Kind::kRepeat:
        return repeat(part, from);
    }
    return from;
  }

  uint32_t repeat(const Regex::Node& part, uint32_t from) {
    for (uint32_t i = 0; i < part.low && !is_full(); ++i) from = add_one(part.of[0], from);
    if (!part.high) {
      const uint32_t loop = node();
      free(from, loop);
      free(add_one(part.of[0], loop), loop);
      return loop;
    }
    const uint32_t to = node();
    for (uint32_t i = part.low; i < *part.high && !is_full(); ++i) {
      free(from, to);
      from = add_one(part.of[0], from);
    }
    free(from, to);
    return to;
  }

  // With a node of its own even if it reads nothing: repeats without end meet the limit.
  uint32_t add_one(uint32_t at, uint32_t from) {
    const uint32_t begin = node();
    free(from, begin);
    return add(at, begin);
  }

  const Regex& r_;
  const size_t max_;
  CharNfa nfa_;
};

}  // namespace

std::optional<CharNfa> make_nfa(const Regex& regex, uint32_t root, size_t max_nodes) {
  return Builder(regex, max_nodes).run(root);
}

}  // namespace hadal::grammar
