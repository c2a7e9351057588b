#include "gateway/recipe/tag_reader.h"

#include <algorithm>
#include <array>

namespace hadal::recipe {
namespace {

// The block names of both versions and the misspellings that models were seen to write.
constexpr std::array<std::string_view, 10> kBlockWords = {
    "calls",          "tool_calls",    "toolcalls",     "tool_call", "toolcall",
    "function_calls", "functioncalls", "function_call", "call",      "tools"};
constexpr std::string_view kOpening = "<｜DSML｜";
// Longest text after <DSML that is looked at before it counts as prose.
constexpr size_t kMaxProbe = 64;

bool is_space(unsigned char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
bool is_word(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
}

bool equals_lower(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b;
  });
}

}  // namespace

TagWord tag_word(std::string_view word) {
  if (word.empty()) return TagWord::kNone;
  if (word == "invoke") return TagWord::kInvoke;
  if (word == "parameter") return TagWord::kParameter;
  const bool block = std::find(kBlockWords.begin(), kBlockWords.end(), word) != kBlockWords.end();
  return block ? TagWord::kBlock : TagWord::kOther;
}

void WordReader::reset(bool attributes) {
  attributes_ = attributes;
  size_ = 0;
}

Read WordReader::feed(unsigned char byte) {
  if (size_ == 0 && byte == ' ') return Read::kMore;
  if (is_word(byte)) {
    if (size_ < sizeof word_) word_[size_++] = static_cast<char>(byte);
    return Read::kMore;
  }
  return byte == '>' && !attributes_ ? Read::kDone : Read::kDoneHere;
}

void TagReader::reset() {
  state_ = State::kFirst;
  has_name_ = false;
  typed_ = Typed::kMissing;
  name_.clear();
}

void TagReader::end_attribute() {
  if (key_ == "name" && !has_name_) {
    has_name_ = true;
    name_.swap(value_);
  } else if (key_ == "string") {
    if (equals_lower(value_, "true") || equals_lower(value_, "yes") || value_ == "1") {
      typed_ = Typed::kString;
    } else if (equals_lower(value_, "false") || equals_lower(value_, "no") || value_ == "0") {
      typed_ = Typed::kRaw;
    }
  }
  state_ = State::kGap;
}

Read TagReader::feed(unsigned char byte) {
  switch (state_) {
    case State::kFirst:
      if (byte == '>') return Read::kDone;
      if (!is_space(byte)) return Read::kBad;
      state_ = State::kGap;
      return Read::kMore;
    case State::kGap:
      if (byte == '>') return Read::kDone;
      if (is_space(byte)) return Read::kMore;
      if (!is_word(byte)) return Read::kBad;
      key_.assign(1, static_cast<char>(byte));
      state_ = State::kKey;
      return Read::kMore;
    case State::kKey:
      if (is_word(byte)) {
        key_.push_back(static_cast<char>(byte));
        return Read::kMore;
      }
      state_ = State::kAfterKey;
      [[fallthrough]];
    case State::kAfterKey:
      if (is_space(byte)) return Read::kMore;
      if (byte != '=') return Read::kBad;
      value_.clear();
      state_ = State::kAfterEquals;
      return Read::kMore;
    case State::kAfterEquals:
      if (is_space(byte)) return Read::kMore;
      if (byte == '>' || byte == '<') return Read::kBad;
      if (byte == '"' || byte == '\'') {
        quote_ = byte;
        state_ = State::kQuoted;
      } else {
        value_.push_back(static_cast<char>(byte));
        state_ = State::kBare;
      }
      return Read::kMore;
    case State::kQuoted:
      if (byte == quote_) {
        end_attribute();
      } else {
        value_.push_back(static_cast<char>(byte));
      }
      return Read::kMore;
    case State::kBare:
      if (byte == '>' || byte == '<' || is_space(byte)) {
        end_attribute();
        return byte == '>' ? Read::kDone : byte == '<' ? Read::kBad : Read::kMore;
      }
      value_.push_back(static_cast<char>(byte));
      return Read::kMore;
  }
  return Read::kBad;
}

void ProbeReader::reset() {
  state_ = State::kSpaces;
  size_ = n_read_ = n_back_ = n_matched_ = 0;
}

ProbeReader::Answer ProbeReader::end_word(unsigned char byte) {
  const TagWord word = tag_word(std::string_view(word_, size_));
  if (word == TagWord::kBlock) {
    if (byte == '>') return Answer::kBlock;
    state_ = State::kAfterBlock;
  } else if (word == TagWord::kInvoke) {
    if (!is_space(byte)) return Answer::kProse;
    state_ = State::kAttributes;
    n_back_ = 1;
    return Answer::kMore;
  } else {
    if (byte != '>') return Answer::kProse;
    state_ = State::kAfterTag;
    return Answer::kMore;
  }
  if (byte == '\n' || byte == '<') {
    n_back_ = 1;
    return Answer::kNested;
  }
  return is_space(byte) ? Answer::kMore : Answer::kProse;
}

ProbeReader::Answer ProbeReader::feed(unsigned char byte) {
  if (++n_read_ > kMaxProbe) return Answer::kProse;
  switch (state_) {
    case State::kSpaces:
      if (byte == ' ' && n_read_ <= 2) return Answer::kMore;
      state_ = State::kWord;
      [[fallthrough]];
    case State::kWord:
      if (!is_word(byte)) return end_word(byte);
      if (size_ == sizeof word_) return Answer::kProse;
      word_[size_++] = static_cast<char>(byte);
      return Answer::kMore;
    case State::kAfterBlock:
      if (byte == '>') return Answer::kBlock;
      return byte == ' ' ? Answer::kMore : Answer::kProse;
    case State::kAttributes: {
      // " name =": then it is a tag, and the attribute reader takes over from the space.
      ++n_back_;
      constexpr std::string_view kName = "name";
      if (n_matched_ < kName.size()) {
        if (n_matched_ == 0 && is_space(byte)) return Answer::kMore;
        if (byte != static_cast<unsigned char>(kName[n_matched_])) return Answer::kProse;
        ++n_matched_;
        return Answer::kMore;
      }
      if (is_space(byte)) return Answer::kMore;
      return byte == '=' ? Answer::kInvoke : Answer::kProse;
    }
    case State::kAfterTag:
      if (is_space(byte)) return Answer::kMore;
      state_ = State::kNextTag;
      [[fallthrough]];
    case State::kNextTag:
      if (byte != static_cast<unsigned char>(kOpening[n_matched_])) return Answer::kProse;
      if (++n_matched_ < kOpening.size()) return Answer::kMore;
      n_back_ = kOpening.size();
      return Answer::kNested;
  }
  return Answer::kProse;
}

}  // namespace hadal::recipe
