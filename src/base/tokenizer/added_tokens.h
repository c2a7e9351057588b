#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hadal::tokenizer {

// A set of strings that are found in text, leftmost first, the longest of those that begin there.
// Const after the last add().
class AddedTokens {
 public:
  void add(std::string_view text, int32_t id);

  struct Hit {
    size_t begin = 0, end = 0;  // begin == end: none
    int32_t id = -1;
  };
  Hit find(std::string_view text, size_t from) const;
  bool empty() const { return n_nodes_ == 1; }

 private:
  // A byte trie; children by (node << 8 | byte).
  std::unordered_map<uint64_t, uint32_t> children_;
  std::vector<int32_t> id_of_node_ = {-1};
  uint32_t n_nodes_ = 1;
  bool begins_[256] = {};
};

}  // namespace hadal::tokenizer
