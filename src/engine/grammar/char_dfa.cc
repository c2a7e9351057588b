#include "engine/grammar/char_dfa.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "engine/grammar/char_nfa.h"
#include "engine/grammar/utf8.h"

namespace hadal::grammar {
namespace {

core::Error too_large() {
  return {core::Code::kInvalidRequest,
          fmt::format("the expression needs more than {} states; shorten its repeats and "
                      "alternatives",
                      kMaxDfaStates)};
}

// Leaves out the states that lead to no end, and those that nothing leads to.
CharDfa trimmed(const CharDfa& dfa) {
  const size_t n = dfa.states.size();
  std::vector<std::vector<uint32_t>> from(n);
  std::vector<uint32_t> work;
  std::vector<bool> ends(n), reached(n);
  for (uint32_t s = 0; s < n; ++s) {
    for (const CharDfa::Edge& edge : dfa.states[s].edges) from[edge.to].push_back(s);
    if (dfa.states[s].accepts) {
      ends[s] = true;
      work.push_back(s);
    }
  }
  while (!work.empty()) {
    const uint32_t at = work.back();
    work.pop_back();
    for (const uint32_t before : from[at]) {
      if (ends[before]) continue;
      ends[before] = true;
      work.push_back(before);
    }
  }
  CharDfa out;
  if (n == 0 || !ends[0]) return out;
  std::vector<uint32_t> id(n), order = {0};
  reached[0] = true;
  for (size_t i = 0; i < order.size(); ++i) {
    for (const CharDfa::Edge& edge : dfa.states[order[i]].edges) {
      if (!ends[edge.to] || reached[edge.to]) continue;
      reached[edge.to] = true;
      id[edge.to] = static_cast<uint32_t>(order.size());
      order.push_back(edge.to);
    }
  }
  for (const uint32_t s : order) {
    CharDfa::State& to = out.states.emplace_back();
    to.accepts = dfa.states[s].accepts;
    for (const CharDfa::Edge& edge : dfa.states[s].edges) {
      if (!ends[edge.to]) continue;
      const uint32_t target = id[edge.to];
      if (!to.edges.empty() && to.edges.back().to == target &&
          to.edges.back().high + 1 == edge.low) {
        to.edges.back().high = edge.high;
      } else {
        to.edges.push_back({edge.low, edge.high, target});
      }
    }
  }
  return out;
}

// The subset construction. A subset holds only nodes that read; whether it accepts is kept beside.
class Subsets {
 public:
  Subsets(const CharNfa& nfa, Match match)
      : nfa_(nfa), search_(match == Match::kSearch), seen_(nfa.nodes.size(), 0) {}

  core::Result<CharDfa> run() {
    begin();
    add(nfa_.start, true);
    intern();
    for (uint32_t s = 0; s < subsets_.size(); ++s) {
      expand(s);
      if (work_ > kMaxDfaWork || subsets_.size() > kMaxDfaStates) return too_large();
    }
    return trimmed(dfa_);
  }

 private:
  struct Event {
    uint32_t at = 0;
    uint32_t node = 0;
    bool opens = false;
  };

  void begin() {
    reads_.clear();
    accepts_ = false;
    ++stamp_;
  }

  // Closes over free edges. A node that is reached only through an end holds no way to read on.
  void add(uint32_t node, bool at_begin) {
    pending_.assign(1, {node, false});
    while (!pending_.empty()) {
      const auto [at, ended] = pending_.back();
      pending_.pop_back();
      const uint32_t mark = stamp_ * 2 + (ended ? 0 : 1);
      if (seen_[at] >= mark) continue;  // seen with at least this freedom
      seen_[at] = mark;
      ++work_;
      accepts_ |= at == nfa_.end;
      const CharNfa::Node& from = nfa_.nodes[at];
      if (from.chars != nullptr && !ended) reads_.push_back(at);
      for (const auto& [to, when] : from.free) {
        if (when == CharNfa::Free::kAtBegin && !at_begin) continue;
        pending_.push_back({to, ended || when == CharNfa::Free::kAtEnd});
      }
      // A match may be followed by anything when one is searched for.
      if (search_ && at == nfa_.end && !ended) found_ = true;
    }
  }

  // The state of what was added since begin().
  uint32_t intern() {
    std::sort(reads_.begin(), reads_.end());
    // Everything goes on from a match that was found.
    if (found_) reads_.assign(1, kFound);
    found_ = false;
    const auto [at, is_new] =
        ids_.try_emplace({reads_, accepts_}, static_cast<uint32_t>(subsets_.size()));
    if (is_new) {
      subsets_.push_back(reads_);
      dfa_.states.push_back({.edges = {}, .accepts = accepts_});
      work_ += reads_.size();
    }
    return at->second;
  }

  void expand(uint32_t state) {
    const std::vector<uint32_t> reads = subsets_[state];
    if (reads == std::vector<uint32_t>{kFound}) {
      for (const CharSet::Range& range : all_.ranges()) {
        dfa_.states[state].edges.push_back({range.low, range.high, state});
      }
      return;
    }
    std::vector<Event> events;
    const auto open = [&](const CharSet& set, uint32_t node) {
      for (const CharSet::Range& range : set.ranges()) {
        events.push_back({range.low, node, true});
        events.push_back({range.high + 1, node, false});
      }
    };
    for (const uint32_t node : reads) open(*nfa_.nodes[node].chars, node);
    if (search_) open(all_, kFound);  // a match may begin later
    std::sort(events.begin(), events.end(),
              [](const Event& a, const Event& b) { return a.at < b.at; });
    work_ += events.size();
    std::vector<uint32_t> active;
    for (size_t i = 0; i < events.size();) {
      const uint32_t low = events[i].at;
      for (; i < events.size() && events[i].at == low; ++i) {
        if (events[i].opens) {
          active.push_back(events[i].node);
        } else {
          active.erase(std::find(active.begin(), active.end(), events[i].node));
        }
        work_ += active.size() / 8;
      }
      if (active.empty() || work_ > kMaxDfaWork) continue;
      begin();
      for (const uint32_t node : active) {
        add(node == kFound ? nfa_.start : nfa_.nodes[node].to, false);
      }
      const uint32_t to = intern();
      dfa_.states[state].edges.push_back({low, events[i].at - 1, to});
    }
  }

