#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"

namespace hadal::anthropic {

// A refusal. The path stands in front of the texts of 0.2.0; ours puts it there when the body is
// written.
core::Error messages_error(const recipe::CodecOptions& options, std::string text, std::string path);

// Turns `system` and `messages` of a Messages body into the messages of a conversation.
class TurnReader {
 public:
  using ToolsByName = std::unordered_map<std::string_view, const recipe::ToolDef*>;

  // `tools`: what tool_addition and tool_reference blocks may name. All outlive the reader.
  TurnReader(const recipe::CodecOptions& options, const ToolsByName& tools,
             recipe::CodecRequest& request)
      : options_(options),
        tools_by_name_(tools),
        request_(request),
        body_(request.text->doc.root()) {}

  void read_system();
  core::Status read_messages();

 private:
  // Why every call of the last assistant turn must have its result by now.
  enum class Closing : uint8_t {
    kOtherMessage,  // something that is no result came
    kSomeCame,      // a message with results ended
    kEnd,           // the conversation ended
  };

  // Turns (messages_turns.cc).
  core::Status read_assistant(recipe::JsonValue content);
  core::Status read_system_entry(recipe::JsonValue content);
  core::Status read_user(recipe::JsonValue content);
  core::Status close_calls(Closing why);
  core::Error missing_results(std::string_view prefix, std::string_view ids) const;
  core::Error late_text(size_t block) const;
  core::Status check_server_block(std::string_view type, size_t block, bool& dropped) const;
  void flush_references();
  void add_message(recipe::Message message) {
    conversation().messages.push_back(std::move(message));
  }

  // Blocks (messages_blocks.cc).
  core::Status read_plain_block(recipe::JsonValue block, std::string_view type, size_t i,
                                recipe::Message& message);
  core::Status read_call(recipe::JsonValue block, size_t i, recipe::Message& message);
  core::Result<recipe::Message> read_result(recipe::JsonValue block, size_t i);
  core::Status read_image(recipe::JsonValue source, std::string name, size_t block,
                          recipe::Message& message);
  core::Result<std::string_view> thinking_text(recipe::JsonValue block, size_t i);
  std::string_view document_text(recipe::JsonValue block, std::string_view type);
  core::Error only_in(std::string_view type, std::string_view role) const;

  recipe::Conversation& conversation() { return request_.conversation; }
  std::string path(std::string_view rest = {}) const;
  std::string block_path(size_t block) const;

  const recipe::CodecOptions& options_;
  const ToolsByName& tools_by_name_;
  recipe::CodecRequest& request_;
  const recipe::JsonValue body_;
  size_t index_ = 0;  // of the message being read
  size_t calls_index_ = 0;
  std::vector<std::string_view> open_calls_;      // of the last assistant turn, in order
  std::unordered_set<std::string_view> waiting_;  // those without a result
  std::vector<const recipe::ToolDef*> references_;
};

}  // namespace hadal::anthropic
