#include "gateway/openai/chat_types.h"

#include <string_view>

#include "gateway/recipe/request_rules.h"

namespace hadal::openai {

using recipe::CodecOptions;
using recipe::FieldCheck;
using recipe::JsonValue;
using recipe::Need;
using recipe::Path;

namespace {

class ChatTypes {
 public:
  ChatTypes(FieldCheck& check, const CodecOptions& options)
      : check_(check), compat_(options.compat), options_(options) {}

  void body(JsonValue body) {
    const Path root;
    if (!check_.is_object(body, root)) return;
    check_.string(body, "model", root, Need::kRequired);
    if (const JsonValue messages = check_.array(body, "messages", root, Need::kRequired)) {
      const Path path{&root, "messages"};
      int64_t i = 0;
      for (const JsonValue message : messages) {
        if (!check_.ok()) return;
        this->message(message, Path{&path, {}, i++});
      }
    }
    check_sampling_types(check_, body, options_);
    thinking(body, root);
    check_.boolean(body, "logprobs", root, Need::kOptional);
    check_.integer(body, "top_logprobs", root, Need::kOptional, 255);
    if (!compat_) check_.integer(body, "max_completion_tokens", root, Need::kOptional, UINT32_MAX);
    check_.boolean(body, "parallel_tool_calls", root, Need::kOptional);
    response_format(body, root);
    tools(body, root);
    tool_choice(body, root);
  }

 private:
  void thinking(JsonValue body, const Path& root) {
    if (const JsonValue thinking = check_.object(body, "thinking", root, Need::kOptional)) {
      const Path path{&root, "thinking"};
      check_.word(thinking, "type", path, Need::kRequired, {"adaptive", "enabled", "disabled"});
      check_.integer(thinking, "budget_tokens", path, Need::kOptional, UINT64_MAX);
    }
    recipe::check_effort(check_, body, "reasoning_effort", root, options_);
  }

  void message(JsonValue message, const Path& at) {
    if (!check_.is_object(message, at)) return;
    const std::string_view role = check_.string(message, "role", at, Need::kRequired).str();
    if (!check_.ok()) return;
    if (role == "assistant") {
      assistant(message, at);
    } else if (role == "system" || role == "user" || (role == "developer" && !compat_)) {
      content(message, at, true);
      if (!compat_ && role == "user") {
        check_.word(message, "task", at, Need::kOptional,
                    {"title", "query", "authority", "domain", "read_url", "action"});
      }
    } else if (role == "tool") {
      content(message, at, true);
      check_.string(message, "tool_call_id", at, Need::kRequired);
    } else if (role == "latest_reminder") {
      check_.string(message, "content", at, Need::kRequired);
    } else {
      check_.word(message, "role", at, Need::kRequired,
                  {"system", "developer", "user", "assistant", "tool", "latest_reminder"});
      if (check_.ok()) check_.fail(at, "role", "is not accepted");
    }
  }

  void assistant(JsonValue message, const Path& at) {
    content(message, at, false);
    check_.string(message, "reasoning_content", at, Need::kOptional);
    check_.boolean(message, "prefix", at, Need::kOptional);
    const JsonValue calls = check_.array(message, "tool_calls", at, Need::kOptional);
    if (!calls) return;
    const Path list{&at, "tool_calls"};
    int64_t i = 0;
    for (const JsonValue call : calls) {
      const Path path{&list, {}, i++};
      if (!check_.is_object(call, path)) return;
      check_.string(call, "id", path, Need::kRequired);
      if (!compat_ && call["type"].str() == "custom") {
        custom_call(call, path);
        continue;
      }
      check_.word(call, "type", path, compat_ ? Need::kRequired : Need::kOptional, {"function"});
      const JsonValue function = check_.object(call, "function", path, Need::kRequired);
      if (!function) return;
      const Path inside{&path, "function"};
      check_.string(function, "name", inside, Need::kRequired);
      // Ours: missing and null arguments mean {}.
      check_.string(function, "arguments", inside, compat_ ? Need::kRequired : Need::kOptional);
    }
  }

  void custom_call(JsonValue call, const Path& at) {
    const JsonValue custom = check_.object(call, "custom", at, Need::kRequired);
    if (!custom) return;
    const Path inside{&at, "custom"};
    check_.string(custom, "name", inside, Need::kRequired);
    check_.string(custom, "input", inside, Need::kRequired);
  }

