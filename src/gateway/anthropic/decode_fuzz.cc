#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "gateway/anthropic/response_factory.h"
#include "gateway/recipe/decoder.h"
#include "gateway/recipe/json_value.h"
#include "gateway/recipe/text_assembler.h"

// Any output of a model, cut anywhere, under any plan: what is delivered does not depend on the
// cuts, calls are of declared tools with arguments that are JSON objects, and every dialect writes
// JSON, streamed and whole. Two bytes choose the plan; the rest is pieces, separated by FF. A piece
// that begins with FE is tokens: one for each byte, F8 to FB the four control tokens; others are
// text, made valid UTF-8.
namespace {

using hadal::recipe::Api;
using hadal::recipe::Decoder;
using hadal::recipe::JsonDoc;
using hadal::recipe::Origin;
using hadal::recipe::ParsePlan;
using hadal::recipe::ResponseStream;
using hadal::recipe::StartStage;
using hadal::types::FinishReason;
using hadal::types::TokenEvent;
using hadal::types::TokenId;

constexpr TokenId kFirstControl = 0xF8;
constexpr std::string_view kControls[] = {"<｜end▁of▁sentence｜>", "<think>", "</think>",
                                          "｜DSML｜"};

class ByteVocabulary final : public hadal::recipe::Vocabulary {
 public:
  ByteVocabulary() {
    end_of_sentence = kFirstControl;
    think = kFirstControl + 1;
    think_end = kFirstControl + 2;
    dsml = kFirstControl + 3;
    for (int i = 0; i < 256; ++i) all_[i] = static_cast<char>(i);
  }
  std::string_view bytes(TokenId id) const override {
    if (id >= kFirstControl && id < kFirstControl + 4) return kControls[id - kFirstControl];
    return std::string_view(all_ + id, 1);
  }
  bool is_added(TokenId id) const override { return is_control(id); }
  size_t count_tokens(std::string_view text) const override { return text.size(); }

