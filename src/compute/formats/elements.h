#pragma once

#include <bit>
#include <cstdint>

// Element types of weights, activations and cache records (docs/model.md 3.0), bit-exact. This is
// the plain definition: backends have faster forms and are tested against it.
namespace hadal::formats {

constexpr float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest even; overflow gives infinity, a NaN stays a (quiet) NaN.
constexpr uint16_t bf16_from_float(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

// E4M3 of OCP ("fn"): bias 7, largest 448, NaN 0x7F and 0xFF, no infinity, signed zero.
inline constexpr float kE4m3Max = 448;
inline constexpr float kE2m1Max = 6;

constexpr bool e4m3_is_nan(uint8_t code) {
  return (code & 0x7Fu) == 0x7Fu;
}

constexpr float e4m3_to_float(uint8_t code) {
  const uint32_t sign = (code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7Fu;
  if (magnitude == 0x7Fu) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (magnitude < 8) {  // k * 2^-9
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude + 960u) << 20));
}

// Clamps to +-448, then rounds to nearest even. The sign stays at zero.
constexpr uint8_t e4m3_from_float(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = u >> 31 << 7;
  const uint32_t magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | 0x7Fu);
  const auto a = std::bit_cast<float>(magnitude);
  if (a >= kE4m3Max) return static_cast<uint8_t>(sign | 0x7Eu);
  if (a < 0x1p-6f) {
    constexpr float kMagic = 0x1p23f;  // pushes the fraction out: nearest even
    return static_cast<uint8_t>(sign | static_cast<uint32_t>((a * 512 + kMagic) - kMagic));
  }
  const uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - 960u));
}

// E2M1, the low four bits of a code: sign, then the index of 0, .5, 1, 1.5, 2, 3, 4, 6.
constexpr float e2m1_to_float(uint8_t code) {
  constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (code & 8u) != 0 ? -kValues[code & 7u] : kValues[code & 7u];
}

// Nearest, ties to the even code, saturating at 6. The sign stays at zero. REQUIRES: no NaN.
constexpr uint8_t e2m1_from_float(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  const auto a = std::bit_cast<float>(u & 0x7FFFFFFFu);
  // A tie goes up from the odd codes 1, 3 and 5 and down from the even ones.
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                   (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>((u >> 31 << 3) | static_cast<uint32_t>(code));
}

// E8M0: 2^(byte - 127); byte 0 is 2^-127 and 255 is NaN.
constexpr float e8m0_to_float(uint8_t byte) {
  if (byte == 0) return std::bit_cast<float>(0x00400000u);
  if (byte == 255) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(static_cast<uint32_t>(byte) << 23);
}

// E8M0 byte of 2^ceil(log2 t). REQUIRES: t is normal, positive and at most 2^127.
constexpr uint8_t pow2ceil(float t) {
  const auto u = std::bit_cast<uint32_t>(t);
  return static_cast<uint8_t>((u >> 23) + ((u & 0x7FFFFFu) != 0 ? 1u : 0u));
}

}  // namespace hadal::formats
