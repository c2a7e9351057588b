#include "gateway/openai/responses_items.h"

#include <algorithm>

#include <fmt/format.h>

#include "gateway/openai/responses_echo.h"
#include "gateway/recipe/custom_tools.h"
#include "gateway/recipe/file_text.h"
#include "gateway/recipe/request_rules.h"
#include "gateway/recipe/sealed_text.h"
#include "gateway/recipe/turn_order.h"

namespace hadal::openai {

using core::Status;
using recipe::Call;
using recipe::invalid;
using recipe::JsonValue;
using recipe::Message;
using recipe::Role;

std::string_view NamespaceNames::declare(std::string_view ns, std::string_view name) {
  const std::string_view joint = version_ == recipe::Version::kV41 ? "::" : "__";
  const std::string first = fmt::format("{}{}{}", ns, joint, name);
  std::string flat = first;
  for (int i = 1; taken_.contains(flat); ++i) flat = fmt::format("{}_{}", first, i);
  const std::string_view kept = text_.keep(std::move(flat));
  taken_.insert(kept);
  flat_.emplace(fmt::format("{}\n{}", ns, name), kept);
  return kept;
}

std::string_view NamespaceNames::of(std::string_view ns, std::string_view name) {
  const auto found = flat_.find(fmt::format("{}\n{}", ns, name));
  return found == flat_.end() ? declare(ns, name) : found->second;
}

std::string ItemReader::path(std::string_view rest) const {
  return fmt::format("{}[{}]{}", list_path_, index_, rest);
}

void ItemReader::note(std::string_view text) {
  if (!saw_json_) saw_json_ = recipe::mentions_json(text);
}

Message* ItemReader::last_assistant() {
  if (messages().empty() || messages().back().role != Role::kAssistant) return nullptr;
  return &messages().back();
}

void ItemReader::read_text(std::string_view text) {
  note(text);
  Message message;
  message.role = Role::kUser;
  message.path = "input";
  message.content.push_back({text});
  messages().push_back(std::move(message));
}

Status ItemReader::read(JsonValue items, std::string_view path) {
  list_path_ = path;
  index_ = 0;
  for (const JsonValue item : items) {
    HADAL_TRY_VOID(read_item(item));
    ++index_;
  }
  return {};
}

Status ItemReader::read_item(JsonValue item) {
  const std::string_view type = item["type"].is_string() ? item["type"].str() : "message";
  if (type == "message") return read_message(item);
  if (type == "reasoning") return read_reasoning(item);
  if (type == "function_call" || type == "custom_tool_call") return read_call(item, type);
  if (type == "function_call_output" || type == "custom_tool_call_output") {
    return read_output(item, type);
  }
  // V4 has no way to show tools later: a search and its result leave no trace.
  const bool searches = options_.version == recipe::Version::kV41;
  if (type == "tool_search_call" && searches) return read_call(item, type);
  if (type == "tool_search_output" && searches) return read_output(item, type);
  return {};  // kinds that mean nothing to the model
}

Status ItemReader::read_message(JsonValue item) {
  HADAL_TRY_VOID(close_group());
  const std::string_view role = item["role"].str();
  Message message;
  message.path = path();
  message.role = role == "assistant"                                          ? Role::kAssistant
                 : role == "system"                                           ? Role::kSystem
                 : role == "user" || options_.version == recipe::Version::kV4 ? Role::kUser
                                                                              : Role::kSystem;
  HADAL_TRY_VOID(read_content(item["content"], "content", message));
  if (message.role == Role::kAssistant) {
    Message* last = last_assistant();
    if (last != nullptr && last->calls.empty()) {
      if (recipe::is_empty_content(*last)) last->content.clear();
      if (recipe::is_empty_content(message)) return {};
      if (!last->content.empty()) last->content.push_back({"\n\n"});
      last->content.insert(last->content.end(), message.content.begin(), message.content.end());
      return {};
    }
  }
  messages().push_back(std::move(message));
  return {};
}

Status ItemReader::read_reasoning(JsonValue item) {
  HADAL_TRY_VOID(close_group());
  std::string text;
  for (const JsonValue part : item["content"]) {
    if (!text.empty()) text += '\n';
    text += part["text"].str();
  }
  // What was sealed wins over what stands beside it in clear: it is what this server gave out. Our
  // own store needs no seal, and its texts outlive a change of the key.
  const bool stored = list_path_ != "input" && !text.empty();
  const std::string_view sealed = item["encrypted_content"].str();
  if (!sealed.empty() && !stored && !options_.compat && !options_.reasoning_key.empty()) {
    auto opened = recipe::open_sealed(options_.reasoning_key, recipe::kReasoningPurpose, sealed);
    if (!opened) return invalid(std::move(opened).error().message, path(".encrypted_content"));
    text = std::move(opened).value();
  } else if (recipe::is_sealed(sealed) && !options_.compat && text.empty()) {
    return invalid(
        "this server has no key to open it with; send the reasoning's text, or leave it out",
        path(".encrypted_content"));
  }
  if (text.empty()) return {};
  Message* last = last_assistant();
  if (last != nullptr && recipe::is_empty_content(*last) && last->calls.empty()) {
    if (!last->reasoning.empty()) text = fmt::format("{}\n{}", last->reasoning, text);
    last->reasoning = request_.text->keep(std::move(text));
    last->has_reasoning = true;
    return {};
  }
  Message message;
  message.role = Role::kAssistant;
  message.path = path();
  message.has_reasoning = true;
  message.reasoning = request_.text->keep(std::move(text));
  messages().push_back(std::move(message));
  return {};
}

Status ItemReader::read_call(JsonValue item, std::string_view type) {
  Call call;
  call.id = item["call_id"].str();
  if (type == "function_call") {
    call.name = item["name"].str();
    if (item["namespace"].is_string()) call.name = names_.of(item["namespace"].str(), call.name);
    call.arguments = item["arguments"].str();
  } else if (type == "custom_tool_call") {
    call.name = item["name"].str();
    call.arguments = recipe::custom_arguments(item["input"].str(), *request_.text);
  } else {
    call.name = "tool_search";
    call.arguments_value = item["arguments"];
  }
  if (!answered_.emplace(call.id, false).second) {
    return invalid(fmt::format("Duplicate 'call_id': {}.", call.id), path(".call_id"));
  }
  calls_.push_back(call);
  call_paths_.push_back(path());
  return {};
}

Status ItemReader::read_output(JsonValue item, std::string_view type) {
  Output output;
  output.path = path();
  Message& message = output.message;
  message.role = Role::kTool;
  message.path = path();
  message.tool_call_id = item["call_id"].str();
  const auto call = answered_.find(message.tool_call_id);
  if (call == answered_.end()) {
    return invalid(
        fmt::format("No tool call found for tool output with call_id {}.", message.tool_call_id),
        path(".call_id"));
  }
  if (call->second) {
    return invalid(fmt::format("Duplicate tool output for call_id: {}.", message.tool_call_id),
                   path(".call_id"));
  }
  call->second = true;
  if (type == "tool_search_output") {
    output.tools = item["tools"];
    message.content.push_back({request_.text->keep(found_tools_json(item["tools"]))});
  } else {
    HADAL_TRY_VOID(read_content(item["output"], "output", message));
  }
  outputs_.push_back(std::move(output));
  if (outputs_.size() == calls_.size()) flush_group();
  return {};
}

Status ItemReader::close_group() {
  if (calls_.empty()) return {};
  size_t missing = calls_.size();
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (answered_[calls_[i].id]) continue;
    // 0.2.0 names the first in the order of ids.
    if (missing == calls_.size() || (options_.compat && calls_[i].id < calls_[missing].id)) {
      missing = i;
    }
  }
  return invalid(fmt::format("No tool output found for tool call {}.", calls_[missing].id),
                 call_paths_[missing]);
}

