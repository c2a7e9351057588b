#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gateway/recipe/options.h"
#include "gateway/recipe/vocabulary.h"

namespace hadal::main {

// One line of `hadal decode --stdin-jsonl` (docs/architecture.md 3.2): the answer as one line of
// JSON without its end. A wrong request is an answer. nullopt: `line` is no object with an `id`.
std::optional<std::string> decode_line(std::string_view line, const recipe::Vocabulary& vocabulary,
                                       const recipe::CodecOptions& defaults);

}  // namespace hadal::main
