#include "gateway/recipe/response_writer.h"

#include <algorithm>

#include "gateway/recipe/json_value.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/recipe/text_assembler.h"

namespace hadal::recipe {

uint64_t CallIds::random() {  // splitmix64
  uint64_t z = state_ += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::string CallIds::next(size_t index) {
  constexpr std::string_view kSymbols =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::string id = index < 10 ? "call_0" : "call_";
  append_number(id, uint64_t{index});
  id.push_back('_');
  for (int i = 0; i < 20; ++i) id.push_back(kSymbols[random() % kSymbols.size()]);
  for (int i = 0; i < 4; ++i) id.push_back(static_cast<char>('0' + random() % 10));
  return id;
}

void append_extensions(std::span<const std::string> extensions, std::string& out) {
  const auto is_empty = [](const std::string& text) { return text.empty(); };
  if (std::all_of(extensions.begin(), extensions.end(), is_empty)) return;
  out.append(R"(,"hadal":)");
  if (extensions.size() == 1) {
    out.append(extensions[0]);
    return;
  }
  for (size_t i = 0; i < extensions.size(); ++i) {
    out.push_back(i == 0 ? '[' : ',');
    out.append(extensions[i].empty() ? "{}" : extensions[i]);
  }
  out.push_back(']');
}

void append_token_text(std::string& out, std::string_view bytes) {
  if (is_utf8(bytes)) {
    append_escaped(out, bytes);
    return;
  }
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out.append("\\\\x");
    out.push_back(kHex[byte >> 4]);
    out.push_back(kHex[byte & 15]);
  }
}

namespace {

void append_entry(std::string& out, std::string_view bytes, float logprob) {
  out.append(R"({"token":")");
  append_token_text(out, bytes);
  out.append(R"(","logprob":)");
  append_number(out, logprob);
  out.append(R"(,"bytes":[)");
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out.push_back(',');
    append_number(out, uint32_t{static_cast<unsigned char>(bytes[i])});
  }
  out.push_back(']');
}

}  // namespace

void append_logprobs(std::string& out, Logprobs tokens, const Vocabulary& vocabulary) {
  bool first = true;
  for (const types::TokenEvent& token : tokens) {
    if (!first) out.push_back(',');
    first = false;
    append_entry(out, vocabulary.bytes(token.token), token.logprob);
    out.append(R"(,"top_logprobs":[)");
    for (size_t i = 0; i < token.top.size(); ++i) {
      if (i > 0) out.push_back(',');
      append_entry(out, vocabulary.bytes(token.top[i].token), token.top[i].logprob);
      out.push_back('}');
    }
    out.append("]}");
  }
}

void append_object(std::string& out, std::string_view json) {
  JsonDoc doc;
  if (!doc.parse(json) || !doc.root().is_object()) {
    out.append("{}");
    return;
  }
  // No string of a valid document holds a raw line break.
  for (const char c : json) out.push_back(c == '\n' || c == '\r' ? ' ' : c);
}

std::string_view chat_finish_reason(Finish finish) {
  switch (finish) {
    case Finish::kToolCalls:
      return "tool_calls";
    case Finish::kLength:
      return "length";
    case Finish::kContentFilter:
      return "content_filter";
    case Finish::kStop:
    case Finish::kStopSequence:
    case Finish::kEndOfStream:
    case Finish::kPause:
      return "stop";
  }
  return "stop";
}

}  // namespace hadal::recipe
