#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "gateway/recipe/encode.h"
#include "gateway/recipe/request_rules.h"
#include "gateway/recipe/template_text.h"
#include "gateway/recipe/turn_order.h"

// Writes a conversation into one buffer, front to back. Control tokens are written by special() and
// markup() alone; everything that came from a client goes through plain() and stays text whatever
// it spells.
namespace hadal::recipe {

namespace {

constexpr uint32_t kDefaultEffort = 75;

// Where the texts of the template hold control tokens.
constexpr std::string_view kMarkupTokens[] = {kThinkOpen, kThinkClose, kDsml};

bool is_reading(Role role) {
  return role == Role::kUser || role == Role::kTool;
}

size_t estimate_size(const Conversation& conversation) {
  size_t size = conversation.tools.empty() ? 256 : 2048;
  for (const Message& message : conversation.messages) {
    size += 64 + message.reasoning.size();
    for (const Part& part : message.content) size += part.text.size() + 2;
    for (const Call& call : message.calls) size += 2 * call.arguments.size() + 256;
  }
  return size;
}

class Renderer {
 public:
  Renderer(const Conversation& conversation, const CodecOptions& options)
      : conversation_(conversation),
        version_(options.version),
        reference_(options.profile == Profile::kReference),
        compat_(options.compat),
        floats_(options.version == Version::kV41 ? FloatStyle::kPython : FloatStyle::kRust),
        names_(tag_names(options.version)) {}

  RenderedPrompt run() {
    out_.text.reserve(estimate_size(conversation_));
    out_.specials.reserve(4 * conversation_.messages.size() + 8);
    order_ = turn_order(conversation_, version_, sorts_calls());
    for (size_t i = 0; i < order_.size(); ++i) {
      if (is_reading(order_[i]->role)) last_user_ = i;
    }
    special(kBos);
    front();
    for (; next_ < order_.size(); ++next_) message(next_);
    generation_header();
    return std::move(out_);
  }

 private:
  bool v41() const { return version_ == Version::kV41; }
  bool sorts_calls() const { return compat_ && !v41(); }

  void plain(std::string_view text) { out_.text += text; }

  void special(std::string_view token) {
    out_.specials.push_back(
        {static_cast<uint32_t>(out_.text.size()), static_cast<uint32_t>(token.size())});
    out_.text += token;
  }

  // A text of the template, its control tokens included.
  void markup(std::string_view text) {
    while (true) {
      size_t at = std::string_view::npos;
      std::string_view found;
      for (const std::string_view token : kMarkupTokens) {
        const size_t place = text.find(token);
        if (place < at) {
          at = place;
          found = token;
        }
      }
      if (found.empty()) break;
      plain(text.substr(0, at));
      special(found);
      text.remove_prefix(at + found.size());
    }
    plain(text);
  }

  void open_tag(std::string_view name) {
    plain("<");
    special(kDsml);
    plain(name);
  }
  void close_tag(std::string_view name) {
    plain("</");
    special(kDsml);
    plain(name);
    plain(">");
  }

  void content(const Message& message) {
    for (const Part& part : message.content) {
      if (part.image < 0) {
        plain(part.text);
      } else {
        if (!part.hidden) special(kImageToken);
        out_.images.push_back(static_cast<uint32_t>(part.image));
      }
    }
  }

  // Everything before the first message that is not an opening system message.
  void front() {
    const bool needs_system = conversation_.has_visible_tools() || shows_format();
    const bool has_system = !order_.empty() && order_[0]->role == Role::kSystem;
    if (v41()) {
      const bool any = !order_.empty() || needs_system;
      if (any && (conversation_.thinking || has_system || needs_system)) special(kSystemToken);
      if (any && conversation_.thinking) effort_line();
    } else if (conversation_.thinking) {
      plain(v4_effort_text(conversation_.effort_word));
    }
    if (has_system && v41()) {
      content(*order_[0]);
      next_ = 1;
    }
    if (!v41()) merged_systems();
    front_is_system_ = has_system || needs_system;
    if (conversation_.has_visible_tools()) tool_text();
    if (shows_format()) format_text();
    if (has_system && v41()) updated_tools(*order_[0]);
  }

  void merged_systems() {
    bool first = true;
    for (; next_ < order_.size() && order_[next_]->role == Role::kSystem; ++next_) {
      if (is_empty_content(*order_[next_])) continue;
      if (!first) plain("\n\n");
      first = false;
      content(*order_[next_]);
    }
  }

