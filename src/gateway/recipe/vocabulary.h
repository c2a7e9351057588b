#pragma once

#include <cstddef>
#include <string_view>

#include "base/types/request.h"

namespace hadal::recipe {

// What the response side must know of a tokenizer. Thread-safe, constant.
class Vocabulary {
 public:
  virtual ~Vocabulary() = default;
  // The bytes that a token stands for; "" for an id outside the vocabulary.
  virtual std::string_view bytes(types::TokenId id) const = 0;
  virtual bool is_added(types::TokenId id) const = 0;
  // Tokens of `text` with the added vocabulary: how 0.2.0 counts reasoning (`compat`).
  virtual size_t count_tokens(std::string_view text) const = 0;

  // Ids of the template's control tokens in the output; -1 if the tokenizer has none.
  types::TokenId end_of_sentence = -1, think = -1, think_end = -1, dsml = -1;
  bool is_control(types::TokenId id) const {
    return id == think_end || id == dsml || id == end_of_sentence || id == think;
  }
};

}  // namespace hadal::recipe
