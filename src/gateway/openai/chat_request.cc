#include "gateway/openai/chat_request.h"

#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "gateway/openai/chat_types.h"
#include "gateway/openai/request_fields.h"
#include "gateway/recipe/custom_tools.h"
#include "gateway/recipe/extension.h"
#include "gateway/recipe/file_text.h"
#include "gateway/recipe/picture_check.h"
#include "gateway/recipe/request_rules.h"

namespace hadal::openai {

using core::Status;
using recipe::Call;
using recipe::CodecOptions;
using recipe::CodecRequest;
using recipe::Conversation;
using recipe::FieldCheck;
using recipe::invalid;
using recipe::JsonType;
using recipe::JsonValue;
using recipe::Message;
using recipe::Path;
using recipe::Role;

namespace {

class ChatReader {
 public:
  ChatReader(const CodecOptions& options, CodecRequest& request)
      : options_(options), request_(request), body_(request.text->doc.root()) {}

  Status run() {
    HADAL_TRY_VOID(check_fields());
    recipe::ThinkingFields thinking;
    thinking.type = body_["thinking"]["type"].str();
    thinking.effort = body_["reasoning_effort"];
    recipe::resolve_thinking(thinking, options_, conversation());
    wants_json_ = body_["response_format"]["type"].str() == "json_object";
    format_.given = body_["response_format"].is_object();
    HADAL_TRY_VOID(read_messages());
    HADAL_TRY_VOID(recipe::settle_reasoning(options_, "reasoning_content",
                                            body_["tools"].size() > 0, request_));
    HADAL_TRY_VOID(collect_tools());
    if (wants_json_ && !saw_json_) {
      return invalid(
          "Prompt must contain the word 'json' in some form to use 'response_format' of "
          "type 'json_object'.",
          "messages");
    }
    HADAL_TRY_VOID(recipe::add_tools(tools_, tool_rules(), options_, request_));
    HADAL_TRY_VOID(check_prefix());
    HADAL_TRY_VOID(read_format());
    HADAL_TRY_VOID(read_tool_choice());
    HADAL_TRY_VOID(read_stream_and_stop(body_, options_, request_));
    HADAL_TRY_VOID(recipe::check_strict_mix(tool_rules(), options_, request_));
    HADAL_TRY_VOID(read_sampling(body_, options_, sampling_, request_));
    finish();
    return {};
  }

 private:
  Conversation& conversation() { return request_.conversation; }

  Status check_fields() {
    const std::string_view model = body_["model"].str();
    HADAL_TRY_VOID(recipe::check_model(model, recipe::Api::kChat, options_));
    request_.response.model = model;
    if (body_["messages"].size() == 0) return invalid("Empty input messages", "messages");
    return {};
  }

  Status read_format() {
    const JsonValue format = body_["response_format"];
    if (format.absent_or_null()) return {};
    format_.given = true;
    const std::string_view type = format["type"].str();
    if (type == "json_object") {
      format_.format = Conversation::Format::kJsonObject;
    } else if (type == "json_schema") {
      format_.format = Conversation::Format::kJsonSchema;
      format_.schema = format["json_schema"]["schema"];
      format_.strict = format["json_schema"]["strict"].is_true();
      format_.schema_path = "response_format.json_schema.schema";
    } else if (type == "regex") {
      format_.format = Conversation::Format::kRegex;
      format_.regex = format["regex"].str();
      format_.schema_path = "response_format.regex";
    }
    return recipe::apply_format(format_, options_, request_);
  }

  recipe::ToolRules tool_rules() const {
    return {.has_format = format_.given, .is_hidden = body_["tool_choice"].str() == "none"};
  }

