#pragma once

#include <cstdint>

#include "compute/formats/elements.h"

// The three activation quantisers (docs/model.md 3.0) and the cache records made of them. They are
// part of the model, which was trained with them. Inputs are finite bf16.
namespace hadal::formats {

namespace internal {
inline float amax(const uint16_t* x, int n, float floor) {
  float top = floor;
  for (int i = 0; i < n; ++i) {
    const float a = bf16_to_float(static_cast<uint16_t>(x[i] & 0x7FFFu));
    top = a > top ? a : top;
  }
  return top;
}
inline float clamp(float x, float limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}
}  // namespace internal

// AQ8 of 32 channels: codes[32] E4M3, returns the E8M0 byte of the scale.
inline uint8_t aq8(const uint16_t* x, uint8_t* codes) {
  const uint8_t byte = pow2ceil(internal::amax(x, 32, 1e-4f) * (1.0f / 448.0f));
  const float s = e8m0_to_float(byte);
  for (int i = 0; i < 32; ++i)
    codes[i] = e4m3_from_float(internal::clamp(bf16_to_float(x[i]) / s, kE4m3Max));
  return byte;
}

// FQ4e8 of 32 channels: codes[16], the even channel in the low nibble; returns the E8M0 byte.
inline uint8_t fq4e8(const uint16_t* x, uint8_t* codes) {
  const uint8_t byte = pow2ceil(internal::amax(x, 32, 6 * 0x1p-126f) * (1.0f / 6.0f));
  const float s = e8m0_to_float(byte);
  for (int i = 0; i < 16; ++i) {
    const uint8_t low = e2m1_from_float(bf16_to_float(x[2 * i]) / s);
    const uint8_t high = e2m1_from_float(bf16_to_float(x[2 * i + 1]) / s);
    codes[i] = static_cast<uint8_t>(low | (high << 4));
  }
  return byte;
}

// FQ4e4 of 16 channels: codes[8], nibbles as above; returns the scale as E4M3.
inline uint8_t fq4e4(const uint16_t* x, uint8_t* codes) {
  const uint8_t scale = e4m3_from_float(internal::amax(x, 16, 6 * 0x1p-9f) / 6.0f);
  const float s = e4m3_to_float(scale);
  for (int i = 0; i < 8; ++i) {
    const uint8_t low = e2m1_from_float(bf16_to_float(x[2 * i]) / s);
    const uint8_t high = e2m1_from_float(bf16_to_float(x[2 * i + 1]) / s);
    codes[i] = static_cast<uint8_t>(low | (high << 4));
  }
  return scale;
}

// Value forms: quantised and back, exact in bf16. n is a multiple of the group (32, 32, 16).
inline void aq8_values(const uint16_t* x, int64_t n, uint16_t* out) {
  uint8_t codes[32];
  for (int64_t at = 0; at < n; at += 32) {
    const float s = e8m0_to_float(aq8(x + at, codes));
    for (int i = 0; i < 32; ++i) out[at + i] = bf16_from_float(e4m3_to_float(codes[i]) * s);
  }
}
inline float nibble_value(const uint8_t* codes, int i) {
  return e2m1_to_float(static_cast<uint8_t>((codes[i / 2] >> (i % 2 * 4)) & 0xF));
}
inline void fq4e8_values(const uint16_t* x, int64_t n, uint16_t* out) {
  uint8_t codes[16];
  for (int64_t at = 0; at < n; at += 32) {
    const float s = e8m0_to_float(fq4e8(x + at, codes));
    for (int i = 0; i < 32; ++i) out[at + i] = bf16_from_float(nibble_value(codes, i) * s);
  }
}
inline void fq4e4_values(const uint16_t* x, int64_t n, uint16_t* out) {
  uint8_t codes[8];
  for (int64_t at = 0; at < n; at += 16) {
    const float s = e4m3_to_float(fq4e4(x + at, codes));
    for (int i = 0; i < 16; ++i) out[at + i] = bf16_from_float(nibble_value(codes, i) * s);
  }
}

// Records (docs/model.md 4): d E4M3 codes, then d / 32 E8M0 bytes.
inline void pack_window(const uint16_t* x, int32_t d, uint8_t* record) {
  for (int32_t i = 0; i < d; i += 32) record[d + i / 32] = aq8(x + i, record + i);
}
// d / 2 bytes of E2M1 pairs, then d / 16 E4M3 scales.
inline void pack_entry(const uint16_t* x, int32_t d, uint8_t* record) {
  for (int32_t i = 0; i < d; i += 16) record[d / 2 + i / 16] = fq4e4(x + i, record + i / 2);
}
// d / 2 bytes of E2M1 pairs and d / 32 E8M0 bytes, in two places.
inline void pack_key(const uint16_t* x, int32_t d, uint8_t* codes, uint8_t* scales) {
  for (int32_t i = 0; i < d; i += 32) scales[i / 32] = fq4e8(x + i, codes + i / 2);
}

}  // namespace hadal::formats
