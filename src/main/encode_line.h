#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gateway/recipe/options.h"

namespace hadal::tokenizer {
class Tokenizer;
}

namespace hadal::main {

// One line of `hadal encode --stdin-jsonl` (docs/architecture.md 3.2), also the body of /v1/encode:
// the answer as one line of JSON without its end. A wrong request is an answer. nullopt: `line` is
// no object with an `id`. `defaults` hold what the line does not say.
std::optional<std::string> encode_line(std::string_view line, const tokenizer::Tokenizer& tokenizer,
                                       const recipe::CodecOptions& defaults);

// The options that a batch line asks for, on top of `defaults`; false if a value is not known.
class LineOptions;

}  // namespace hadal::main
