#pragma once

#include "gateway/recipe/field_check.h"
#include "gateway/recipe/options.h"

namespace hadal::openai {

// The types of every field of a Chat Completions body that is read later.
void check_chat_types(recipe::FieldCheck& check, recipe::JsonValue body,
                      const recipe::CodecOptions& options);

// Types that Completions shares with it: sampling, stream and stop fields.
void check_sampling_types(recipe::FieldCheck& check, recipe::JsonValue body,
                          const recipe::CodecOptions& options);

}  // namespace hadal::openai
