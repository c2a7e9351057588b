#include "gateway/serving/dialects.h"

#include "gateway/openai/chat_request.h"
#include "gateway/openai/chat_response.h"

namespace hadal::serving {

const std::vector<Dialect>& dialects() {
  static const std::vector<Dialect> all = {
      {recipe::Api::kChat,
       "chatcmpl-",
       {"/v1/chat/completions", "/chat/completions"},
       openai::parse_chat_request,
       openai::make_chat_writer},
  };
  return all;
}

}  // namespace hadal::serving
