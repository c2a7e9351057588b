#include "gateway/anthropic/messages_types.h"

#include <string_view>

#include "gateway/recipe/request_rules.h"

namespace hadal::anthropic {

using recipe::CodecOptions;
using recipe::FieldCheck;
using recipe::JsonValue;
using recipe::Need;
using recipe::Path;

namespace {

class MessagesTypes {
 public:
  MessagesTypes(FieldCheck& check, const CodecOptions& options)
      : check_(check), compat_(options.compat), options_(options) {}

  void body(JsonValue body) {
    const Path root;
    if (!check_.is_object(body, root)) return;
    check_.string(body, "model", root, Need::kRequired);
    if (const JsonValue messages = check_.array(body, "messages", root, Need::kRequired)) {
      const Path list{&root, "messages"};
      int64_t i = 0;
      for (const JsonValue message : messages) {
        if (!check_.ok()) return;
        this->message(message, Path{&list, {}, i++});
      }
    }
    system(body, root);
    check_.integer(body, "max_tokens", root, Need::kOptional, UINT32_MAX);
    check_.number(body, "temperature", root, Need::kOptional);
    check_.number(body, "top_p", root, Need::kOptional);
    check_.boolean(body, "stream", root, Need::kOptional);
    if (const JsonValue stop = check_.array(body, "stop_sequences", root, Need::kOptional)) {
      check_.all_strings(stop, Path{&root, "stop_sequences"});
    }
    thinking(body, root);
    tools(body, root);
    tool_choice(body, root);
    if (const JsonValue metadata = check_.object(body, "metadata", root, Need::kOptional)) {
      check_.string(metadata, "user_id", Path{&root, "metadata"}, Need::kOptional);
    }
    if (!compat_) own(body, root);
  }

 private:
  void own(JsonValue body, const Path& root) {
    check_.integer(body, "top_k", root, Need::kOptional, INT32_MAX);
    if (body["mcp_servers"].size() > 0) {
      check_.fail(root, "mcp_servers", "is not supported: no remote tools here");
    }
    format(body["output_config"]["format"], Path{&root, "output_config.format"});
    format(body["output_format"], Path{&root, "output_format"});
  }

  void format(JsonValue format, const Path& at) {
    if (format.absent_or_null()) return;
    if (!check_.is_object(format, at)) return;
    if (check_.word(format, "type", at, Need::kRequired, {"json_schema", "regex"}).str() ==
        "regex") {
      check_.string(format, "regex", at, Need::kRequired);
    } else {
      check_.object(format, "schema", at, Need::kRequired);
    }
  }

  void system(JsonValue body, const Path& root) {
    const JsonValue system = body["system"];
    if (system.absent_or_null() || system.is_string()) return;
    if (!system.is_array()) {
      return check_.fail(root, "system", "must be a string or a list of text blocks");
    }
    const Path list{&root, "system"};
    int64_t i = 0;
    for (const JsonValue block : system) {
      const Path at{&list, {}, i++};
      if (!check_.ok() || !check_.is_object(block, at)) return;
      check_.word(block, "type", at, Need::kRequired, {"text"});
      check_.string(block, "text", at, Need::kRequired);
    }
  }

  void thinking(JsonValue body, const Path& root) {
    if (const JsonValue thinking = check_.object(body, "thinking", root, Need::kOptional)) {
      const Path at{&root, "thinking"};
      check_.word(thinking, "type", at, Need::kRequired, {"adaptive", "enabled", "disabled"});
      check_.integer(thinking, "budget_tokens", at, Need::kOptional, UINT64_MAX);
      if (!compat_) check_.string(thinking, "display", at, Need::kOptional);
    }
    if (const JsonValue config = check_.object(body, "output_config", root, Need::kOptional)) {
      recipe::check_effort(check_, config, "effort", Path{&root, "output_config"}, options_);
    }
  }

  void message(JsonValue message, const Path& at) {
    if (!check_.is_object(message, at)) return;
    check_.word(message, "role", at, Need::kRequired, {"user", "assistant", "system"});
    const JsonValue content = message["content"];
    if (content.is_string()) return;
    if (!content.is_array()) {
      return check_.fail(at, "content", "must be a string or a list of blocks");
    }
    const Path list{&at, "content"};
    int64_t i = 0;
    for (const JsonValue block : content) {
      if (!check_.ok()) return;
      this->block(block, Path{&list, {}, i++});
    }
  }