  static constexpr uint32_t kFound = ~uint32_t{0};
  const CharNfa& nfa_;
  const bool search_;
  const CharSet all_ = any_character();
  CharDfa dfa_;
  std::vector<std::vector<uint32_t>> subsets_;
  std::map<std::pair<std::vector<uint32_t>, bool>, uint32_t> ids_;
  std::vector<uint32_t> reads_, seen_;
  std::vector<std::pair<uint32_t, bool>> pending_;
  bool accepts_ = false, found_ = false;
  uint32_t stamp_ = 0;
  size_t work_ = 0;
};

}  // namespace

bool CharDfa::accepts(std::string_view text) const {
  if (is_empty()) return false;
  uint32_t at = 0;
  while (!text.empty()) {
    const Utf8 read = read_utf8(text);
    if (read.size == 0) return false;
    text.remove_prefix(read.size);
    const std::vector<Edge>& edges = states[at].edges;
    const auto edge = std::lower_bound(edges.begin(), edges.end(), read.code,
                                       [](const Edge& e, uint32_t c) { return e.high < c; });
    if (edge == edges.end() || edge->low > read.code) return false;
    at = edge->to;
  }
  return states[at].accepts;
}

core::Result<CharDfa> make_dfa(const Regex& regex, uint32_t root, Match match) {
  const auto nfa = make_nfa(regex, root, kMaxRegexNodes);
  if (!nfa) return too_large();
  return Subsets(*nfa, match).run();
}

core::Result<CharDfa> regex_dfa(std::string_view text, Match match, RegexFlags flags) {
  Regex regex;
  if (const auto problem = parse_regex(text, flags, regex)) {
    const auto n_before =
        std::count_if(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(problem->at),
                      [](char c) { return (c & 0xC0) != 0x80; });
    return core::Error{
        core::Code::kInvalidRequest,
        fmt::format("{} (at character {} of the expression)", problem->message, n_before + 1)};
  }
  HADAL_TRY(CharDfa dfa, make_dfa(regex, regex.root, match));
  if (dfa.is_empty()) {
    return core::Error{core::Code::kInvalidRequest, "no text matches the expression"};
  }
  return dfa;
}

core::Result<CharDfa> intersection(const CharDfa& a, const CharDfa& b) {
  if (a.is_empty() || b.is_empty()) return CharDfa();
  CharDfa out;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> ids;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  const auto id = [&](uint32_t x, uint32_t y) {
    const auto [at, is_new] = ids.try_emplace({x, y}, static_cast<uint32_t>(pairs.size()));
    if (is_new) {
      pairs.emplace_back(x, y);
      out.states.push_back({.edges = {}, .accepts = a.states[x].accepts && b.states[y].accepts});
    }
    return at->second;
  };
  id(0, 0);
  size_t work = 0;
  for (uint32_t s = 0; s < pairs.size(); ++s) {
    const auto& left = a.states[pairs[s].first].edges;
    const auto& right = b.states[pairs[s].second].edges;
    for (size_t i = 0, k = 0; i < left.size() && k < right.size(); ++work) {
      const uint32_t low = std::max(left[i].low, right[k].low);
      const uint32_t high = std::min(left[i].high, right[k].high);
      if (low <= high) {
        const uint32_t to = id(left[i].to, right[k].to);
        out.states[s].edges.push_back({low, high, to});
      }
      if (left[i].high < right[k].high) {
        ++i;
      } else {
        ++k;
      }
    }
    if (pairs.size() > 4 * kMaxDfaStates || work > kMaxDfaWork) return too_large();
  }
  CharDfa kept = trimmed(out);
  if (kept.states.size() > kMaxDfaStates) return too_large();
  return kept;
}

CharDfa complement(const CharDfa& a) {
  CharDfa out = a;
  if (out.is_empty()) out.states.emplace_back();
  const auto sink = static_cast<uint32_t>(out.states.size());
  out.states.emplace_back();
  for (CharDfa::State& state : out.states) {
    state.accepts = !state.accepts;
    CharSet covered;
    for (const CharDfa::Edge& edge : state.edges) covered.add(edge.low, edge.high);
    const CharSet missing = covered.complement();
    for (const CharSet::Range& range : missing.ranges()) {
      state.edges.push_back({range.low, range.high, sink});
    }
    std::sort(state.edges.begin(), state.edges.end(),
              [](const CharDfa::Edge& x, const CharDfa::Edge& y) { return x.low < y.low; });
  }
  return trimmed(out);
}

core::Result<CharDfa> length_dfa(uint32_t low, std::optional<uint32_t> high) {
  const uint32_t last = high.value_or(low);
  if (last >= kMaxDfaStates) return too_large();
  CharDfa out;
  const CharSet all = any_character();
  for (uint32_t i = 0; i <= last; ++i) {
    CharDfa::State& state = out.states.emplace_back();
    state.accepts = i >= low;
    if (i == last && high) continue;
    for (const CharSet::Range& range : all.ranges()) {
      state.edges.push_back({range.low, range.high, std::min(i + 1, last)});
    }
  }
  return out;
}

}  // namespace hadal::grammar
