#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "gateway/recipe/json_value.h"

// How Responses are kept: their input and output as lists of items, each with an id.
namespace hadal::openai {

// What a request of POST /v1/responses says about stored ones. Fields of a wrong type read as "":
// parse_responses_request() is who refuses them.
struct ResponseLinks {
  std::string previous_response_id, conversation;
};
ResponseLinks response_links(std::string_view body);

// `input` of a request as a JSON list of items: a text becomes a message, every item gets an id
// (what the client called it, else made from `id_suffix` and its place) and content in parts.
std::string stored_input(recipe::JsonValue input, std::string_view id_suffix);

// The list that stands under `output` in a Responses object, and its status.
std::string output_items(std::string_view object);
std::string response_status(std::string_view object);

// The event that ends a stream with that object, without its number: up to `,"sequence_number"`.
std::string last_event(std::string_view object);

struct Item {
  std::string id, json;
};
// The items of a list that the functions above made.
std::vector<Item> split_items(std::string_view list);

// Items that a client adds to a conversation, checked as those of an input and named as by
// stored_input(). The error's path begins with `items`.
core::Result<std::vector<Item>> conversation_items(std::string_view body,
                                                   std::string_view id_suffix);

}  // namespace hadal::openai
