#include "gateway/serving/format_constraint.h"

#include "gateway/recipe/template_text.h"

namespace hadal::serving {

types::Constraint make_format_constraint(const recipe::CodecRequest& request) {
  using Asked = recipe::OutputConstraint::Kind;
  using Kind = types::Constraint::Kind;
  types::Constraint out;
  const recipe::OutputConstraint& format = request.format;
  if (format.kind == Asked::kNone) return out;
  if (format.kind == Asked::kRegex) {
    out.kind = Kind::kRegex;
  } else {
    out.kind = format.text.empty() ? Kind::kJsonObject : Kind::kJsonSchema;
  }
  out.text = format.text;
  out.path = format.path;
  if (recipe::begins_in_reasoning(request.parse.stage)) out.begins_after = recipe::kThinkClose;
  const auto& messages = request.conversation.messages;
  if (!messages.empty() && messages.back().prefix) {
    for (const recipe::Part& part : messages.back().content) out.begun += part.text;
  }
  return out;
}

}  // namespace hadal::serving
