#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/core/result.h"
#include "base/types/request.h"
#include "gateway/recipe/conversation.h"

namespace hadal::tokenizer {
class Tokenizer;
}

namespace hadal::recipe {

// A token of the template inside RenderedPrompt::text; everything between two of them is content.
struct SpecialSpan {
  uint32_t begin = 0, size = 0;
};

// The prompt as text, with the places of its control tokens: text from clients can spell one and
// stays text.
struct RenderedPrompt {
  std::string text;
  std::vector<SpecialSpan> specials;
  std::vector<uint32_t> images;  // indices into Conversation::images in prompt order
};

// Writes the prompt of a conversation. Never fails: what is wrong was refused when the request was
// read.
RenderedPrompt render(const Conversation& conversation, const CodecOptions& options);

// The prompt of a request: render() of its conversation, or the text of a completion. Not for
// requests that bring token ids (CodecRequest::raw_tokens).
RenderedPrompt render_request(const CodecRequest& request, const CodecOptions& options);

// Token ids of a rendered prompt; content is encoded without the added vocabulary. An image is one
// id here; the caller widens it. kInvalidRequest if the tokenizer lacks a template token.
core::Result<std::vector<types::TokenId>> tokenize(const RenderedPrompt& prompt,
                                                   const tokenizer::Tokenizer& tokenizer);

// max_tokens after defaults and the context limit; kContextTooLong if the prompt leaves no room.
core::Result<uint32_t> resolve_max_tokens(const CodecRequest& request, uint64_t n_prompt_tokens,
                                          const CodecOptions& options);

}  // namespace hadal::recipe
