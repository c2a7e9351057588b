#include "engine/grammar/vocab_trie.h"

#include <algorithm>

namespace hadal::grammar {

// Longer tokens exist (runs of spaces); what they spell has other tokens too.
constexpr size_t kMaxTokenBytes = 255;

VocabTrie::VocabTrie(const tokenizer::Tokenizer& tokenizer) : n_vocab_(tokenizer.size()) {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.has(id) && !tokenizer.is_added(id))
      tokens.emplace_back(tokenizer.bytes_of(id), id);
  }
  build(std::move(tokens));
}

VocabTrie::VocabTrie(std::vector<std::pair<std::string_view, int32_t>> tokens, int32_t n_vocab)
    : n_vocab_(n_vocab) {
  build(std::move(tokens));
}

void VocabTrie::build(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::erase_if(tokens, [](const auto& token) {
    return token.first.empty() || token.first.size() > kMaxTokenBytes;
  });
  // By bytes as unsigned values, which is how char_traits compares.
  std::sort(tokens.begin(), tokens.end());
  std::vector<uint32_t> open;  // nodes from the root to the last token
  std::string_view last;
  const auto close_to = [&](size_t depth) {
    while (open.size() > depth) {
      nodes_[open.back()].skip = static_cast<uint32_t>(nodes_.size());
      open.pop_back();
    }
  };
  for (const auto& [bytes, id] : tokens) {
    const auto differ = std::mismatch(bytes.begin(), bytes.end(), last.begin(), last.end());
    close_to(static_cast<size_t>(differ.first - bytes.begin()));
    while (open.size() < bytes.size()) {
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      Node& node = nodes_.emplace_back();
      node.byte = static_cast<uint8_t>(bytes[open.size() - 1]);
      node.depth = static_cast<uint8_t>(open.size());
    }
    if (nodes_[open.back()].token < 0) nodes_[open.back()].token = id;
    last = bytes;
  }
  close_to(0);
}

}  // namespace hadal::grammar
