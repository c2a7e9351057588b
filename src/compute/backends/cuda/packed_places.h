#pragma once

#include <cstdint>

// Where packed.h puts codes, and the integer half of turning them into bf16. Free of CUDA, so that
// it is tested without a GPU; compiled for the device with --expt-relaxed-constexpr.
namespace hadal::cuda {

// Every sum over k is made of 8 slices of k: ((p0 + p1) + p2) + ... with p the slice's sum by
// tensor cores, block after block from +0. Slice s holds the blocks [s * n / 8, (s + 1) * n / 8). A
// function of k alone, so that a row's bits do not depend on how many rows share a launch.
inline constexpr int kSlices = 8;
constexpr int slice_begin(int slice, int n_blocks) {
  return slice * n_blocks / kSlices;
}

// A word turned left, bits that leave it come in again on the right.
constexpr uint32_t turned_left(uint32_t word, int bits) {
  return word << bits | word >> (32 - bits);
}

// A word of eight E2M1 codes, inputs 2j and 2j + 1 in the low and the high half of pair j. Where
// sign and magnitude (bits 15 and 8-6 of a bf16 number) stand in the word is chosen so that a pair
// takes a turn of the word and a mask, all four of them nine instructions: no other places take
// fewer.
//   pair 0: the word turned by 6;  pair 1: by 2;  pair 2: by 12;
//   pair 3: by 8, and of the word as it is the magnitude's upper bit
constexpr uint32_t kFp4Bits = 0x81C0u, kFp4Upper = 0x0100u;
constexpr uint32_t fp4_in_word(uint32_t code, int input) {
  const int pair = input / 2, half = input % 2 * 16;
  const uint32_t bits = ((code & 8u) << 12 | (code & 7u) << 6) << half;
  constexpr int kTurn[] = {6, 2, 12, 8};
  const uint32_t upper = pair == 3 ? bits & (kFp4Upper << half) : 0;
  return turned_left(bits & ~upper, 32 - kTurn[pair]) | upper;
}
// Pair j of a word: bf16 numbers that are 2^-126 of the codes' values.
constexpr uint32_t fp4_pair(uint32_t word, int j) {
  constexpr uint32_t kBits = kFp4Bits * 0x10001u, kUpper = kFp4Upper * 0x10001u;
  if (j == 0) return (word << 6) & kBits;
  if (j == 1) return (word << 2) & kBits;
  if (j == 2) return turned_left(word, 12) & kBits;
  return (turned_left(word, 8) & (kBits & ~kUpper)) | (word & kUpper);
}

// A word of four E4M3 codes, inputs 0 and 1 in the low and the high half of the first pair, 2 and 3
// of the second. The first pair stands as bf16 has it, bits 15 and 10-4; of the second one sign and
// lower four bits stand four places to the right of that, the upper three four to the left.
constexpr uint32_t fp8_in_word(uint32_t code, int input) {
  const int half = input % 2 * 16;
  if (input < 2) return ((code & 0x80u) << 8 | (code & 0x7Fu) << 4) << half;
  return ((code & 0x80u) << 4 | (code & 0x0Fu) | (code & 0x70u) << 8) << half;
}
// The first and the second pair of a word: bf16 numbers that are 2^-120 of the codes' values.
constexpr uint32_t fp8_first(uint32_t word) {
  return word & 0x87F087F0u;
}
constexpr uint32_t fp8_second(uint32_t word) {
  return ((word << 4) & 0x80F080F0u) | ((word >> 4) & 0x07000700u);
}

}  // namespace hadal::cuda
