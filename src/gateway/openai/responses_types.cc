#include "gateway/openai/responses_types.h"

#include <string_view>

#include "gateway/recipe/request_rules.h"

namespace hadal::openai {

using recipe::CodecOptions;
using recipe::FieldCheck;
using recipe::JsonValue;
using recipe::Need;
using recipe::Path;

namespace {

class ResponsesTypes {
 public:
  ResponsesTypes(FieldCheck& check, const CodecOptions& options)
      : check_(check), compat_(options.compat), options_(options) {}

  void body(JsonValue body) {
    const Path root;
    if (!check_.is_object(body, root)) return;
    check_.string(body, "model", root, Need::kRequired);
    const JsonValue input = body["input"];
    if (input.is_array()) {
      items(input, Path{&root, "input"});
    } else if (!input.absent_or_null() && !input.is_string()) {
      check_.fail(root, "input", "must be a string or a list of input items");
    }
    check_.string(body, "instructions", root, Need::kOptional);
    check_.string(body, "user", root, Need::kOptional);
    check_.integer(body, "max_output_tokens", root, Need::kOptional, UINT32_MAX);
    check_.integer(body, "top_logprobs", root, Need::kOptional, 255);
    check_.number(body, "temperature", root, Need::kOptional);
    check_.number(body, "top_p", root, Need::kOptional);
    check_.boolean(body, "stream", root, Need::kOptional);
    if (const JsonValue reasoning = check_.object(body, "reasoning", root, Need::kOptional)) {
      const Path at{&root, "reasoning"};
      recipe::check_effort(check_, reasoning, "effort", at, options_);
      for (const std::string_view key : {"summary", "generate_summary"}) {
        check_.word(reasoning, key, at, Need::kOptional, {"auto", "concise", "detailed"});
      }
    }
    text(body, root);
    if (const JsonValue tools = check_.array(body, "tools", root, Need::kOptional)) {
      this->tools(tools, Path{&root, "tools"});
    }
    tool_choice(body, root);
    if (!compat_) own(body, root);
  }

  void items(JsonValue items, const Path& list) {
    int64_t i = 0;
    for (const JsonValue item : items) {
      if (!check_.ok()) return;
      this->item(item, Path{&list, {}, i++});
    }
  }

 private:
  void own(JsonValue body, const Path& root) {
    for (const std::string_view key : {"store", "background", "parallel_tool_calls"}) {
      check_.boolean(body, key, root, Need::kOptional);
    }
    check_.string(body, "previous_response_id", root, Need::kOptional);
    check_.object(body, "metadata", root, Need::kOptional);
    check_.integer(body, "max_tool_calls", root, Need::kOptional, UINT32_MAX);
    check_.word(body, "truncation", root, Need::kOptional, {"auto", "disabled"});
    for (const std::string_view key :
         {"service_tier", "prompt_cache_key", "safety_identifier", "prompt_cache_retention"}) {
      check_.string(body, key, root, Need::kOptional);
    }
    if (const JsonValue include = check_.array(body, "include", root, Need::kOptional)) {
      check_.all_strings(include, Path{&root, "include"});
    }
    const JsonValue conversation = body["conversation"];
    if (conversation.is_object()) {
      check_.string(conversation, "id", Path{&root, "conversation"}, Need::kRequired);
    } else if (!conversation.absent_or_null() && !conversation.is_string()) {
      check_.fail(root, "conversation", "must be an id or an object with an id");
    }
    if (!body["prompt"].absent_or_null()) {
      check_.fail(root, "prompt", "is not supported: no stored prompt templates here");
    }
  }

  void text(JsonValue body, const Path& root) {
    const JsonValue text = check_.object(body, "text", root, Need::kOptional);
    if (!text) return;
    const Path at{&root, "text"};
    check_.word(text, "verbosity", at, Need::kOptional, {"low", "medium", "high"});
    const JsonValue format = text["format"];
    if (!format || (format.is_null() && !compat_)) return;
    const Path inside{&at, "format"};
    if (!check_.is_object(format, inside)) return;
    const bool regex = !compat_ && format["type"].str() == "regex";
    if (regex) {
      check_.string(format, "regex", inside, Need::kRequired);
      return;
    }
    const std::string_view type =
        check_.word(format, "type", inside, Need::kRequired, {"text", "json_schema", "json_object"})
            .str();
    if (type != "json_schema") return;
    check_.string(format, "name", inside, Need::kRequired);
    check_.string(format, "description", inside, Need::kOptional);
    check_.boolean(format, "strict", inside, Need::kOptional);
    if (!format["schema"]) check_.fail(inside, "schema", "is missing");
  }

  void item(JsonValue item, const Path& at) {
    const JsonValue type = item["type"];
    if (!item.is_object() || (!type && !item["role"])) {
      return check_.fail_here(at, "is no input item: it has neither a type nor a role");
    }
    if (type && !type.is_string()) return check_.fail(at, "type", "must be a string");
    const std::string_view name = type ? type.str() : std::string_view("message");
    if (name == "message") {
      check_.word(item, "role", at, Need::kRequired, {"user", "assistant", "system", "developer"});
      content(item, "content", at, true);
    } else if (name == "function_call") {
      strings(item, at, {"call_id", "name"});
      check_.string(item, "arguments", at, compat_ ? Need::kRequired : Need::kOptional);
      check_.string(item, "namespace", at, Need::kOptional);
    } else if (name == "function_call_output" || name == "custom_tool_call_output") {
      strings(item, at, {"call_id"});
      content(item, "output", at, false);
    } else if (name == "reasoning") {
      reasoning(item, at);
    } else if (name == "custom_tool_call") {
      strings(item, at, {"call_id", "name", "input"});
    } else if (name == "tool_search_call") {
      strings(item, at, {"call_id"});
      check_.object(item, "arguments", at, Need::kRequired);
    } else if (name == "tool_search_output") {
      strings(item, at, {"call_id"});
      if (const JsonValue found = check_.array(item, "tools", at, Need::kRequired)) {
        tools(found, Path{&at, "tools"});
      }
    }
  }

