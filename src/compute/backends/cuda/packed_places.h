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

// A word of eight E2M1 codes, inputs 2j and 2j + 1 at the same place of the low and the high half.
// Sign and magnitude stand at bits {15, 8-6}, {12, 5-3}, {9, 2-0} and {14, 13, 11-10} for j = 0..3,
// so that three pairs need one shift and one mask.
constexpr uint32_t fp4_in_word(uint32_t code, int input) {
  const uint32_t sign = code >> 3, m = code & 7u;
  uint32_t bits = sign << 14 | (m >> 2) << 13 | (m & 3u) << 10;
  if (input / 2 == 0) bits = sign << 15 | m << 6;
  if (input / 2 == 1) bits = sign << 12 | m << 3;
  if (input / 2 == 2) bits = sign << 9 | m;
  return bits << (input % 2 * 16);
}
// Pair j of a word: bf16 numbers that are 2^-126 of the codes' values.
constexpr uint32_t fp4_pair(uint32_t word, int j) {
  constexpr uint32_t kMask = 0x81C081C0u;
  if (j == 3) {
    return ((word << 1) & 0x80008000u) | ((word >> 5) & 0x01000100u) | ((word >> 4) & 0x00C000C0u);
  }
  return (word << (3 * j)) & kMask;
}

// Byte of a word of four E4M3 codes: the order 0, 2, 1, 3 puts neighbours at the same place of both
// halves.
constexpr int fp8_byte(int input) {
  return input == 1 ? 2 : input == 2 ? 1 : input;
}
// The first and the second pair of a word: bf16 numbers that are 2^-120 of the codes' values.
constexpr uint32_t fp8_first(uint32_t word) {
  const uint32_t even = ((word << 8) & 0x80008000u) | ((word << 4) & 0x07F007F0u);
  return even;
}
constexpr uint32_t fp8_second(uint32_t word) {
  const uint32_t odd = (word & 0x80008000u) | ((word >> 4) & 0x07F007F0u);
  return odd;
}

}  // namespace hadal::cuda