  void effort_line() {
    plain("Reasoning Effort: ");
    number(conversation_.effort.value_or(kDefaultEffort));
    plain(" (range 1-100, the higher the value, the more thorough the reasoning)\n\n");
  }

  void number(uint32_t value) {
    char digits[12];
    const auto result = std::to_chars(digits, digits + sizeof digits, value);
    plain({digits, static_cast<size_t>(result.ptr - digits)});
  }

  void tool_text() {
    plain("\n\n");
    markup(tool_text_head(version_));
    bool first = true;
    for (const ToolDef* tool : conversation_.tools) {
      if (tool->deferred) continue;
      if (!first) plain("\n");
      first = false;
      tool_schema(*tool);
    }
    plain(tool_text_tail());
  }

  void tool_schema(const ToolDef& tool) {
    if (reference_ && tool.raw) {
      append_json(out_.text, tool.raw, floats_);
      return;
    }
    plain("{\"name\": ");
    append_json_string(out_.text, tool.name);
    plain(", \"description\": ");
    append_json_string(out_.text, tool.description);
    plain(", \"parameters\": ");
    append_parameters(out_.text, tool, floats_);
    plain("}");
  }

  bool shows_format() const {
    return conversation_.format == Conversation::Format::kJsonObject ||
           conversation_.format == Conversation::Format::kJsonSchema;
  }

  void format_text() {
    if (conversation_.format == Conversation::Format::kJsonObject) {
      plain(json_object_text(version_));
      return;
    }
    plain(schema_format_head());
    append_json(out_.text, conversation_.schema, floats_);
  }

  void updated_tools(const Message& message) {
    if (message.tools.empty()) return;
    plain("\n\n### Updated Tool Schemas\n\n");
    bool first = true;
    for (const ToolDef* tool : message.tools) {
      if (!first) plain("\n");
      first = false;
      tool_schema(*tool);
    }
  }

  const Message* previous(size_t i) const { return i == 0 ? nullptr : order_[i - 1]; }

  void message(size_t i) {
    const Message& message = *order_[i];
    switch (message.role) {
      case Role::kSystem:
        special(kSystemToken);
        content(message);
        updated_tools(message);
        break;
      case Role::kUser:
        user(i);
        break;
      case Role::kTool:
        reading_lead(i);
        plain("<tool_result>");
        content(message);
        plain("</tool_result>");
        break;
      case Role::kLatestReminder:
        // 0.2.0 shows the first of several in a row.
        if (compat_ && v41() && i > 0 && order_[i - 1]->role == Role::kLatestReminder) break;
        special(kReminderToken);
        content(message);
        break;
      case Role::kAssistant:
        assistant(i);
        break;
    }
  }

  void reading_lead(size_t i) {
    const Message* before = previous(i);
    // V4 opens a new turn for a result that follows a user's text.
    const bool joins = before != nullptr && is_reading(before->role) &&
                       (v41() || before->role == Role::kTool || order_[i]->role == Role::kUser);
    if (joins) {
      plain("\n\n");
    } else {
      special(kUserToken);
    }
  }

  void user(size_t i) {
    reading_lead(i);
    content(*order_[i]);
    if (!order_[i]->task.empty()) task(i);
  }

  // A quick task: its token stands where the answer begins, without reasoning.
  void task(size_t i) {
    const Message& message = *order_[i];
    if (message.task == "action") {
      special(kAssistantToken);
      special(conversation_.thinking ? kThinkOpen : kThinkClose);
    }
    special(task_token(message.task));
  }

  bool shows_reasoning(size_t i) const {
    const Message& message = *order_[i];
    if (reference_) {
      return conversation_.thinking &&
             (conversation_.has_visible_tools() || message.prefix || i > last_user_);
    }
    if (!conversation_.has_visible_tools() && !message.prefix) return false;
    if (!v41()) return message.has_reasoning;
    return conversation_.thinking && (i > 0 || front_is_system_);
  }

  bool has_header(size_t i) const {
    const Message* before = previous(i);
    if (before != nullptr && !before->task.empty()) return false;
    if (!reference_) return true;
    return before == nullptr || before->role != Role::kAssistant;
  }

  void assistant(size_t i) {
    const Message& message = *order_[i];
    if (has_header(i)) {
      special(kAssistantToken);
      const bool opens = shows_reasoning(i);
      if (opens) {
        special(kThinkOpen);
        plain(message.reasoning);
      }
      const bool stays_open = message.prefix && is_empty_content(message) &&
                              conversation_.thinking && (opens || !v41());
      if (!stays_open) special(kThinkClose);
    }
    content(message);
    if (!message.calls.empty()) calls(message);
    const bool continues = message.prefix && (v41() || i + 1 == order_.size());
    if (!continues) special(kEos);
  }

