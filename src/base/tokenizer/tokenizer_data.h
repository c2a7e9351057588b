#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/tokenizer/added_tokens.h"
#include "base/tokenizer/bpe.h"
#include "base/tokenizer/tokenizer.h"

namespace hadal::tokenizer {

// What a tokenizer.json says, ready to be used.
struct Tokenizer::Data {
  struct Token {
    std::string bytes;
    bool exists = false, added = false, special = false;
  };
  std::vector<Token> tokens;                            // by id
  std::unordered_map<std::string_view, TokenId> id_of;  // views into `tokens`
  AddedTokens added_raw;                                // "normalized": false, matched first
  AddedTokens added_normalized;                         // matched in what is left
  Bpe bpe;
  uint32_t max_digits = 3;  // of \p{N}{1,max}
  uint64_t number = 0;      // distinguishes tokenizers in the threads' caches
};

core::Result<std::unique_ptr<Tokenizer::Data>> parse_tokenizer_json(std::string_view json,
                                                                    std::string_view origin);

}  // namespace hadal::tokenizer
