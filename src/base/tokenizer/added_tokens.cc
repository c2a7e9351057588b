#include "base/tokenizer/added_tokens.h"

namespace hadal::tokenizer {

void AddedTokens::add(std::string_view text, int32_t id) {
  if (text.empty()) return;
  begins_[static_cast<unsigned char>(text[0])] = true;
  uint32_t node = 0;
  for (const char c : text) {
    const uint64_t edge = uint64_t{node} << 8 | static_cast<unsigned char>(c);
    const auto [at, added] = children_.emplace(edge, n_nodes_);
    if (added) {
      ++n_nodes_;
      id_of_node_.push_back(-1);
    }
    node = at->second;
  }
  id_of_node_[node] = id;
}

AddedTokens::Hit AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    Hit hit;
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto child = children_.find(uint64_t{node} << 8 | static_cast<unsigned char>(text[at]));
      if (child == children_.end()) break;
      node = child->second;
      if (id_of_node_[node] >= 0) hit = {begin, at + 1, id_of_node_[node]};
    }
    if (hit.end > hit.begin) return hit;
  }
  return {};
}

}  // namespace hadal::tokenizer
