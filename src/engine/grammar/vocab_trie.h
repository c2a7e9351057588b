#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tokenizer/tokenizer.h"

namespace hadal::grammar {

// The ordinary tokens of a vocabulary by their bytes, as a tree in preorder. Control tokens and
// tokens without bytes are left out: no grammar of bytes allows them. Constant.
class VocabTrie {
 public:
  struct Node {
    uint8_t byte = 0;
    uint8_t depth = 0;   // of the byte: 1 for the first of a token
    int32_t token = -1;  // that ends here
    uint32_t skip = 0;   // index of the first node that is not below this one
  };

  explicit VocabTrie(const tokenizer::Tokenizer& tokenizer);
  // For tests: (bytes, id).
  explicit VocabTrie(std::vector<std::pair<std::string_view, int32_t>> tokens, int32_t n_vocab);

  std::span<const Node> nodes() const { return nodes_; }
  int32_t n_vocab() const { return n_vocab_; }

 private:
  void build(std::vector<std::pair<std::string_view, int32_t>> tokens);
  std::vector<Node> nodes_;
  int32_t n_vocab_ = 0;
};

}  // namespace hadal::grammar
