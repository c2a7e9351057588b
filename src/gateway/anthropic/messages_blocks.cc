#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gateway/anthropic/messages_turns.h"
#include "gateway/recipe/file_text.h"
#include "gateway/recipe/request_rules.h"
#include "gateway/recipe/sealed_text.h"
#include "gateway/recipe/text_scan.h"
#include "gateway/recipe/turn_order.h"

// The blocks of a message: what stands in the prompt for each, and where each may stand.
namespace hadal::anthropic {

using core::Status;
using recipe::Call;
using recipe::invalid;
using recipe::JsonValue;
using recipe::Message;
using recipe::Role;

namespace {

constexpr size_t kMaxImageBytes = 32u << 20;

}  // namespace

// The text of a thinking block, or what its signature seals when we left the text out.
core::Result<std::string_view> TurnReader::thinking_text(JsonValue block, size_t i) {
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

Status TurnReader::read_plain_block(JsonValue block, std::string_view type, size_t i,
                                    Message& message) {
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
    return messages_error(
        options_,
        fmt::format("messages.{}.content: thinking blocks may only be in `assistant` "
                    "messages",
                    index_),
        block_path(i));
  }
  if (type == "redacted_thinking") return {};
  return only_in(type, type == "tool_use"      ? "assistant"
                       : type == "tool_result" ? "user"
                                               : "system");
}

core::Result<Message> TurnReader::read_result(JsonValue block, size_t i) {
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
    return messages_error(
        options_,
        fmt::format("messages.{}.content.{}: each tool_use must have a single result. "
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
        return messages_error(
            options_,
            fmt::format("messages.{}.content.{}: tool reference '{}' not found in "
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

Status TurnReader::read_image(JsonValue source, std::string name, size_t block, Message& message) {
  const std::string where = block_path(block) + ".source";
  const std::string_view type = source["type"].str();
  recipe::ImageRef image;
  image.path = name;
  image.field = where + (type == "base64" ? ".data" : ".url");
  if (type == "file") {
    return messages_error(
        options_, name + ": file_id is not supported. Pass the image as a base64 data url instead.",
        where + ".file_id");
  }
  if (type == "base64") {
    image.kind = recipe::ImageRef::Kind::kBase64;
    image.source = source["data"].str();
    std::string bytes;
    if (!recipe::decode_base64(image.source, kMaxImageBytes, bytes)) {
      return messages_error(options_, name + ": base64 decode error", where + ".data");
    }
  } else {
    image.source = source["url"].str();
    if (image.source.size() > recipe::kMaxUrlBytes) {
      return messages_error(
          options_,
          fmt::format("{}: external link length {} too long, max link length {}. "
                      "Consider passing file data directly with base64 data url instead.",
                      name, image.source.size(), recipe::kMaxUrlBytes),
          where + ".url");
    }
    if (recipe::check_image_url(image.source) != recipe::UrlProblem::kNone ||
        (image.source[0] | 0x20) != 'h') {
      return messages_error(options_, fmt::format("{}: invalid url: \"{}\"", name, image.source),
                            where + ".url");
    }
  }
  recipe::add_image(message, conversation(), std::move(image), options_.version);
  return {};
}

// What the prompt shows of a document. Ours reads text; other media stay a placeholder.
std::string_view TurnReader::document_text(JsonValue block, std::string_view type) {
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

Status TurnReader::read_call(JsonValue block, size_t i, Message& message) {
  Call call;
  call.id = block["id"].str();
  call.name = block["name"].str();
  call.arguments_value = block["input"];
  if (!waiting_.insert(call.id).second) {
    return messages_error(
        options_, fmt::format("messages.{}.content.{}: `tool_use` ids must be unique", index_, i),
        block_path(i) + ".id");
  }
  calls_index_ = index_;
  open_calls_.push_back(call.id);
  message.calls.push_back(call);
  return {};
}

core::Error TurnReader::only_in(std::string_view type, std::string_view role) const {
  return messages_error(
      options_,
      fmt::format("messages.{}: `{}` blocks can only be in `{}` messages", index_, type, role),
      path(".content"));
}

}  // namespace hadal::anthropic
