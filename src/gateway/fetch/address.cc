#include "gateway/fetch/address.h"

#include <algorithm>

#include <arpa/inet.h>

namespace hadal::fetch {
namespace {

struct Block {
  std::array<uint8_t, 16> prefix;
  int bits;
};

constexpr Block v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d, int bits) {
  return {{a, b, c, d}, bits};
}

// IANA IPv4 special-purpose address registry, and multicast and reserved space.
constexpr Block kNotPublicV4[] = {
    v4(0, 0, 0, 0, 8),        // this network
    v4(10, 0, 0, 0, 8),       // private
    v4(100, 64, 0, 0, 10),    // shared by carriers
    v4(127, 0, 0, 0, 8),      // loopback
    v4(169, 254, 0, 0, 16),   // link-local, metadata services
    v4(172, 16, 0, 0, 12),    // private
    v4(192, 0, 0, 0, 24),     // protocol assignments
    v4(192, 0, 2, 0, 24),     // documentation
    v4(192, 31, 196, 0, 24),  // AS112
    v4(192, 52, 193, 0, 24),  // AMT
    v4(192, 88, 99, 0, 24),   // 6to4 relays
    v4(192, 168, 0, 0, 16),   // private
    v4(192, 175, 48, 0, 24),  // AS112
    v4(198, 18, 0, 0, 15),    // benchmarks
    v4(198, 51, 100, 0, 24),  // documentation
    v4(203, 0, 113, 0, 24),   // documentation
    v4(224, 0, 0, 0, 4),      // multicast
    v4(240, 0, 0, 0, 4),      // reserved, broadcast
};

// Of 2000::/3, the one global block that is given out; all else is not public.
constexpr Block kGlobalV6 = {{0x20}, 3};
constexpr Block kNotPublicV6[] = {
    {{0x20, 0x01, 0x00}, 23},              // protocol assignments: Teredo, ORCHID, benchmarks
    {{0x20, 0x01, 0x0D, 0xB8}, 32},        // documentation
    {{0x20, 0x02}, 16},                    // 6to4: the IPv4 address is looked at
    {{0x3F, 0xFF, 0x00}, 20},              // documentation
    {{0x26, 0x20, 0x00, 0x4F, 0x80}, 48},  // AS112
};

bool is_in(const std::array<uint8_t, 16>& bytes, const Block& block) {
  const int whole = block.bits / 8, rest = block.bits % 8;
  if (!std::equal(bytes.begin(), bytes.begin() + whole, block.prefix.begin())) return false;
  if (rest == 0) return true;
  const auto mask = static_cast<uint8_t>(0xFF << (8 - rest));
  const auto at = static_cast<size_t>(whole);
  return (bytes[at] & mask) == (block.prefix[at] & mask);
}

bool is_public_v4(const uint8_t* four) {
  std::array<uint8_t, 16> bytes{};
  std::copy(four, four + 4, bytes.begin());
  return std::none_of(std::begin(kNotPublicV4), std::end(kNotPublicV4),
                      [&](const Block& block) { return is_in(bytes, block); });
}

}  // namespace

std::optional<Address> parse_address(std::string_view text) {
  const std::string copy(text);
  Address address;
  if (inet_pton(AF_INET, copy.c_str(), address.bytes.data()) == 1) return address;
  if (inet_pton(AF_INET6, copy.c_str(), address.bytes.data()) != 1) return std::nullopt;
  address.is_v6 = true;
  return address;
}

std::string to_string(const Address& address) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(address.is_v6 ? AF_INET6 : AF_INET, address.bytes.data(), text, sizeof text);
  return text;
}

bool is_public(const Address& address) {
  const uint8_t* b = address.bytes.data();
  if (!address.is_v6) return is_public_v4(b);
  const bool zero10 = std::all_of(b, b + 10, [](uint8_t byte) { return byte == 0; });
  const bool mapped = zero10 && b[10] == 0xFF && b[11] == 0xFF;  // ::ffff:a.b.c.d
  if (mapped) return is_public_v4(b + 12);
  // 64:ff9b::a.b.c.d, the translation prefix of everybody.
  constexpr uint8_t kTranslated[] = {0x00, 0x64, 0xFF, 0x9B, 0, 0, 0, 0, 0, 0, 0, 0};
  if (std::equal(std::begin(kTranslated), std::end(kTranslated), b)) return is_public_v4(b + 12);
  if (!is_in(address.bytes, kGlobalV6)) return false;
  if (b[0] == 0x20 && b[1] == 0x02) return is_public_v4(b + 2);  // 6to4
  return std::none_of(std::begin(kNotPublicV6), std::end(kNotPublicV6),
                      [&](const Block& block) { return is_in(address.bytes, block); });
}

}  // namespace hadal::fetch
