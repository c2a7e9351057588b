// Decoding model output into event JSON: one-token pieces and 4 kB pieces, in the three dialects.
//   bench_decode PIECES.jsonl     one JSON array of text pieces a line (bench_decode.py makes it)
// Prints one JSON line a workload; bench_decode.py runs the real package beside it.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "gateway/anthropic/response_factory.h"
#include "gateway/recipe/json_value.h"
#include "gateway/recipe/response_stream.h"

namespace {

using namespace hadal;  // NOLINT(google-build-using-namespace): a program of one file

class NoVocabulary final : public recipe::Vocabulary {
 public:
  std::string_view bytes(types::TokenId) const override { return {}; }
  bool is_added(types::TokenId) const override { return false; }
  size_t count_tokens(std::string_view) const override { return 0; }
};

std::vector<std::string> cut(const std::vector<std::string>& pieces, size_t size) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(at + size, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    out.push_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

// Bytes of events written.
size_t play(recipe::Api api, const std::vector<std::string>& pieces, std::string& out) {
  static const NoVocabulary vocabulary;
  recipe::ParsePlan parse;
  parse.tool_calls = true;
  parse.tools.push_back({.name = "f", .ns = "", .local_name = "f", .parameters = "{}"});
  recipe::ResponsePlan plan;
  plan.api = api;
  plan.model = "DeepSeek-V4.1-Flash";
  plan.stream = true;
  recipe::ResponseIdentity identity;
  identity.id = "resp_0123456789abcdef";
  auto stream = anthropic::make_response_stream(parse, plan, {}, vocabulary, identity);
  size_t n = 0;
  stream->begin({}, out);
  for (const std::string& piece : pieces) {
    stream->on_text(0, piece, 1, out);
    n += out.size();  // handed to the connection, token by token
    out.clear();
  }
  types::Completion completion;
  completion.reason = types::FinishReason::kStop;
  stream->on_done(0, completion, out);
  n += out.size();
  out.clear();
  return n;
}

void measure(std::string_view name, recipe::Api api, const std::vector<std::string>& pieces) {
  std::string out;
  size_t text_bytes = 0, n_out = 0;
  for (const std::string& piece : pieces) text_bytes += piece.size();
  std::vector<double> seconds;
  for (int run = 0; run < 41; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    n_out = play(api, pieces, out);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  fmt::print(
      R"({{"bench":"decode","workload":"{}","pieces":{},"text_bytes":{},"event_bytes":{},"median_ms":{:.3f},"spread":{:.2f},"pieces_per_s":{:.0f},"MB_per_s":{:.1f}}})"
      "\n",
      name, pieces.size(), text_bytes, n_out, median * 1e3,
      (seconds[seconds.size() * 3 / 4] - seconds[seconds.size() / 4]) / median,
      static_cast<double>(pieces.size()) / median, static_cast<double>(text_bytes) / median / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: bench_decode PIECES.jsonl\n");
    return 2;
  }
  std::ifstream file(argv[1]);
  std::string line;
  std::getline(file, line);
  recipe::JsonDoc doc;
  if (!doc.parse(line) || !doc.root().is_array()) {
    fmt::print(stderr, "bench_decode: {} holds no JSON list of pieces\n", argv[1]);
    return 1;
  }
  std::vector<std::string> tokens;
  for (const recipe::JsonValue piece : doc.root()) tokens.emplace_back(piece.str());
  const std::vector<std::string> blocks = cut(tokens, 4096);
  measure("tokens chat", recipe::Api::kChat, tokens);
  measure("tokens messages", recipe::Api::kMessages, tokens);
  measure("tokens responses", recipe::Api::kResponses, tokens);
  measure("4kB chat", recipe::Api::kChat, blocks);
  measure("4kB messages", recipe::Api::kMessages, blocks);
  measure("4kB responses", recipe::Api::kResponses, blocks);
  return 0;
}
