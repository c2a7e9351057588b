#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/core/check.h"
#include "gateway/anthropic/messages_request.h"
#include "gateway/openai/chat_request.h"
#include "gateway/openai/completions_request.h"
#include "gateway/openai/responses_request.h"
#include "gateway/recipe/conversation_json.h"
#include "gateway/recipe/encode.h"
#include "gateway/recipe/error_body.h"

// Any bytes as the body of any dialect: an error with a status of the client's kind, or a prompt
// whose control tokens all come from the template. The first byte chooses dialect and mode.
namespace {

using hadal::recipe::CodecOptions;
using hadal::recipe::CodecRequest;

hadal::core::Result<CodecRequest> parse(uint8_t choice, std::string body,
                                        const CodecOptions& options) {
  switch (choice % 5) {
    case 0:
      return hadal::openai::parse_chat_request(std::move(body), options);
    case 1:
      return hadal::anthropic::parse_messages_request(std::move(body), options);
    case 2:
      return hadal::openai::parse_responses_request(std::move(body), options);
    case 3:
      return hadal::openai::parse_completions_request(std::move(body), options);
    default:
      return hadal::recipe::parse_conversation(std::move(body), options);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t choice = data[0];
  CodecOptions options;
  options.compat = (choice & 0x80) != 0;
  options.version = (choice & 0x40) != 0 ? hadal::recipe::Version::kV4 : options.version;
  options.profile = (choice & 0x20) != 0 ? hadal::recipe::Profile::kReference : options.profile;
  const auto request =
      parse(choice & 0x1F, {reinterpret_cast<const char*>(data + 1), size - 1}, options);
  if (!request) {
    const int status = hadal::recipe::http_status(request.error().code);
    HADAL_CHECK(status == 400 || status == 404 || status == 413, request.error().message);
    HADAL_CHECK(
        !hadal::recipe::error_body(request.error(), hadal::recipe::Api::kChat, options.compat)
             .empty(),
        "an error has a body");
    return 0;
  }
  const hadal::recipe::RenderedPrompt prompt = hadal::recipe::render_request(*request, options);
  uint32_t end = 0;
  for (const hadal::recipe::SpecialSpan& span : prompt.specials) {
    HADAL_CHECK(span.begin >= end && span.begin + span.size <= prompt.text.size(),
                "control tokens follow one another");
    end = span.begin + span.size;
  }
  return 0;
}
