#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/recipe/json_value.h"
#include "gateway/recipe/options.h"
#include "gateway/recipe/plan.h"

namespace hadal::recipe {

enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool, kLatestReminder };

enum class ImageDetail : uint8_t { kHigh, kLow, kOriginal, kAuto };

struct ImageSize {
  uint32_t width = 0, height = 0;
};

// A picture that a message shows, not yet fetched or decoded.
struct ImageRef {
  enum class Kind : uint8_t { kUrl, kBase64, kFile } kind = Kind::kUrl;
  std::string_view source;  // URL (also data:), base64 text, or file id
  ImageDetail detail = ImageDetail::kHigh;
  std::string path;   // of the message in the request, as errors begin
  std::string field;  // of the picture itself
  ImageSize size;     // of its file, once check_pictures() has seen it; 0 x 0: not known
};

// A piece of a message's content: text, or the place of images[image].
struct Part {
  std::string_view text;
  int32_t image = -1;
  bool hidden = false;  // an image that is listed but has no place
};

struct ToolDef {
  std::string_view name;  // flat
  std::string_view description;
  bool has_description = false;
  JsonValue parameters;              // as shown; absent: {}
  std::string_view parameters_text;  // wins over `parameters` when not empty: JSON text to be shown
  JsonValue raw;                     // the client's whole `function` object (reference profile)
  bool strict = false, has_strict = false;
  bool deferred = false;
  ToolKind kind = ToolKind::kFunction;
  std::string_view ns, local_name;           // Responses
  std::string_view grammar, grammar_syntax;  // custom tools: lark or regex text
  std::string path;                          // in the request, of the object that holds the name
};

struct Call {
  std::string_view id, name;
  std::string_view arguments;  // JSON text, or anything
  JsonValue arguments_value;   // wins over `arguments` when present
};

struct Message {
  Role role = Role::kUser;
  std::vector<Part> content;
  std::string_view reasoning;
  bool has_reasoning = false;
  bool prefix = false;                // assistant: to be continued
  std::vector<Call> calls;            // assistant
  std::string_view tool_call_id;      // tool
  std::vector<const ToolDef*> tools;  // system: tools that become visible here
  std::string path;                   // in the request, for errors
  std::string_view task;              // user: quick task (title, query, ...)
};

enum class ToolChoice : uint8_t { kAuto, kNone, kRequired };

// A conversation as the prompt encoders take it: no dialect left. Texts are borrowed.
struct Conversation {
  std::vector<Message> messages;
  std::vector<ImageRef> images;
  std::list<ToolDef> tool_store;      // owns every definition; pointers into it stay valid
  std::vector<const ToolDef*> tools;  // those that the model may call
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string_view forced_tool;  // default mode: tool_choice named this one
  bool thinking = true;
  // Words of 0.2.0 and their numbers; unset is written like high (75).
  std::optional<uint32_t> effort;  // 1..100
  bool effort_is_number = false;
  std::string_view effort_word;  // "low", "high", "xhigh", "max", "" if given as a number
  enum class Format : uint8_t { kText, kJsonObject, kJsonSchema, kRegex } format = Format::kText;
  JsonValue schema;  // kJsonSchema, as shown
  bool has_visible_tools() const { return tool_choice != ToolChoice::kNone && !tools.empty(); }
};

// Owns what a request's views point into.
class RequestText {
 public:
  std::string body;
  JsonDoc doc;
  // A copy that lives as long as this object.
  std::string_view keep(std::string text);
  // A parsed document that lives as long as this object; `text` must too.
  core::Result<JsonValue> parse(std::string_view text);

 private:
  std::vector<std::unique_ptr<std::string>> strings_;
  std::vector<std::unique_ptr<JsonDoc>> docs_;
};

// A request of any dialect, understood: everything later stages need, no JSON walking left.
struct CodecRequest {
  std::shared_ptr<RequestText> text;  // shared with nobody yet; keeps every view below valid
  Conversation conversation;
  ParsePlan parse;
  Sampling sampling;
  OutputConstraint constraint;
  OutputConstraint format;  // of the text: kNone, kJson or kRegex, with visible tools too
  ServerTools server_tools;
  ResponsePlan response;
  Extension extension;
  // Completions: the prompt is this text or these ids, not a conversation.
  std::optional<std::string_view> raw_prompt;
  std::optional<std::string_view> raw_suffix;  // fill in the middle
  std::vector<int32_t> raw_tokens;
};

}  // namespace hadal::recipe
