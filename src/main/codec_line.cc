#include "main/codec_line.h"

#include <algorithm>

#include "gateway/recipe/field_check.h"
#include "main/engine_stack.h"

namespace hadal::main {

using recipe::FieldCheck;
using recipe::JsonValue;
using recipe::Need;
using recipe::Path;

namespace {

// Two levels more than a body may have: the line around it.
constexpr int kLineDepth = 130;

void read_options(FieldCheck& check, JsonValue object, recipe::CodecOptions& options) {
  const Path root;
  if (check.word(object, "compat", root, Need::kOptional, {"recipe"})) options.compat = true;
  const JsonValue profile =
      check.word(object, "profile", root, Need::kOptional, {"recipe", "reference"});
  if (profile) {
    options.profile =
        profile.str() == "reference" ? recipe::Profile::kReference : recipe::Profile::kRecipe;
  }
  const JsonValue version =
      check.word(object, "model_version", root, Need::kOptional, {"v4", "v4.1"});
  if (version) {
    options.version = version.str() == "v4" ? recipe::Version::kV4 : recipe::Version::kV41;
  }
  const JsonValue given = check.object(object, "options", root, Need::kOptional);
  if (!given) return;
  const Path at{&root, "options"};
  if (const JsonValue value = check.boolean(given, "default_thinking", at, Need::kOptional)) {
    options.default_thinking = value.is_true();
  }
  if (const JsonValue value =
          check.word(given, "missing_reasoning", at, Need::kOptional, {"reject", "fill"})) {
    options.reject_missing_reasoning = value.str() == "reject";
  }
  const auto web = [&](std::string_view key, bool& dropped) {
    const JsonValue value = check.word(given, key, at, Need::kOptional, {"drop", "reject"});
    if (value) dropped = value.str() == "drop";
  };
  web("messages_web_search", options.messages_web_search_dropped);
  web("responses_web_search", options.responses_web_search_dropped);
  if (const JsonValue value =
          check.integer(given, "max_tokens_limit", at, Need::kOptional, UINT32_MAX)) {
    options.max_tokens_limit = static_cast<uint32_t>(value.node()->u);
  }
}

}  // namespace

core::Result<tokenizer::Tokenizer> load_codec_tokenizer(const std::string& file,
                                                        const std::string& model_dir) {
  if (!file.empty()) return tokenizer::Tokenizer::load(file);
  const std::string folder = model_dir.empty() ? default_model_dir() : model_dir;
  if (folder.empty()) {
    return core::Error{core::Code::kNotFound,
                       "no tokenizer: give --model DIR or --tokenizer FILE (the bundled "
                       "models/demo was not found beside this program)",
                       "model"};
  }
  return tokenizer::Tokenizer::load(folder + "/tokenizer.json");
}

bool read_codec_line(std::string_view text, const recipe::CodecOptions& defaults, CodecLine& line) {
  if (!line.document.parse(text, kLineDepth)) return false;
  line.object = line.document.root();
  line.id = line.object["id"];
  if (!line.object.is_object() || !line.id) return false;
  line.options = defaults;
  FieldCheck check;
  read_options(check, line.object, line.options);
  const JsonValue api =
      check.word(line.object, "api", Path{}, Need::kOptional,
                 {"chat", "messages", "responses", "completions", "conversation"});
  line.is_conversation = api.str() == "conversation";
  if (api.str() == "messages") line.api = recipe::Api::kMessages;
  if (api.str() == "responses") line.api = recipe::Api::kResponses;
  if (api.str() == "completions") line.api = recipe::Api::kCompletions;
  line.problem = check.status();
  return true;
}

}  // namespace hadal::main
