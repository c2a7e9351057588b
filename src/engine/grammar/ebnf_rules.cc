#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "engine/grammar/ebnf.h"
#include "engine/grammar/ebnf_recursion.h"

// Rules of an Ebnf as rules of a Grammar.
namespace hadal::grammar {
namespace {

using Kind = Ebnf::Node::Kind;

constexpr size_t kMaxNodes = 1u << 18, kMaxRules = 1000;

class Builder {
 public:
  Builder(Ebnf& ebnf, Grammar& grammar) : e_(ebnf), g_(grammar) {}

  core::Result<uint32_t> run(uint32_t from) {
    if (e_.rules.size() > kMaxRules) {
      return core::Error{core::Code::kInvalidRequest,
                         fmt::format("the grammar has more than {} rules", kMaxRules)};
    }
    for (uint32_t i = 0; i < e_.rules.size(); ++i) {
      const Ebnf::Rule& rule = e_.rules[i];
      if (by_name_.try_emplace(rule.name, i).second) continue;
      return ebnf_error(rule.line, fmt::format("the rule {} is defined twice", rule.name));
    }
    for (const Ebnf::Node& node : e_.nodes) {
      if (node.kind != Kind::kName || by_name_.contains(node.name)) continue;
      return ebnf_error(node.line, fmt::format("the rule {} is not defined", node.name));
    }
    const auto start = by_name_.find(e_.start);
    if (start == by_name_.end()) {
      return core::Error{core::Code::kInvalidRequest,
                         fmt::format("the grammar has no rule {}, which is the whole", e_.start)};
    }
    terminals_.resize(e_.rules.size());
    rules_.resize(e_.rules.size(), kNone);
    for (uint32_t i = 0; i < e_.rules.size(); ++i) {
      if (e_.rules[i].is_terminal) terminal(i);
    }
    if (!e_.ignored.empty()) make_ignored();
    if (problem_) return *problem_;
    if (auto circle = resolve_left_recursion(e_, by_name_)) return *std::move(circle);
    // Rules come to be when they are first called; what nothing calls costs nothing.
    uint32_t at = call(start->second, from);
    while (!pending_.empty() && !problem_) {
      const uint32_t rule = pending_.back();
      pending_.pop_back();
      g_.mark_end(add(e_.rules[rule].body, g_.start(rules_[rule])));
    }
    if (ignored_ != kNone) at = g_.rule(at, ignored_);
    if (problem_) return *problem_;
    return at;
  }

 private:
  void fail(uint32_t line, std::string message) {
    if (!problem_) problem_ = ebnf_error(line, std::move(message));
  }

  // ---- terminals: one expression each ----

  uint32_t terminal(uint32_t rule) {
    Terminal& known = terminals_[rule];
    if (known.state == Terminal::kDone) return known.regex;
    if (known.state == Terminal::kBegun) {
      fail(e_.rules[rule].line,
           fmt::format("the terminal {} refers to itself", e_.rules[rule].name));
      return 0;
    }
    known.state = Terminal::kBegun;
    const uint32_t regex = as_regex(e_.rules[rule].body);
    terminals_[rule] = {Terminal::kDone, regex};
    return regex;
  }

  uint32_t as_regex(uint32_t node) {
    if (problem_) return 0;
    const Ebnf::Node& at = e_.nodes[node];
    if (at.kind == Kind::kText) return at.text;
    if (at.kind == Kind::kName) {
      const uint32_t rule = by_name_.at(at.name);
      if (e_.rules[rule].is_terminal) return terminal(rule);
      fail(at.line, fmt::format("a terminal cannot refer to the rule {}", at.name));
      return 0;
    }
    Regex::Node out{.kind = at.kind == Kind::kSequence ? Regex::Node::Kind::kSequence
                            : at.kind == Kind::kChoice ? Regex::Node::Kind::kChoice
                                                       : Regex::Node::Kind::kRepeat,
                    .low = at.low,
                    .high = at.high};
    for (const uint32_t part : at.of) out.of.push_back(as_regex(part));
    return e_.regex.add(std::move(out));
  }

  // A rule of the texts of a part of the expression.
  uint32_t regex_rule(uint32_t regex, uint32_t line) {
    if (const auto known = by_regex_.find(regex); known != by_regex_.end()) return known->second;
    const auto dfa = make_dfa(e_.regex, regex, Match::kWhole);
    const uint32_t rule = g_.add_rule();
    by_regex_.emplace(regex, rule);
    if (!dfa) {
      fail(line, dfa.error().message);
    } else if (dfa->is_empty()) {
      fail(line, "no text matches the expression");
    } else {
      g_.mark_end(add_dfa(g_, g_.start(rule), *dfa, Spelling::kRaw));
    }
    return rule;
  }

  void make_ignored() {
    Regex::Node any{.kind = Regex::Node::Kind::kChoice};
    for (const uint32_t node : e_.ignored) any.of.push_back(as_regex(node));
    if (problem_) return;
    const uint32_t line = e_.nodes[e_.ignored[0]].line;
    const uint32_t one = e_.regex.add(std::move(any));
    ignored_ = regex_rule(
        e_.regex.add({.kind = Regex::Node::Kind::kRepeat, .of = {one}, .low = 0, .high = {}}),
        line);
  }

