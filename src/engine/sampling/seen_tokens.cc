#include "engine/sampling/seen_tokens.h"

#include "base/core/check.h"

namespace hadal::sampling {

void SeenTokens::clear() {
  for (const Entry& e : entries_) place_[static_cast<size_t>(e.token)] = kAbsent;
  entries_.clear();
}

SeenTokens::Entry& SeenTokens::entry(types::TokenId token) {
  HADAL_CHECK(token >= 0 && static_cast<size_t>(token) < place_.size(),
              "token outside the vocabulary");
  uint32_t& place = place_[static_cast<size_t>(token)];
  if (place == kAbsent) {
    place = static_cast<uint32_t>(entries_.size());
    entries_.push_back({token, 0});
  }
  return entries_[place];
}

}  // namespace hadal::sampling
