#pragma once

#include "base/tokenizer/tokenizer.h"
#include "gateway/recipe/vocabulary.h"

namespace hadal::serving {

// A tokenizer as the response side of the recipe wants it. `tokenizer` outlives it.
class TokenizerVocabulary final : public recipe::Vocabulary {
 public:
  explicit TokenizerVocabulary(const tokenizer::Tokenizer& tokenizer);
  std::string_view bytes(types::TokenId id) const override { return tokenizer_.bytes_of(id); }
  bool is_added(types::TokenId id) const override { return tokenizer_.is_added(id); }
  size_t count_tokens(std::string_view text) const override;

 private:
  const tokenizer::Tokenizer& tokenizer_;
};

}  // namespace hadal::serving
