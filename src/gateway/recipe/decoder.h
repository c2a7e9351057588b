#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types/request.h"
#include "gateway/recipe/json_value.h"
#include "gateway/recipe/marker.h"
#include "gateway/recipe/plan.h"
#include "gateway/recipe/tag_reader.h"

namespace hadal::recipe {

// The tokens that carry a piece of text, with their log-probabilities; empty unless asked for.
using Logprobs = std::span<const types::TokenEvent>;

// Receives what the model said, cut into its parts. Texts are valid during the call only.
class DecoderSink {
 public:
  virtual ~DecoderSink() = default;
  virtual void on_reasoning(std::string_view text, Logprobs tokens) = 0;
  virtual void on_content(std::string_view text, Logprobs tokens) = 0;
  // A call begins. Its arguments follow as JSON text, in pieces that may be cut anywhere.
  virtual void on_call(std::string_view name) = 0;
  virtual void on_arguments(std::string_view json) = 0;
  // `complete`: the model closed it; false when the output ended inside.
  virtual void on_call_end(bool complete) = 0;
};

// Why the output ended, in the words of the recipe.
enum class Finish : uint8_t {
  kStop,
  kStopSequence,
  kToolCalls,
  kLength,
  kContentFilter,
  kEndOfStream,  // the backend gave no reason
  kPause,        // not of the decoder: the server ran its tools as often as it does in one answer
};

// Call markup of an output that reaches the client in no form, or not as it was written. All zero
// in compat mode. What a cut by length loses is told by the finish reason.
struct LostMarkup {
  uint32_t empty_blocks = 0;       // a block without one call
  uint32_t undeclared_calls = 0;   // of tools that the request does not declare: left out
  uint32_t unfinished_calls = 0;   // the model ended inside: closed where they stood
  uint32_t hidden_tokens = 0;      // a marker without a block, or where no tool may be called
  uint32_t texts_after_calls = 0;  // and all that follows them
  bool any() const {
    return (empty_blocks | undeclared_calls | unfinished_calls | hidden_tokens |
            texts_after_calls) != 0;
  }
};

// Splits one model output into reasoning, answer and calls, as the bytes come. What is delivered
// does not depend on how the text was cut into pieces (0.2.0's JSON mode excepted, `compat`).
//
// One machine for both modes: a stage is a set of markers, the first complete one decides. With
// ParsePlan::compat the calls are read by deepseek-recipe 0.2.0's fragments, its faults included;
// without it by a tolerant tag reader that always gives valid JSON and declared names only.
// docs/recipe.md lists the differences.
//
// Not thread-safe. Allocates only while something is held back.
class Decoder {
 public:
  struct Options {
    bool logprobs = false;  // push() is given the tokens
    bool raw = false;       // no template: only stop sequences count (Completions)
  };
  // `plan` and `sink` must outlive the decoder.
  Decoder(const ParsePlan& plan, DecoderSink& sink, Options options);

  // One piece of output: valid UTF-8, all of one origin.
  void push(std::string_view text, Origin origin, Logprobs tokens = {});
  // A stop sequence matched or the last allowed call ended: nothing more is wanted.
  bool stopped() const { return stop_.has_value() || full_; }
  // Delivers what was held back and says how the output ended. Call once.
  Finish finish(types::FinishReason reason);

  bool in_reasoning() const {
    return stage_ == Stage::kReasoning ||
           (stage_ == Stage::kProbe && before_probe_ == Stage::kReasoning);
  }
  // The stop sequence that ended the output, or "".
  std::string_view stop_sequence() const;
  uint32_t n_calls() const { return n_calls_; }
  // After finish().
  const LostMarkup& lost() const { return lost_; }

 private:
  enum class Stage : uint8_t {
    kReasoning,
    kAnswer,
    kJson,
    kAfterJson,
    kCalls,
    kArguments,
    kStringValue,
    kRawValue,
    kName,
    kParameterName,
    kParameterType,  // compat
    kWithMarkers,    // all above wait for markers; below read on their own
    kProbe,
    kValueProbe,
    kOpenTag,
    kTagWord,
    kCloseTag,
    kDone
  };
  struct Unit {  // a piece that is not delivered yet, and its tokens
    size_t begin = 0, end = 0;
    std::vector<types::TokenEvent> tokens;
    bool reported = false;
  };

  using MarkerSets = std::vector<MarkerSet>;  // by stage
  static MarkerSets build_markers(const ParsePlan& plan, bool raw);
  static void build_call_markers(bool compat, MarkerSets& sets);
  // Those of a plan: without stop sequences, sets that all such outputs share.
  static std::shared_ptr<const MarkerSets> marker_sets(const ParsePlan& plan, bool raw);
  const MarkerSet& markers_of(Stage stage) const { return (*sets_)[static_cast<size_t>(stage)]; }
  void enter(Stage stage, bool lead = false);

  void run();
  void scan_markers();
  void complete(size_t index);
  void settle_lost(types::FinishReason reason, Stage last);
  void complete_call_marker(const Marker& marker, size_t begin);
  void read_probe();
  void read_value_probe();
  void back_to_text();
  void read_open_tag();
  void read_tag_word();
  void read_close_tag();

  void open_call(std::string_view name);
  void close_call(bool complete);
  void open_parameter();
  void close_value();
  void apply_close_tag(TagWord word);
  bool is_string_by_schema(JsonValue value) const;

  void emit_to(size_t end);
  void deliver_unit(std::string_view text, Logprobs tokens);
  void retain();
  Origin origin_at(size_t at) const {
    return window_.data() == held_.data() ? static_cast<Origin>(origins_[at]) : origin_;
  }

  const ParsePlan& plan_;
  DecoderSink& sink_;
  const Options options_;
  const bool track_units_;
  const bool newline_stops_;  // "\n" is a stop sequence
  const std::shared_ptr<const MarkerSets> sets_;

  Stage stage_ = Stage::kAnswer;
  std::vector<MarkerSet::State> states_;  // of the stage's markers
  bool active_ = false;                   // some marker is begun
  bool lead_ = false;                     // leading newlines of this part are dropped
  bool part_started_ = false;             // the part has delivered text
  bool echo_used_ = false;
  std::optional<uint8_t> stop_;
  bool full_ = false;

  // The window: what was held back and the piece of this push.
  std::string_view window_;
  size_t pos_ = 0;   // next byte to look at
  size_t emit_ = 0;  // first byte that is not delivered yet
  Origin origin_ = Origin::kText;
  std::string held_;
  std::string origins_;  // of each byte of held_
  std::vector<Unit> units_;
  std::vector<types::TokenEvent> token_scratch_;

  // Default mode's probe after <DSML, in text or in a value.
  Stage before_probe_ = Stage::kAnswer;
  size_t probe_begin_ = 0;
  ProbeReader probe_;

  // The call being read.
  TagReader tag_, next_tag_;
  bool next_word_read_ = false;
  TagWord tag_word_ = TagWord::kNone;  // of the open tag
  WordReader word_;
  Stage close_from_ = Stage::kCalls;
  std::string name_;
  uint32_t n_calls_ = 0;
  LostMarkup lost_;
  bool block_open_ = false;  // a block was opened
  bool call_open_ = false;
  bool call_hidden_ = false;  // undeclared: read, not shown
  bool first_parameter_ = true;
  enum class ValueKind : uint8_t { kString, kRaw, kBySchema } value_kind_ = ValueKind::kString;
  bool value_open_ = false;
  std::string value_;
  const DeclaredTool* tool_ = nullptr;
  std::string json_scratch_;
};

}  // namespace hadal::recipe
