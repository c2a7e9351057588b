// What the grammars of engine/grammar do with given texts, and texts that come of walks through
// their masks, for tests by programs that we did not write (grammar_test.py).
//
//   grammar_oracle [tokenizer.json]     one JSON object a line in, one out:
//   {"kind": "regex" | "schema" | "lark" | "gbnf", "text": "...", "inputs": ["..."], "walks": 3,
//    "tokens": 40, "seed": 1}
//   {"error": "..."} or {"accepts": [true], "walks": ["..."]}
//
// A walk takes random tokens that the mask allows, `tokens` at most, and then the shortest way to
// an end. Without a tokenizer every byte is a token.
#include <deque>
#include <iostream>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/core/check.h"
#include "base/tokenizer/tokenizer.h"
#include "engine/grammar/ebnf.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/token_mask.h"

namespace {

using hadal::grammar::Automaton;
using hadal::grammar::EbnfSyntax;
using hadal::grammar::Grammar;
using hadal::grammar::TokenMasks;
using hadal::grammar::VocabTrie;
using Json = nlohmann::json;

hadal::core::Result<std::shared_ptr<const Grammar>> compile(const std::string& kind,
                                                            const std::string& text) {
  if (kind == "regex") return hadal::grammar::compile_regex(text);
  if (kind == "schema") return hadal::grammar::compile_json_schema(text);
  return hadal::grammar::compile_ebnf(text, kind == "lark" ? EbnfSyntax::kLark : EbnfSyntax::kGbnf);
}

// The bytes of a shortest way from `state` to one that accepts, without those of `avoided`; false:
// none within reach.
bool finish_without(std::string_view avoided, Automaton& automaton, Automaton::State state,
                    std::string& text) {
  constexpr size_t kMaxSeen = 5'000;
  struct From {
    Automaton::State state = 0;
    char byte = 0;
  };
  std::unordered_map<Automaton::State, From> seen = {{state, {}}};
  std::deque<Automaton::State> queue = {state};
  while (!queue.empty() && seen.size() < kMaxSeen) {
    const Automaton::State at = queue.front();
    queue.pop_front();
    if (automaton.accepts(at)) {
      std::string way;
      for (Automaton::State s = at; s != state; s = seen[s].state) way += seen[s].byte;
      text.append(way.rbegin(), way.rend());
      return true;
    }
    for (int byte = 0; byte < 256; ++byte) {
      if (avoided.find(static_cast<char>(byte)) != avoided.npos) continue;
      const Automaton::State to = automaton.next(at, static_cast<uint8_t>(byte));
      if (to == Automaton::kDead || !seen.try_emplace(to, From{at, static_cast<char>(byte)}).second)
        continue;
      queue.push_back(to);
    }
  }
  return false;
}

// What opens and separates parts leads far away.
bool finish(Automaton& automaton, Automaton::State state, std::string& text) {
  return finish_without("[{( \n,", automaton, state, text) ||
         finish_without("[{ \n", automaton, state, text) ||
         finish_without("", automaton, state, text);
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<hadal::tokenizer::Tokenizer> tokenizer;
  std::vector<std::string> bytes(256);
  std::unique_ptr<VocabTrie> trie;
  if (argc > 1) {
    auto loaded = hadal::tokenizer::Tokenizer::load(argv[1]);
    HADAL_CHECK(loaded.has_value(), argv[1]);
    tokenizer = std::make_unique<hadal::tokenizer::Tokenizer>(*std::move(loaded));
    trie = std::make_unique<VocabTrie>(*tokenizer);
  } else {
    std::vector<std::pair<std::string_view, int32_t>> tokens;
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = std::string(1, static_cast<char>(i));
      tokens.emplace_back(bytes[i], static_cast<int32_t>(i));
    }
    trie = std::make_unique<VocabTrie>(tokens, 256);
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json in = Json::parse(line);
    const auto grammar = compile(in.at("kind"), in.at("text"));
    Json out;
    if (!grammar) {
      out = {{"error", grammar.error().message + " " + grammar.error().param}};
      std::cout << out.dump() << std::endl;
      continue;
    }
    TokenMasks masks(*grammar, *trie);
    Automaton& automaton = masks.automaton();
    out["accepts"] = Json::array();
    for (const std::string& input : in.value("inputs", std::vector<std::string>())) {
      out["accepts"].push_back(automaton.accepts(automaton.next(automaton.start(), input)));
    }
    std::mt19937_64 random(in.value("seed", 1));
    out["walks"] = Json::array();
    for (int walk = 0; walk < in.value("walks", 0); ++walk) {
      std::string text;
      Automaton::State state = automaton.start();
      for (int n = 0; n < in.value("tokens", 40); ++n) {
        const std::span<const uint32_t> mask = masks.mask(state);
        std::vector<int32_t> allowed;
        for (int32_t t = 0; t < trie->n_vocab(); ++t) {
          if (((mask[static_cast<size_t>(t) / 32] >> (t % 32)) & 1) != 0) allowed.push_back(t);
        }
        const bool may_end = automaton.accepts(state);
        HADAL_CHECK(may_end || !allowed.empty(), "a text that has begun can end: " + text);
        if (allowed.empty() || (may_end && random() % 8 == 0)) break;
        const int32_t token = allowed[random() % allowed.size()];
        const std::string_view added = tokenizer
                                           ? tokenizer->bytes_of(token)
                                           : std::string_view(bytes[static_cast<size_t>(token)]);
        text += added;
        state = automaton.next(state, added);
        HADAL_CHECK(state != Automaton::kDead, "what the mask allows fits");
      }
      if (finish(automaton, state, text)) out["walks"].push_back(text);
    }
    std::cout << out.dump() << std::endl;
  }
  return 0;
}