  void calls(const Message& message) {
    plain("\n\n");
    open_tag(names_.block);
    plain(">\n");
    for (const Call* call : call_order(message.calls, sorts_calls())) {
      open_tag(names_.invoke);
      plain(" name=\"");
      plain(call->name);
      plain("\">\n");
      arguments(*call);
      close_tag(names_.invoke);
      plain("\n");
    }
    close_tag(names_.block);
  }

  void arguments(const Call& call) {
    JsonValue value = call.arguments_value;
    if (!value && scratch_.parse(call.arguments)) value = scratch_.root();
    if (reference_ && value.is_string()) {
      const std::string inner(value.str());
      if (scratch_inner_.parse(inner) && scratch_inner_.root().is_object()) {
        parameters(scratch_inner_.root());
        return;
      }
    }
    if (value.is_object()) {
      parameters(value);
      return;
    }
    if (!compat_ && (value.is_null() || (!value && call.arguments.empty()))) {
      no_parameters();
      return;
    }
    if (call.arguments_value) {
      std::string text;
      append_json(text, value, floats_);
      parameter("arguments", true, text);
    } else {
      parameter("arguments", true, call.arguments);
    }
    plain("\n");
  }

  void no_parameters() {
    if (v41()) plain("\n");
  }

  void parameters(JsonValue object) {
    if (object.size() == 0) {
      no_parameters();
      return;
    }
    for_each_member(object, [&](std::string_view key, JsonValue value) {
      if (value.is_string()) {
        parameter(key, true, value.str());
      } else {
        std::string text;
        append_json(text, value, floats_);
        parameter(key, false, text);
      }
      plain("\n");
    });
  }

  void parameter(std::string_view name, bool is_string, std::string_view value) {
    open_tag(names_.parameter);
    plain(" name=\"");
    plain(name);
    plain(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
    plain(value);
    close_tag(names_.parameter);
  }

  void generation_header() {
    const Message* last = order_.empty() ? nullptr : order_.back();
    if (last != nullptr && !last->task.empty()) return;
    const bool continues = last != nullptr && last->role == Role::kAssistant && last->prefix;
    if (!continues) {
      // The reference writes a header after a user turn or a system turn that is not the first.
      if (reference_ &&
          (last == nullptr ||
           (!is_reading(last->role) && (last->role != Role::kSystem || order_.size() == 1)))) {
        return;
      }
      special(kAssistantToken);
      special(conversation_.thinking ? kThinkOpen : kThinkClose);
    }
    if (conversation_.tool_choice == ToolChoice::kRequired && conversation_.has_visible_tools()) {
      forced_block();
    }
  }

  void forced_block() {
    // Ours lets reasoning run first; the block is then forced by the constraint.
    if (conversation_.thinking && !compat_) return;
    plain("\n\n");
    open_tag(names_.block);
    plain(">\n");
    if (conversation_.forced_tool.empty() || compat_) return;
    open_tag(names_.invoke);
    plain(" name=\"");
    plain(conversation_.forced_tool);
    plain("\">\n");
  }

  const Conversation& conversation_;
  const Version version_;
  const bool reference_, compat_;
  const FloatStyle floats_;
  const TagNames names_;
  RenderedPrompt out_;
  std::vector<const Message*> order_;
  size_t last_user_ = 0;
  size_t next_ = 0;  // the next message of order_ to be written
  bool front_is_system_ = false;
  JsonDoc scratch_, scratch_inner_;
};

}  // namespace

RenderedPrompt render(const Conversation& conversation, const CodecOptions& options) {
  return Renderer(conversation, options).run();
}

RenderedPrompt render_request(const CodecRequest& request, const CodecOptions& options) {
  if (!request.raw_prompt) return render(request.conversation, options);
  RenderedPrompt out;
  const auto special = [&](std::string_view token) {
    out.specials.push_back(
        {static_cast<uint32_t>(out.text.size()), static_cast<uint32_t>(token.size())});
    out.text += token;
  };
  special(kBos);
  if (request.raw_suffix) {
    special(kFimBegin);
    out.text += *request.raw_prompt;
    special(kFimHole);
    out.text += *request.raw_suffix;
    special(kFimEnd);
  } else {
    out.text += *request.raw_prompt;
  }
  return out;
}

}  // namespace hadal::recipe
