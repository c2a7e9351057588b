#pragma once

#include <string_view>

#include "gateway/recipe/request_rules.h"

// What Chat Completions, Completions and Responses read in the same way.
namespace hadal::openai {

core::Status read_stream_and_stop(recipe::JsonValue body, const recipe::CodecOptions& options,
                                  recipe::CodecRequest& request);

// Sampling, n and logprobs of Chat Completions.
core::Status read_sampling(recipe::JsonValue body, const recipe::CodecOptions& options,
                           recipe::SamplingFields& fields, recipe::CodecRequest& request);

// The same for Completions, whose `logprobs` is a number.
core::Status read_completion_sampling(recipe::JsonValue body, const recipe::CodecOptions& options,
                                      recipe::SamplingFields& fields,
                                      recipe::CodecRequest& request);

recipe::ToolChoice choice_of(std::string_view word);

// Fields of the public reference that cannot work here and would change the answer if they were
// passed over.
void refuse_unsupported(recipe::FieldCheck& check, recipe::JsonValue body);

}  // namespace hadal::openai