void ItemReader::flush_group() {
  if (options_.compat) {
    std::ranges::sort(calls_, {}, &Call::id);
    std::ranges::sort(outputs_, {},
                      [](const Output& output) { return output.message.tool_call_id; });
  }
  Message* host = last_assistant();
  if (host == nullptr || !host->calls.empty()) {
    Message message;
    message.role = Role::kAssistant;
    message.path = call_paths_.front();
    messages().push_back(std::move(message));
    host = &messages().back();
  }
  host->calls = std::exchange(calls_, {});
  call_paths_.clear();
  std::vector<FoundTools> found;
  for (Output& output : outputs_) {
    if (output.tools) found.push_back({output.tools, output.path + ".tools", 0});
    messages().push_back(std::move(output.message));
  }
  outputs_.clear();
  if (found.empty()) return;
  Message update;
  update.role = Role::kSystem;
  messages().push_back(std::move(update));
  for (FoundTools& tools : found) {
    tools.message = messages().size() - 1;
    found_.push_back(std::move(tools));
  }
}

Status ItemReader::read_content(JsonValue content, std::string_view key, Message& message) {
  if (content.is_string()) {
    note(content.str());
    message.content.push_back({content.str()});
    return {};
  }
  size_t i = 0;
  for (const JsonValue part : content) {
    const std::string_view type = part["type"].str();
    const std::string part_path = path(fmt::format(".{}[{}]", key, i++));
    if (type == "input_image") {
      HADAL_TRY_VOID(read_image(part, part_path, message));
    } else if (type == "input_file") {
      HADAL_TRY_VOID(read_file(part, part_path, message));
    } else {
      const std::string_view text = part[type == "refusal" ? "refusal" : "text"].str();
      note(text);
      recipe::add_text(message, text);
    }
  }
  return {};
}

