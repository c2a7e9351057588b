#pragma once

#include <string>
#include <string_view>

#include "base/core/result.h"

namespace hadal::recipe {

// Text that a client carries for us without reading or changing it: reasoning in
// `encrypted_content` and in signatures. AES-256-GCM with a random nonce; the result is printable.
// `key` has 32 bytes. `purpose` keeps what was sealed for one use from being opened for another.
std::string seal_text(std::string_view key, std::string_view purpose, std::string_view text);
// kInvalidRequest when it was not sealed with this key for this purpose, or was changed.
core::Result<std::string> open_sealed(std::string_view key, std::string_view purpose,
                                      std::string_view sealed);
// Whether `text` looks like a sealed text at all (foreign signatures do not).
bool is_sealed(std::string_view text);

// The 32 bytes that seal for one tenant, made from the server's key (HMAC-SHA256): what one
// tenant's client carries cannot be opened for another.
std::string tenant_sealing_key(std::string_view key, std::string_view tenant);
// The server's key out of a file: 32 bytes, or 64 hexadecimal digits and white space. Errors name
// the file and never show what is in it.
core::Result<std::string> read_sealing_key(const std::string& path);

inline constexpr std::string_view kReasoningPurpose = "reasoning";

}  // namespace hadal::recipe
