#include "gateway/recipe/text_assembler.h"

#include <cstring>

namespace hadal::recipe {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Scan {
  size_t size;  // bytes of the character, or of the broken part
  bool valid;
  bool unfinished;  // broken only because the text ends
};

// The character at `at`; follows the "maximal subpart" practice of the Unicode standard.
Scan scan_character(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {1, true, false};
  unsigned char low = 0x80, high = 0xBF;
  size_t n = 0;
  if (first >= 0xC2 && first <= 0xDF) {
    n = 1;
  } else if (first >= 0xE0 && first <= 0xEF) {
    n = 2;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    n = 3;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {1, false, false};
  }
  for (size_t i = 1; i <= n; ++i) {
    if (at + i >= text.size()) return {i, false, true};
    if (byte(at + i) < low || byte(at + i) > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {n + 1, true, false};
}

bool is_ascii(std::string_view text) {
  size_t i = 0;
  uint64_t word = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) return false;
  }
  for (; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) >= 0x80) return false;
  }
  return true;
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  if (is_ascii(bytes)) return true;
  for (size_t i = 0; i < bytes.size();) {
    const Scan scan = scan_character(bytes, i);
    if (!scan.valid) return false;
    i += scan.size;
  }
  return true;
}

size_t append_utf8(std::string& out, std::string_view bytes, bool last) {
  size_t begin = 0;
  for (size_t i = 0; i < bytes.size();) {
    const Scan scan = scan_character(bytes, i);
    if (!scan.valid) {
      out.append(bytes.substr(begin, i - begin));
      if (scan.unfinished && !last) return bytes.size() - i;
      out.append(kReplacement);
      begin = i + scan.size;
    }
    i += scan.size;
  }
  out.append(bytes.substr(begin));
  return 0;
}

void TextAssembler::flush() {
  if (tail_.empty()) return;
  text_.clear();
  append_utf8(text_, tail_, true);
  tail_.clear();
  decoder_.push(text_, Origin::kToken, tokens_);
  tokens_.clear();
}

void TextAssembler::push(const types::TokenEvent& token) {
  const std::string_view bytes = vocabulary_.bytes(token.token);
  if (vocabulary_.is_control(token.token)) {
    flush();
    decoder_.push(bytes, Origin::kControl, logprobs_ ? Logprobs(&token, 1) : Logprobs());
    return;
  }
  if (tail_.empty() && is_utf8(bytes)) {
    decoder_.push(bytes, Origin::kToken, logprobs_ ? Logprobs(&token, 1) : Logprobs());
    return;
  }
  if (logprobs_) tokens_.push_back(token);
  tail_.append(bytes);
  text_.clear();
  const size_t left = append_utf8(text_, tail_, false);
  tail_.erase(0, tail_.size() - left);
  if (text_.empty()) return;
  decoder_.push(text_, Origin::kToken, tokens_);
  tokens_.clear();
}

void TextAssembler::finish() {
  flush();
}

size_t ChunkAssembler::push(std::span<const types::TokenEvent> tokens) {
  buffered_.insert(buffered_.end(), tokens.begin(), tokens.end());
  std::string bytes, text;
  for (const types::TokenEvent& token : buffered_) bytes.append(vocabulary_.bytes(token.token));
  append_utf8(text, bytes, true);
  if (text.empty() || text.ends_with(kReplacement)) return 0;
  // An added token is a piece of its own, and so is what stands between two; bytes cannot join
  // across one. A stop sequence ends the count with its piece.
  size_t begin = 0;
  auto flush = [&](size_t end, Origin origin) {
    if (begin == end || decoder_.stopped()) return;
    bytes.clear();
    text.clear();
    for (size_t i = begin; i < end; ++i) bytes.append(vocabulary_.bytes(buffered_[i].token));
    append_utf8(text, bytes, true);
    const Logprobs piece(buffered_.data() + begin, end - begin);
    if (!text.empty()) decoder_.push(text, origin, logprobs_ ? piece : Logprobs());
    begin = end;
  };
  for (size_t i = 0; i < buffered_.size(); ++i) {
    const types::TokenId id = buffered_[i].token;
    if (!vocabulary_.is_added(id)) continue;
    const bool marker = id == vocabulary_.think_end || id == vocabulary_.dsml;
    flush(i, Origin::kToken);
    flush(i + 1, marker ? Origin::kControl : Origin::kToken);
  }
  flush(buffered_.size(), Origin::kToken);
  buffered_.clear();
  return begin;
}

}  // namespace hadal::recipe
