#include "gateway/recipe/conversation_json.h"

#include <fmt/format.h>

#include "gateway/recipe/field_check.h"
#include "gateway/recipe/request_rules.h"
#include "gateway/recipe/template_text.h"

namespace hadal::recipe {

namespace {

void check_types(FieldCheck& check, JsonValue body) {
  const Path root;
  if (!check.is_object(body, root)) return;
  check.boolean(body, "thinking", root, Need::kOptional);
  check.word(body, "tool_choice", root, Need::kOptional, {"auto", "none", "required"});
  check.word(body, "response_format", root, Need::kOptional, {"text", "json_object"});
  check.string(body, "response_regex", root, Need::kOptional);
  check.array(body, "tools", root, Need::kOptional);
  const JsonValue messages = check.array(body, "messages", root, Need::kOptional);
  const Path list{&root, "messages"};
  int64_t i = 0;
  for (const JsonValue message : messages) {
    const Path at{&list, {}, i++};
    if (!check.ok() || !check.is_object(message, at)) return;
    check.word(message, "role", at, Need::kRequired,
               {"system", "user", "assistant", "tool", "latest_reminder"});
    check.string(message, "content", at, Need::kRequired);
    check.string(message, "reasoning_content", at, Need::kOptional);
    check.array(message, "images", at, Need::kOptional);
    check.array(message, "tool_calls", at, Need::kOptional);
  }
}

class ConversationReader {
 public:
  ConversationReader(const CodecOptions& options, CodecRequest& request)
      : options_(options), request_(request), body_(request.text->doc.root()) {}

  core::Status run() {
    Conversation& conversation = request_.conversation;
    conversation.thinking = !body_["thinking"].is(JsonType::kFalse);
    effort();
    for (const JsonValue tool : body_["tools"]) conversation.tools.push_back(add_tool(tool));
    const std::string_view choice = body_["tool_choice"].str();
    if (choice == "none") conversation.tool_choice = ToolChoice::kNone;
    if (choice == "required") conversation.tool_choice = ToolChoice::kRequired;
    FormatFields format;
    if (body_["response_format"].str() == "json_object") {
      format.format = Conversation::Format::kJsonObject;
    }
    if (!body_["response_schema"].absent_or_null()) {
      format.format = Conversation::Format::kJsonSchema;
      format.schema = conversation.schema = body_["response_schema"];
    } else if (body_["response_regex"].is_string()) {
      format.format = Conversation::Format::kRegex;
      format.regex = body_["response_regex"].str();
    }
    conversation.format = format.format;
    size_t i = 0;
    for (const JsonValue message : body_["messages"]) {
      add_message(message, fmt::format("messages[{}]", i++));
    }
    finish_request({}, format, options_, request_);
    return {};
  }

 private:
  void effort() {
    Conversation& conversation = request_.conversation;
    const JsonValue effort = body_["effort"];
    if (effort.absent_or_null()) return;
    const bool thinking = conversation.thinking;
    ThinkingFields fields;
    fields.effort = effort;
    resolve_thinking(fields, options_, conversation);
    conversation.thinking = thinking;
  }

  const ToolDef* add_tool(JsonValue tool) {
    ToolDef definition;
    definition.name = tool["name"].str();
    definition.local_name = definition.name;
    definition.description = tool["description"].str();
    definition.has_description = tool["description"].is_string();
    definition.parameters = tool["parameters"];
    if (options_.compat && definition.parameters.absent_or_null()) {
      definition.parameters_text = "null";  // 0.2.0 shows what it was given
    }
    definition.raw = tool;
    definition.strict = tool["strict"].is_true();
    definition.has_strict = tool["strict"].is_bool();
    definition.deferred = tool["defer_loading"].is_true();
    request_.conversation.tool_store.push_back(definition);
    return &request_.conversation.tool_store.back();
  }

  void add_message(JsonValue value, std::string path) {
    Message message;
    const std::string_view role = value["role"].str();
    message.role = role == "system"      ? Role::kSystem
                   : role == "user"      ? Role::kUser
                   : role == "assistant" ? Role::kAssistant
                   : role == "tool"      ? Role::kTool
                                         : Role::kLatestReminder;
    message.path = std::move(path);
    message.has_reasoning = value["reasoning_content"].is_string();
    message.reasoning = value["reasoning_content"].str();
    message.prefix = value["prefix"].is_true();
    message.tool_call_id = value["tool_call_id"].str();
    message.task = value["task"].str();
    for (const JsonValue item : value["tool_calls"]) {
      Call call;
      call.id = item["id"].str();
      call.name = item["name"].str();
      call.arguments = item["arguments"].str();
      message.calls.push_back(call);
    }
    for (const JsonValue tool : value["tools"]) message.tools.push_back(add_tool(tool));
    add_content(value, message);
    request_.conversation.messages.push_back(std::move(message));
  }

  // Each image takes the place of one placeholder in the text, as long as there are images.
  void add_content(JsonValue value, Message& message) {
    std::string_view text = value["content"].str();
    for (const JsonValue image : value["images"]) {
      const size_t at = text.find(kImageToken);
      const bool hidden = at == std::string_view::npos;
      if (!hidden) {
        if (at > 0) message.content.push_back({text.substr(0, at)});
        text.remove_prefix(at + kImageToken.size());
      }
      ImageRef reference;
      reference.source = image["url"].str();
      reference.detail = image_detail(image["detail"].str());
      message.content.push_back(
          {{}, static_cast<int32_t>(request_.conversation.images.size()), hidden});
      request_.conversation.images.push_back(std::move(reference));
    }
    message.content.push_back({text});
  }

  const CodecOptions& options_;
  CodecRequest& request_;
  const JsonValue body_;
};

}  // namespace

core::Result<CodecRequest> parse_conversation(std::string body, const CodecOptions& options) {
  CodecRequest request;
  request.text = std::make_shared<RequestText>();
  request.text->body = std::move(body);
  HADAL_TRY_VOID(request.text->doc.parse(request.text->body));
  FieldCheck check;
  check_types(check, request.text->doc.root());
  HADAL_TRY_VOID(check.status());
  HADAL_TRY_VOID(ConversationReader(options, request).run());
  return request;
}

}  // namespace hadal::recipe
