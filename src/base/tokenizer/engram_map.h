#pragma once

#include <cstdint>
#include <vector>

#include "base/tokenizer/tokenizer.h"

namespace hadal::tokenizer {

// Engram's compressed ids (docs/model.md 3.9.1): tokens whose texts are equal after Unicode folding
// share one. `map[id]` for every id of the vocabulary; new ids are handed out in order of first
// occurrence.
struct EngramMap {
  std::vector<int32_t> map;
  int32_t n_distinct = 0;
};
EngramMap make_engram_map(const Tokenizer& tokenizer);

// NFKC, NFD, marks removed, lower case, runs of [space tab CR LF] to one space, white space trimmed
// (a lone space stays).
std::string engram_normalised(std::string_view utf8);

}  // namespace hadal::tokenizer
