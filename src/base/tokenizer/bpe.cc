#include "base/tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

#include "base/core/check.h"

namespace hadal::tokenizer {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

uint64_t hashed(uint64_t key) {
  key *= 0x9e3779b97f4a7c15u;
  return key ^ (key >> 32);
}

// Of the upper half, which does not choose the slot.
uint64_t present_bit(uint64_t hash, uint64_t mask) {
  return hash >> 32 & (4 * mask + 3);
}

// Pieces up to kShort bytes are merged by scanning all pairs, up to kMedium (a sentence of Han) by
// scanning minima of blocks of pairs, longer ones by a heap.
constexpr size_t kShort = 32;
constexpr size_t kMedium = 512;
constexpr size_t kBlock = 16;
constexpr uint32_t kNoRank = ~uint32_t{0};

}  // namespace

void Bpe::reserve(size_t n_merges) {
  const size_t n_slots = std::bit_ceil(2 * n_merges + 2);
  slots_.assign(n_slots, Slot());
  present_.assign(n_slots * 4 / 64 + 1, 0);
  mask_ = n_slots - 1;
  n_ = 0;
}

void Bpe::add(int32_t left, int32_t right, int32_t merged) {
  HADAL_CHECK(size_t{n_} * 2 < slots_.size(), "more merges than were reserved");
  const uint64_t key = pair_key(left, right);
  const uint64_t hash = hashed(key);
  const uint64_t bit = present_bit(hash, mask_);
  present_[bit / 64] |= uint64_t{1} << bit % 64;
  uint64_t at = hash & mask_;
  while (slots_[at].merged != kNone && slots_[at].pair != key) at = (at + 1) & mask_;
  if (slots_[at].merged == kNone) slots_[at] = {key, n_, merged};
  ++n_;
}

const Bpe::Slot* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  const uint64_t hash = hashed(key);
  const uint64_t bit = present_bit(hash, mask_);
  if ((present_[bit / 64] >> bit % 64 & 1) == 0) return nullptr;
  for (uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
    const Slot& slot = slots_[at];
    if (slot.pair == key) return &slot;
    if (slot.merged == kNone) return nullptr;
  }
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (piece.size() <= kShort) {
    std::array<int32_t, kShort> ids;
    size_t n = 0;
    for (const char c : piece) {
      const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
      if (id != kNone) ids[n++] = id;
    }
    encode_short(ids.data(), n, out);
    return;
  }
  if (piece.size() <= kMedium) {
    encode_medium(piece, out);
    return;
  }
  std::vector<int32_t> ids;
  ids.reserve(piece.size());
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id != kNone) ids.push_back(id);
  }
  encode_long(ids, out);
}

void Bpe::encode_short(int32_t* ids, size_t n, std::vector<int32_t>& out) const {
  std::array<uint32_t, kShort> ranks;  // of the pair (i, i + 1)
  std::array<int32_t, kShort> merged;
  const auto look_up = [&](size_t i) {
    const Slot* slot = find(ids[i], ids[i + 1]);
    ranks[i] = slot == nullptr ? kNoRank : slot->rank;
    merged[i] = slot == nullptr ? kNone : slot->merged;
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    ids[best] = merged[best];
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    if (best + 1 < n) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  out.insert(out.end(), ids, ids + n);
}

void Bpe::encode_medium(std::string_view piece, std::vector<int32_t>& out) const {
  // A linked list in place; rank[i] belongs to the pair of i and after[i], kNoRank where there is
  // none or i was merged away.
  std::array<int32_t, kMedium> ids, merged;
  std::array<uint16_t, kMedium> before, after;
  std::array<uint32_t, kMedium + kBlock> rank;
  std::array<uint32_t, kMedium / kBlock + 1> block_min;
  size_t n = 0;
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id != kNone) ids[n++] = id;
  }
  if (n == 0) return;
  const size_t n_blocks = (n + kBlock - 1) / kBlock;
  for (size_t i = 0; i < n; ++i) {
    before[i] = static_cast<uint16_t>(i - 1);
    after[i] = static_cast<uint16_t>(i + 1);
  }
  std::fill_n(rank.begin(), n_blocks * kBlock, kNoRank);
  const auto look_up = [&](size_t i) {
    const Slot* slot = after[i] < n ? find(ids[i], ids[after[i]]) : nullptr;
    rank[i] = slot == nullptr ? kNoRank : slot->rank;
    if (slot != nullptr) merged[i] = slot->merged;
  };
  const auto refresh = [&](size_t block) {
    uint32_t lowest = kNoRank;
    for (size_t i = block * kBlock; i < (block + 1) * kBlock; ++i)
      lowest = std::min(lowest, rank[i]);
    block_min[block] = lowest;
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  for (size_t b = 0; b < n_blocks; ++b) refresh(b);
  while (true) {
    size_t block = 0;
    for (size_t b = 1; b < n_blocks; ++b) {
      if (block_min[b] < block_min[block]) block = b;
    }
    if (block_min[block] == kNoRank) break;
    size_t at = block * kBlock;
    while (rank[at] != block_min[block]) ++at;
    const size_t gone = after[at];
    ids[at] = merged[at];
    ids[gone] = kNone;
    after[at] = after[gone];
    if (after[at] < n) before[after[at]] = static_cast<uint16_t>(at);
    rank[gone] = kNoRank;
    look_up(at);
    refresh(block);
    if (gone / kBlock != block) refresh(gone / kBlock);
    if (at > 0) {
      look_up(before[at]);
      refresh(before[at] / kBlock);
    }
  }
  for (size_t i = 0; i < n; i = after[i]) out.push_back(ids[i]);
}

void Bpe::encode_long(const std::vector<int32_t>& ids, std::vector<int32_t>& out) const {
  struct Node {
    int32_t id;
    uint32_t before, after;
  };
  constexpr uint32_t kEnd = ~uint32_t{0};
  struct Candidate {
    uint32_t rank, at;
    int32_t left, right, merged;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  std::vector<Node> nodes(ids.size());
  for (uint32_t i = 0; i < nodes.size(); ++i)
    nodes[i] = {ids[i], i == 0 ? kEnd : i - 1, i + 1 < nodes.size() ? i + 1 : kEnd};
  std::vector<Candidate> storage;
  storage.reserve(nodes.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap(std::greater<>(),
                                                                              std::move(storage));
  const auto offer = [&](uint32_t at) {
    if (at == kEnd || nodes[at].after == kEnd) return;
    const int32_t left = nodes[at].id;
    const int32_t right = nodes[nodes[at].after].id;
    if (const Slot* slot = find(left, right))
      heap.push({slot->rank, at, left, right, slot->merged});
  };
  for (uint32_t i = 0; i + 1 < nodes.size(); ++i) offer(i);
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    Node& node = nodes[c.at];
    // A node that was merged away has id kNone; one that changed no longer has this pair.
    if (node.id != c.left || node.after == kEnd || nodes[node.after].id != c.right) continue;
    Node& gone = nodes[node.after];
    node.id = c.merged;
    gone.id = kNone;
    node.after = gone.after;
    if (node.after != kEnd) nodes[node.after].before = c.at;
    offer(node.before);
    offer(c.at);
  }
  for (const Node& node : nodes) {
    if (node.id != kNone) out.push_back(node.id);
  }
}

}  // namespace hadal::tokenizer
