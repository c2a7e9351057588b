#include "base/tokenizer/utf8.h"

#include <cstring>

namespace hadal::tokenizer {

Utf8Char next_char(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const uint32_t lead = at(0);
  if (lead < 0x80) return {lead, 1, false};
  uint32_t n_more = 0;
  uint32_t low = 0x80;
  uint32_t high = 0xbf;  // of the second byte
  if (lead >= 0xc2 && lead <= 0xdf) {
    n_more = 1;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    n_more = 2;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;  // no surrogates
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    n_more = 3;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return {Utf8Char::kInvalid, 1, false};
  }
  uint32_t code = lead & (0x3fu >> n_more);
  for (uint32_t i = 1; i <= n_more; ++i) {
    if (i >= text.size()) return {Utf8Char::kInvalid, i, true};
    const uint32_t byte = at(i);
    if (byte < (i == 1 ? low : 0x80u) || byte > (i == 1 ? high : 0xbfu))
      return {Utf8Char::kInvalid, i, false};
    code = (code << 6) | (byte & 0x3f);
  }
  return {code, n_more + 1, false};
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    if (text.size() >= 8) {
      uint64_t word = 0;
      std::memcpy(&word, text.data(), 8);
      if ((word & 0x8080808080808080u) == 0) {
        text.remove_prefix(8);
        continue;
      }
    }
    const Utf8Char c = next_char(text);
    if (c.code == Utf8Char::kInvalid) return false;
    text.remove_prefix(c.size);
  }
  return true;
}

std::string lossy_utf8(std::string_view bytes) {
  std::string out;
  Utf8Stream stream;
  stream.push(bytes, out);
  stream.finish(out);
  return out;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  // Complete what was held back, byte by byte: at most three steps.
  while (n_ > 0 && !bytes.empty()) {
    held_[n_] = bytes.front();
    const Utf8Char c = next_char({held_, static_cast<size_t>(n_) + 1});
    if (c.code != Utf8Char::kInvalid) {
      out.append(held_, c.size);
      n_ = 0;
      bytes.remove_prefix(1);
    } else if (c.cut) {
      ++n_;
      bytes.remove_prefix(1);
    } else {
      append_utf8(out, 0xfffd);  // the held bytes; the new one begins something else
      n_ = 0;
    }
  }
  size_t done = 0;  // bytes[0, done) are in out
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Char c = next_char(bytes.substr(at));
    if (c.code != Utf8Char::kInvalid) {
      at += c.size;
      continue;
    }
    out.append(bytes.substr(done, at - done));
    if (c.cut) {
      n_ = static_cast<uint8_t>(c.size);
      std::memcpy(held_, bytes.data() + at, c.size);
      return;
    }
    append_utf8(out, 0xfffd);
    at += c.size;
    done = at;
  }
  out.append(bytes.substr(done));
}

void Utf8Stream::finish(std::string& out) {
  if (n_ > 0) append_utf8(out, 0xfffd);
  n_ = 0;
}

}  // namespace hadal::tokenizer
