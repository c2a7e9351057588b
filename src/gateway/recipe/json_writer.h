#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// The writer of answers and events: appends compact JSON to a caller's buffer, nothing in between.
namespace hadal::recipe {

// Appends `text` as the inside of a JSON string: \" \\ \n \r \t \b \f, \u00xx below 0x20, all else
// as it is. `text` is valid UTF-8.
void append_escaped(std::string& out, std::string_view text);
// The same with the quotes.
void append_quoted(std::string& out, std::string_view text);
void append_number(std::string& out, uint64_t value);
void append_number(std::string& out, int64_t value);
inline void append_number(std::string& out, uint32_t value) {
  append_number(out, static_cast<uint64_t>(value));
}
inline void append_number(std::string& out, int32_t value) {
  append_number(out, static_cast<int64_t>(value));
}
// Shortest form that reads back as the same float; "null" for what JSON cannot hold.
void append_number(std::string& out, float value);
void append_number(std::string& out, double value);
void append_bool(std::string& out, bool value);
// "text", or null when it is empty and `or_null`.
void append_quoted_or_null(std::string& out, std::string_view text);

// Escapes what some readers of lines take for an end of line (U+0085, U+2028, U+2029); in JSON they
// stand in strings only.
std::string one_line(std::string json);

// First byte of `text` at or after `from` that a JSON string must escape, or text.size().
size_t find_escape(std::string_view text, size_t from);

}  // namespace hadal::recipe
