#include "gateway/serving/tool_rounds.h"

#include <algorithm>

#include <fmt/format.h>

#include "gateway/recipe/server_tools.h"

namespace hadal::serving {

using recipe::ServerToolResult;

std::vector<ServerToolResult> ToolRounds::run(const recipe::ResponseStream::Round& round) {
  const recipe::ServerTools& limits = parts_.codec.server_tools;
  std::vector<ServerToolResult> results;
  for (const recipe::ResponseStream::ServerCall& call : round.calls) {
    if (n_uses_ < limits.max_uses) {
      ++n_uses_;
      results.push_back(parts_.provider->run(call.kind, call.arguments, limits));
      continue;
    }
    ServerToolResult& refused = results.emplace_back();
    refused.kind = call.kind;
    refused.error = "max_uses_exceeded";
    refused.error_text = fmt::format(
        "this tool may be used {} times in one answer; answer with "
        "what is known",
        limits.max_uses);
  }
  return results;
}

core::Result<std::optional<types::Request>> ToolRounds::next(
    const recipe::ResponseStream::Round& round, const std::vector<ServerToolResult>& results,
    uint32_t n_written) {
  // One round more than there are uses: the model may answer after the refusal.
  if (++n_rounds_ > parts_.codec.server_tools.max_uses + 1 || n_written >= parts_.max_tokens) {
    return std::optional<types::Request>();
  }
  recipe::Conversation& conversation = parts_.codec.conversation;
  recipe::RequestText& text = *parts_.codec.text;
  recipe::Message turn;
  turn.role = recipe::Role::kAssistant;
  turn.has_reasoning = conversation.thinking;
  turn.reasoning = text.keep(round.reasoning);
  if (!round.content.empty()) recipe::add_text(turn, text.keep(round.content));
  std::vector<recipe::Message> answers;
  for (size_t i = 0; i < round.calls.size(); ++i) {
    const std::string_view id = text.keep(fmt::format("server_{}_{}", n_rounds_, i));
    recipe::Call& call = turn.calls.emplace_back();
    call.id = id;
    call.name = text.keep(round.calls[i].name);
    call.arguments = text.keep(round.calls[i].arguments);
    recipe::Message& answer = answers.emplace_back();
    answer.role = recipe::Role::kTool;
    answer.tool_call_id = id;
    recipe::add_text(answer, text.keep(recipe::server_result_text(results[i])));
  }
  conversation.messages.push_back(std::move(turn));
  for (recipe::Message& answer : answers) conversation.messages.push_back(std::move(answer));
  // A call that was asked for is made; now the model is free.
  conversation.tool_choice = recipe::ToolChoice::kAuto;
  conversation.forced_tool = {};
  parts_.codec.parse.stage =
      conversation.thinking ? recipe::StartStage::kReasoning : recipe::StartStage::kAnswer;
  parts_.codec.sampling.max_tokens.reset();
  if (parts_.prepare) parts_.prepare(parts_.codec);
  HADAL_TRY(types::Request request,
            make_engine_request(parts_.codec, parts_.options, parts_.engine));
  request.max_tokens = std::min(request.max_tokens, parts_.max_tokens - n_written);
  return std::optional(std::move(request));
}

}  // namespace hadal::serving
