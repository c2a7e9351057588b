#include "engine/grammar/grammar.h"

#include <algorithm>
#include <array>

namespace hadal::grammar {

uint32_t Grammar::add_node() {
  nodes_.emplace_back();
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t Grammar::add_rule() {
  starts_.push_back(add_node());
  return static_cast<uint32_t>(starts_.size() - 1);
}

void Grammar::bytes(uint32_t from, uint8_t low, uint8_t high, uint32_t to) {
  nodes_[from].edges.push_back(
      {.kind = Edge::Kind::kBytes, .low = low, .high = high, .rule = 0, .to = to});
}

uint32_t Grammar::literal(uint32_t from, std::string_view text) {
  for (const char c : text) {
    const uint32_t next = add_node();
    bytes(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), next);
    from = next;
  }
  return from;
}

uint32_t Grammar::rule(uint32_t from, uint32_t other) {
  const uint32_t to = add_node();
  nodes_[from].edges.push_back(
      {.kind = Edge::Kind::kRule, .low = 0, .high = 0, .rule = other, .to = to});
  return to;
}

void Grammar::free(uint32_t from, uint32_t to) {
  nodes_[from].edges.push_back(
      {.kind = Edge::Kind::kFree, .low = 0, .high = 0, .rule = 0, .to = to});
}

namespace {

struct Encoded {
  std::array<uint8_t, 4> bytes{};
  size_t size = 0;
};

Encoded encode(uint32_t code) {
  if (code < 0x80) return {{static_cast<uint8_t>(code)}, 1};
  const auto tail = [&](int shift) {
    return static_cast<uint8_t>(0x80 | ((code >> shift) & 0x3F));
  };
  if (code < 0x800) return {{static_cast<uint8_t>(0xC0 | (code >> 6)), tail(0)}, 2};
  if (code < 0x10000) return {{static_cast<uint8_t>(0xE0 | (code >> 12)), tail(6), tail(0)}, 3};
  return {{static_cast<uint8_t>(0xF0 | (code >> 18)), tail(12), tail(6), tail(0)}, 4};
}

}  // namespace

// Splits the range until both ends have the same length and differ in whole tails only: then each
// byte position is one range.
void Grammar::character(uint32_t from, uint32_t low, uint32_t high, uint32_t to) {
  constexpr uint32_t kLast[] = {0x7F, 0x7FF, 0xD7FF, 0xFFFF, 0x10FFFF};
  if (low > high) return;
  if (low <= 0xDFFF && high >= 0xD800) {  // no surrogates in UTF-8
    if (low < 0xD800) character(from, low, 0xD7FF, to);
    if (high > 0xDFFF) character(from, 0xE000, high, to);
    return;
  }
  for (const uint32_t last : kLast) {
    if (low <= last && last < high) {
      character(from, low, last, to);
      character(from, last + 1, high, to);
      return;
    }
  }
  const Encoded a = encode(low), b = encode(high);
  for (size_t i = 1; i < a.size; ++i) {
    const uint32_t mask = (1u << (6 * i)) - 1;  // of the last i bytes
    if ((low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      character(from, low, low | mask, to);
      character(from, (low | mask) + 1, high, to);
      return;
    }
    if ((high & mask) != mask) {
      character(from, low, (high & ~mask) - 1, to);
      character(from, high & ~mask, high, to);
      return;
    }
  }
  uint32_t at = from;
  for (size_t i = 0; i < a.size; ++i) {
    const uint32_t next = i + 1 == a.size ? to : add_node();
    bytes(at, a.bytes[i], b.bytes[i], next);
    at = next;
  }
}

}  // namespace hadal::grammar