  void content(JsonValue message, const Path& at, bool required) {
    const JsonValue value = message["content"];
    if (value.absent_or_null()) {
      if (required) check_.fail(at, "content", "must be a string or a list of parts");
      return;
    }
    if (value.is_string()) return;
    if (!value.is_array()) {
      return check_.fail(at, "content", "must be a string or a list of parts");
    }
    const Path list{&at, "content"};
    int64_t i = 0;
    for (const JsonValue part : value) {
      if (!check_.ok()) return;
      this->part(part, Path{&list, {}, i++});
    }
  }

  void part(JsonValue part, const Path& at) {
    if (!check_.is_object(part, at)) return;
    const std::string_view type = check_.string(part, "type", at, Need::kRequired).str();
    if (!check_.ok()) return;
    if (type == "text") {
      check_.string(part, "text", at, Need::kRequired);
    } else if (type == "image_url") {
      const JsonValue image = check_.object(part, "image_url", at, Need::kRequired);
      if (!image) return;
      const Path inside{&at, "image_url"};
      check_.string(image, "url", inside, Need::kRequired);
      check_.word(image, "detail", inside, Need::kOptional, {"low", "high", "original", "auto"});
    } else if (type == "file") {
      const JsonValue file = part["file"];
      const JsonValue holder = file.is_object() ? file : part;
      for (const std::string_view key : {"file_id", "file_data", "filename"}) {
        check_.string(holder, key, at, Need::kOptional);
      }
    } else if (type == "refusal" && !compat_) {
      check_.string(part, "refusal", at, Need::kRequired);
    } else {
      check_.word(part, "type", at, Need::kRequired, {"text", "image_url", "file", "refusal"});
      if (check_.ok()) check_.fail(at, "type", "is not accepted");
    }
  }

  void response_format(JsonValue body, const Path& root) {
    const JsonValue format = check_.object(body, "response_format", root, Need::kOptional);
    if (!format) return;
    const Path at{&root, "response_format"};
    const std::string_view type = check_
                                      .word(format, "type", at, Need::kRequired,
                                            {"json_object", "json_schema", "regex", "text"})
                                      .str();
    if (type == "regex") check_.string(format, "regex", at, Need::kRequired);
    if (type != "json_schema") return;
    const JsonValue schema = check_.object(format, "json_schema", at, Need::kRequired);
    if (!schema) return;
    const Path inside{&at, "json_schema"};
    check_.string(schema, "name", inside, Need::kOptional);
    check_.boolean(schema, "strict", inside, Need::kOptional);
    if (!schema["schema"]) check_.fail(inside, "schema", "is missing");
  }

  void tools(JsonValue body, const Path& root) {
    const JsonValue tools = check_.array(body, "tools", root, Need::kOptional);
    if (!tools) return;
    const Path list{&root, "tools"};
    int64_t i = 0;
    for (const JsonValue tool : tools) {
      const Path at{&list, {}, i++};
      if (!check_.ok() || !check_.is_object(tool, at)) return;
      const bool custom = !compat_ && tool["type"].str() == "custom";
      if (!custom) check_.word(tool, "type", at, Need::kRequired, {"function"});
      const std::string_view key = custom ? "custom" : "function";
      const JsonValue function = check_.object(tool, key, at, Need::kRequired);
      if (!function) return;
      const Path inside{&at, key};
      check_.string(function, "name", inside, Need::kRequired);
      check_.string(function, "description", inside, Need::kOptional);
      check_.boolean(function, "strict", inside, Need::kOptional);
      if (custom) custom_format(function, inside);
    }
  }

  void custom_format(JsonValue custom, const Path& at) {
    const JsonValue format = check_.object(custom, "format", at, Need::kOptional);
    if (!format) return;
    const Path inside{&at, "format"};
    const std::string_view type =
        check_.word(format, "type", inside, Need::kRequired, {"text", "grammar"}).str();
    if (type != "grammar") return;
    const JsonValue grammar = check_.object(format, "grammar", inside, Need::kRequired);
    if (!grammar) return;
    const Path deep{&inside, "grammar"};
    check_.string(grammar, "definition", deep, Need::kRequired);
    check_.word(grammar, "syntax", deep, Need::kRequired, {"lark", "regex", "gbnf"});
  }

