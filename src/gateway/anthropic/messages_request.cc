#include "gateway/anthropic/messages_request.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "gateway/anthropic/messages_types.h"
#include "gateway/recipe/extension.h"
#include "gateway/recipe/file_text.h"
#include "gateway/recipe/picture_check.h"
#include "gateway/recipe/request_rules.h"
#include "gateway/recipe/sealed_text.h"
#include "gateway/recipe/server_tools.h"
#include "gateway/recipe/text_scan.h"
#include "gateway/recipe/turn_order.h"

namespace hadal::anthropic {

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
using recipe::ToolDef;

namespace {

constexpr size_t kMaxImageBytes = 32u << 20;

class MessagesReader {
 public:
  MessagesReader(const CodecOptions& options, CodecRequest& request)
      : options_(options), request_(request), body_(request.text->doc.root()) {}

  Status run() {
    const std::string_view model = body_["model"].str();
    HADAL_TRY_VOID(recipe::check_model(model, recipe::Api::kMessages, options_));
    request_.response.model = model;
    HADAL_TRY_VOID(read_sampling());
    recipe::ThinkingFields thinking;
    thinking.type = body_["thinking"]["type"].str();
    thinking.effort = body_["output_config"]["effort"];
    recipe::resolve_thinking(thinking, options_, conversation());
    HADAL_TRY_VOID(read_format());
    HADAL_TRY_VOID(read_tools());
    if (body_["messages"].size() == 0) {
      return error("messages: at least one message is required", "messages");
    }
    read_system();
    HADAL_TRY_VOID(read_messages());
    HADAL_TRY_VOID(read_tool_choice());
    HADAL_TRY_VOID(recipe::settle_reasoning(options_, "content[].thinking",
                                            body_["tools"].size() > 0, request_));
    finish();
    return {};
  }

 private:
  Conversation& conversation() { return request_.conversation; }

  // The path stands in front of the texts of 0.2.0; ours puts it there when the body is written.
  core::Error error(std::string text, std::string path) const {
    if (!options_.compat) {
      const size_t colon = text.find(": ");
      const std::string_view head = std::string_view(text).substr(0, colon);
      const bool is_path = colon != std::string::npos &&
                           (head.starts_with("messages") || head.starts_with("tools")) &&
                           head.find(' ') == std::string_view::npos;
      if (is_path) text.erase(0, colon + 2);
    }
    return invalid(std::move(text), std::move(path));
  }

  std::string path(std::string_view rest = {}) const {
    return fmt::format("messages[{}]{}", index_, rest);
  }
  std::string block_path(size_t block) const { return path(fmt::format(".content[{}]", block)); }

  Status read_sampling() {
    const auto number = [&](std::string_view key) -> std::optional<double> {
      if (!body_[key].is_number()) return std::nullopt;
      return body_[key].number();
    };
    sampling_.temperature = number("temperature");
    sampling_.top_p = number("top_p");
    sampling_.max_tokens_is_lowered = true;
    if (const JsonValue limit = body_["max_tokens"]; limit.is(JsonType::kUnsigned)) {
      sampling_.max_tokens = limit.node()->u;
    }
    HADAL_TRY_VOID(recipe::check_sampling(sampling_, options_));
    if (!options_.compat && body_["top_k"].is(JsonType::kUnsigned)) {
      request_.sampling.top_k = static_cast<int32_t>(body_["top_k"].node()->u);
    }
    request_.response.stream = body_["stream"].is_true();
    const JsonValue stop = body_["stop_sequences"];
    if (!stop.is_array()) return {};
    return recipe::check_stop(stop, "stop_sequences", options_, request_.parse.stop);
  }

  Status read_format() {
    if (options_.compat) return {};
    std::string_view where = "output_config.format.schema";
    JsonValue format = body_["output_config"]["format"];
    if (format.absent_or_null()) {
      format = body_["output_format"];
      where = "output_format.schema";
    }
    if (format.absent_or_null()) return {};
    format_.given = true;
    format_.format = Conversation::Format::kJsonSchema;
    format_.schema = format["schema"];
    format_.schema_path = where;
    return recipe::apply_format(format_, options_, request_);
  }

  // ---- tools ----