 private:
  char all_[256];
};

struct Piece {
  std::string text;
  std::vector<TokenEvent> tokens;
  bool is_text = true;
};

std::vector<Piece> read_pieces(std::string_view bytes) {
  std::vector<Piece> pieces;
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\xFF'), bytes.size());
    std::string_view raw = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    Piece piece;
    piece.is_text = !raw.starts_with('\xFE');
    if (piece.is_text) {
      hadal::recipe::append_utf8(piece.text, raw, true);
    } else {
      for (const char c : raw.substr(1)) {
        piece.tokens.emplace_back().token = static_cast<unsigned char>(c);
      }
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

struct Choices {
  ParsePlan plan;
  Api api;
  FinishReason reason;
  bool logprobs;
};

Choices read_choices(uint8_t first, uint8_t second) {
  constexpr Api kApis[] = {Api::kChat, Api::kMessages, Api::kResponses, Api::kCompletions};
  constexpr FinishReason kReasons[] = {FinishReason::kStop, FinishReason::kLength,
                                       FinishReason::kContentFilter, FinishReason::kNone};
  Choices out{{}, kApis[first & 3], kReasons[second & 3], (second & 0x80) != 0};
  ParsePlan& plan = out.plan;
  plan.compat = (first & 0x80) != 0;
  plan.thinking = (first & 0x40) != 0;
  plan.stage = plan.thinking ? StartStage::kReasoning : StartStage::kAnswer;
  if ((second & 4) != 0) {
    plan.stage =
        plan.thinking ? StartStage::kReasoningContinuation : StartStage::kContentContinuation;
  }
  if ((first & 0x20) != 0) {
    plan.tool_calls = true;
    plan.tools.push_back({.name = "f",
                          .ns = "",
                          .local_name = "f",
                          .parameters = R"({"properties":{"n":{"type":"integer"}}})"});
    plan.tools.push_back({.name = "g", .ns = "", .local_name = "g", .parameters = "{}"});
    if (out.api == Api::kResponses) {
      plan.tools.push_back({.name = "p",
                            .ns = "",
                            .local_name = "p",
                            .kind = hadal::recipe::ToolKind::kCustom,
                            .parameters = "{}"});
    }
    plan.starts_in_tool_calls = (first & 8) != 0;
    if (plan.starts_in_tool_calls && !plan.compat && (second & 8) != 0) plan.forced_tool = "f";
    plan.max_calls = (second & 0x10) != 0 ? 1 : 0;
  }
  plan.json = (first & 0x10) != 0;
  if ((first & 4) != 0) plan.stop = {"ab", "abc", "\n", "}"};
  return out;
}

// What the decoder delivered, joined.
struct Delivered final : hadal::recipe::DecoderSink {
  explicit Delivered(const ParsePlan& of) : plan(of) {}
  void on_reasoning(std::string_view text, hadal::recipe::Logprobs) override { reasoning += text; }
  void on_content(std::string_view text, hadal::recipe::Logprobs) override { content += text; }
  void on_call(std::string_view name) override { calls.emplace_back(name, ""); }
  void on_arguments(std::string_view json) override { calls.back().second += json; }
  void on_call_end(bool) override {
    if (plan.compat) return;
    JsonDoc doc;
    HADAL_CHECK(doc.parse(calls.back().second) && doc.root().is_object(), calls.back().second);
    bool declared = false;
    for (const auto& tool : plan.tools) declared |= tool.name == calls.back().first;
    HADAL_CHECK(declared, calls.back().first);
  }
  bool operator==(const Delivered& other) const {
    return reasoning == other.reasoning && content == other.content && calls == other.calls;
  }
  const ParsePlan& plan;
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;
};

// `n_bytes`: the most bytes of a text piece that are pushed at once.
Delivered decode(const Choices& choices, const ByteVocabulary& vocabulary,
                 const std::vector<Piece>& pieces, size_t n_bytes) {
  Delivered out(choices.plan);
  Decoder decoder(choices.plan, out, {.logprobs = choices.logprobs});
  hadal::recipe::TextAssembler assembler(vocabulary, decoder, choices.logprobs);
  for (const Piece& piece : pieces) {
    for (const TokenEvent& token : piece.tokens) {
      if (!decoder.stopped()) assembler.push(token);
    }
    for (size_t at = 0; at < piece.text.size() && !decoder.stopped();) {
      assembler.finish();  // text does not join the bytes of tokens
      size_t end = std::min(at + n_bytes, piece.text.size());
      while (end < piece.text.size() &&
             (static_cast<unsigned char>(piece.text[end]) & 0xC0) == 0x80) {
        ++end;
      }
      decoder.push(std::string_view(piece.text).substr(at, end - at), Origin::kText);
      at = end;
    }
  }
  if (!decoder.stopped()) assembler.finish();
  decoder.finish(choices.reason);
  return out;
}

void check_bytes(std::string_view bytes, bool stream) {
  JsonDoc doc;
  if (!stream) {
    HADAL_CHECK(doc.parse(bytes), "a whole answer is JSON");
    return;
  }
  constexpr std::string_view kData = "data: ";
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    HADAL_CHECK(end != std::string_view::npos, "a frame has an end");
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    if (!line.starts_with(kData) || line == "data: [DONE]") continue;
    HADAL_CHECK(doc.parse(line.substr(kData.size())), "a frame is JSON");
  }
}

void answer(const Choices& choices, const ByteVocabulary& vocabulary,
            const std::vector<Piece>& pieces, bool stream) {
  hadal::recipe::ResponsePlan response;
  response.api = choices.api;
  response.compat = choices.plan.compat;
  response.model = "m";
  response.stream = stream;
  response.thinking = choices.plan.thinking;
  response.logprobs = choices.logprobs;
  hadal::recipe::ResponseIdentity identity;
  identity.id = "r";
  const auto out = hadal::anthropic::make_response_stream(choices.plan, response, {}, vocabulary,
                                                          std::move(identity));
  std::string bytes;
  out->begin({.prompt_tokens = 3}, bytes);
  bool more = true;
  for (const Piece& piece : pieces) {
    if (!more) break;
    size_t n_taken = 0;
    more = piece.is_text ? out->on_text(0, piece.text, 1, bytes)
                         : out->on_tokens(0, piece.tokens, n_taken, bytes) ==
                               hadal::types::SinkAnswer::kContinue;
  }
  hadal::types::Completion completion;
  completion.reason = choices.reason;
  HADAL_CHECK(out->on_done(0, completion, bytes), "the last choice ends the answer");
  check_bytes(bytes, stream);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static const ByteVocabulary vocabulary;
  const Choices choices = read_choices(data[0], data[1]);
  const std::vector<Piece> pieces =
      read_pieces({reinterpret_cast<const char*>(data + 2), size - 2});
  if (choices.api != Api::kCompletions) {
    const Delivered whole = decode(choices, vocabulary, pieces, SIZE_MAX);
    for (const size_t n_bytes : {size_t{1}, size_t{3}}) {
      const Delivered cut = decode(choices, vocabulary, pieces, n_bytes);
      const bool spaces_differ = choices.plan.compat && choices.plan.json;
      HADAL_CHECK(spaces_differ || whole == cut, "the cut shows");
    }
  }
  for (const bool stream : {false, true}) answer(choices, vocabulary, pieces, stream);
  return 0;
}
