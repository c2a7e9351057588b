#pragma once

#include <span>
#include <vector>

#include "gateway/recipe/conversation.h"

namespace hadal::recipe {

// The messages of a conversation in the order in which a prompt shows them. V4 shows all system
// messages first; results of parallel calls follow the order of their calls. `by_id`: calls count
// as sorted by their id (deepseek-recipe 0.2.0 does so in V4).
std::vector<const Message*> turn_order(const Conversation& conversation, Version version,
                                       bool by_id);

// The calls of a turn in the order in which they are shown.
std::vector<const Call*> call_order(std::span<const Call> calls, bool by_id);

// Neither text nor picture.
bool is_empty_content(const Message& message);

}  // namespace hadal::recipe
