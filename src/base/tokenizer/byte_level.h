#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hadal::tokenizer {

// The byte-level alphabet of GPT-2's tokenizer: each byte has a printable character; those that are
// no printable Latin-1 character are moved to U+0100 and up, in order.
uint32_t byte_to_char(uint8_t byte);
std::string to_byte_level(std::string_view bytes);
// Back to bytes; false if a character is not in the alphabet.
bool from_byte_level(std::string_view text, std::string& bytes);

}  // namespace hadal::tokenizer
