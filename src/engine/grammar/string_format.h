#pragma once

#include <string_view>

#include "engine/grammar/char_dfa.h"

namespace hadal::grammar {

// The texts of a `format` of JSON Schema, or fewer: date, time, date-time (RFC 3339, no 29th of
// February, no leap seconds), email, hostname (at most 63 characters), ipv4, ipv6, uuid. null:
// another format, which says nothing about validity here. Made once, at the first call; any thread.
const CharDfa* format_dfa(std::string_view format);

}  // namespace hadal::grammar