  Status collect_tools() {
    size_t i = 0;
    for (const JsonValue tool : body_["tools"]) {
      recipe::ToolInput input;
      const bool custom = !options_.compat && tool["type"].str() == "custom";
      const JsonValue function = tool[custom ? "custom" : "function"];
      input.path = fmt::format("tools[{}].{}", i++, custom ? "custom" : "function");
      input.name = input.local_name = function["name"].str();
      input.description = function["description"].str();
      input.has_description = function["description"].is_string();
      input.raw = function;
      if (custom) {
        const JsonValue grammar = function["format"]["grammar"];
        recipe::make_custom_tool(grammar["syntax"].str(), grammar["definition"].str(),
                                 *request_.text, input);
      } else {
        input.parameters = function["parameters"];
        if (function["strict"].is_bool()) input.strict = function["strict"].is_true();
      }
      HADAL_TRY_VOID(recipe::check_tool_name(input));
      tools_.push_back(std::move(input));
    }
    return {};
  }

  Status read_tool_choice() {
    const JsonValue choice = body_["tool_choice"];
    recipe::ToolChoiceFields fields;
    if (choice.is_string()) {
      fields.choice = choice_of(choice.str());
    } else if (choice.is_object()) {
      const std::string_view type = choice["type"].str();
      if (type == "allowed_tools") {
        const JsonValue allowed = choice["allowed_tools"];
        fields.choice = choice_of(allowed["mode"].str());
        fields.has_allowed = true;
        for (const JsonValue tool : allowed["tools"]) {
          fields.allowed.push_back(tool[tool["type"].str()]["name"].str());
        }
      } else {
        fields.choice = recipe::ToolChoice::kRequired;
        fields.name = choice[type]["name"].str();
        fields.has_name = true;
      }
    }
    return recipe::apply_tool_choice(fields, options_, request_);
  }

  // ---- messages ----

  Status read_messages() {
    const JsonValue messages = body_["messages"];
    conversation().messages.reserve(messages.size());
    index_ = 0;
    for (const JsonValue message : messages) {
      HADAL_TRY_VOID(read_message(message));
      ++index_;
    }
    return open_calls_ == 0 ? Status() : missing_results();
  }

  std::string path(std::string_view rest = {}) const {
    std::string text = "messages[" + std::to_string(index_) + ']';
    return text.append(rest);
  }

  Status missing_results() const {
    return invalid(
        "An assistant message with 'tool_calls' must be followed by tool messages "
        "responding to each 'tool_call_id'. (insufficient tool messages following "
        "tool_calls message)",
        fmt::format("messages[{}].tool_calls", calls_index_));
  }

  Status read_message(JsonValue value) {
    const std::string_view role = value["role"].str();
    if (role == "tool") return read_tool(value);
    if (open_calls_ > 0) return missing_results();
    answered_.clear();
    if (role == "assistant") return read_assistant(value);
    Message message;
    message.path = path();
    if (role == "latest_reminder") {
      message.role = Role::kLatestReminder;
      message.content.push_back({value["content"].str()});
      note(value["content"].str());
    } else {
      message.role = role == "user" ? Role::kUser : Role::kSystem;
      HADAL_TRY_VOID(read_content(value["content"], message));
      if (message.role == Role::kSystem && is_empty(message)) return {};
      if (!options_.compat && message.role == Role::kUser) message.task = value["task"].str();
    }
    conversation().messages.push_back(std::move(message));
    return {};
  }

  static bool is_empty(const Message& message) {
    for (const recipe::Part& part : message.content) {
      if (part.image >= 0 || !part.text.empty()) return false;
    }
    return true;
  }

  Status read_tool(JsonValue value) {
    const std::string_view id = value["tool_call_id"].str();
    const auto call = waiting_.find(id);
    if (open_calls_ == 0 || waiting_.empty()) {
      return invalid(
          options_.compat
              ? std::string("Messages with role 'tool' must be a response to a preceding "
                            "message with 'tool_calls'")
              : fmt::format("Messages with role 'tool' must be a response to a preceding "
                            "message with 'tool_calls': nothing waits for '{}'",
                            id.substr(0, 200)),
          path(".tool_call_id"));
    }
    if (call == waiting_.end()) {
      return invalid(fmt::format("An assistant message with 'tool_calls' must be followed by tool "
                                 "messages responding to each 'tool_call_id', The following "
                                 "tool_call_ids did not have response messages: {}",
                                 id),
                     path(".tool_call_id"));
    }
    waiting_.erase(call);
    --open_calls_;
    Message message;
    message.role = Role::kTool;
    message.path = path();
    message.tool_call_id = id;
    HADAL_TRY_VOID(read_content(value["content"], message));
    conversation().messages.push_back(std::move(message));
    return {};
  }