  Status read_tools() {
    std::vector<recipe::ToolInput> tools;
    size_t i = 0, n_deferred = 0;
    for (const JsonValue tool : body_["tools"]) {
      const size_t index = i++;
      const std::string_view type = tool["type"].str();
      if (const auto kind = server_kind(type)) {
        tools.emplace_back().path = fmt::format("tools[{}]", index);
        HADAL_TRY_VOID(recipe::read_server_limits(tool, tools.back().path, request_.server_tools));
        recipe::make_server_tool(*kind, tools.back());
        continue;
      }
      if (!type.empty() && (options_.compat || type != "custom")) {
        if (type.starts_with("web_search") && options_.messages_web_search_dropped) {
          dropped_.insert(tool["name"].str());
          continue;
        }
        return error(fmt::format("tools[{}]: server tools are not supported", index),
                     fmt::format("tools[{}].type", index));
      }
      recipe::ToolInput input;
      input.path = fmt::format("tools[{}]", index);
      input.parameters_name = "input_schema";
      input.name = input.local_name = tool["name"].str();
      input.description = tool["description"].str();
      input.has_description = tool["description"].is_string();
      input.parameters = tool["input_schema"];
      input.needs_parameters = true;
      input.raw = tool;
      input.deferred = tool["defer_loading"].is_true();
      if (!options_.compat && tool["strict"].is_bool()) input.strict = tool["strict"].is_true();
      n_deferred += input.deferred ? 1 : 0;
      tools.push_back(std::move(input));
    }
    if (!tools.empty() && n_deferred == tools.size()) {
      return error(
          "tools: at least one tool must have defer_loading=false. All tools cannot be deferred.",
          "tools");
    }
    if (options_.version == recipe::Version::kV4) {
      for (recipe::ToolInput& tool : tools) tool.deferred = false;
    }
    const recipe::ToolRules rules{.has_format = format_.given,
                                  .is_hidden = body_["tool_choice"]["type"].str() == "none"};
    HADAL_TRY_VOID(recipe::add_tools(tools, rules, options_, request_));
    for (const ToolDef* tool : conversation().tools) tools_by_name_.emplace(tool->name, tool);
    return {};
  }

  // A tool that this server runs itself.
  std::optional<recipe::ToolKind> server_kind(std::string_view type) {
    if (options_.compat) return std::nullopt;
    if (options_.web_search && type.starts_with("web_search_2")) {
      request_.server_tools.search = true;
      return recipe::ToolKind::kWebSearch;
    }
    if (options_.web_fetch && type.starts_with("web_fetch_2")) {
      request_.server_tools.fetch = true;
      return recipe::ToolKind::kWebFetch;
    }
    return std::nullopt;
  }

  Status read_tool_choice() {
    const JsonValue choice = body_["tool_choice"];
    const std::string_view type = choice["type"].str();
    recipe::ToolChoiceFields fields;
    if (type == "none") fields.choice = recipe::ToolChoice::kNone;
    // 0.2.0 takes `any` for `auto`.
    if (type == "any" && !options_.compat) fields.choice = recipe::ToolChoice::kRequired;
    if (type == "tool" && !dropped_.contains(choice["name"].str())) {
      fields.choice = recipe::ToolChoice::kRequired;
      fields.name = choice["name"].str();
      fields.has_name = true;
    }
    HADAL_TRY_VOID(recipe::apply_tool_choice(fields, options_, request_));
    hide_updates();
    return {};
  }

  // Tools that the choice leaves out are not shown later either.
  void hide_updates() {
    std::unordered_set<const ToolDef*> callable;
    if (conversation().has_visible_tools()) {
      callable.insert(conversation().tools.begin(), conversation().tools.end());
    }
    std::erase_if(conversation().messages, [&](Message& message) {
      if (message.tools.empty()) return false;
      std::erase_if(message.tools, [&](const ToolDef* tool) { return !callable.contains(tool); });
      return message.tools.empty() && recipe::is_empty_content(message);
    });
  }

  // ---- messages ----