  void strings(JsonValue object, const Path& at, std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys) check_.string(object, key, at, Need::kRequired);
  }

  void reasoning(JsonValue item, const Path& at) {
    const JsonValue parts = check_.array(item, "content", at, Need::kOptional);
    const Path list{&at, "content"};
    int64_t i = 0;
    for (const JsonValue part : parts) {
      const Path path{&list, {}, i++};
      if (!check_.is_object(part, path)) return;
      check_.string(part, "text", path, Need::kRequired);
    }
    if (!compat_) check_.string(item, "encrypted_content", at, Need::kOptional);
  }

  void content(JsonValue item, std::string_view key, const Path& at, bool is_message) {
    const JsonValue value = item[key];
    if (value.is_string()) return;
    if (!value.is_array()) {
      return check_.fail(at, key, "must be a string or a list of parts");
    }
    const Path list{&at, key};
    int64_t i = 0;
    for (const JsonValue part : value) {
      const Path path{&list, {}, i++};
      if (!check_.ok() || !check_.is_object(part, path)) return;
      const std::string_view type = check_.string(part, "type", path, Need::kRequired).str();
      if (type == "input_text" || (type == "output_text" && is_message)) {
        check_.string(part, "text", path, Need::kRequired);
      } else if (type == "input_image") {
        check_.string(part, "image_url", path, Need::kOptional);
        check_.string(part, "file_id", path, Need::kOptional);
        check_.word(part, "detail", path, Need::kOptional, {"low", "high", "original", "auto"});
      } else if (type == "refusal" && is_message && !compat_) {
        check_.string(part, "refusal", path, Need::kRequired);
      } else if (type != "input_file") {
        check_.fail(path, "type", "names a part that is not accepted here");
      }
    }
  }

  void tools(JsonValue tools, const Path& list) {
    int64_t i = 0;
    for (const JsonValue tool : tools) {
      const Path at{&list, {}, i++};
      if (!check_.ok() || !check_.is_object(tool, at)) return;
      const std::string_view type = check_.string(tool, "type", at, Need::kRequired).str();
      if (type == "function") {
        function(tool, at);
      } else if (type == "namespace") {
        check_.string(tool, "name", at, Need::kRequired);
        check_.string(tool, "description", at, Need::kOptional);
        inner_tools(tool, at);
      } else if (type == "custom") {
        check_.string(tool, "name", at, Need::kRequired);
        if (!compat_) custom(tool, at);
      } else if (type == "tool_search") {
        check_.string(tool, "description", at, Need::kOptional);
      }
    }
  }

  void function(JsonValue tool, const Path& at) {
    check_.string(tool, "name", at, Need::kRequired);
    check_.string(tool, "description", at, Need::kOptional);
    check_.boolean(tool, "strict", at, Need::kOptional);
  }

  void inner_tools(JsonValue tool, const Path& at) {
    const JsonValue inner = check_.array(tool, "tools", at, Need::kRequired);
    const Path list{&at, "tools"};
    int64_t i = 0;
    for (const JsonValue item : inner) {
      const Path path{&list, {}, i++};
      if (!check_.ok() || !check_.is_object(item, path)) return;
      check_.word(item, "type", path, Need::kRequired, {"function", "custom"});
      function(item, path);
    }
  }

  void custom(JsonValue tool, const Path& at) {
    check_.string(tool, "description", at, Need::kOptional);
    const JsonValue format = check_.object(tool, "format", at, Need::kOptional);
    if (!format) return;
    const Path inside{&at, "format"};
    const std::string_view type =
        check_.word(format, "type", inside, Need::kRequired, {"text", "grammar"}).str();
    if (type != "grammar") return;
    check_.string(format, "definition", inside, Need::kRequired);
    check_.word(format, "syntax", inside, Need::kRequired, {"lark", "regex", "gbnf"});
  }

  void tool_choice(JsonValue body, const Path& root) {
    const JsonValue choice = body["tool_choice"];
    if (choice.absent_or_null()) return;
    if (choice.is_string()) {
      check_.word(body, "tool_choice", root, Need::kOptional, {"none", "auto", "required"});
      return;
    }
    const Path at{&root, "tool_choice"};
    if (!check_.is_object(choice, at)) return;
    const std::string_view type = choice["type"].str();
    if (type == "allowed_tools" && !compat_) {
      check_.word(choice, "mode", at, Need::kRequired, {"auto", "required"});
      check_.array(choice, "tools", at, Need::kRequired);
      return;
    }
    check_.word(choice, "type", at, Need::kRequired,
                {"function", "web_search", "web_search_2025_08_26", "custom"});
    if (type == "function" || type == "custom") {
      check_.string(choice, "name", at, Need::kRequired);
    }
  }

  FieldCheck& check_;
  const bool compat_;
  const CodecOptions& options_;
};

}  // namespace

void check_responses_types(FieldCheck& check, JsonValue body, const CodecOptions& options) {
  ResponsesTypes(check, options).body(body);
}

void check_item_types(FieldCheck& check, JsonValue items, const Path& at,
                      const CodecOptions& options) {
  ResponsesTypes(check, options).items(items, at);
}

}  // namespace hadal::openai