  void tool_choice(JsonValue body, const Path& root) {
    const JsonValue choice = body["tool_choice"];
    if (choice.absent_or_null()) return;
    if (choice.is_string()) {
      check_.word(body, "tool_choice", root, Need::kOptional, {"none", "auto", "required"});
      return;
    }
    if (!choice.is_object()) {
      return check_.fail(root, "tool_choice", "must be none, auto, required or a tool");
    }
    const Path at{&root, "tool_choice"};
    const std::string_view type = choice["type"].str();
    if (!compat_ && type == "allowed_tools") return allowed_tools(choice, at);
    const bool custom = !compat_ && type == "custom";
    if (!custom) check_.word(choice, "type", at, Need::kRequired, {"function"});
    const std::string_view key = custom ? "custom" : "function";
    const JsonValue function = check_.object(choice, key, at, Need::kRequired);
    if (function) check_.string(function, "name", Path{&at, key}, Need::kRequired);
  }

  void allowed_tools(JsonValue choice, const Path& at) {
    const JsonValue allowed = check_.object(choice, "allowed_tools", at, Need::kRequired);
    if (!allowed) return;
    const Path inside{&at, "allowed_tools"};
    check_.word(allowed, "mode", inside, Need::kRequired, {"auto", "required"});
    const JsonValue tools = check_.array(allowed, "tools", inside, Need::kRequired);
    const Path list{&inside, "tools"};
    int64_t i = 0;
    for (const JsonValue tool : tools) {
      const Path path{&list, {}, i++};
      if (!check_.is_object(tool, path)) return;
      const std::string_view key = tool["type"].str() == "custom" ? "custom" : "function";
      const JsonValue named = check_.object(tool, key, path, Need::kRequired);
      if (named) check_.string(named, "name", Path{&path, key}, Need::kRequired);
    }
  }

  FieldCheck& check_;
  const bool compat_;
  const CodecOptions& options_;
};

void check_logit_bias(FieldCheck& check, JsonValue body, const Path& root) {
  const JsonValue bias = check.object(body, "logit_bias", root, Need::kOptional);
  if (!bias) return;
  const Path at{&root, "logit_bias"};
  recipe::for_each_member(bias, [&](std::string_view key, JsonValue value) {
    const bool id = !key.empty() && key.size() < 8 &&
                    key.find_first_not_of("0123456789") == std::string_view::npos;
    if (!id) check.fail(at, key, "must be named by a token id");
    if (!value.is_number() || value.number() < -100 || value.number() > 100) {
      check.fail(at, key, "must be a number from -100 to 100");
    }
  });
}

}  // namespace

void check_sampling_types(FieldCheck& check, JsonValue body, const CodecOptions& options) {
  const Path root;
  check.integer(body, "max_tokens", root, Need::kOptional, UINT32_MAX);
  for (const std::string_view key :
       {"temperature", "top_p", "frequency_penalty", "presence_penalty"}) {
    check.number(body, key, root, Need::kOptional);
  }
  check.integer(body, "n", root, Need::kOptional, 255);
  check.integer(body, "seed", root, Need::kOptional, UINT64_MAX);
  check.boolean(body, "stream", root, Need::kOptional);
  if (const JsonValue stream = check.object(body, "stream_options", root, Need::kOptional)) {
    check.boolean(stream, "include_usage", Path{&root, "stream_options"}, Need::kOptional);
  }
  const JsonValue stop = body["stop"];
  if (stop.is_array()) {
    check.all_strings(stop, Path{&root, "stop"});
  } else if (!stop.absent_or_null() && !stop.is_string()) {
    check.fail(root, "stop", "must be a string or a list of strings");
  }
  if (options.compat) return;
  for (const std::string_view key : {"min_p", "repetition_penalty"}) {
    check.number(body, key, root, Need::kOptional);
  }
  check.integer(body, "top_k", root, Need::kOptional, INT32_MAX);
  check_logit_bias(check, body, root);
}

void check_chat_types(FieldCheck& check, JsonValue body, const CodecOptions& options) {
  ChatTypes(check, options).body(body);
}

}  // namespace hadal::openai
