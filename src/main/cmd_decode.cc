#include <cstdio>
#include <ctime>
#include <iostream>
#include <iterator>
#include <random>

#include <fmt/core.h>
#include <unistd.h>

#include "base/tokenizer/tokenizer.h"
#include "compute/weights/read_file.h"
#include "gateway/anthropic/response_factory.h"
#include "gateway/recipe/error_body.h"
#include "gateway/recipe/text_assembler.h"
#include "gateway/recipe/tokenizer_vocabulary.h"
#include "main/codec_line.h"
#include "main/commands.h"
#include "main/decode_line.h"

namespace hadal::main {
namespace {

int decode_lines(const recipe::Vocabulary& vocabulary, const recipe::CodecOptions& defaults) {
  std::ios::sync_with_stdio(false);
  std::string line;
  for (size_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.empty()) continue;
    const std::optional<std::string> answer = decode_line(line, vocabulary, defaults);
    if (!answer.has_value()) {
      fmt::print(stderr,
                 "hadal decode: line {} of the input is no JSON object with an \"id\"; each line "
                 "must be one (docs/architecture.md 3.2)\n",
                 number);
      return 2;
    }
    std::cout << *answer << '\n';
    if (std::cin.rdbuf()->in_avail() <= 0) std::cout.flush();
  }
  std::cout.flush();
  return 0;
}

recipe::Api api_of(const std::string& name) {
  if (name == "messages") return recipe::Api::kMessages;
  if (name == "responses") return recipe::Api::kResponses;
  if (name == "completions") return recipe::Api::kCompletions;
  return recipe::Api::kChat;
}

types::FinishReason finish_reason(const std::string& word) {
  if (word == "length") return types::FinishReason::kLength;
  if (word == "content_filter") return types::FinishReason::kContentFilter;
  return types::FinishReason::kStop;
}

void write_out(std::string& bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  std::fflush(stdout);
  bytes.clear();
}

// Plays stdin as the model's text, as it comes.
int decode_text(const DecodeOptions& options, const recipe::Vocabulary& vocabulary,
                recipe::CodecRequest request) {
  recipe::ResponseIdentity identity;
  identity.id = options.response_id;
  identity.created = std::time(nullptr);
  identity.seed = std::random_device{}();
  request.response.stream = options.stream;
  request.response.n = 1;
  const auto stream = anthropic::make_response_stream(
      std::move(request.parse), std::move(request.response), std::move(request.extension),
      vocabulary, std::move(identity));
  std::string bytes, tail, text;
  stream->begin({}, bytes);
  bool more = true;
  char buffer[4096];
  while (more) {
    if (options.stream) write_out(bytes);
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
    tail.append(buffer, n > 0 ? static_cast<size_t>(n) : 0);
    text.clear();
    const size_t left = recipe::append_utf8(text, tail, n <= 0);
    tail.erase(0, tail.size() - left);
    if (!text.empty()) {
      const auto n_tokens = static_cast<uint32_t>(vocabulary.count_tokens(text));
      more = stream->on_text(0, text, n_tokens, bytes);
    }
    if (n <= 0) break;
  }
  types::Completion completion;
  completion.reason = finish_reason(options.finish);
  stream->on_done(0, completion, bytes);
  if (!options.stream) bytes.push_back('\n');
  write_out(bytes);
  return 0;
}

}  // namespace

int cmd_decode(const DecodeOptions& options) {
  const auto tokenizer = load_codec_tokenizer(options.tokenizer, options.model_dir);
  if (!tokenizer) {
    fmt::print(stderr, "hadal decode: {}\n", tokenizer.error().message);
    return 1;
  }
  const recipe::TokenizerVocabulary vocabulary(*tokenizer);
  recipe::CodecOptions defaults;
  defaults.compat = options.compat == "recipe";
  defaults.version = options.model_version == "v4" ? recipe::Version::kV4 : recipe::Version::kV41;
  if (options.stdin_jsonl) return decode_lines(vocabulary, defaults);
  if (options.request.empty()) {
    fmt::print(stderr,
               "hadal decode: --request BODY.json is missing (or --stdin-jsonl for many)\n");
    return 2;
  }
  core::Result<std::string> body = weights::read_file(options.request, kMaxBodyFile);
  if (!body) {
    fmt::print(stderr, "hadal decode: {}\n", body.error().message);
    return 1;
  }
  auto request = parse_body(api_of(options.api), *std::move(body), defaults);
  if (!request) {
    fmt::print("{}\n", recipe::error_body(request.error(), api_of(options.api), defaults.compat));
    fmt::print(stderr, "hadal decode: the request is refused: {}\n", request.error().message);
    return 1;
  }
  return decode_text(options, vocabulary, *std::move(request));
}

}  // namespace hadal::main
