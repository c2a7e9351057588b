#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hadal::fetch {

// An IPv4 or IPv6 address; an IPv4 address stands in the first four bytes.
struct Address {
  bool is_v6 = false;
  std::array<uint8_t, 16> bytes{};
  bool operator==(const Address&) const = default;
};

// "192.0.2.1", "2001:db8::1"; nullopt for anything else, a port or brackets included.
std::optional<Address> parse_address(std::string_view text);
std::string to_string(const Address& address);

// Is the address one of the public internet? No for everything else in the registries of special
// addresses (RFC 6890 and its updates): this host, private and shared networks, link-local (there
// are the metadata services of clouds), multicast, documentation, benchmarks, reserved; and for
// IPv6 addresses that carry such an IPv4 address (mapped, compatible, translated, 6to4, Teredo).
bool is_public(const Address& address);

}  // namespace hadal::fetch
