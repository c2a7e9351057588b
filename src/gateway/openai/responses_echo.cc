#include "gateway/openai/responses_echo.h"

#include <initializer_list>
#include <string_view>

namespace hadal::openai {

using recipe::FloatStyle;
using recipe::JsonValue;

namespace {

void append(std::string& out, JsonValue value) {
  recipe::append_json_compact(out, value, FloatStyle::kPython);
}

void append_members(std::string& out, JsonValue object,
                    std::initializer_list<std::string_view> keys) {
  bool first = true;
  for (const std::string_view key : keys) {
    if (!first) out += ',';
    first = false;
    recipe::append_json_string(out, key);
    out += ':';
    append(out, object[key]);
  }
}

void append_function(std::string& out, JsonValue tool, std::string_view type) {
  out += "{\"type\":\"";
  out += type;
  out += "\",";
  append_members(out, tool, {"name", "description", "parameters", "strict"});
}

std::string json_of(JsonValue value, std::string_view fallback) {
  if (value.absent_or_null()) return std::string(fallback);
  std::string out;
  append(out, value);
  return out;
}

std::string tools_json(JsonValue tools) {
  std::string out = "[";
  for (const JsonValue tool : tools) {
    const size_t before = out.size();
    if (before > 1) out += ',';
    if (!append_echoed_tool(out, tool)) out.resize(before);
  }
  return out += ']';
}

std::string text_json(JsonValue text) {
  const JsonValue format = text["format"];
  std::string out = "{\"format\":{\"type\":";
  const std::string_view type = format["type"].str();
  recipe::append_json_string(out, type.empty() ? "text" : type);
  if (type == "json_schema") {
    out += ',';
    append_members(out, format, {"name", "schema", "description", "strict"});
  } else if (type == "regex") {
    out += ',';
    append_members(out, format, {"regex"});
  }
  out += "},";
  append_members(out, text, {"verbosity"});
  return out += '}';
}

std::string reasoning_json(JsonValue reasoning) {
  std::string out = "{";
  append_members(out, reasoning, {"effort"});
  out += ",\"summary\":";
  append(out, reasoning["summary"].absent_or_null() ? reasoning["generate_summary"]
                                                    : reasoning["summary"]);
  return out += '}';
}

std::string choice_json(JsonValue choice, bool compat) {
  if (!choice.is_object() || !compat) return json_of(choice, "\"auto\"");
  std::string out = "{";
  const bool named = choice["name"].is_string();
  if (named) {
    append_members(out, choice, {"type", "name"});
  } else {
    append_members(out, choice, {"type"});
  }
  return out += '}';
}

}  // namespace

bool append_echoed_tool(std::string& out, JsonValue tool) {
  const std::string_view type = tool["type"].str();
  if (type == "function") {
    append_function(out, tool, type);
  } else if (type == "namespace") {
    out += "{\"type\":\"namespace\",";
    append_members(out, tool, {"name", "description"});
    out += ",\"tools\":" + tools_json(tool["tools"]);
  } else if (type == "custom") {
    out += "{\"type\":\"custom\",";
    append_members(out, tool, {"name"});
  } else if (type == "tool_search" && tool["execution"].str() == "client") {
    out += '{';
    append_members(out, tool, {"type", "execution", "description", "parameters"});
  } else if (type == "web_search" || type == "web_search_2025_08_26") {
    out += '{';
    append_members(out, tool, {"type", "search_context_size", "user_location"});
  } else {
    return false;
  }
  out += '}';
  return true;
}

std::string found_tools_json(JsonValue tools) {
  std::string out = "[";
  const auto separate = [&] {
    if (out.size() > 1) out += ',';
  };
  for (const JsonValue tool : tools) {
    if (tool["type"].str() == "namespace") {
      for (const JsonValue inner : tool["tools"]) {
        separate();
        append_function(out, inner, inner["type"].str());
        out += ",\"namespace\":{";
        append_members(out, tool, {"name", "description"});
        out += "}}";
      }
      continue;
    }
    const size_t before = out.size();
    separate();
    if (!append_echoed_tool(out, tool)) out.resize(before);
  }
  return out += ']';
}

recipe::ResponsesEcho responses_echo(JsonValue body, const recipe::CodecOptions& options) {
  recipe::ResponsesEcho echo;
  echo.instructions = json_of(body["instructions"], "null");
  echo.max_output_tokens = json_of(body["max_output_tokens"], "null");
  echo.reasoning = reasoning_json(body["reasoning"]);
  echo.temperature = json_of(body["temperature"], "1.0");
  echo.text = text_json(body["text"]);
  echo.tool_choice = choice_json(body["tool_choice"], options.compat);
  echo.tools = tools_json(body["tools"]);
  echo.top_logprobs = json_of(body["top_logprobs"], "0");
  echo.top_p = json_of(body["top_p"], "1.0");
  echo.user = json_of(body["user"], "null");
  if (options.compat) return echo;
  echo.metadata = json_of(body["metadata"], "{}");
  echo.parallel_tool_calls = json_of(body["parallel_tool_calls"], "true");
  echo.previous_response_id = json_of(body["previous_response_id"], "null");
  if (const JsonValue conversation = body["conversation"]; conversation.is_object()) {
    echo.conversation = "{";
    append_members(echo.conversation, conversation, {"id"});
    echo.conversation += '}';
  } else if (conversation.is_string()) {
    echo.conversation = "{\"id\":";
    append(echo.conversation, conversation);
    echo.conversation += '}';
  }
  echo.truncation = json_of(body["truncation"], "\"disabled\"");
  echo.max_tool_calls = json_of(body["max_tool_calls"], "null");
  echo.prompt_cache_key = json_of(body["prompt_cache_key"], "null");
  echo.safety_identifier = json_of(body["safety_identifier"], "null");
  echo.store = json_of(body["store"], "true");
  echo.background = json_of(body["background"], "false");
  return echo;
}

}  // namespace hadal::openai