  void read_system() {
    const JsonValue system = body_["system"];
    if (system.absent_or_null()) return;
    Message message;
    message.role = Role::kSystem;
    message.path = "system";
    if (system.is_string()) {
      message.content.push_back({system.str()});
    } else {
      for (const JsonValue block : system) recipe::add_text(message, block["text"].str());
    }
    conversation().messages.push_back(std::move(message));
  }

  Status read_messages() {
    index_ = 0;
    for (const JsonValue value : body_["messages"]) {
      const std::string_view role = value["role"].str();
      const JsonValue content = value["content"];
      if (content.is_array() && content.size() == 0) {
        return error(fmt::format("messages.{}: all messages must have non-empty content", index_),
                     path(".content"));
      }
      if (role != "user") HADAL_TRY_VOID(close_calls(Closing::kOtherMessage));
      if (role == "assistant") {
        HADAL_TRY_VOID(read_assistant(content));
      } else if (role == "system") {
        HADAL_TRY_VOID(read_system_entry(content));
      } else {
        HADAL_TRY_VOID(read_user(content));
      }
      ++index_;
    }
    return close_calls(Closing::kEnd);
  }

  // Why every call of the last assistant turn must have its result by now.
  enum class Closing : uint8_t {
    kOtherMessage,  // something that is no result came
    kSomeCame,      // a message with results ended
    kEnd,           // the conversation ended
  };
  Status close_calls(Closing why) {
    std::string ids;
    if (options_.compat) std::ranges::sort(open_calls_);  // 0.2.0 names them in this order
    for (const std::string_view id : open_calls_) {
      if (waiting_.contains(id)) ids += fmt::format("{}{}", ids.empty() ? "" : ", ", id);
    }
    open_calls_.clear();
    if (ids.empty()) return {};
    return missing_results(why == Closing::kOtherMessage
                               ? fmt::format("messages.{}: ", index_)
                               : fmt::format("messages.{}:", calls_index_),
                           ids);
  }

  core::Error missing_results(std::string_view prefix, std::string_view ids) const {
    return invalid(
        fmt::format("{}`tool_use` ids were found without `tool_result` blocks immediately after: "
                    "{}. Each `tool_use` block must have a corresponding `tool_result` block in "
                    "the next message.",
                    options_.compat ? prefix : std::string_view(), ids),
        fmt::format("messages[{}]", calls_index_));
  }

  core::Error only_in(std::string_view type, std::string_view role) const {
    return error(
        fmt::format("messages.{}: `{}` blocks can only be in `{}` messages", index_, type, role),
        path(".content"));
  }

  // True if the block is of the server's own search and is dropped.
  Status check_server_block(std::string_view type, size_t block, bool& dropped) const {
    dropped = type == "server_tool_use" || type == "web_search_tool_result" ||
              type == "web_fetch_tool_result";
    const bool own = !options_.compat && (options_.web_search || options_.web_fetch);
    if (!dropped || own || options_.messages_web_search_dropped) return {};
    return error("Unsupported content block: server tools are not supported", block_path(block));
  }

  void add_message(Message message) { conversation().messages.push_back(std::move(message)); }

  Status read_assistant(JsonValue content) {
    Message message;
    message.role = Role::kAssistant;
    message.path = path();
    if (content.is_string()) {
      message.content.push_back({content.str()});
      add_message(std::move(message));
      return {};
    }
    std::string reasoning;
    size_t n_thinking = 0, i = 0;
    waiting_.clear();
    open_calls_.clear();
    for (const JsonValue block : content) {
      const std::string_view type = block["type"].str();
      bool dropped = false;
      HADAL_TRY_VOID(check_server_block(type, i, dropped));
      if (dropped || type == "redacted_thinking") {
        // Not part of a prompt.
      } else if (type == "thinking") {
        HADAL_TRY(const std::string_view text, thinking_text(block, i));
        if (n_thinking++ > 0) reasoning += "\n\n";
        reasoning += text;
      } else if (type == "tool_use") {
        HADAL_TRY_VOID(read_call(block, i, message));
      } else if (!message.calls.empty() && (type == "text" || type == "document")) {
        return late_text(i);
      } else if (type == "text") {
        recipe::add_text(message, block["text"].str());
      } else if (type == "document" || type == "search_result") {
        recipe::add_text(message, document_text(block, type));
      } else if (type == "image") {
        return error("Image in assistant message is unsupported", block_path(i));
      } else {
        return only_in(type, type == "tool_result" ? "user" : "system");
      }
      ++i;
    }
    message.has_reasoning = n_thinking > 0;
    message.reasoning = request_.text->keep(std::move(reasoning));
    add_message(std::move(message));
    return {};
  }

