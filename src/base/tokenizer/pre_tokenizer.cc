#include "base/tokenizer/pre_tokenizer.h"

#include "base/tokenizer/utf8.h"

namespace hadal::tokenizer {
namespace {

bool is_ascii_letter(uint32_t c) {
  return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}
bool is_ascii_punctuation(uint32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

}  // namespace

PreTokenizer::Char PreTokenizer::peek_wide(size_t at) const {
  const Utf8Char c = next_char(text_.substr(at));
  if (c.code == Utf8Char::kInvalid) return {c.code, 1, 0};  // one byte at a time, of no class
  return {c.code, c.size, classes_.of(c.code)};
}

size_t PreTokenizer::segment_end(size_t at) const {
  const Char first = peek(at);
  if ((first.bits & kNumber) != 0) {
    size_t end = at + first.size;
    for (uint32_t n = 1; n < max_digits_ && end < text_.size(); ++n) {
      const Char c = peek(end);
      if ((c.bits & kNumber) == 0) break;
      end += c.size;
    }
    return end;
  }
  const uint8_t kind = first.bits & kCjk;
  size_t end = at + first.size;
  while (end < text_.size()) {
    const Char c = peek(end);
    if ((c.bits & kNumber) != 0 || (c.bits & kCjk) != kind) break;
    end += c.size;
  }
  return end;
}

size_t PreTokenizer::space_match(size_t at) const {
  size_t end = at;         // of the run of spaces
  size_t last = at;        // begin of its last character
  size_t newline_end = 0;  // behind its last CR or LF
  while (end < segment_end_) {
    const Char c = peek(end);
    if ((c.bits & kSpace) == 0) break;
    last = end;
    end += c.size;
    if ((c.bits & kNewline) != 0) newline_end = end;
  }
  if (newline_end > 0) return newline_end;  // \s*[\r\n]+
  if (end == segment_end_) return end;      // \s+(?!\S)
  return last > at ? last : end;            // the same less one character; else \s+
}

size_t PreTokenizer::match_words(size_t at) const {
  const Char first = peek(at);
  const size_t second = at + first.size;
  const auto run = [this](size_t from, uint8_t bits) {
    while (from < segment_end_) {
      const Char c = peek(from);
      if ((c.bits & bits) == 0) break;
      from += c.size;
    }
    return from;
  };
  if (first.code < 0x80 && is_ascii_punctuation(first.code)) {
    size_t end = second;
    while (end < segment_end_ && is_ascii_letter(static_cast<unsigned char>(text_[end]))) ++end;
    if (end > second) return end;
  }
  if ((first.bits & (kLetter | kMark)) != 0) return run(second, kLetter | kMark);
  const bool may_lead = (first.bits & (kNewline | kPunctuation | kSymbol)) == 0;
  if (may_lead && second < segment_end_ && (peek(second).bits & (kLetter | kMark)) != 0)
    return run(second, kLetter | kMark);
  if ((first.bits & (kPunctuation | kSymbol)) != 0 ||
      (first.code == ' ' && second < segment_end_ &&
       (peek(second).bits & (kPunctuation | kSymbol)) != 0)) {
    return run(run(second, kPunctuation | kSymbol), kNewline);
  }
  if ((first.bits & kSpace) != 0) return space_match(at);
  return at;
}

std::string_view PreTokenizer::next() {
  if (at_ >= text_.size()) return {};
  if (at_ >= segment_end_) segment_end_ = segment_end(at_);
  const size_t begin = at_;
  if ((peek(begin).bits & kNumber) != 0) {
    at_ = segment_end_;
    return text_.substr(begin, at_ - begin);
  }
  at_ = match_words(begin);
  if (at_ > begin) return text_.substr(begin, at_ - begin);
  // A gap: characters that no pattern matches, up to the next match.
  do {
    at_ += peek(at_).size;
  } while (at_ < segment_end_ && match_words(at_) == at_);
  return text_.substr(begin, at_ - begin);
}

}  // namespace hadal::tokenizer
