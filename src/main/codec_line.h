#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/core/result.h"
#include "base/tokenizer/tokenizer.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/json_value.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/recipe/options.h"

namespace hadal::main {

constexpr size_t kMaxBodyFile = size_t{1} << 30;  // bytes of a file that holds one request

// What lines of `hadal encode` and `hadal decode --stdin-jsonl` have in common. Views into the
// line's text, which must outlive it.
struct CodecLine {
  recipe::JsonDoc document;
  recipe::JsonValue object, id;
  recipe::Api api = recipe::Api::kChat;
  bool is_conversation = false;  // api "conversation": no dialect
  recipe::CodecOptions options;
  core::Status problem;  // a field of the line itself is wrong
};

// `file`, else the tokenizer.json of `model_dir`, else that of the bundled demo model.
core::Result<tokenizer::Tokenizer> load_codec_tokenizer(const std::string& file,
                                                        const std::string& model_dir);

// False if `text` is no JSON object with an `id`: the one case that is no answer.
bool read_codec_line(std::string_view text, const recipe::CodecOptions& defaults, CodecLine& line);

// A request of a dialect.
core::Result<recipe::CodecRequest> parse_body(recipe::Api api, std::string body,
                                              const recipe::CodecOptions& options);
// The request in `body` or `body_text` of a line.
core::Result<recipe::CodecRequest> parse_request(const CodecLine& line);

using recipe::one_line;

}  // namespace hadal::main
