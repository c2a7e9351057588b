#include "gateway/openai/responses_request.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "gateway/openai/request_fields.h"
#include "gateway/openai/responses_echo.h"
#include "gateway/openai/responses_items.h"
#include "gateway/openai/responses_types.h"
#include "gateway/recipe/custom_tools.h"
#include "gateway/recipe/extension.h"
#include "gateway/recipe/picture_check.h"
#include "gateway/recipe/request_rules.h"
#include "gateway/recipe/server_tools.h"
#include "gateway/recipe/turn_order.h"

namespace hadal::openai {

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
using recipe::ToolInput;

namespace {

// Tools that agents declare for a service that has them and can do without.
bool may_be_left_out(std::string_view type) {
  return type == "tool_search" || type == "image_generation";
}

bool is_web_search(std::string_view type) {
  return type == "web_search" || type == "web_search_2025_08_26" ||
         type.starts_with("web_search_preview");
}

class ResponsesReader {
 public:
  ResponsesReader(const CodecOptions& options, CodecRequest& request)
      : options_(options),
        request_(request),
        body_(request.text->doc.root()),
        names_(*request.text, options.version),
        items_(options, request, names_) {}

  Status run(std::span<const JsonValue> history) {
    const std::string_view model = body_["model"].str();
    HADAL_TRY_VOID(recipe::check_model(model, recipe::Api::kResponses, options_));
    request_.response.model = model;
    HADAL_TRY_VOID(check_input(history));
    // Plain names first: no namespaced tool may take one.
    for (const JsonValue tool : body_["tools"]) {
      if (tool["type"].str() == "function") names_.take(tool["name"].str());
    }
    HADAL_TRY_VOID(collect_tools(body_["tools"], "tools", false, declared_));
    format_.given = body_["text"]["format"].is_object();
    recipe::ThinkingFields thinking;
    thinking.effort = body_["reasoning"]["effort"];
    recipe::resolve_thinking(thinking, options_, conversation());
    HADAL_TRY_VOID(read_input(history));
    HADAL_TRY_VOID(
        recipe::settle_reasoning(options_, "reasoning_text", !declared_.empty(), request_));
    HADAL_TRY_VOID(add_tools());
    if (body_["text"]["format"]["type"].str() == "json_object" && !saw_json()) {
      return invalid(
          "Response input messages must contain the word 'json' in some form to use "
          "'text.format' of type 'json_object'.",
          "text.format");
    }
    HADAL_TRY_VOID(read_format());
    HADAL_TRY_VOID(recipe::check_strict_mix(tool_rules(), options_, request_));
    HADAL_TRY_VOID(read_sampling());
    HADAL_TRY_VOID(read_tool_choice());
    hide_updates();
    finish();
    return {};
  }

 private:
  Conversation& conversation() { return request_.conversation; }
  bool v41() const { return options_.version == recipe::Version::kV41; }
  bool saw_json() const {
    return items_.saw_json() || recipe::mentions_json(body_["instructions"].str());
  }

  Status check_input(std::span<const JsonValue> history) const {
    const JsonValue input = body_["input"];
    if (input.is_array() && input.size() == 0 && history.empty()) {
      return invalid("Input items array must not be empty", "input");
    }
    if (input.absent_or_null() && body_["instructions"].str().empty() && history.empty()) {
      return invalid("Either input or instructions must be provided", "input");
    }
    return {};
  }

  Status read_sampling() {
    const auto number = [&](std::string_view key) -> std::optional<double> {
      if (!body_[key].is_number()) return std::nullopt;
      return body_[key].number();
    };
    const auto integer = [&](std::string_view key) -> std::optional<uint64_t> {
      if (!body_[key].is(JsonType::kUnsigned)) return std::nullopt;
      return body_[key].node()->u;
    };
    sampling_.temperature = number("temperature");
    sampling_.top_p = number("top_p");
    sampling_.max_tokens = integer("max_output_tokens");
    sampling_.max_tokens_name = "max_output_tokens";
    sampling_.top_logprobs = integer("top_logprobs");
    request_.sampling.logprobs = sampling_.top_logprobs.has_value();
    request_.response.stream = body_["stream"].is_true();
    return recipe::check_sampling(sampling_, options_);
  }

  Status read_format() {
    const JsonValue format = body_["text"]["format"];
    if (!format.is_object()) return {};
    format_.given = true;
    const std::string_view type = format["type"].str();
    format_.schema_path = "text.format.schema";
    if (type == "json_object") {
      format_.format = Conversation::Format::kJsonObject;
    } else if (type == "json_schema") {
      format_.format = Conversation::Format::kJsonSchema;
      format_.schema = format["schema"];
      format_.strict = format["strict"].is_true();
    } else if (type == "regex") {
      format_.format = Conversation::Format::kRegex;
      format_.regex = format["regex"].str();
      format_.schema_path = "text.format.regex";
    }
    return recipe::apply_format(format_, options_, request_);
  }

  // ---- tools ----