  core::Error late_text(size_t block) const {
    std::string ids;
    for (const std::string_view id : open_calls_) {
      ids += fmt::format("{}{}", ids.empty() ? "" : ", ", id);
    }
    return missing_results(fmt::format("messages.{}.{}: ", index_, block), ids);
  }

  // The text of a thinking block, or what its signature seals when we left the text out.
  core::Result<std::string_view> thinking_text(JsonValue block, size_t i) {
    const std::string_view signature = block["signature"].str();
    const std::string_view text = block["thinking"].str();
    if (options_.compat || options_.reasoning_key.empty() || !recipe::is_sealed(signature)) {
      return text;
    }
    auto opened = recipe::open_sealed(options_.reasoning_key, recipe::kReasoningPurpose, signature);
    if (!opened) {
      return invalid("the signature was changed, or made with another key",
                     block_path(i) + ".signature");
    }
    return request_.text->keep(std::move(opened).value());
  }

  Status read_call(JsonValue block, size_t i, Message& message) {
    Call call;
    call.id = block["id"].str();
    call.name = block["name"].str();
    call.arguments_value = block["input"];
    if (!waiting_.insert(call.id).second) {
      return error(fmt::format("messages.{}.content.{}: `tool_use` ids must be unique", index_, i),
                   block_path(i) + ".id");
    }
    calls_index_ = index_;
    open_calls_.push_back(call.id);
    message.calls.push_back(call);
    return {};
  }

  Status read_system_entry(JsonValue content) {
    Message message;
    const bool wraps = options_.version == recipe::Version::kV4;
    message.role = wraps ? Role::kUser : Role::kSystem;
    message.path = path();
    if (content.is_string()) {
      message.content.push_back({content.str()});
    } else {
      size_t i = 0;
      for (const JsonValue block : content) {
        const std::string_view type = block["type"].str();
        bool dropped = false;
        HADAL_TRY_VOID(check_server_block(type, i, dropped));
        if (type == "tool_addition") {
          const std::string_view name = block["tool"]["name"].str();
          const auto found = tools_by_name_.find(name);
          if (found == tools_by_name_.end()) {
            return error(fmt::format("messages.{}.content.{}: `tool_addition` references unknown "
                                     "tool '{}'",
                                     index_, i, name),
                         block_path(i) + ".tool.name");
          }
          if (!wraps) message.tools.push_back(found->second);
        } else if (!dropped) {
          HADAL_TRY_VOID(read_plain_block(block, type, i, message));
        }
        ++i;
      }
    }
    if (wraps) {
      if (recipe::is_empty_content(message)) return {};
      message.content.insert(message.content.begin(), {"<system-reminder>\n"});
      message.content.push_back({"\n</system-reminder>"});
    }
    add_message(std::move(message));
    return {};
  }

  Status read_plain_block(JsonValue block, std::string_view type, size_t i, Message& message) {
    if (type == "text") {
      recipe::add_text(message, block["text"].str());
      return {};
    }
    if (type == "image") {
      return read_image(block["source"],
                        message.role == Role::kSystem
                            ? fmt::format("messages.{}", index_)
                            : fmt::format("messages.{}.content[{}]", index_, i),
                        i, message);
    }
    if (type == "document" || type == "search_result") {
      recipe::add_text(message, document_text(block, type));
      return {};
    }
    if (type == "thinking") {
      return error(fmt::format("messages.{}.content: thinking blocks may only be in `assistant` "
                               "messages",
                               index_),
                   block_path(i));
    }
    if (type == "redacted_thinking") return {};
    return only_in(type, type == "tool_use"      ? "assistant"
                         : type == "tool_result" ? "user"
                                                 : "system");
  }