  Status read_assistant(JsonValue value) {
    Message message;
    message.role = Role::kAssistant;
    message.path = path();
    const JsonValue content = value["content"];
    const JsonValue calls = value["tool_calls"];
    if (content.absent_or_null() && calls.absent_or_null()) {
      return invalid("Invalid assistant message: content or tool_calls must be set",
                     path(".content"));
    }
    HADAL_TRY_VOID(read_content(content, message));
    message.has_reasoning = value["reasoning_content"].is_string();
    message.reasoning = value["reasoning_content"].str();
    message.prefix = value["prefix"].is_true();
    if (message.prefix && !prefix_) prefix_ = index_;
    if (calls.is_array()) HADAL_TRY_VOID(read_calls(calls, message));
    conversation().messages.push_back(std::move(message));
    return {};
  }

  Status read_calls(JsonValue calls, Message& message) {
    if (calls.size() == 0) {
      return invalid(fmt::format("Invalid '{}': empty array. Expected an array with minimum length "
                                 "1, but got an empty array instead.",
                                 path(".tool_calls")),
                     path(".tool_calls"));
    }
    has_calls_ = true;
    calls_index_ = index_;
    size_t i = 0;
    for (const JsonValue value : calls) {
      Call call;
      call.id = value["id"].str();
      if (const JsonValue custom = value["custom"]; custom.is_object() && !options_.compat) {
        call.name = custom["name"].str();
        call.arguments = recipe::custom_arguments(custom["input"].str(), *request_.text);
      } else {
        call.name = value["function"]["name"].str();
        call.arguments = value["function"]["arguments"].str();
      }
      if (!waiting_.insert(call.id).second) {
        return invalid(
            fmt::format("Duplicate value for 'tool_call_id' of {} in message[{}]", call.id, index_),
            path(fmt::format(".tool_calls[{}].id", i)));
      }
      message.calls.push_back(call);
      ++i;
    }
    open_calls_ = waiting_.size();
    return {};
  }

  void note(std::string_view text) {
    if (wants_json_ && !saw_json_) {
      saw_json_ = recipe::mentions_json(text);
    }
  }

  Status read_content(JsonValue content, Message& message) {
    if (content.is_string()) {
      note(content.str());
      message.content.push_back({content.str()});
      return {};
    }
    size_t i = 0;
    for (const JsonValue part : content) {
      const std::string_view type = part["type"].str();
      if (type == "text" || type == "refusal") {
        note(part[type].str());
        recipe::add_text(message, part[type].str());
      } else if (type == "image_url") {
        HADAL_TRY_VOID(read_image(part["image_url"], i, message));
      } else {
        HADAL_TRY_VOID(read_file(part, i, message));
      }
      ++i;
    }
    return {};
  }

  Status read_image(JsonValue image, size_t part, Message& message) {
    const std::string where = path(fmt::format(".content[{}].image_url.url", part));
    if (message.role == Role::kAssistant) {
      return invalid("Image in assistant message is not supported", where);
    }
    const std::string_view url = image["url"].str();
    switch (recipe::check_image_url(url)) {
      case recipe::UrlProblem::kNone:
        break;
      case recipe::UrlProblem::kFormat:
        return invalid(fmt::format(".messages[{}]: Unsupported image_url format", index_), where);
      case recipe::UrlProblem::kNotImage:
        return invalid(fmt::format(".messages[{}]: {}", index_, recipe::kUnsupportedImageText),
                       where);
      case recipe::UrlProblem::kTooLong:
        return invalid(
            fmt::format(".messages[{}].image_url.url[{}]: image_url.url external link length {} "
                        "too long, max link length {}. Consider passing file data directly with "
                        "base64 data url instead.",
                        index_, part, url.size(), recipe::kMaxUrlBytes),
            where);
    }
    recipe::ImageRef reference;
    reference.kind = recipe::ImageRef::Kind::kUrl;
    reference.source = url;
    reference.detail = recipe::image_detail(image["detail"].str());
    reference.path = fmt::format(".messages[{}]", index_);
    reference.field = where;
    recipe::add_image(message, conversation(), std::move(reference), options_.version);
    return {};
  }

