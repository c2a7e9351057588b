#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Readers of default mode's call markup, byte by byte, tolerant where one meaning is plain.
namespace hadal::recipe {

// What a tag says it is.
enum class TagWord : uint8_t { kNone, kBlock, kInvoke, kParameter, kOther };
TagWord tag_word(std::string_view word);

enum class Read : uint8_t {
  kMore,
  kDone,      // ended with this byte
  kDoneHere,  // ended before this byte
  kBad,       // not what it should be, seen at this byte
};

// The word after </DSML or, inside a call, <DSML, with its closing '>' if one follows.
class WordReader {
 public:
  // `attributes`: something may follow the word; else a '>' right after it is consumed.
  void reset(bool attributes);
  Read feed(unsigned char byte);
  TagWord word() const { return tag_word(std::string_view(word_, size_)); }

 private:
  bool attributes_ = false;
  char word_[20] = {};
  size_t size_ = 0;
};

// The attributes of an opening tag, from behind its word to its '>'. Accepts any order, any case of
// "true" and "false", single or no quotes, spaces around '='.
class TagReader {
 public:
  enum class Typed : uint8_t { kMissing, kString, kRaw };
  void reset();
  Read feed(unsigned char byte);
  bool has_name() const { return has_name_; }
  const std::string& name() const { return name_; }
  Typed typed() const { return typed_; }

 private:
  enum class State : uint8_t { kFirst, kGap, kKey, kAfterKey, kAfterEquals, kQuoted, kBare };
  void end_attribute();

  State state_ = State::kFirst;
  unsigned char quote_ = 0;
  std::string key_, value_, name_;
  bool has_name_ = false;
  Typed typed_ = Typed::kMissing;
};

// Decides what follows <DSML in an answer: a tag of a call block, or prose that quotes the token.
class ProbeReader {
 public:
  enum class Answer : uint8_t {
    kMore,
    kBlock,   // a block was opened; go on behind this byte
    kInvoke,  // the tag is an invoke; its attributes begin `n_back` bytes before the next byte
    kNested,  // a misspelt block tag: the next <DSML begins `n_back` bytes before the next byte
    kProse,
  };
  void reset();
  Answer feed(unsigned char byte);
  size_t n_back() const { return n_back_; }

 private:
  enum class State : uint8_t { kSpaces, kWord, kAfterBlock, kAttributes, kAfterTag, kNextTag };
  Answer end_word(unsigned char byte);

  State state_ = State::kSpaces;
  char word_[20] = {};
  size_t size_ = 0, n_read_ = 0, n_back_ = 0, n_matched_ = 0;
};

}  // namespace hadal::recipe
