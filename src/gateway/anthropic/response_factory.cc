#include "gateway/anthropic/response_factory.h"

#include "gateway/anthropic/messages_response.h"
#include "gateway/openai/chat_response.h"
#include "gateway/openai/completions_response.h"
#include "gateway/openai/responses_response.h"

namespace hadal::anthropic {

std::unique_ptr<recipe::ResponseWriter> make_response_writer(const recipe::ParsePlan& parse,
                                                             const recipe::ResponsePlan& plan,
                                                             const recipe::Vocabulary& vocabulary,
                                                             recipe::ResponseIdentity identity) {
  switch (plan.api) {
    case recipe::Api::kChat:
      return openai::make_chat_writer(parse, plan, vocabulary, std::move(identity));
    case recipe::Api::kResponses:
      return openai::make_responses_writer(parse, plan, vocabulary, std::move(identity));
    case recipe::Api::kCompletions:
      return openai::make_completions_writer(parse, plan, vocabulary, std::move(identity));
    case recipe::Api::kMessages:
      break;
  }
  return make_messages_writer(parse, plan, vocabulary, std::move(identity));
}

std::unique_ptr<recipe::ResponseStream> make_response_stream(
    recipe::ParsePlan parse, recipe::ResponsePlan plan, recipe::Extension extension,
    const recipe::Vocabulary& vocabulary, recipe::ResponseIdentity identity,
    std::vector<types::TokenId> prompt_ids) {
  recipe::ResponseStream::Parts parts;
  parts.writer = make_response_writer(parse, plan, vocabulary, std::move(identity));
  parts.parse = std::move(parse);
  parts.response = std::move(plan);
  parts.extension = std::move(extension);
  parts.vocabulary = &vocabulary;
  parts.prompt_ids = std::move(prompt_ids);
  return std::make_unique<recipe::ResponseStream>(std::move(parts));
}

}  // namespace hadal::anthropic