  Status collect_tools(JsonValue tools, std::string_view path, bool deferred,
                       std::vector<ToolInput>& out) {
    size_t i = 0;
    for (const JsonValue tool : tools) {
      const std::string where = fmt::format("{}[{}]", path, i++);
      const std::string_view type = tool["type"].str();
      const size_t before = out.size();
      if (type == "function") {
        out.push_back(function_tool(tool, where));
      } else if (type == "namespace") {
        HADAL_TRY_VOID(collect_namespace(tool, where, out));
      } else if (type == "custom") {
        HADAL_TRY_VOID(collect_custom(tool, where, out));
      } else if (type == "tool_search" && tool["execution"].str() == "client" && v41()) {
        ToolInput input = function_tool(tool, where);
        input.kind = recipe::ToolKind::kToolSearch;
        input.name = input.local_name = "tool_search";
        input.strict.reset();
        out.push_back(std::move(input));
      } else if (is_web_search(type) && options_.web_search && !options_.compat) {
        request_.server_tools.search = true;
        out.emplace_back().path = where;
        HADAL_TRY_VOID(recipe::read_server_limits(tool, where, request_.server_tools));
        recipe::make_server_tool(recipe::ToolKind::kWebSearch, out.back());
      } else if (is_web_search(type)) {
        if (!options_.responses_web_search_dropped) {
          return invalid("Server tools are not supported", where + ".type");
        }
      } else if (!options_.compat && !may_be_left_out(type)) {
        return invalid(
            fmt::format("`{}.type` is \"{}\"; it must be one of function, custom, namespace, "
                        "tool_search, web_search",
                        where, type.substr(0, 100)),
            where + ".type");
      }
      for (size_t k = before; k < out.size(); ++k) out[k].deferred = deferred;
    }
    return {};
  }

  static ToolInput function_tool(JsonValue tool, const std::string& path) {
    ToolInput input;
    input.path = path;
    input.name = input.local_name = tool["name"].str();
    input.description = tool["description"].str();
    input.has_description = tool["description"].is_string();
    input.parameters = tool["parameters"];
    if (tool["strict"].is_bool()) input.strict = tool["strict"].is_true();
    input.raw = tool;
    return input;
  }

  Status collect_namespace(JsonValue tool, const std::string& path, std::vector<ToolInput>& out) {
    ToolInput ns;
    ns.path = path;
    ns.local_name = tool["name"].str();
    HADAL_TRY_VOID(recipe::check_tool_name(ns));
    const bool described = !tool["description"].str().empty() && v41();
    std::unordered_set<std::string_view> inner_names;
    size_t i = 0;
    for (const JsonValue inner : tool["tools"]) {
      const std::string where = fmt::format("{}.tools[{}]", path, i++);
      if (inner["type"].str() == "custom") {
        return invalid(fmt::format("Currently custom tools are not allowed inside a namespace. "
                                   "Found custom tool '{}' in {}.",
                                   inner["name"].str(), where),
                       where);
      }
      ToolInput input = function_tool(inner, where);
      if (!inner_names.insert(input.local_name).second) {
        return invalid("Tool names within a namespace must be unique.", where + ".name");
      }
      input.ns = ns.local_name;
      input.name = names_.declare(input.ns, input.local_name);
      if (described) {
        input.description = request_.text->keep(
            fmt::format("{}\n{}", tool["description"].str(), input.description));
        input.has_description = true;
      }
      out.push_back(std::move(input));
    }
    return {};
  }

  Status collect_custom(JsonValue tool, const std::string& path, std::vector<ToolInput>& out) {
    ToolInput input;
    input.path = path;
    input.name = input.local_name = tool["name"].str();
    const bool apply_patch = input.name == "apply_patch";
    if (!apply_patch && options_.compat) {
      return invalid(fmt::format("Unsupported custom tool: '{}'. Only 'apply_patch' is supported.",
                                 input.name),
                     path);
    }
    input.has_description = apply_patch || tool["description"].is_string();
    input.description = apply_patch
                            ? recipe::apply_patch_description(options_.version, *request_.text)
                            : tool["description"].str();
    const JsonValue format = tool["format"];
    recipe::make_custom_tool(format["syntax"].str(), format["definition"].str(), *request_.text,
                             input);
    out.push_back(std::move(input));
    return {};
  }

  recipe::ToolRules tool_rules() const {
    return {.has_format = format_.given, .is_hidden = body_["tool_choice"].str() == "none"};
  }

  // All tools, declared and found, obey one set of rules; found ones are shown where they were
  // found.
  Status add_tools() {
    std::vector<ToolInput> all = declared_;
    std::vector<std::pair<size_t, size_t>> shown_by;  // tool, message
    for (const ItemReader::FoundTools& found : items_.found()) {
      const size_t before = all.size();
      HADAL_TRY_VOID(collect_tools(found.tools, found.path, true, all));
      for (size_t i = before; i < all.size(); ++i) shown_by.emplace_back(i, found.message);
    }
    HADAL_TRY_VOID(recipe::add_tools(all, tool_rules(), options_, request_));
    for (const auto& [tool, message] : shown_by) {
      conversation().messages[message].tools.push_back(conversation().tools[tool]);
    }
    return {};
  }

