#include "base/tokenizer/engram_map.h"

#include <cstdlib>
#include <memory>
#include <unordered_map>

#include <utf8proc.h>

#include "base/tokenizer/char_class.h"
#include "base/tokenizer/utf8.h"

namespace hadal::tokenizer {
namespace {

// utf8proc_map with the given options; the input itself if it is not valid (cannot happen: callers
// pass valid UTF-8).
std::string mapped(const std::string& text, int options) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                          static_cast<utf8proc_ssize_t>(text.size()), &out,
                                          static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(out, &std::free);
  if (n < 0) return text;
  return {reinterpret_cast<const char*>(out), static_cast<size_t>(n)};
}

template <typename Each>
void for_each_char(std::string_view text, Each each) {
  while (!text.empty()) {
    const Utf8Char c = next_char(text);
    each(c.code);
    text.remove_prefix(c.size);
  }
}

std::string trimmed(std::string_view text) {
  const CharClasses& classes = CharClasses::get();
  size_t begin = 0;
  size_t end = 0;
  bool seen = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = next_char(text.substr(at));
    if ((classes.of(c.code) & kSpace) == 0) {
      if (!seen) begin = at;
      seen = true;
      end = at + c.size;
    }
    at += c.size;
  }
  return std::string(seen ? text.substr(begin, end - begin) : std::string_view());
}

}  // namespace

std::string engram_normalised(std::string_view utf8) {
  std::string text =
      mapped(std::string(utf8), UTF8PROC_COMPOSE | UTF8PROC_COMPAT | UTF8PROC_STABLE);
  text = mapped(text, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
  const CharClasses& classes = CharClasses::get();
  std::string folded;
  bool in_blank = false;
  for_each_char(text, [&](uint32_t c) {
    if ((classes.of(c) & kMark) != 0) return;
    const bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!blank) {
      append_utf8(folded,
                  static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    } else if (!in_blank) {
      folded += ' ';
    }
    in_blank = blank;
  });
  if (folded == " ") return folded;
  return trimmed(folded);
}

EngramMap make_engram_map(const Tokenizer& tokenizer) {
  EngramMap result;
  std::unordered_map<std::string, int32_t> ids;
  result.map.reserve(static_cast<size_t>(tokenizer.size()));
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    const std::string_view bytes = tokenizer.bytes_of(id);
    std::string key;
    // Decoding alone is lossy; a text with U+FFFD, its own or from a cut character, is told apart
    // by its spelling.
    const bool broken =
        !is_valid_utf8(bytes) || bytes.find("\xef\xbf\xbd") != std::string_view::npos;
    if (broken) {
      key = tokenizer.file_spelling(id);
    } else {
      key = engram_normalised(bytes);
      if (key.empty()) key = bytes;
    }
    const auto [at, added] = ids.emplace(std::move(key), result.n_distinct);
    if (added) ++result.n_distinct;
    result.map.push_back(at->second);
  }
  return result;
}

}  // namespace hadal::tokenizer
