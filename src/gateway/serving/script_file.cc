#include "gateway/serving/script_file.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace hadal::serving {
namespace {

using nlohmann::json;

core::Error wrong(std::string_view origin, size_t number, std::string_view what) {
  return {core::Code::kInvalidRequest, fmt::format("{}:{}: {}", origin, number, what), "script"};
}

std::optional<recipe::Api> api_of(std::string_view name) {
  if (name == "chat") return recipe::Api::kChat;
  if (name == "messages") return recipe::Api::kMessages;
  if (name == "responses") return recipe::Api::kResponses;
  if (name == "completions") return recipe::Api::kCompletions;
  return std::nullopt;
}

core::Result<ScriptFile::Line> parse_line(const std::string& text, std::string_view origin,
                                          size_t number) {
  const json root = json::parse(text, nullptr, false);
  if (!root.is_object()) return wrong(origin, number, "is no JSON object");
  ScriptFile::Line line;
  for (const auto& [key, value] : root.items()) {
    const bool is_count = value.is_number_unsigned();
    if (key == "text" && value.is_string()) {
      line.text = value;
    } else if (key == "reasoning" && value.is_string()) {
      line.reasoning = value;
    } else if (key == "finish" && (value == "stop" || value == "length")) {
      line.finish = value;
    } else if (key == "step" && is_count && value > 0) {
      line.step = value;
    } else if (key == "pace_ms" && is_count) {
      line.pace_ms = value;
    } else if (key == "times" && is_count && value > 0) {
      line.times = value;
    } else if (key != "match" || !value.is_object()) {
      return wrong(origin, number,
                   fmt::format("'{}' is no known key or has a value of the wrong kind; keys are "
                               "match, reasoning, text, step, finish, pace_ms, times",
                               key));
    }
  }
  if (!root.contains("text")) return wrong(origin, number, "needs a text");
  if (!root.contains("match")) return line;
  for (const auto& [key, value] : root["match"].items()) {
    if (key == "api" && value.is_string() && api_of(value.get<std::string>())) {
      line.api = api_of(value.get<std::string>());
    } else if (key == "tool" && value.is_string()) {
      line.tool = value;
    } else if (key == "last_role" && (value == "tool" || value == "user")) {
      line.last_role = value;
    } else if (key == "contains" && value.is_string()) {
      line.contains = {value.get<std::string>()};
    } else if (key == "contains" && value.is_array() &&
               std::all_of(value.begin(), value.end(),
                           [](const json& v) { return v.is_string(); })) {
      line.contains = value.get<std::vector<std::string>>();
    } else {
      return wrong(origin, number,
                   fmt::format("match.{} is no known key or has a value of the wrong kind; keys "
                               "are api, tool, last_role, contains",
                               key));
    }
  }
  return line;
}

// User and tool text after the last assistant message.
struct Tail {
  std::string text;
  bool has_tool = false;
};

Tail tail_of(const recipe::Conversation& conversation) {
  Tail tail;
  const auto& messages = conversation.messages;
  size_t begin = messages.size();
  while (begin > 0 && messages[begin - 1].role != recipe::Role::kAssistant) --begin;
  for (size_t i = begin; i < messages.size(); ++i) {
    const recipe::Message& message = messages[i];
    if (message.role == recipe::Role::kTool) tail.has_tool = true;
    if (message.role != recipe::Role::kTool && message.role != recipe::Role::kUser) continue;
    for (const recipe::Part& part : message.content) tail.text += part.text;
    tail.text += '\n';
  }
  return tail;
}

bool holds(const ScriptFile::Line& line, const recipe::CodecRequest& request, recipe::Api api,
           const Tail& tail) {
  if (line.api && *line.api != api) return false;
  if (!line.tool.empty()) {
    const auto& tools = request.parse.tools;  // the visible ones
    const bool declared =
        std::any_of(tools.begin(), tools.end(), [&](const recipe::DeclaredTool& tool) {
          return tool.name == line.tool || tool.local_name == line.tool;
        });
    if (!declared) return false;
  }
  if (!line.last_role.empty() && (line.last_role == "tool") != tail.has_tool) return false;
  return std::all_of(line.contains.begin(), line.contains.end(), [&](const std::string& part) {
    return tail.text.find(part) != std::string::npos;
  });
}

}  // namespace

core::Result<std::unique_ptr<ScriptFile>> ScriptFile::parse(std::string_view text,
                                                            std::string_view origin) {
  auto made = std::make_unique<ScriptFile>();
  std::istringstream lines{std::string(text)};
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    if (line.empty() || line == "\r" || line[0] == '#') continue;
    HADAL_TRY(Line parsed, parse_line(line, origin, number));
    auto entry = std::make_unique<Entry>();
    entry->line = std::move(parsed);
    made->entries_.push_back(std::move(entry));
  }
  return made;
}

core::Result<std::unique_ptr<ScriptFile>> ScriptFile::load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return core::Error{core::Code::kIo, fmt::format("cannot read the script file {}", path),
                       "script"};
  std::ostringstream text;
  text << file.rdbuf();
  return parse(text.str(), path);
}

std::optional<recipe::Extension::Script> ScriptFile::match(const recipe::CodecRequest& request,
                                                           recipe::Api api) {
  const Tail tail = tail_of(request.conversation);
  for (const auto& entry : entries_) {
    const Line& line = entry->line;
    if (!holds(line, request, api, tail)) continue;
    if (line.times > 0 && entry->n_used.fetch_add(1) >= line.times) continue;
    const bool thinks = recipe::begins_in_reasoning(request.parse.stage);
    recipe::Extension::Script script;
    script.text = thinks ? line.reasoning + "</think>" + line.text : line.text;
    script.step = line.step;
    script.finish = line.finish;
    script.pace_ms = line.pace_ms;
    return script;
  }
  return std::nullopt;
}

}  // namespace hadal::serving