  Status read_tool_choice() {
    const JsonValue choice = body_["tool_choice"];
    recipe::ToolChoiceFields fields;
    if (choice.is_string()) {
      fields.choice = choice_of(choice.str());
    } else if (choice["type"].str() == "allowed_tools") {
      fields.choice = choice_of(choice["mode"].str());
      fields.has_allowed = true;
      for (const JsonValue tool : choice["tools"]) {
        if (!is_web_search(tool["type"].str())) fields.allowed.push_back(tool["name"].str());
      }
    } else if (is_web_search(choice["type"].str()) && !options_.responses_web_search_dropped) {
      return invalid("Server tools are not supported", "tool_choice");
    } else if (choice["name"].is_string() && !is_web_search(choice["type"].str())) {
      fields.choice = recipe::ToolChoice::kRequired;
      fields.name = choice["name"].str();
      fields.has_name = true;
    }
    return recipe::apply_tool_choice(fields, options_, request_);
  }

  // Search results show what may be called, and nothing if that is nothing.
  void hide_updates() {
    std::unordered_set<const ToolDef*> callable;
    if (conversation().has_visible_tools()) {
      callable.insert(conversation().tools.begin(), conversation().tools.end());
    }
    std::erase_if(conversation().messages, [&](Message& message) {
      if (message.role != recipe::Role::kSystem || !message.content.empty()) return false;
      std::erase_if(message.tools, [&](const ToolDef* tool) { return !callable.contains(tool); });
      return message.tools.empty();
    });
  }

  // ---- input ----

  Status read_input(std::span<const JsonValue> history) {
    if (const std::string_view text = body_["instructions"].str(); !text.empty()) {
      Message message;
      message.role = recipe::Role::kSystem;
      message.path = "instructions";
      message.content.push_back({text});
      conversation().messages.push_back(std::move(message));
    }
    for (const JsonValue items : history) HADAL_TRY_VOID(items_.read(items, "previous_response"));
    const JsonValue input = body_["input"];
    if (input.is_string()) {
      HADAL_TRY_VOID(items_.finish());
      items_.read_text(input.str());
    } else {
      HADAL_TRY_VOID(items_.read(input, "input"));
    }
    return items_.finish();
  }

  void finish() {
    recipe::finish_request(sampling_, format_, options_, request_);
    for (const ToolDef& tool : conversation().tool_store) {
      if (tool.ns.data() == nullptr) continue;
      request_.parse.namespaces.push_back(
          {std::string(tool.name), std::string(tool.ns), std::string(tool.local_name)});
    }
    recipe::ResponsePlan& response = request_.response;
    response.echo = std::make_shared<const recipe::ResponsesEcho>(responses_echo(body_, options_));
    if (options_.compat) return;
    if (body_["parallel_tool_calls"].is(JsonType::kFalse)) request_.parse.max_calls = 1;
    for (const JsonValue include : body_["include"]) {
      if (include.str() == "reasoning.encrypted_content") response.encrypted_reasoning = true;
      if (include.str() == "message.output_text.logprobs") {
        request_.sampling.logprobs = response.logprobs = true;
      }
    }
    response.store = !body_["store"].is(JsonType::kFalse);
    response.background = body_["background"].is_true();
    response.previous_response_id = body_["previous_response_id"].str();
    const JsonValue conversation = body_["conversation"];
    response.conversation =
        conversation.is_object() ? conversation["id"].str() : conversation.str();
  }

  const CodecOptions& options_;
  CodecRequest& request_;
  const JsonValue body_;
  recipe::SamplingFields sampling_;
  recipe::FormatFields format_;
  NamespaceNames names_;
  ItemReader items_;
  std::vector<ToolInput> declared_;
};

}  // namespace

core::Result<CodecRequest> parse_responses_request(std::string body, const CodecOptions& options,
                                                   std::span<const std::string> history) {
  CodecRequest request;
  request.response.api = recipe::Api::kResponses;
  request.text = std::make_shared<recipe::RequestText>();
  request.text->body = std::move(body);
  HADAL_TRY_VOID(request.text->doc.parse(request.text->body));
  FieldCheck check(options.compat);
  check_responses_types(check, request.text->doc.root(), options);
  if (!options.compat) {
    recipe::read_extension(check, request.text->doc.root(), Path{}, request.extension);
  }
  std::vector<JsonValue> lists;
  for (const std::string& text : history) {
    HADAL_TRY(const JsonValue items, request.text->parse(request.text->keep(text)));
    check_item_types(check, items, Path{nullptr, "previous_response"}, options);
    lists.push_back(items);
  }
  HADAL_TRY_VOID(check.status());
  HADAL_TRY_VOID(ResponsesReader(options, request).run(lists));
  if (!options.compat) {
    HADAL_TRY_VOID(recipe::check_pictures(options, request.conversation));
  }
  return request;
}

}  // namespace hadal::openai