Status ItemReader::read_file(JsonValue part, const std::string& part_path, Message& message) {
  if (!options_.compat && part["file_data"].is_string()) {
    HADAL_TRY(const std::string_view text,
              recipe::file_text(part["file_data"].str(), part["filename"].str(),
                                part_path + ".file_data", *request_.text));
    note(text);
    recipe::add_text(message, text);
    return {};
  }
  recipe::add_text(message, "[Unsupported Document]");
  return {};
}

Status ItemReader::read_image(JsonValue part, const std::string& part_path, Message& message) {
  const JsonValue url = part["image_url"];
  const bool has_file = part["file_id"].is_string();
  if (url.is_string() == has_file) {
    return invalid(fmt::format("{}: input_image {}", part_path,
                               has_file ? "cannot have both image_url and file_id"
                                        : "must have image_url or file_id"),
                   part_path);
  }
  if (has_file) {
    return invalid(
        part_path + ": file_id is not supported. Pass the image as a base64 data url instead.",
        part_path + ".file_id");
  }
  if (message.role == Role::kAssistant) {
    return invalid(path() + ": Image in assistant message is unsupported", part_path);
  }
  switch (recipe::check_image_url(url.str())) {
    case recipe::UrlProblem::kNone:
      break;
    case recipe::UrlProblem::kFormat:
      return invalid(path() + ": Unsupported image_url format", part_path + ".image_url");
    case recipe::UrlProblem::kNotImage:
      return invalid(fmt::format("{}: {}", path(), recipe::kUnsupportedImageText),
                     part_path + ".image_url");
    case recipe::UrlProblem::kTooLong:
      return invalid(fmt::format("{}: image_url external link length {} too long, max link length "
                                 "{}. Consider passing file data directly with base64 data url "
                                 "instead.",
                                 part_path, url.str().size(), recipe::kMaxUrlBytes),
                     part_path + ".image_url");
  }
  recipe::ImageRef image;
  image.source = url.str();
  image.detail = recipe::image_detail(part["detail"].str());
  image.path = path();
  image.field = part_path + ".image_url";
  recipe::add_image(message, request_.conversation, std::move(image), options_.version);
  return {};
}

}  // namespace hadal::openai
