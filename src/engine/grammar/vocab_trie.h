#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tokenizer/tokenizer.h"

namespace hadal::grammar {

// The ordinary tokens of a vocabulary by their bytes, as a tree in preorder. Control tokens and
// tokens without bytes are left out: no grammar of bytes allows them; so is the byte that stands
// for a control token (Grammar::kControl). Constant.
class VocabTrie {
 public:
  struct Node {
    uint8_t byte = 0;
    uint8_t depth = 0;   // of the byte: 1 for the first of a token
    int32_t token = -1;  // that ends here
    uint32_t skip = 0;   // index of the first node that is not below this one
  };

  // Plain tokens are at most kMaxPlain whole characters that a JSON string holds as they are (no
  // control characters, quote or backslash) and that an expression's `.` fits (no U+2028, U+2029).
  // In most states all of them fit that are short enough, or none does.
  static constexpr uint32_t kMaxPlain = 16;

  explicit VocabTrie(const tokenizer::Tokenizer& tokenizer);
  // For tests: (bytes, id).
  explicit VocabTrie(std::vector<std::pair<std::string_view, int32_t>> tokens, int32_t n_vocab);

  std::span<const Node> nodes() const { return all_; }
  std::span<const Node> not_plain() const { return not_plain_; }
  // Bit t of word t/32: the plain tokens of at most `n` characters, n <= kMaxPlain.
  std::span<const uint32_t> plain_up_to(uint32_t n) const { return plain_[n]; }
  int32_t n_vocab() const { return n_vocab_; }
  size_t n_words() const { return (static_cast<size_t>(n_vocab_) + 31) / 32; }

 private:
  using Tokens = std::vector<std::pair<std::string_view, int32_t>>;
  void build(Tokens tokens);
  static std::vector<Node> tree(const Tokens& tokens);
  std::vector<Node> all_, not_plain_;
  std::vector<std::vector<uint32_t>> plain_;
  int32_t n_vocab_ = 0;
};

}  // namespace hadal::grammar
