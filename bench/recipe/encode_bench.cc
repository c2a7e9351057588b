// JSON body to prompt, on one core: reads a Chat Completions body from a file and prints one JSON
// line with medians.
//     encode_bench BODY.json TOKENIZER.json
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/tokenizer/tokenizer.h"
#include "gateway/openai/chat_request.h"
#include "gateway/recipe/encode.h"
#include "gateway/recipe/json_value.h"

namespace {

template <typename F>
double median_ms(int n, F&& f) {
  std::vector<double> times;
  for (int i = 0; i < n; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + n / 2, times.end());
  return times[static_cast<size_t>(n / 2)];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::ifstream file(argv[1], std::ios::binary);
  const std::string body((std::istreambuf_iterator<char>(file)), {});
  const auto tokenizer = hadal::tokenizer::Tokenizer::load(argv[2]);
  const hadal::recipe::CodecOptions options;
  auto request = hadal::openai::parse_chat_request(body, options);
  if (!tokenizer || !request) return 1;
  const auto prompt = hadal::recipe::render(request->conversation, options);
  const double parse =
      median_ms(400, [&] { (void)hadal::openai::parse_chat_request(body, options); });
  const double render =
      median_ms(400, [&] { (void)hadal::recipe::render(request->conversation, options); });
  const double both = median_ms(400, [&] {
    auto fresh = hadal::openai::parse_chat_request(body, options);
    (void)hadal::recipe::render(fresh->conversation, options);
  });
  hadal::recipe::JsonDoc doc;
  const double json = median_ms(400, [&] { (void)doc.parse(body); });
  std::string numbers = "[0";
  for (int i = 1; i < 20000; ++i) numbers += "," + std::to_string(i * 7919) + ".25";
  numbers += "]";
  const double dense = median_ms(100, [&] { (void)doc.parse(numbers); });
  size_t n_tokens = 0;
  const double tokenize =
      median_ms(20, [&] { n_tokens = hadal::recipe::tokenize(prompt, *tokenizer)->size(); });
  std::printf(
      "{\"bench\":\"recipe.encode\",\"json_ms\":%.4f,\"json_numbers_mb_s\":%.0f,\"body_bytes\":%zu,"
      "\"prompt_bytes\":%zu,\"tokens\":%zu,"
      "\"parse_ms\":%.4f,\"render_ms\":%.4f,\"json_to_prompt_ms\":%.4f,\"tokenize_ms\":%.3f,"
      "\"tokenize_mb_s\":%.1f}\n",
      json, static_cast<double>(numbers.size()) / dense / 1000, body.size(), prompt.text.size(),
      n_tokens, parse, render, both, tokenize,
      static_cast<double>(prompt.text.size()) / tokenize / 1000);
  return 0;
}
