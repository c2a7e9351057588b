#include "engine/grammar/vocab_trie.h"

#include <algorithm>

#include "engine/grammar/grammar.h"
#include "engine/grammar/utf8.h"

namespace hadal::grammar {

// Longer tokens exist (runs of spaces); what they spell has other tokens too.
constexpr size_t kMaxTokenBytes = 255;

namespace {

// Characters of a plain token; 0: it is none, or has too many.
uint32_t n_plain(std::string_view bytes) {
  uint32_t n = 0;
  for (; !bytes.empty(); ++n) {
    const Utf8 read = read_utf8(bytes);
    if (read.size == 0 || read.code < 0x20 || read.code == '"' || read.code == '\\') return 0;
    if (read.code == 0x2028 || read.code == 0x2029) return 0;
    bytes.remove_prefix(read.size);
  }
  return n <= VocabTrie::kMaxPlain ? n : 0;
}

}  // namespace

VocabTrie::VocabTrie(const tokenizer::Tokenizer& tokenizer) : n_vocab_(tokenizer.size()) {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.has(id) && !tokenizer.is_added(id))
      tokens.emplace_back(tokenizer.bytes_of(id), id);
  }
  build(std::move(tokens));
}

VocabTrie::VocabTrie(Tokens tokens, int32_t n_vocab) : n_vocab_(n_vocab) {
  build(std::move(tokens));
}

// By bytes as unsigned values, which is how char_traits compares.
void VocabTrie::build(Tokens tokens) {
  std::erase_if(tokens, [](const auto& token) {
    return token.first.empty() || token.first.size() > kMaxTokenBytes ||
           token.first.find(static_cast<char>(Grammar::kControl)) != std::string_view::npos;
  });
  std::sort(tokens.begin(), tokens.end());
  all_ = tree(tokens);
  plain_.assign(kMaxPlain + 1, std::vector<uint32_t>(n_words()));
  std::erase_if(tokens, [&](const auto& token) {
    const uint32_t n = n_plain(token.first);
    for (uint32_t i = n; n > 0 && i <= kMaxPlain; ++i) {
      plain_[i][static_cast<size_t>(token.second) / 32] |= 1u << (token.second % 32);
    }
    return n > 0;
  });
  not_plain_ = tree(tokens);
}

std::vector<VocabTrie::Node> VocabTrie::tree(const Tokens& tokens) {
  std::vector<Node> nodes;
  std::vector<uint32_t> open;  // nodes from the root to the last token
  std::string_view last;
  const auto close_to = [&](size_t depth) {
    while (open.size() > depth) {
      nodes[open.back()].skip = static_cast<uint32_t>(nodes.size());
      open.pop_back();
    }
  };
  for (const auto& [bytes, id] : tokens) {
    const auto differ = std::mismatch(bytes.begin(), bytes.end(), last.begin(), last.end());
    close_to(static_cast<size_t>(differ.first - bytes.begin()));
    while (open.size() < bytes.size()) {
      open.push_back(static_cast<uint32_t>(nodes.size()));
      Node& node = nodes.emplace_back();
      node.byte = static_cast<uint8_t>(bytes[open.size() - 1]);
      node.depth = static_cast<uint8_t>(open.size());
    }
    if (nodes[open.back()].token < 0) nodes[open.back()].token = id;
    last = bytes;
  }
  close_to(0);
  return nodes;
}

}  // namespace hadal::grammar
