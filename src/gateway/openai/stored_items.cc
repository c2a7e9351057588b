#include "gateway/openai/stored_items.h"

#include <fmt/format.h>

#include "gateway/openai/responses_types.h"
#include "gateway/recipe/field_check.h"
#include "gateway/recipe/json_value.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/recipe/options.h"
#include "gateway/recipe/request_rules.h"

namespace hadal::openai {
namespace {

using recipe::append_quoted;
using recipe::JsonDoc;
using recipe::JsonValue;

constexpr size_t kMostItemsAtOnce = 20;  // as the API's reference has it
constexpr std::string_view kUnknownPrefix = "item_";

std::string_view type_of(JsonValue item) {
  return item["type"].is_string() ? item["type"].str() : std::string_view("message");
}

std::string_view id_prefix(std::string_view type) {
  if (type == "message") return "msg_";
  if (type == "reasoning") return "rs_";
  if (type == "function_call") return "fc_";
  if (type == "function_call_output") return "fco_";
  if (type == "custom_tool_call") return "ctc_";
  if (type == "custom_tool_call_output") return "ctco_";
  if (type == "tool_search_call") return "tsc_";
  if (type == "tool_search_output") return "tso_";
  if (type == "web_search_call") return "ws_";
  return kUnknownPrefix;
}

void append_text_part(std::string& out, std::string_view text, bool is_output) {
  out += is_output ? R"([{"type":"output_text","annotations":[],"text":)"
                   : R"([{"type":"input_text","text":)";
  append_quoted(out, text);
  out += "}]";
}

std::string made_id(std::string_view type, std::string_view id_suffix, size_t index) {
  return fmt::format("{}{}_i{}", id_prefix(type), id_suffix, index);
}

// Type and id first, the rest as it was sent.
Item named_item(JsonValue item, std::string_view id_suffix, size_t index) {
  const std::string_view type = type_of(item);
  const bool is_message = type == "message";
  Item out;
  out.id =
      item["id"].str().empty() ? made_id(type, id_suffix, index) : std::string(item["id"].str());
  out.json = R"({"type":)";
  append_quoted(out.json, type);
  out.json += R"(,"id":)";
  append_quoted(out.json, out.id);
  if (is_message && !item["status"].is_string()) out.json += R"(,"status":"completed")";
  recipe::for_each_member(item, [&](std::string_view key, JsonValue value) {
    if (key == "type" || key == "id") return;
    out.json += ',';
    append_quoted(out.json, key);
    out.json += ':';
    if (is_message && key == "content" && value.is_string()) {
      append_text_part(out.json, value.str(), item["role"].str() == "assistant");
    } else {
      recipe::append_json_compact(out.json, value, recipe::FloatStyle::kPython);
    }
  });
  out.json += '}';
  return out;
}

std::string joined(const std::vector<Item>& items) {
  std::string out = "[";
  for (const Item& item : items) {
    if (out.size() > 1) out += ',';
    out += item.json;
  }
  return out += ']';
}

}  // namespace

ResponseLinks response_links(std::string_view body) {
  ResponseLinks links;
  // Bodies without these words are the most; they are read once only.
  if (body.find("\"previous_response_id\"") == std::string_view::npos &&
      body.find("\"conversation\"") == std::string_view::npos) {
    return links;
  }
  JsonDoc doc;
  if (!doc.parse(body)) return links;
  links.previous_response_id = doc.root()["previous_response_id"].str();
  const JsonValue conversation = doc.root()["conversation"];
  links.conversation = conversation.is_object() ? conversation["id"].str() : conversation.str();
  return links;
}

std::string stored_input(JsonValue input, std::string_view id_suffix) {
  std::vector<Item> items;
  if (input.is_string()) {
    Item& item = items.emplace_back();
    item.id = made_id("message", id_suffix, 0);
    item.json = fmt::format(
        R"({{"type":"message","id":"{}","status":"completed","role":"user","content":)", item.id);
    append_text_part(item.json, input.str(), false);
    item.json += '}';
  }
  size_t i = 0;
  if (input.is_array())
    for (const JsonValue item : input) items.push_back(named_item(item, id_suffix, i++));
  return joined(items);
}

std::string output_items(std::string_view object) {
  JsonDoc doc;
  if (!doc.parse(object) || !doc.root()["output"].is_array()) return "[]";
  return std::string(doc.source(doc.root()["output"]));
}

std::string response_status(std::string_view object) {
  JsonDoc doc;
  if (!doc.parse(object)) return "failed";
  return std::string(doc.root()["status"].str());
}

std::string last_event(std::string_view object) {
  const std::string status = response_status(object);
  const std::string_view type = status == "completed"    ? "response.completed"
                                : status == "incomplete" ? "response.incomplete"
                                                         : "response.failed";
  return fmt::format("event: {}\ndata: {{\"type\":\"{}\",\"response\":{}", type, type, object);
}

std::vector<Item> split_items(std::string_view list) {
  std::vector<Item> out;
  JsonDoc doc;
  if (!doc.parse(list)) return out;
  for (const JsonValue item : doc.root())
    out.push_back({std::string(item["id"].str()), std::string(doc.source(item))});
  return out;
}

core::Result<std::vector<Item>> conversation_items(std::string_view body,
                                                   std::string_view id_suffix) {
  JsonDoc doc;
  HADAL_TRY_VOID(doc.parse(body));
  const JsonValue list = doc.root()["items"];
  std::vector<Item> out;
  if (list.absent_or_null()) return out;
  if (!list.is_array()) return recipe::invalid("must be a list of items", "items");
  if (list.size() > kMostItemsAtOnce) {
    return recipe::invalid(
        fmt::format("has {} items, and {} are taken at once", list.size(), kMostItemsAtOnce),
        "items");
  }
  recipe::FieldCheck check;
  const recipe::CodecOptions options;
  check_item_types(check, list, recipe::Path{nullptr, "items"}, options);
  HADAL_TRY_VOID(check.status());
  size_t i = 0;
  for (const JsonValue item : list) {
    // In an input such an item is passed over; here it would be kept and never be read.
    if (id_prefix(type_of(item)) == kUnknownPrefix) {
      const std::string at = fmt::format("items[{}].type", i);
      return recipe::invalid(fmt::format("{}: there is no item of type {} here", at, type_of(item)),
                             at);
    }
    out.push_back(named_item(item, id_suffix, i++));
  }
  return out;
}

}  // namespace hadal::openai
