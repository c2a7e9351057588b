#include "gateway/serving/call_constraint.h"

#include <algorithm>
#include <string>

#include "gateway/recipe/json_writer.h"
#include "gateway/recipe/request_rules.h"
#include "gateway/recipe/template_text.h"

namespace hadal::serving {
namespace {

bool has_form(const recipe::ToolDef& tool) {
  return tool.strict || !tool.grammar_syntax.empty();
}

void member(std::string& out, std::string_view key, std::string_view text) {
  if (out.back() != '{') out += ',';
  recipe::append_json_string(out, key);
  out += ':';
  recipe::append_json_string(out, text);
}

void append_tool(std::string& out, const recipe::ToolDef& tool, recipe::Api api) {
  out += '{';
  member(out, "name", tool.name);
  if (tool.kind == recipe::ToolKind::kCustom) {
    const bool chat = api == recipe::Api::kChat;
    member(out, "path", tool.path + (chat ? ".format.grammar.definition" : ".format.definition"));
    out += ",\"input\":{";
    member(out, "syntax", tool.grammar_syntax);
    member(out, "definition", tool.grammar);
    out += '}';
  } else if (tool.strict) {
    const bool messages = api == recipe::Api::kMessages;
    member(out, "path", tool.path + (messages ? ".input_schema" : ".parameters"));
    out += ",\"parameters\":";
    recipe::append_parameters(out, tool, recipe::FloatStyle::kPython);
  }
  out += '}';
}

std::string_view beginning(const recipe::CodecRequest& request, bool has_format) {
  if (!request.parse.forced_tool.empty()) return "call";
  if (request.parse.starts_in_tool_calls) return "block";
  const bool required = request.conversation.tool_choice == recipe::ToolChoice::kRequired;
  return required || has_format ? "answer" : "marker";
}

void append_format(std::string& out, const recipe::OutputConstraint& format) {
  out += ",\"instead\":{";
  const bool regex = format.kind == recipe::OutputConstraint::Kind::kRegex;
  member(out, "kind", regex ? "regex" : format.text.empty() ? "object" : "schema");
  member(out, "text", format.text);
  member(out, "path", format.path);
  out += '}';
}

}  // namespace

types::Constraint make_call_constraint(const recipe::CodecRequest& request,
                                       const recipe::CodecOptions& options) {
  types::Constraint out;
  const recipe::Conversation& conversation = request.conversation;
  if (!conversation.has_visible_tools()) return out;
  const bool has_format = request.format.kind != recipe::OutputConstraint::Kind::kNone &&
                          conversation.tool_choice != recipe::ToolChoice::kRequired;
  if (!has_format && std::ranges::none_of(conversation.tools, [](const recipe::ToolDef* tool) {
        return has_form(*tool);
      })) {
    return out;
  }
  const recipe::TagNames names = recipe::tag_names(options.version);
  const std::string_view begins = beginning(request, has_format);
  out.kind = types::Constraint::Kind::kToolCalls;
  out.text = "{";
  member(out.text, "begins", begins);
  out.text += ",\"tags\":{";
  member(out.text, "block", names.block);
  member(out.text, "invoke", names.invoke);
  member(out.text, "parameter", names.parameter);
  out.text += request.parse.max_calls == 1 ? "},\"single\":true" : "},\"single\":false";
  out.text += ",\"tools\":[";
  for (const recipe::ToolDef* tool : conversation.tools) {
    if (out.text.back() != '[') out.text += ',';
    append_tool(out.text, *tool, request.response.api);
  }
  out.text += ']';
  if (has_format) append_format(out.text, request.format);
  out.text += '}';
  if (recipe::begins_in_reasoning(request.parse.stage)) out.begins_after = recipe::kThinkClose;
  out.marker = recipe::kDsml;
  out.on_marker = begins == "marker";
  out.path = "tools";
  return out;
}

}  // namespace hadal::serving
