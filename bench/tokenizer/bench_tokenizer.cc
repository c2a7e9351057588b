// Encodes lines of {"text": ...} (tests/tokenizer/corpus.py) and prints one JSON line with the
// speed; with --ids prints the ids of each line instead, for a comparison with another tokenizer.
//   bench_tokenizer TOKENIZER.json CORPUS.jsonl [--ids]
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/tokenizer/engram_map.h"
#include "base/tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  using hadal::tokenizer::Added;
  using Clock = std::chrono::steady_clock;
  if (argc < 3) {
    std::fputs("usage: bench_tokenizer TOKENIZER.json CORPUS.jsonl [--ids]\n", stderr);
    return 2;
  }
  const auto loading = Clock::now();
  auto loaded = hadal::tokenizer::Tokenizer::load(argv[1]);
  if (!loaded) {
    fmt::print(stderr, "{}\n", loaded.error().message);
    return 1;
  }
  const double load_s = std::chrono::duration<double>(Clock::now() - loading).count();
  const auto& tokenizer = *loaded;
  std::vector<std::string> texts;
  size_t n_bytes = 0;
  std::ifstream file(argv[2]);
  for (std::string line; std::getline(file, line);) {
    texts.push_back(nlohmann::json::parse(line)["text"].get<std::string>());
    n_bytes += texts.back().size();
  }
  std::vector<int32_t> ids;
  if (argc > 3 && std::strcmp(argv[3], "--ids") == 0) {
    for (const std::string& text : texts) {
      ids.clear();
      tokenizer.encode(text, Added::kMatch, ids);
      fmt::print("[{}]\n", fmt::join(ids, ","));
    }
    return 0;
  }
  double best = 1e9;
  size_t n_tokens = 0;
  for (int round = 0; round < 5; ++round) {
    const auto begin = Clock::now();
    n_tokens = 0;
    for (const std::string& text : texts) {
      ids.clear();
      tokenizer.encode(text, Added::kIgnore, ids);
      n_tokens += ids.size();
    }
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  fmt::print(
      "{{\"bench\":\"tokenizer\",\"bytes\":{},\"tokens\":{},\"mb_per_s\":{:.1f},\"load_s\":{:.3f}}}"
      "\n",
      n_bytes, n_tokens, static_cast<double>(n_bytes) / best / 1e6, load_s);
  return 0;
}
