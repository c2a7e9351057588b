#include "gateway/recipe/chat_turns.h"

#include "gateway/recipe/encode.h"

namespace hadal::recipe {

core::Result<std::vector<types::TokenId>> encode_turns(std::span<const ChatTurn> turns,
                                                       bool thinking, uint32_t effort,
                                                       const tokenizer::Tokenizer& tokenizer,
                                                       const CodecOptions& options) {
  Conversation conversation;
  conversation.thinking = thinking;
  conversation.effort = effort;
  conversation.effort_word = effort <= 60 ? "low" : effort <= 90 ? "high" : "max";
  for (const ChatTurn& turn : turns) {
    Message message;
    message.role = turn.role;
    message.content.push_back({turn.content});
    message.reasoning = turn.reasoning;
    message.has_reasoning = thinking && turn.role == Role::kAssistant;
    conversation.messages.push_back(std::move(message));
  }
  return tokenize(render(conversation, options), tokenizer);
}

ParsePlan turns_plan(bool thinking, const CodecOptions& options) {
  ParsePlan plan;
  plan.version = options.version;
  plan.thinking = thinking;
  plan.stage = thinking ? StartStage::kReasoning : StartStage::kAnswer;
  return plan;
}

}  // namespace hadal::recipe
