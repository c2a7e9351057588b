#include "main/decode_line.h"

#include <chrono>
#include <random>

#include "gateway/anthropic/response_factory.h"
#include "gateway/recipe/error_body.h"
#include "gateway/recipe/field_check.h"
#include "gateway/recipe/json_writer.h"
#include "main/codec_line.h"

namespace hadal::main {

using recipe::JsonValue;
using types::TokenEvent;

namespace {

// Enough to hold any piece that the format allows, so that a wrong one is refused and not read.
constexpr size_t kMaxPieces = 1u << 24;

core::Error wrong(std::string message, std::string param) {
  return {core::Code::kInvalidRequest, std::move(message), std::move(param)};
}

bool is_u32(JsonValue value) {
  return value.is(recipe::JsonType::kUnsigned) && value.node()->u <= UINT32_MAX;
}

// {"ids": [...], "logprobs": [[logprob, [[id, logprob], ...]], ...]} or a bare list of ids.
core::Status read_tokens(JsonValue ids, JsonValue logprobs, const std::string& path,
                         std::vector<TokenEvent>& out) {
  if (!ids.is_array()) return wrong("expected a list of token ids", path);
  out.clear();
  for (JsonValue id : ids) {
    if (!is_u32(id)) return wrong("expected a list of token ids", path);
    TokenEvent event;
    event.token = static_cast<types::TokenId>(id.node()->u);
    out.push_back(std::move(event));
  }
  if (logprobs.absent_or_null()) return {};
  const core::Error bad =
      wrong("expected one [logprob, [[id, logprob], ...]] for each id", path + ".logprobs");
  if (!logprobs.is_array() || logprobs.size() != out.size()) return bad;
  size_t i = 0;
  for (JsonValue entry : logprobs) {
    if (!entry.is_array() || entry.size() != 2) return bad;
    auto part = entry.begin();
    out[i].logprob = static_cast<float>((*part).number());
    ++part;
    for (JsonValue top : *part) {
      if (!top.is_array() || top.size() != 2) return bad;
      auto at = top.begin();
      if (!is_u32(*at)) return bad;
      const auto id = static_cast<types::TokenId>((*at).node()->u);
      ++at;
      out[i].top.push_back({id, static_cast<float>((*at).number())});
    }
    ++i;
  }
  return {};
}

// Plays the pieces until the stream has enough. `stopped`: it has, `finish` does not count.
// `vocabulary`: ids outside it are refused; null: they stand for no text, as in 0.2.0.
core::Status play(JsonValue pieces, const recipe::Vocabulary* vocabulary,
                  recipe::ResponseStream& stream, std::string& out) {
  if (!pieces.is_array() || pieces.size() > kMaxPieces) {
    return wrong("expected a list: text, [ids], {text, n} or {ids, logprobs}", "pieces");
  }
  std::vector<TokenEvent> events;
  size_t index = 0;
  for (JsonValue piece : pieces) {
    const std::string path = "pieces[" + std::to_string(index++) + "]";
    bool more = true;
    if (piece.is_string()) {
      more = stream.on_text(0, piece.str(), 1, out);
    } else if (piece.is_object() && piece["text"].is_string()) {
      const JsonValue n = piece["n"];
      if (n && !is_u32(n)) return wrong("expected a count of tokens", path + ".n");
      more =
          stream.on_text(0, piece["text"].str(), n ? static_cast<uint32_t>(n.node()->u) : 1, out);
    } else {
      const JsonValue ids = piece.is_object() ? piece["ids"] : piece;
      HADAL_TRY_VOID(
          read_tokens(ids, piece.is_object() ? piece["logprobs"] : JsonValue(), path, events));
      for (const TokenEvent& event : events) {
        if (vocabulary != nullptr && vocabulary->bytes(event.token).empty())
          return wrong("token id " + std::to_string(event.token) + " is not in the tokenizer",
                       path);
      }
      size_t n_taken = 0;
      more = stream.on_tokens(0, events, n_taken, out) == types::SinkAnswer::kContinue;
    }
    if (!more) break;
  }
  return {};
}

core::Result<types::FinishReason> read_finish(JsonValue value) {
  if (value.absent_or_null()) return types::FinishReason::kNone;
  if (value.str() == "stop") return types::FinishReason::kStop;
  if (value.str() == "length") return types::FinishReason::kLength;
  if (value.str() == "content_filter") return types::FinishReason::kContentFilter;
  return wrong("expected stop, length, content_filter or null", "finish");
}

// Server-sent events as a list of {"event", "data"}, and what ended them.
void append_events(std::string& out, std::string_view frames) {
  constexpr std::string_view kEvent = "event: ", kData = "data: ";
  out.append(R"("events":[)");
  bool first = true, done = false;
  std::string_view name;
  while (!frames.empty()) {
    const size_t end = frames.find('\n');
    const std::string_view line = frames.substr(0, end);
    frames.remove_prefix(end == std::string_view::npos ? frames.size() : end + 1);
    if (line.starts_with(kEvent)) name = line.substr(kEvent.size());
    if (!line.starts_with(kData)) continue;
    const std::string_view data = line.substr(kData.size());
    if (data == "[DONE]") {
      done = true;
      continue;
    }
    out.append(first ? R"({"event":)" : R"(,{"event":)");
    first = false;
    recipe::append_quoted_or_null(out, name);
    out.append(R"(,"data":)").append(data).push_back('}');
    name = {};
  }
  out.append(done ? R"(],"done":"[DONE]")" : R"(],"done":null)");
}

core::Result<std::string> answer(const CodecLine& line, const recipe::Vocabulary& vocabulary) {
  if (!line.problem.has_value()) return line.problem.error();
  if (line.is_conversation)
    return wrong("expected chat, messages, responses or completions", "api");
  HADAL_TRY(recipe::CodecRequest request, parse_request(line));
  const JsonValue object = line.object;
  HADAL_TRY(const types::FinishReason reason, read_finish(object["finish"]));
  const JsonValue prompt = object["usage"]["prompt_tokens"];
  const JsonValue cached = object["usage"]["cached_tokens"];
  if ((prompt && !is_u32(prompt)) || (cached && !is_u32(cached))) {
    return wrong("expected counts of tokens", "usage");
  }
  recipe::Usage usage;
  if (prompt) usage.prompt_tokens = static_cast<uint32_t>(prompt.node()->u);
  if (cached) usage.cached_tokens = static_cast<uint32_t>(cached.node()->u);
  if (usage.cached_tokens > usage.prompt_tokens) {
    return wrong("more cached tokens than prompt tokens", "usage.cached_tokens");
  }
  request.response.stream = object["stream"].is_true();
  request.response.n = 1;  // a line has the pieces of one choice
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  recipe::ResponseIdentity identity;
  identity.id = object["response_id"].is_string() ? std::string(object["response_id"].str()) : "r1";
  identity.created = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  identity.fingerprint = object["fingerprint"].str();
  identity.seed = std::random_device{}();
  identity.reasoning_key = line.options.reasoning_key;
  const auto stream = anthropic::make_response_stream(
      std::move(request.parse), std::move(request.response), std::move(request.extension),
      vocabulary, std::move(identity));
  std::string bytes;
  stream->begin(usage, bytes);
  HADAL_TRY_VOID(
      play(object["pieces"], line.options.compat ? nullptr : &vocabulary, *stream, bytes));
  types::Completion completion;
  completion.reason = reason;
  stream->on_done(0, completion, bytes);
  std::string out;
  if (stream->streamed()) {
    append_events(out, bytes);
  } else {
    out.append(R"("response":)").append(bytes);
  }
  return out;
}

}  // namespace

std::optional<std::string> decode_line(std::string_view text, const recipe::Vocabulary& vocabulary,
                                       const recipe::CodecOptions& defaults) {
  CodecLine line;
  if (!read_codec_line(text, defaults, line)) return std::nullopt;
  std::string out = R"({"id":)";
  recipe::append_json(out, line.id, recipe::FloatStyle::kPython);
  out.push_back(',');
  if (const core::Result<std::string> result = answer(line, vocabulary); result) {
    out.append(*result);
  } else {
    out.append(R"("error":{"status":)");
    recipe::append_number(out, recipe::http_status(result.error().code));
    out.append(R"(,"body":)");
    out.append(recipe::error_body(result.error(), line.api, line.options.compat)).push_back('}');
  }
  out.push_back('}');
  return one_line(std::move(out));
}

}  // namespace hadal::main
