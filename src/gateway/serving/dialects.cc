#include "gateway/serving/dialects.h"

#include "gateway/anthropic/messages_request.h"
#include "gateway/openai/chat_request.h"
#include "gateway/openai/completions_request.h"
#include "gateway/openai/responses_request.h"

namespace hadal::serving {

const std::vector<Dialect>& dialects() {
  using recipe::Api;
  static const std::vector<Dialect> all = {
      {Api::kChat,
       "chatcmpl-",
       {"/v1/chat/completions", "/chat/completions"},
       openai::parse_chat_request},
      {Api::kMessages,
       "msg_",
       {"/v1/messages", "/anthropic/v1/messages"},
       anthropic::parse_messages_request},
      {Api::kResponses,
       "resp_",
       {"/v1/responses", "/responses"},
       [](std::string body, const recipe::CodecOptions& options) {
         return openai::parse_responses_request(std::move(body), options);
       }},
      {Api::kCompletions,
       "cmpl-",
       {"/v1/completions", "/completions", "/beta/completions"},
       openai::parse_completions_request},
  };
  return all;
}

}  // namespace hadal::serving
