#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hadal::recipe {

// Where a byte of the model's output comes from. Template markers count when they are control
// tokens or come as text; a model that spells one with ordinary tokens wrote text.
enum class Origin : uint8_t { kText, kToken, kControl };

// What happens when a marker is complete. Meaning: decoder.cc.
enum class Action : uint8_t {
  kNone,
  kStop,            // stop sequence `index`
  kEndReasoning,    // </think> after reasoning
  kDrop,            // swallow it, go on
  kDropEcho,        // the same, only at the very start of a part
  kOpenCalls,       // <DSML: calls begin, no question asked
  kProbeCalls,      // <DSML: calls begin if a tag follows
  kHideRest,        // <DSML as a control token while no tool may be called
  kOpenJson,        // a fence: JSON follows
  kKeepOpenJson,    // { or [: JSON has begun
  kCloseJson,       // the closing fence
  kInvokeName,      // compat from here on: invoke name="
  kEndBlock,        //
  kNameDone,        // "
  kParameterName,   // parameter name=
  kEndCall,         // </DSML in a call
  kParameterTyped,  // a space after the parameter's name
  kStringValue,     // true">
  kRawValue,        // false">
  kEndValue,        // </DSML in a value
  kTagInValue,      // default mode: <DSML in a value; its end may have been forgotten
  kOpenTag,         // default mode: a word that opens a tag; <DSML inside a call; </DSML
  kParameterTag,
  kTagInCall,
  kCloseTag,
};

struct Marker {
  std::string text;
  Action action = Action::kNone;
  // The newlines directly before it belong to it.
  bool takes_newlines = false;
  // Bytes [strict_begin, strict_end) may not come from ordinary tokens...
  uint8_t strict_begin = 0, strict_end = 0;
  // ... nor, with this, from text.
  bool only_control = false;
  uint8_t index = 0;
  std::vector<uint32_t> fail = {};  // of the prefix of length i + 1: longest border
};

// All markers that one stage waits for, matched together byte by byte. The order of markers decides
// when two are complete on one byte.
class MarkerSet {
 public:
  // `newline_fault`: a newline that breaks a begun marker does not begin a run (0.2.0).
  void add(Marker marker);
  void finish(bool newline_fault);
  const std::vector<Marker>& markers() const { return markers_; }

  // First position >= from where some marker may begin, or text.size().
  size_t find_trigger(std::string_view text, size_t from) const;

  struct State {
    uint32_t matched = 0;
    uint32_t n_newlines = 0;  // directly before the begun marker
  };
  // Advances every marker by one byte; returns the index of the first complete one, or -1. `active`
  // becomes false when nothing is begun.
  int step(std::vector<State>& states, unsigned char byte, Origin origin, bool& active) const;
  // Bytes at the end of what was stepped that a marker still needs.
  static size_t held(const std::vector<State>& states);

 private:
  std::vector<Marker> markers_;
  std::array<bool, 256> first_{};
  std::array<unsigned char, 4> triggers_{};
  size_t n_triggers_ = 0;  // 5: too many, use first_
  bool newline_fault_ = false;
};

}  // namespace hadal::recipe