  // ---- rules ----

  uint32_t call(uint32_t rule, uint32_t from) {
    if (rules_[rule] == kNone) {
      rules_[rule] = g_.add_rule();
      pending_.push_back(rule);
    }
    return g_.rule(from, rules_[rule]);
  }

  uint32_t text(uint32_t regex, uint32_t line, uint32_t from) {
    if (ignored_ != kNone) from = g_.rule(from, ignored_);
    const Regex::Node& node = e_.regex.nodes[regex];
    const auto is_one = [&](uint32_t part) {
      const Regex::Node& at = e_.regex.nodes[part];
      return at.kind == Regex::Node::Kind::kChars && !at.chars.ranges().empty();
    };
    const bool plain = node.kind == Regex::Node::Kind::kSequence && node.of.size() <= kMaxPlain &&
                       std::all_of(node.of.begin(), node.of.end(), is_one);
    if (!plain) return g_.rule(from, regex_rule(regex, line));
    for (const uint32_t part : node.of) {
      const uint32_t to = g_.add_node();
      Grammar::Tails tails;
      for (const CharSet::Range& range : e_.regex.nodes[part].chars.ranges()) {
        add_character(g_, from, range.low, range.high, Spelling::kRaw, to, tails);
      }
      from = to;
    }
    return from;
  }

  // The texts of `node` from `from` on; returns the node behind them.
  uint32_t add(uint32_t node, uint32_t from) {
    const Ebnf::Node& at = e_.nodes[node];
    if (g_.nodes().size() > kMaxNodes) fail(at.line, "the grammar is too large");
    if (problem_) return from;
    switch (at.kind) {
      case Kind::kText:
        return text(at.text, at.line, from);
      case Kind::kName: {
        const uint32_t rule = by_name_.at(at.name);
        if (!e_.rules[rule].is_terminal) return call(rule, from);
        return text(terminal(rule), at.line, from);
      }
      case Kind::kSequence:
        for (const uint32_t part : at.of) from = add(part, from);
        return from;
      case Kind::kChoice: {
        const uint32_t to = g_.add_node();
        for (const uint32_t part : at.of) {
          const uint32_t begin = g_.add_node();
          g_.free(from, begin);
          g_.free(add(part, begin), to);
        }
        return to;
      }
      case Kind::kRepeat:
        return repeat(at, from);
    }
    return from;
  }

  uint32_t repeat(const Ebnf::Node& at, uint32_t from) {
    const auto one = [&](uint32_t begin) {
      const uint32_t own = g_.add_node();
      g_.free(begin, own);
      return add(at.of[0], own);
    };
    for (uint32_t i = 0; i < at.low && !problem_; ++i) from = one(from);
    const uint32_t to = g_.add_node();
    if (!at.high) {
      g_.free(from, to);
      g_.free(one(to), to);
      return to;
    }
    for (uint32_t i = at.low; i < *at.high && !problem_; ++i) {
      g_.free(from, to);
      from = one(from);
    }
    g_.free(from, to);
    return to;
  }

  struct Terminal {
    enum State : uint8_t { kNew, kBegun, kDone } state = kNew;
    uint32_t regex = 0;
  };
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr size_t kMaxPlain = 4096;  // characters of a text that is written out

  Ebnf& e_;
  Grammar& g_;
  std::map<std::string, uint32_t> by_name_;
  std::vector<Terminal> terminals_;        // by rule
  std::vector<uint32_t> rules_, pending_;  // of the grammar, by rule; those without a body yet
  std::map<uint32_t, uint32_t> by_regex_;  // rules of the grammar, by node of the expression
  uint32_t ignored_ = kNone;
  std::optional<core::Error> problem_;
};

}  // namespace

core::Error ebnf_error(uint32_t line, std::string message) {
  return {core::Code::kInvalidRequest, fmt::format("line {}: {}", line, message)};
}

core::Result<uint32_t> add_ebnf(Grammar& grammar, uint32_t from, std::string_view text,
                                EbnfSyntax syntax) {
  if (text.size() > kMaxEbnfBytes) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("the grammar has more than {} bytes", kMaxEbnfBytes)};
  }
  HADAL_TRY(Ebnf ebnf, syntax == EbnfSyntax::kLark ? parse_lark(text) : parse_gbnf(text));
  return Builder(ebnf, grammar).run(from);
}

core::Result<std::shared_ptr<const Grammar>> compile_ebnf(std::string_view text,
                                                          EbnfSyntax syntax) {
  auto grammar = std::make_shared<Grammar>();
  const uint32_t top = grammar->add_rule();
  HADAL_TRY(const uint32_t end, add_ebnf(*grammar, grammar->start(top), text, syntax));
  grammar->mark_end(end);
  return finish(std::move(grammar));
}

}  // namespace hadal::grammar
