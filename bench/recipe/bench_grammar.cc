// How long masks of grammars take on a vocabulary: bench_grammar TOKENIZER.json CORPUS.jsonl
//
// A line of the corpus: {"name", "kind": "schema" | "regex" | "lark" | "gbnf", "text", "instance"}.
// The instance is cut into tokens, and the mask in front of each is made and timed, every grammar
// with fresh states, as for its first request. Checked before it is counted: the mask allows the
// token, and the instance is accepted. Prints a line for each grammar and one for all, as JSON, in
// microseconds. `first` is compiling and the first mask together.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/core/check.h"
#include "base/tokenizer/tokenizer.h"
#include "engine/grammar/ebnf.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/token_mask.h"

namespace {

using namespace hadal::grammar;  // NOLINT(google-build-using-namespace): one short program
using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

hadal::core::Result<std::shared_ptr<const Grammar>> compile(const std::string& kind,
                                                            const std::string& text) {
  if (kind == "regex") return compile_regex(text);
  if (kind == "schema") return compile_json_schema(text);
  return compile_ebnf(text, kind == "lark" ? EbnfSyntax::kLark : EbnfSyntax::kGbnf);
}

std::string summary(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  double sum = 0;
  for (const double one : us) sum += one;
  const auto at = [&](double share) {
    return us[std::min(us.size() - 1, static_cast<size_t>(share * static_cast<double>(us.size())))];
  };
  return fmt::format(R"({{"n":{},"mean":{:.1f},"p50":{:.1f},"p99":{:.1f},"max":{:.1f}}})",
                     us.size(), sum / static_cast<double>(us.size()), at(0.5), at(0.99), us.back());
}

}  // namespace

int main(int argc, char** argv) {
  HADAL_CHECK(argc == 3, "bench_grammar TOKENIZER.json CORPUS.jsonl");
  auto tokenizer = hadal::tokenizer::Tokenizer::load(argv[1]);
  HADAL_CHECK(tokenizer.has_value(), argv[1]);
  const VocabTrie trie(*tokenizer);
  std::ifstream corpus(argv[2]);
  HADAL_CHECK(corpus.good(), argv[2]);
  std::vector<double> all, firsts;
  std::string line;
  constexpr int kRounds = 5;  // of which the best for each mask: other programs run, too
  while (std::getline(corpus, line)) {
    const auto one = nlohmann::json::parse(line);
    const std::string name = one.at("name"), instance = one.at("instance");
    std::vector<hadal::tokenizer::TokenId> ids;
    tokenizer->encode(instance, hadal::tokenizer::Added::kIgnore, ids);
    std::vector<double> best;
    double first = 1e9;
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = Clock::now();
      const auto grammar = compile(one.at("kind"), one.at("text"));
      HADAL_CHECK(grammar.has_value(), grammar.error().message);
      TokenMasks masks(*grammar, trie);
      masks.mask(masks.automaton().start());
      first = std::min(first, us_since(begin));
      Automaton::State state = masks.automaton().start();
      std::vector<double> us;
      for (const auto id : ids) {
        const auto from = Clock::now();
        const std::span<const uint32_t> mask = masks.mask(state);
        if (&id != ids.data()) us.push_back(us_since(from));
        HADAL_CHECK(((mask[static_cast<size_t>(id) / 32] >> (id % 32)) & 1) != 0, name);
        state = masks.automaton().next(state, tokenizer->bytes_of(id));
      }
      HADAL_CHECK(masks.automaton().accepts(state), name);
      if (best.empty()) best = us;
      for (size_t i = 0; i < us.size(); ++i) best[i] = std::min(best[i], us[i]);
    }
    std::cout << fmt::format(R"({{"name":"{}","first":{:.0f},"masks":{}}})", name, first,
                             summary(best))
              << std::endl;
    all.insert(all.end(), best.begin(), best.end());
    firsts.push_back(first);
  }
  std::cout << fmt::format(R"({{"name":"all","rounds":{},"first":{},"masks":{}}})", kRounds,
                           summary(firsts), summary(all))
            << std::endl;
  return 0;
}
