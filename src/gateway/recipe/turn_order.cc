#include "gateway/recipe/turn_order.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace hadal::recipe {

namespace {

using Positions = std::unordered_map<std::string_view, size_t>;

Positions call_positions(std::span<const Call> calls, bool by_id) {
  Positions positions;
  size_t position = 0;
  for (const Call* call : call_order(calls, by_id)) positions.emplace(call->id, position++);
  return positions;
}

// Sorts the tool messages of [begin, end) by the position of their call; an unknown id counts as
// the first call. Other messages keep their places.
void sort_results(std::vector<const Message*>& messages, size_t begin, size_t end,
                  const Positions& positions) {
  std::vector<const Message*> results;
  for (size_t i = begin; i < end; ++i) {
    if (messages[i]->role == Role::kTool) results.push_back(messages[i]);
  }
  if (results.size() < 2) return;
  const auto position = [&](const Message* message) {
    const auto found = positions.find(message->tool_call_id);
    return found == positions.end() ? 0 : found->second;
  };
  std::stable_sort(results.begin(), results.end(),
                   [&](const Message* a, const Message* b) { return position(a) < position(b); });
  size_t next = 0;
  for (size_t i = begin; i < end; ++i) {
    if (messages[i]->role == Role::kTool) messages[i] = results[next++];
  }
}

// V4: neighbouring user messages are one, without their empty texts (one stays if all are empty).
void drop_empty_users(std::vector<const Message*>& messages) {
  size_t kept = 0;
  for (size_t i = 0; i < messages.size();) {
    size_t end = i;
    while (end < messages.size() && messages[end]->role == Role::kUser) ++end;
    if (end - i < 2) {
      messages[kept++] = messages[i++];
      continue;
    }
    const size_t before = kept;
    const Message* const first = messages[i];
    for (; i < end; ++i) {
      if (!is_empty_content(*messages[i])) messages[kept++] = messages[i];
    }
    if (kept == before) messages[kept++] = first;
  }
  messages.resize(kept);
}

}  // namespace

bool is_empty_content(const Message& message) {
  return std::all_of(message.content.begin(), message.content.end(),
                     [](const Part& part) { return part.image < 0 && part.text.empty(); });
}

std::vector<const Call*> call_order(std::span<const Call> calls, bool by_id) {
  std::vector<const Call*> order;
  order.reserve(calls.size());
  for (const Call& call : calls) order.push_back(&call);
  if (by_id) {
    std::stable_sort(order.begin(), order.end(),
                     [](const Call* a, const Call* b) { return a->id < b->id; });
  }
  return order;
}

std::vector<const Message*> turn_order(const Conversation& conversation, Version version,
                                       bool by_id) {
  std::vector<const Message*> messages;
  messages.reserve(conversation.messages.size());
  if (version == Version::kV4) {
    for (const Message& message : conversation.messages) {
      if (message.role == Role::kSystem) messages.push_back(&message);
    }
    for (const Message& message : conversation.messages) {
      if (message.role != Role::kSystem) messages.push_back(&message);
    }
    drop_empty_users(messages);
  } else {
    for (const Message& message : conversation.messages) messages.push_back(&message);
  }
  Positions positions;
  for (size_t i = 0; i < messages.size();) {
    const Message& message = *messages[i];
    if (message.role == Role::kAssistant && !message.calls.empty()) {
      positions = call_positions(message.calls, by_id);
    }
    size_t end = i;
    while (end < messages.size() &&
           (messages[end]->role == Role::kTool ||
            (messages[end]->role == Role::kUser && version == Version::kV41))) {
      ++end;
    }
    if (end - i > 1) sort_results(messages, i, end, positions);
    i = std::max(end, i + 1);
  }
  return messages;
}

}  // namespace hadal::recipe
