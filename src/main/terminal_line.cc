#include "main/terminal_line.h"

#include <algorithm>

namespace hadal::main {
namespace {

constexpr char kEscape = '\x1b';
constexpr size_t kLongestEscape = 16;
constexpr size_t kMostHistory = 1000;

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

int bytes_after_first(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC0 ? 1 : 0;
}

constexpr char control(char letter) {
  return static_cast<char>(letter & 0x1F);
}

}  // namespace

void LineBuffer::clear() {
  text_.clear();
  cursor_ = 0;
  n_missing_ = 0;
  escape_.clear();
  recalled_ = history_.size();
}

void LineBuffer::remember(const std::string& line) {
  if (history_.empty() || history_.back() != line) history_.push_back(line);
  if (history_.size() > kMostHistory) history_.erase(history_.begin());
  recalled_ = history_.size();
}

size_t LineBuffer::before(size_t at) const {
  if (at > 0) --at;
  while (at > 0 && continues(text_[at])) --at;
  return at;
}

size_t LineBuffer::after(size_t at) const {
  if (at < text_.size()) ++at;
  while (at < text_.size() && continues(text_[at])) ++at;
  return at;
}

size_t LineBuffer::word_before(size_t at) const {
  while (at > 0 && text_[at - 1] == ' ') --at;
  while (at > 0 && text_[at - 1] != ' ') --at;
  return at;
}

size_t LineBuffer::word_after(size_t at) const {
  while (at < text_.size() && text_[at] == ' ') ++at;
  while (at < text_.size() && text_[at] != ' ') ++at;
  return at;
}

LineBuffer::Event LineBuffer::insert(char byte) {
  n_missing_ = continues(byte) ? std::max(0, n_missing_ - 1) : bytes_after_first(byte);
  text_.insert(cursor_++, 1, byte);
  return Event::kChanged;
}

LineBuffer::Event LineBuffer::erase(size_t begin, size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
  return Event::kChanged;
}

LineBuffer::Event LineBuffer::move(size_t to) {
  cursor_ = to;
  return Event::kChanged;
}

LineBuffer::Event LineBuffer::recall(size_t index) {
  if (index > history_.size()) return Event::kNone;
  if (recalled_ == history_.size()) typed_ = text_;
  recalled_ = index;
  text_ = index == history_.size() ? typed_ : history_[index];
  return move(text_.size());
}

LineBuffer::Event LineBuffer::feed(char byte) {
  if (!escape_.empty()) return feed_escape(byte);
  if (byte == kEscape) {
    escape_ = byte;
    return Event::kNone;
  }
  if (byte == '\r' || byte == '\n') return pasting_ ? insert('\n') : Event::kSubmitted;
  if (pasting_ && byte == '\t') return insert(' ');
  switch (byte) {
    case '\x7f':
    case control('H'):
      return erase(before(cursor_), cursor_);
    case control('A'):
      return move(0);
    case control('E'):
      return move(text_.size());
    case control('B'):
      return move(before(cursor_));
    case control('F'):
      return move(after(cursor_));
    case control('D'):
      if (text_.empty()) return Event::kEnd;
      return erase(cursor_, after(cursor_));
    case control('K'):
      return erase(cursor_, text_.size());
    case control('U'):
      return erase(0, cursor_);
    case control('W'):
      return erase(word_before(cursor_), cursor_);
    case control('P'):
      return recall(recalled_ - 1);
    case control('N'):
      return recall(recalled_ + 1);
    case control('L'):
      return Event::kClearScreen;
    default:
      return static_cast<unsigned char>(byte) < 0x20 ? Event::kNone : insert(byte);
  }
}

LineBuffer::Event LineBuffer::feed_escape(char byte) {
  escape_ += byte;
  const bool long_form = escape_.size() > 1 && (escape_[1] == '[' || escape_[1] == 'O');
  const bool whole = long_form ? escape_.size() > 2 && byte >= '@' && byte <= '~' : true;
  if (!whole && escape_.size() < kLongestEscape) return Event::kNone;
  const std::string sequence = escape_.substr(1);
  escape_.clear();
  return apply_escape(sequence);
}

LineBuffer::Event LineBuffer::apply_escape(std::string_view sequence) {
  if (sequence == "[200~" || sequence == "[201~") {
    pasting_ = sequence == "[200~";
    return Event::kNone;
  }
  if (sequence == "[A" || sequence == "OA") return recall(recalled_ - 1);
  if (sequence == "[B" || sequence == "OB") return recall(recalled_ + 1);
  if (sequence == "[C" || sequence == "OC") return move(after(cursor_));
  if (sequence == "[D" || sequence == "OD") return move(before(cursor_));
  if (sequence == "[H" || sequence == "OH" || sequence == "[1~" || sequence == "[7~")
    return move(0);
  if (sequence == "[F" || sequence == "OF" || sequence == "[4~" || sequence == "[8~")
    return move(text_.size());
  if (sequence == "[3~") return erase(cursor_, after(cursor_));
  if (sequence == "[1;5C" || sequence == "[1;3C" || sequence == "f")
    return move(word_after(cursor_));
  if (sequence == "[1;5D" || sequence == "[1;3D" || sequence == "b")
    return move(word_before(cursor_));
  return Event::kNone;
}

}  // namespace hadal::main
