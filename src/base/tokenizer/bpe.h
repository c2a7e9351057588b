#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace hadal::tokenizer {

// The merges of a byte-level BPE as one hash table from pairs of ids. Const after build().
class Bpe {
 public:
  static constexpr int32_t kNone = -1;

  // byte_ids[b]: id of the token of one byte, kNone if the vocabulary lacks it.
  void set_bytes(const std::vector<int32_t>& byte_ids) { byte_ids_ = byte_ids; }
  void reserve(size_t n_merges);
  // Later calls have higher ranks. The first of equal pairs counts.
  void add(int32_t left, int32_t right, int32_t merged);

  // Appends the ids of one piece: the lowest-ranked pair is merged first, the leftmost of equals.
  // Bytes without a token of their own are left out, as the reference does without an unknown
  // token.
  void encode(std::string_view piece, std::vector<int32_t>& out) const;

 private:
  struct Slot {
    uint64_t pair = ~uint64_t{0};
    uint32_t rank = ~uint32_t{0};
    int32_t merged = kNone;
  };
  const Slot* find(int32_t left, int32_t right) const;
  void encode_short(int32_t* ids, size_t n, std::vector<int32_t>& out) const;
  void encode_medium(std::string_view piece, std::vector<int32_t>& out) const;
  void encode_long(const std::vector<int32_t>& ids, std::vector<int32_t>& out) const;

  std::vector<int32_t> byte_ids_;
  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
  // A bit for the hash of each merge, four places a slot: most pairs are no merge, and the bits of
  // 128 thousand merges fit a cache of 512 KiB where the slots do not.
  std::vector<uint64_t> present_;
  uint32_t n_ = 0;
};

}  // namespace hadal::tokenizer