  Status read_user(JsonValue content) {
    Message message;
    message.role = Role::kUser;
    message.path = path();
    if (content.is_string()) {
      HADAL_TRY_VOID(close_calls(Closing::kOtherMessage));
      message.content.push_back({content.str()});
      add_message(std::move(message));
      return {};
    }
    std::vector<Message> results, others;
    size_t i = 0;
    for (const JsonValue block : content) {
      const std::string_view type = block["type"].str();
      bool dropped = false;
      HADAL_TRY_VOID(check_server_block(type, i, dropped));
      if (dropped) {
        // Not part of a prompt.
      } else if (type == "tool_result") {
        if (!others.empty()) HADAL_TRY_VOID(close_calls(Closing::kOtherMessage));
        HADAL_TRY(Message result, read_result(block, i));
        results.push_back(std::move(result));
      } else {
        // V4 takes each block for a message of its own, which matters for empty ones.
        if (others.empty() || options_.version == recipe::Version::kV4) others.push_back(message);
        HADAL_TRY_VOID(read_plain_block(block, type, i, others.back()));
      }
      ++i;
    }
    HADAL_TRY_VOID(close_calls(results.empty() ? Closing::kOtherMessage : Closing::kSomeCame));
    for (Message& result : results) add_message(std::move(result));
    for (Message& other : others) add_message(std::move(other));
    flush_references();
    return {};
  }

  core::Result<Message> read_result(JsonValue block, size_t i) {
    const std::string_view id = block["tool_use_id"].str();
    if (open_calls_.empty() || std::ranges::find(open_calls_, id) == open_calls_.end()) {
      return invalid(
          fmt::format("unexpected `messages.{}.content.{}: tool_use_id` found in `tool_result` "
                      "blocks: {}. Each `tool_result` block must have a corresponding `tool_use` "
                      "block in the previous message.",
                      index_, i, id),
          block_path(i) + ".tool_use_id");
    }
    if (waiting_.erase(id) == 0) {
      return error(fmt::format("messages.{}.content.{}: each tool_use must have a single result. "
                               "Found multiple `tool_result` blocks with id: {}",
                               index_, i, id),
                   block_path(i) + ".tool_use_id");
    }
    Message message;
    message.role = Role::kTool;
    message.path = block_path(i);
    message.tool_call_id = id;
    const JsonValue content = block["content"];
    if (content.is_string()) message.content.push_back({content.str()});
    if (!content.is_array()) return message;
    for (const JsonValue part : content) {
      const std::string_view type = part["type"].str();
      if (type == "tool_reference") {
        const std::string_view name = part["tool_name"].str();
        const auto found = tools_by_name_.find(name);
        if (found == tools_by_name_.end()) {
          return error(fmt::format("messages.{}.content.{}: tool reference '{}' not found in "
                                   "available tools",
                                   index_, i, name),
                       block_path(i));
        }
        if (options_.version == recipe::Version::kV41) references_.push_back(found->second);
        recipe::add_text(message, name);
      } else if (type == "image") {
        HADAL_TRY_VOID(read_image(part["source"],
                                  fmt::format("messages.{}.content.{}.tool_result", index_, i), i,
                                  message));
      } else if (type == "text") {
        recipe::add_text(message, part["text"].str());
      } else {
        recipe::add_text(message, document_text(part, type));
      }
    }
    return message;
  }

  // The tools that results named are shown after the message of the results.
  void flush_references() {
    if (references_.empty()) return;
    Message message;
    message.role = Role::kSystem;
    message.tools = std::exchange(references_, {});
    add_message(std::move(message));
  }

  Status read_image(JsonValue source, std::string name, size_t block, Message& message) {
    const std::string where = block_path(block) + ".source";
    const std::string_view type = source["type"].str();
    recipe::ImageRef image;
    image.path = name;
    image.field = where + (type == "base64" ? ".data" : ".url");
    if (type == "file") {
      return error(
          name + ": file_id is not supported. Pass the image as a base64 data url instead.",
          where + ".file_id");
    }
    if (type == "base64") {
      image.kind = recipe::ImageRef::Kind::kBase64;
      image.source = source["data"].str();
      std::string bytes;
      if (!recipe::decode_base64(image.source, kMaxImageBytes, bytes)) {
        return error(name + ": base64 decode error", where + ".data");
      }
    } else {
      image.source = source["url"].str();
      if (image.source.size() > recipe::kMaxUrlBytes) {
        return error(
            fmt::format("{}: external link length {} too long, max link length {}. "
                        "Consider passing file data directly with base64 data url instead.",
                        name, image.source.size(), recipe::kMaxUrlBytes),
            where + ".url");
      }
      if (recipe::check_image_url(image.source) != recipe::UrlProblem::kNone ||
          (image.source[0] | 0x20) != 'h') {
        return error(fmt::format("{}: invalid url: \"{}\"", name, image.source), where + ".url");
      }
    }
    recipe::add_image(message, conversation(), std::move(image), options_.version);
    return {};
  }

