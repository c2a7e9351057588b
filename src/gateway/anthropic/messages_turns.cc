#include "gateway/anthropic/messages_turns.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gateway/recipe/request_rules.h"
#include "gateway/recipe/turn_order.h"

namespace hadal::anthropic {

using core::Status;
using recipe::CodecOptions;
using recipe::invalid;
using recipe::JsonValue;
using recipe::Message;
using recipe::Role;

core::Error messages_error(const CodecOptions& options, std::string text, std::string path) {
  if (!options.compat) {
    const size_t colon = text.find(": ");
    const std::string_view head = std::string_view(text).substr(0, colon);
    const bool is_path = colon != std::string::npos &&
                         (head.starts_with("messages") || head.starts_with("tools")) &&
                         head.find(' ') == std::string_view::npos;
    if (is_path) text.erase(0, colon + 2);
  }
  return invalid(std::move(text), std::move(path));
}

std::string TurnReader::path(std::string_view rest) const {
  return fmt::format("messages[{}]{}", index_, rest);
}
std::string TurnReader::block_path(size_t block) const {
  return path(fmt::format(".content[{}]", block));
}

void TurnReader::read_system() {
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

Status TurnReader::read_messages() {
  index_ = 0;
  for (const JsonValue value : body_["messages"]) {
    const std::string_view role = value["role"].str();
    const JsonValue content = value["content"];
    if (content.is_array() && content.size() == 0) {
      return messages_error(
          options_, fmt::format("messages.{}: all messages must have non-empty content", index_),
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

Status TurnReader::close_calls(Closing why) {
  std::string ids;
  if (options_.compat) std::ranges::sort(open_calls_);  // 0.2.0 names them in this order
  for (const std::string_view id : open_calls_) {
    if (waiting_.contains(id)) ids += fmt::format("{}{}", ids.empty() ? "" : ", ", id);
  }
  open_calls_.clear();
  if (ids.empty()) return {};
  return missing_results(why == Closing::kOtherMessage ? fmt::format("messages.{}: ", index_)
                                                       : fmt::format("messages.{}:", calls_index_),
                         ids);
}

core::Error TurnReader::missing_results(std::string_view prefix, std::string_view ids) const {
  return invalid(
      fmt::format("{}`tool_use` ids were found without `tool_result` blocks immediately after: "
                  "{}. Each `tool_use` block must have a corresponding `tool_result` block in "
                  "the next message.",
                  options_.compat ? prefix : std::string_view(), ids),
      fmt::format("messages[{}]", calls_index_));
}

// True if the block is of the server's own search and is dropped.
Status TurnReader::check_server_block(std::string_view type, size_t block, bool& dropped) const {
  dropped = type == "server_tool_use" || type == "web_search_tool_result" ||
            type == "web_fetch_tool_result";
  const bool own = !options_.compat && (options_.web_search || options_.web_fetch);
  if (!dropped || own || options_.messages_web_search_dropped) return {};
  return messages_error(options_, "Unsupported content block: server tools are not supported",
                        block_path(block));
}

Status TurnReader::read_assistant(JsonValue content) {
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
      return messages_error(options_, "Image in assistant message is unsupported", block_path(i));
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

core::Error TurnReader::late_text(size_t block) const {
  std::string ids;
  for (const std::string_view id : open_calls_) {
    ids += fmt::format("{}{}", ids.empty() ? "" : ", ", id);
  }
  return missing_results(fmt::format("messages.{}.{}: ", index_, block), ids);
}

Status TurnReader::read_system_entry(JsonValue content) {
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
          return messages_error(
              options_,
              fmt::format("messages.{}.content.{}: `tool_addition` references unknown "
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

Status TurnReader::read_user(JsonValue content) {
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

// The tools that results named are shown after the message of the results.
void TurnReader::flush_references() {
  if (references_.empty()) return;
  Message message;
  message.role = Role::kSystem;
  message.tools = std::exchange(references_, {});
  add_message(std::move(message));
}

}  // namespace hadal::anthropic
