#include "gateway/anthropic/messages_request.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "gateway/anthropic/messages_turns.h"
#include "gateway/anthropic/messages_types.h"
#include "gateway/recipe/extension.h"
#include "gateway/recipe/picture_check.h"
#include "gateway/recipe/request_rules.h"
#include "gateway/recipe/server_tools.h"
#include "gateway/recipe/turn_order.h"

namespace hadal::anthropic {

using core::Status;
using recipe::CodecOptions;
using recipe::CodecRequest;
using recipe::Conversation;
using recipe::FieldCheck;
using recipe::invalid;
using recipe::JsonType;
using recipe::JsonValue;
using recipe::Message;
using recipe::Path;
using recipe::ToolDef;

namespace {

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
    TurnReader turns(options_, tools_by_name_, request_);
    turns.read_system();
    HADAL_TRY_VOID(turns.read_messages());
    HADAL_TRY_VOID(read_tool_choice());
    HADAL_TRY_VOID(recipe::settle_reasoning(options_, "content[].thinking",
                                            body_["tools"].size() > 0, request_));
    finish();
    return {};
  }

 private:
  Conversation& conversation() { return request_.conversation; }

  core::Error error(std::string text, std::string path) const {
    return messages_error(options_, std::move(text), std::move(path));
  }

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
    std::string where = "output_config.format";
    JsonValue format = body_["output_config"]["format"];
    if (format.absent_or_null()) {
      format = body_["output_format"];
      where = "output_format";
    }
    if (format.absent_or_null()) return {};
    format_.given = true;
    if (format["type"].str() == "regex") {
      format_.format = Conversation::Format::kRegex;
      format_.regex = format["regex"].str();
      format_.schema_path = where + ".regex";
    } else {
      format_.format = Conversation::Format::kJsonSchema;
      format_.schema = format["schema"];
      format_.schema_path = where + ".schema";
    }
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
      fields.some_dropped = !dropped_.empty();
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
  TurnReader::ToolsByName tools_by_name_;
  std::unordered_set<std::string_view> dropped_;  // server tools passed over
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