  void block(JsonValue block, const Path& at) {
    if (!check_.is_object(block, at)) return;
    const std::string_view type = check_.string(block, "type", at, Need::kRequired).str();
    if (!check_.ok()) return;
    if (type == "text") {
      check_.string(block, "text", at, Need::kRequired);
    } else if (type == "image") {
      image(block, at);
    } else if (type == "document") {
      check_.object(block, "source", at, Need::kOptional);
    } else if (type == "thinking") {
      check_.string(block, "thinking", at, Need::kRequired);
      check_.string(block, "signature", at, Need::kOptional);
    } else if (type == "tool_use" || type == "server_tool_use") {
      check_.string(block, "id", at, Need::kRequired);
      check_.string(block, "name", at, Need::kRequired);
      if (type == "tool_use" && !block["input"]) check_.fail(at, "input", "is missing");
    } else if (type == "tool_result") {
      check_.string(block, "tool_use_id", at, Need::kRequired);
      check_.boolean(block, "is_error", at, Need::kOptional);
      result_content(block, at);
    } else if (type == "tool_addition") {
      tool_addition(block, at);
    } else if (type != "web_search_tool_result" &&
               (compat_ || (type != "redacted_thinking" && type != "search_result" &&
                            type != "web_fetch_tool_result"))) {
      check_.fail(at, "type", "names a block that is not accepted here");
    }
  }

  void image(JsonValue block, const Path& at) {
    const JsonValue source = check_.object(block, "source", at, Need::kRequired);
    if (!source) return;
    const Path inside{&at, "source"};
    const std::string_view type =
        check_.word(source, "type", inside, Need::kRequired, {"base64", "url", "file"}).str();
    if (type == "base64") {
      check_.word(source, "media_type", inside, Need::kRequired,
                  {"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"});
      check_.string(source, "data", inside, Need::kRequired);
    } else if (type == "url") {
      check_.string(source, "url", inside, Need::kRequired);
    } else if (type == "file") {
      check_.string(source, "file_id", inside, Need::kRequired);
    }
  }

  void tool_addition(JsonValue block, const Path& at) {
    const JsonValue tool = check_.object(block, "tool", at, Need::kRequired);
    if (!tool) return;
    const Path inside{&at, "tool"};
    check_.word(tool, "type", inside, Need::kRequired, {"tool_reference"});
    check_.string(tool, "name", inside, Need::kRequired);
  }

  void result_content(JsonValue result, const Path& at) {
    const JsonValue content = result["content"];
    if (content.absent_or_null() || content.is_string()) return;
    if (!content.is_array()) {
      return check_.fail(at, "content", "must be a string or a list of blocks");
    }
    const Path list{&at, "content"};
    int64_t i = 0;
    for (const JsonValue block : content) {
      const Path path{&list, {}, i++};
      if (!check_.ok() || !check_.is_object(block, path)) return;
      const std::string_view type = check_.string(block, "type", path, Need::kRequired).str();
      if (type == "text") {
        check_.string(block, "text", path, Need::kRequired);
      } else if (type == "image") {
        image(block, path);
      } else if (type == "document") {
        check_.object(block, "source", path, Need::kOptional);
      } else if (type == "tool_reference") {
        check_.string(block, "tool_name", path, Need::kRequired);
      } else if (compat_ || type != "search_result") {
        check_.fail(path, "type", "names a block that is not accepted here");
      }
    }
  }

  void tools(JsonValue body, const Path& root) {
    const JsonValue tools = check_.array(body, "tools", root, Need::kOptional);
    const Path list{&root, "tools"};
    int64_t i = 0;
    for (const JsonValue tool : tools) {
      const Path at{&list, {}, i++};
      if (!check_.ok() || !check_.is_object(tool, at)) return;
      const bool server = tool["type"].is_string();
      check_.string(tool, "name", at, server ? Need::kOptional : Need::kRequired);
      if (compat_ && tool["type"].is_null()) check_.fail(at, "type", "must not be null");
      check_.string(tool, "type", at, Need::kOptional);
      check_.string(tool, "description", at, Need::kOptional);
      check_.boolean(tool, "defer_loading", at, Need::kOptional);
      if (!compat_) check_.boolean(tool, "strict", at, Need::kOptional);
    }
  }

  void tool_choice(JsonValue body, const Path& root) {
    const JsonValue choice = check_.object(body, "tool_choice", root, Need::kOptional);
    if (!choice) return;
    const Path at{&root, "tool_choice"};
    const std::string_view type =
        check_.word(choice, "type", at, Need::kRequired, {"auto", "any", "tool", "none"}).str();
    if (type == "tool") check_.string(choice, "name", at, Need::kRequired);
    check_.boolean(choice, "disable_parallel_tool_use", at, Need::kOptional);
  }

  FieldCheck& check_;
  const bool compat_;
  const CodecOptions& options_;
};

}  // namespace

void check_messages_types(FieldCheck& check, JsonValue body, const CodecOptions& options) {
  MessagesTypes(check, options).body(body);
}

}  // namespace hadal::anthropic