  // What the prompt shows of a document. Ours reads text; other media stay a placeholder.
  std::string_view document_text(JsonValue block, std::string_view type) {
    const JsonValue source = block["source"];
    if (type == "search_result") {
      std::string text = fmt::format("{}\n{}", block["title"].str(), source.str());
      for (const JsonValue part : block["content"]) text += fmt::format("\n{}", part["text"].str());
      return request_.text->keep(std::move(text));
    }
    const std::string_view media = source["media_type"].str();
    if (!options_.compat) {
      const std::string_view kind = source["type"].str();
      std::string text;
      bool readable = false;
      if (kind == "text") {
        text = source["data"].str();
        readable = true;
      } else if (kind == "base64" && media.starts_with("text/")) {
        readable = recipe::decode_base64(source["data"].str(), kMaxImageBytes, text) &&
                   recipe::is_valid_utf8(text);
      } else if (kind == "content") {
        readable = true;
        const JsonValue content = source["content"];
        text = content.str();
        for (const JsonValue part : content) {
          if (!text.empty()) text += "\n\n";
          text += part["text"].str();
        }
      }
      if (readable) {
        const std::string_view title = block["title"].str();
        if (!title.empty()) text = fmt::format("[Document: {}]\n{}", title, text);
        return request_.text->keep(std::move(text));
      }
    }
    return request_.text->keep(
        fmt::format("[Unsupported document type: {}]", media.empty() ? "unknown" : media));
  }

  void finish() {
    recipe::finish_request(sampling_, format_, options_, request_);
    if (options_.compat) return;
    if (body_["tool_choice"]["disable_parallel_tool_use"].is_true()) request_.parse.max_calls = 1;
    const JsonValue thinking = body_["thinking"];
    request_.response.omit_thinking_text = thinking["display"].str() == "omitted";
    if (const JsonValue budget = thinking["budget_tokens"]; budget.is(JsonType::kUnsigned)) {
      request_.sampling.thinking_budget =
          static_cast<uint32_t>(std::min<uint64_t>(budget.node()->u, UINT32_MAX));
    }
  }

  const CodecOptions& options_;
  CodecRequest& request_;
  const JsonValue body_;
  recipe::SamplingFields sampling_;
  recipe::FormatFields format_;
  size_t index_ = 0;  // of the message being read
  size_t calls_index_ = 0;
  std::vector<std::string_view> open_calls_;      // of the last assistant turn, in order
  std::unordered_set<std::string_view> waiting_;  // those without a result
  std::unordered_map<std::string_view, const ToolDef*> tools_by_name_;
  std::unordered_set<std::string_view> dropped_;  // server tools passed over
  std::vector<const ToolDef*> references_;
};

}  // namespace

core::Result<CodecRequest> parse_messages_request(std::string body, const CodecOptions& options) {
  CodecRequest request;
  request.response.api = recipe::Api::kMessages;
  request.text = std::make_shared<recipe::RequestText>();
  request.text->body = std::move(body);
  HADAL_TRY_VOID(request.text->doc.parse(request.text->body));
  FieldCheck check(options.compat);
  check_messages_types(check, request.text->doc.root(), options);
  if (!options.compat) {
    recipe::read_extension(check, request.text->doc.root(), Path{}, request.extension);
  }
  HADAL_TRY_VOID(check.status());
  HADAL_TRY_VOID(MessagesReader(options, request).run());
  if (!options.compat) {
    HADAL_TRY_VOID(recipe::check_pictures(options, request.conversation));
  }
  return request;
}

}  // namespace hadal::anthropic