  Status read_file(JsonValue part, size_t i, Message& message) {
    if (options_.compat) {
      return invalid(fmt::format(".messages[{}]: file must have a file_id or file_data", index_),
                     {});
    }
    const JsonValue file = part["file"].is_object() ? part["file"] : part;
    const std::string where = path(fmt::format(".content[{}].file", i));
    HADAL_TRY(
        const std::string_view text,
        recipe::file_text(file["file_data"].str(), file["filename"].str(), where, *request_.text));
    note(text);
    recipe::add_text(message, text);
    return {};
  }

  Status check_prefix() {
    if (!prefix_) return {};
    const std::string where = fmt::format("messages[{}].prefix", *prefix_);
    // Messages that leave nothing in the prompt do not count.
    const Message& last = conversation().messages.back();
    if (last.role != Role::kAssistant || last.path != fmt::format("messages[{}]", *prefix_)) {
      return invalid(
          "Invalid completion message: prefix set true with message which is not final "
          "message or message role is not assistant",
          where);
    }
    if (wants_json_) {
      return invalid("response_format json_object should not be used with prefix", where);
    }
    if (has_calls_ || body_["tools"].size() > 0) {
      return invalid("Function call should not be used with prefix", where);
    }
    return {};
  }

  void finish() {
    recipe::finish_request(sampling_, format_, options_, request_);
    if (body_["parallel_tool_calls"].is(JsonType::kFalse) && !options_.compat) {
      request_.parse.max_calls = 1;
    }
    const JsonValue budget = body_["thinking"]["budget_tokens"];
    if (budget && !options_.compat) {
      request_.sampling.thinking_budget =
          static_cast<uint32_t>(std::min<uint64_t>(budget.node()->u, UINT32_MAX));
    }
  }

  const CodecOptions& options_;
  CodecRequest& request_;
  const JsonValue body_;
  recipe::SamplingFields sampling_;
  recipe::FormatFields format_;
  std::vector<recipe::ToolInput> tools_;
  bool wants_json_ = false, saw_json_ = false;
  bool has_calls_ = false;
  size_t index_ = 0;  // of the message being read
  size_t calls_index_ = 0;
  std::optional<size_t> prefix_;  // first message with `prefix`
  size_t open_calls_ = 0;         // calls of the last assistant turn without a result
  std::unordered_set<std::string_view> waiting_, answered_;
};

}  // namespace

core::Result<CodecRequest> parse_chat_request(std::string body, const CodecOptions& options) {
  CodecRequest request;
  request.text = std::make_shared<recipe::RequestText>();
  request.text->body = std::move(body);
  HADAL_TRY_VOID(request.text->doc.parse(request.text->body));
  FieldCheck check(options.compat);
  check_chat_types(check, request.text->doc.root(), options);
  if (!options.compat) {
    recipe::read_extension(check, request.text->doc.root(), Path{}, request.extension);
    refuse_unsupported(check, request.text->doc.root());
  }
  HADAL_TRY_VOID(check.status());
  request.response.api = recipe::Api::kChat;
  HADAL_TRY_VOID(ChatReader(options, request).run());
  if (!options.compat) {
    HADAL_TRY_VOID(recipe::check_pictures(options, request.conversation));
  }
  return request;
}

}  // namespace hadal::openai
