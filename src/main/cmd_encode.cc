#include <iostream>
#include <iterator>
#include <string>

#include <fmt/format.h>

#include "base/tokenizer/tokenizer.h"
#include "compute/weights/read_file.h"
#include "gateway/recipe/json_value.h"
#include "main/codec_line.h"
#include "main/commands.h"
#include "main/encode_line.h"

namespace hadal::main {

namespace {

int encode_lines(const tokenizer::Tokenizer& tokenizer, const recipe::CodecOptions& options) {
  std::ios::sync_with_stdio(false);
  std::string line;
  size_t number = 0;
  while (std::getline(std::cin, line)) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::optional<std::string> answer = encode_line(line, tokenizer, options);
    if (!answer) {
      std::cout.flush();
      fmt::print(stderr, "hadal encode: line {} is no JSON object with an \"id\"\n", number);
      return 2;
    }
    std::cout << *answer << '\n';
  }
  std::cout.flush();
  return 0;
}

// A body is encoded as a batch line is, and answered without the id.
int encode_file(const EncodeOptions& options, const tokenizer::Tokenizer& tokenizer,
                const recipe::CodecOptions& codec) {
  std::string body;
  if (options.body == "-") {
    body.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    core::Result<std::string> file = weights::read_file(options.body, kMaxBodyFile);
    if (!file) {
      fmt::print(stderr, "hadal encode: {}\n", file.error().message);
      return 1;
    }
    body = *std::move(file);
  }
  std::string line = R"({"id":0,"api":)";
  recipe::append_json_string(line, options.api);
  line += ",\"body_text\":";
  recipe::append_json_string(line, body);
  line += '}';
  const std::optional<std::string> answer = encode_line(line, tokenizer, codec);
  if (!answer) {
    fmt::print(stderr, "hadal encode: {} is not UTF-8 text; write the request in UTF-8\n",
               options.body);
    return 1;
  }
  constexpr std::string_view kId = R"({"id":0,)";
  fmt::print("{{{}\n", std::string_view(*answer).substr(kId.size()));
  return answer->starts_with(R"({"id":0,"error")") ? 1 : 0;
}

}  // namespace

int cmd_encode(const EncodeOptions& options) {
  if (options.body.empty() && !options.stdin_jsonl) {
    fmt::print(stderr, "hadal encode: name a BODY file, or give --stdin-jsonl\n");
    return 2;
  }
  const auto tokenizer = load_codec_tokenizer(options.tokenizer, options.model_dir);
  if (!tokenizer) {
    fmt::print(stderr, "hadal encode: {}\n", tokenizer.error().message);
    return 1;
  }
  recipe::CodecOptions codec;
  codec.compat = options.compat == "recipe";
  if (options.profile == "reference") codec.profile = recipe::Profile::kReference;
  if (options.model_version == "v4") codec.version = recipe::Version::kV4;
  return options.stdin_jsonl ? encode_lines(*tokenizer, codec)
                             : encode_file(options, *tokenizer, codec);
}

}  // namespace hadal::main
