#include "engine/grammar/ebnf_recursion.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace hadal::grammar {
namespace {

using Kind = Ebnf::Node::Kind;

class Recursion {
 public:
  Recursion(Ebnf& ebnf, const std::map<std::string, uint32_t>& by_name)
      : e_(ebnf), by_name_(by_name) {}

  std::optional<core::Error> run() {
    for (uint32_t i = 0; i < e_.rules.size(); ++i) {
      if (!e_.rules[i].is_terminal) rewrite(i);
    }
    may_be_empty_.assign(e_.rules.size(), false);
    text_may_be_empty_.assign(e_.regex.nodes.size(), Known::kNot);
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t i = 0; i < e_.rules.size(); ++i) {
        if (may_be_empty_[i] || !is_empty(e_.rules[i].body)) continue;
        may_be_empty_[i] = changed = true;
      }
    }
    return find_circle();
  }

 private:
  enum class Known : uint8_t { kNot, kNo, kYes };

  // The alternatives of a rule's body.
  std::vector<uint32_t> alternatives(uint32_t body) const {
    while (e_.nodes[body].kind == Kind::kSequence && e_.nodes[body].of.size() == 1) {
      body = e_.nodes[body].of[0];
    }
    if (e_.nodes[body].kind == Kind::kChoice) return e_.nodes[body].of;
    return {body};
  }

  bool calls(uint32_t node, uint32_t rule) const {
    return e_.nodes[node].kind == Kind::kName && e_.nodes[node].name == e_.rules[rule].name;
  }

  void rewrite(uint32_t rule) {
    const uint32_t line = e_.rules[rule].line;
    std::vector<uint32_t> first, tails;
    for (uint32_t at : alternatives(e_.rules[rule].body)) {
      while (e_.nodes[at].kind == Kind::kSequence && !e_.nodes[at].of.empty() &&
             e_.nodes[e_.nodes[at].of[0]].kind == Kind::kSequence && e_.nodes[at].of.size() == 1) {
        at = e_.nodes[at].of[0];
      }
      if (calls(at, rule)) continue;  // says nothing
      const Ebnf::Node& node = e_.nodes[at];
      if (node.kind == Kind::kSequence && !node.of.empty() && calls(node.of[0], rule)) {
        if (node.of.size() == 1) continue;
        tails.push_back(e_.add({.kind = Kind::kSequence,
                                .of = std::vector<uint32_t>(node.of.begin() + 1, node.of.end()),
                                .line = line}));
      } else {
        first.push_back(at);
      }
    }
    if (tails.empty()) return;
    const uint32_t begin = e_.add({.kind = Kind::kChoice, .of = std::move(first), .line = line});
    const uint32_t tail = e_.add({.kind = Kind::kChoice, .of = std::move(tails), .line = line});
    const uint32_t more = e_.add({.kind = Kind::kRepeat, .of = {tail}, .low = 0, .line = line});
    e_.rules[rule].body = e_.add({.kind = Kind::kSequence, .of = {begin, more}, .line = line});
  }

  bool is_empty_text(uint32_t regex) {
    Known& known = text_may_be_empty_[regex];
    if (known != Known::kNot) return known == Known::kYes;
    const Regex::Node& at = e_.regex.nodes[regex];
    const auto empty = [&](uint32_t part) { return is_empty_text(part); };
    bool is = true;
    switch (at.kind) {
      case Regex::Node::Kind::kChars:
        is = false;
        break;
      case Regex::Node::Kind::kSequence:
        is = std::all_of(at.of.begin(), at.of.end(), empty);
        break;
      case Regex::Node::Kind::kChoice:
        is = std::any_of(at.of.begin(), at.of.end(), empty);
        break;
      case Regex::Node::Kind::kRepeat:
        is = at.low == 0 || is_empty_text(at.of[0]);
        break;
      default:
        break;
    }
    text_may_be_empty_[regex] = is ? Known::kYes : Known::kNo;
    return is;
  }

  bool is_empty(uint32_t node) {
    const Ebnf::Node& at = e_.nodes[node];
    const auto empty = [&](uint32_t part) { return is_empty(part); };
    switch (at.kind) {
      case Kind::kText:
        return is_empty_text(at.text);
      case Kind::kName:
        return may_be_empty_[by_name_.at(at.name)];
      case Kind::kSequence:
        return std::all_of(at.of.begin(), at.of.end(), empty);
      case Kind::kChoice:
        return std::any_of(at.of.begin(), at.of.end(), empty);
      case Kind::kRepeat:
        return at.low == 0 || is_empty(at.of[0]);
    }
    return false;
  }

  // The rules that may be called before `node` has read anything.
  void first_calls(uint32_t node, std::vector<uint32_t>& out) {
    const Ebnf::Node& at = e_.nodes[node];
    if (at.kind == Kind::kText) return;
    if (at.kind == Kind::kName) {
      const uint32_t rule = by_name_.at(at.name);
      if (!e_.rules[rule].is_terminal) out.push_back(rule);
      return;
    }
    for (const uint32_t part : at.of) {
      first_calls(part, out);
      if (at.kind == Kind::kSequence && !is_empty(part)) return;
    }
  }

  // Depth first, without recursion: there may be many rules.
  std::optional<core::Error> find_circle() {
    enum class Seen : uint8_t { kNot, kOpen, kDone };
    struct Open {
      uint32_t rule = 0;
      std::vector<uint32_t> calls;
      size_t next = 0;
    };
    std::vector<Seen> seen(e_.rules.size(), Seen::kNot);
    for (uint32_t root = 0; root < e_.rules.size(); ++root) {
      if (seen[root] != Seen::kNot) continue;
      std::vector<Open> path;
      const auto open = [&](uint32_t rule) {
        seen[rule] = Seen::kOpen;
        path.push_back({rule, {}, 0});
        if (!e_.rules[rule].is_terminal) first_calls(e_.rules[rule].body, path.back().calls);
      };
      open(root);
      while (!path.empty()) {
        Open& top = path.back();
        if (top.next == top.calls.size()) {
          seen[top.rule] = Seen::kDone;
          path.pop_back();
          continue;
        }
        const uint32_t to = top.calls[top.next++];
        if (seen[to] == Seen::kNot) {
          open(to);
        } else if (seen[to] == Seen::kOpen) {
          return ebnf_error(
              e_.rules[to].line,
              fmt::format(
                  "the rule {} calls itself before anything is read{}", e_.rules[to].name,
                  to == path.back().rule ? "" : ", by way of " + e_.rules[path.back().rule].name));
        }
      }
    }
    return std::nullopt;
  }

  Ebnf& e_;
  const std::map<std::string, uint32_t>& by_name_;
  std::vector<bool> may_be_empty_;        // by rule
  std::vector<Known> text_may_be_empty_;  // by node of the expression
};

}  // namespace

std::optional<core::Error> resolve_left_recursion(Ebnf& ebnf,
                                                  const std::map<std::string, uint32_t>& by_name) {
  return Recursion(ebnf, by_name).run();
}

}  // namespace hadal::grammar
