#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "gateway/recipe/request_rules.h"
#include "gateway/recipe/schema_check.h"

namespace hadal::recipe {

namespace {

constexpr size_t kMaxNameBytes = 128;

core::Status check_parameters(const ToolInput& tool) {
  const auto bad = [&](const std::string& problem) {
    return invalid(fmt::format("Invalid schema for function '{}': {}", tool.name, problem),
                   fmt::format("{}.{}", tool.path, tool.parameters_name));
  };
  if (const std::string problem = schema_problem(tool.parameters); !problem.empty()) {
    return bad(problem);
  }
  const JsonValue type = tool.parameters["type"];
  if (type.str() == "object") return {};
  std::string shown;
  append_json_compact(shown, type, FloatStyle::kRust);
  return bad(fmt::format("schema must be a JSON Schema of 'type: \"object\"', got 'type: {}'.",
                         shown.substr(0, 300)));
}

core::Status make_strict(const ToolInput& tool, CodecRequest& request, ToolDef& definition) {
  if (tool.parameters.absent_or_null()) {
    definition.parameters_text = request.text->keep(
        R"({"type": "object", "properties": {}, "additionalProperties": false, "required": []})");
    return {};
  }
  StrictSchema strict = strict_schema(tool.parameters, true);
  if (!strict.problem.empty()) {
    return invalid(
        strict.is_shape ? strict.problem : "Invalid tool parameters schema : " + strict.problem,
        fmt::format("{}.{}", tool.path, tool.parameters_name));
  }
  definition.parameters_text = request.text->keep(std::move(strict.text));
  return {};
}

}  // namespace

core::Status check_tool_name(const ToolInput& tool) {
  const std::string path = tool.path + ".name";
  const auto bad = [&](std::string problem) {
    return invalid(fmt::format("Invalid '{}': {}", path, problem), path);
  };
  if (tool.local_name.empty()) {
    return bad(
        "empty string. Expected a string with minimum length 1, but got an empty string "
        "instead.");
  }
  if (tool.local_name.size() > kMaxNameBytes) {
    return bad(
        fmt::format("string too long. Expected a string with maximum length {}, but got a "
                    "string with length {} instead.",
                    kMaxNameBytes, tool.local_name.size()));
  }
  const bool fits = std::ranges::all_of(tool.local_name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  if (fits) return {};
  return bad(
      "string does not match pattern. Expected a string that matches the pattern "
      "'^[a-zA-Z0-9_-]+$'.");
}

core::Status add_tools(std::span<const ToolInput> tools, ToolRules rules,
                       const CodecOptions& options, CodecRequest& request) {
  std::unordered_set<std::string_view> names;
  for (const ToolInput& tool : tools) {
    if (tool.kind == ToolKind::kFunction || !options.compat) HADAL_TRY_VOID(check_tool_name(tool));
    if (!names.insert(tool.name).second && !rules.is_hidden) {
      return invalid("Tool names must be unique.", tool.path + ".name");
    }
  }
  for (const ToolInput& tool : tools) {
    ToolDef definition;
    definition.name = tool.name;
    definition.description = tool.description;
    definition.has_description = tool.has_description;
    definition.parameters = tool.parameters;
    definition.parameters_text = tool.parameters_text;
    definition.raw = tool.raw;
    definition.strict = tool.strict.value_or(false);
    definition.has_strict = tool.strict.has_value();
    definition.deferred = tool.deferred;
    definition.kind = tool.kind;
    definition.ns = tool.ns;
    definition.local_name = tool.local_name;
    definition.path = tool.path;
    definition.grammar = tool.grammar;
    definition.grammar_syntax = tool.grammar_syntax;
    if (rules.is_hidden) {
      // Never shown, never called.
    } else if (definition.strict) {
      HADAL_TRY_VOID(make_strict(tool, request, definition));
    } else if (!tool.parameters.absent_or_null() || tool.needs_parameters) {
      HADAL_TRY_VOID(check_parameters(tool));
    }
    Conversation& conversation = request.conversation;
    conversation.tool_store.push_back(std::move(definition));
    conversation.tools.push_back(&conversation.tool_store.back());
  }
  return {};
}

core::Status check_strict_mix(ToolRules rules, const CodecOptions& options,
                              const CodecRequest& request) {
  if (rules.is_hidden || !options.compat) return {};  // ours: each tool by its own flag
  const auto& tools = request.conversation.tool_store;
  const auto n_strict =
      std::ranges::count_if(tools, [](const ToolDef& tool) { return tool.strict; });
  if (n_strict == 0) return {};
  if (static_cast<size_t>(n_strict) != tools.size()) {
    return invalid("Cannot use strict tool with non-strict tool in the same request", "tools");
  }
  if (rules.has_format) return invalid("response_format should not be used with tools", "tools");
  return {};
}

core::Status apply_tool_choice(const ToolChoiceFields& fields, const CodecOptions& options,
                               CodecRequest& request) {
  Conversation& conversation = request.conversation;
  if (conversation.tools.empty() && !(fields.has_name && fields.some_dropped)) return {};
  conversation.tool_choice = fields.choice;
  const auto keep = [&](std::string_view name) -> core::Status {
    const bool known = std::ranges::any_of(conversation.tools,
                                           [&](const ToolDef* tool) { return tool->name == name; });
    if (known) return {};
    return invalid(fmt::format("Invalid value for 'tool_call': no function named '{}' was "
                               "specified in the 'tools' parameter.",
                               name.substr(0, 300)),
                   fields.path);
  };
  if (fields.has_name) {
    HADAL_TRY_VOID(keep(fields.name));
    std::erase_if(conversation.tools,
                  [&](const ToolDef* tool) { return tool->name != fields.name; });
    conversation.forced_tool = conversation.tools.front()->name;
  } else if (fields.has_allowed) {
    std::unordered_set<std::string_view> allowed;
    for (const std::string_view name : fields.allowed) {
      HADAL_TRY_VOID(keep(name));
      allowed.insert(name);
    }
    std::erase_if(conversation.tools,
                  [&](const ToolDef* tool) { return !allowed.contains(tool->name); });
    if (conversation.tools.empty()) conversation.tool_choice = ToolChoice::kNone;
  }
  if (options.compat && fields.choice == ToolChoice::kRequired && conversation.thinking) {
    return invalid("Thinking mode does not support this tool_choice", fields.path);
  }
  return {};
}

core::Status apply_format(FormatFields& fields, const CodecOptions& options,
                          CodecRequest& request) {
  Conversation& conversation = request.conversation;
  conversation.format = fields.format;
  if (fields.format == Conversation::Format::kRegex && !options.compat) {
    // What a pattern may hold is the grammar compiler's to say; emptiness is not worth a compiler.
    if (fields.regex.empty()) {
      return invalid("The regular expression is empty.", fields.schema_path);
    }
  }
  if (fields.format != Conversation::Format::kJsonSchema) return {};
  const auto bad = [&](const std::string& problem, bool is_shape) {
    return invalid(is_shape ? problem : "Invalid json schema: " + problem, fields.schema_path);
  };
  conversation.schema = fields.schema;
  if (fields.strict) {
    StrictSchema strict = strict_schema(fields.schema, false);
    if (!strict.problem.empty()) return bad(strict.problem, strict.is_shape);
    fields.strict_schema = std::move(strict.text);
  } else if (const std::string problem = schema_problem(fields.schema); !problem.empty()) {
    return bad(problem, false);
  }
  return {};
}

}  // namespace hadal::recipe
