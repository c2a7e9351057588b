#include "gateway/recipe/extension.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

namespace hadal::recipe {

namespace {

void only_known_keys(FieldCheck& check, JsonValue object, const Path& at,
                     std::initializer_list<std::string_view> known) {
  for_each_member(object, [&](std::string_view key, JsonValue) {
    if (std::ranges::find(known, key) == known.end()) check.fail(at, key, "is not known");
  });
}

void read_flag(FieldCheck& check, JsonValue object, std::string_view key, const Path& at,
               bool& flag) {
  if (const JsonValue value = check.boolean(object, key, at, Need::kOptional)) {
    flag = value.is_true();
  }
}

bool is_accept_pattern(std::string_view text) {
  if (text == "all" || text == "none" || text == "alternate") return true;
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view kind = text.substr(0, colon);
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data() + colon + 1, end, number);
  return (kind == "offset" || kind == "random") && result.ec == std::errc() && result.ptr == end;
}

uint32_t read_count(FieldCheck& check, JsonValue object, std::string_view key, const Path& at,
                    uint32_t fallback, uint64_t largest) {
  const JsonValue value = check.integer(object, key, at, Need::kOptional, largest);
  return value ? static_cast<uint32_t>(value.node()->u) : fallback;
}

Extension::Script read_script(FieldCheck& check, JsonValue object, const Path& at) {
  only_known_keys(check, object, at, {"text", "step", "finish", "pace_ms"});
  Extension::Script script;
  script.text = check.string(object, "text", at, Need::kRequired).str();
  script.step = read_count(check, object, "step", at, 1, 1u << 20);
  if (script.step == 0) check.fail(at, "step", "must be at least 1");
  if (const JsonValue finish =
          check.word(object, "finish", at, Need::kOptional, {"stop", "length"})) {
    script.finish = finish.str();
  }
  script.pace_ms = read_count(check, object, "pace_ms", at, 0, 3600000);
  return script;
}

}  // namespace

void read_extension(FieldCheck& check, JsonValue body, const Path& at, Extension& extension) {
  const JsonValue object = check.object(body, "hadal", at, Need::kOptional);
  if (!object) return;
  const Path here{&at, "hadal"};
  only_known_keys(check, object, here,
                  {"return_token_ids", "prefix_cache", "draft", "accept", "deterministic",
                   "ignore_eos", "min_tokens", "timings", "event_times", "script"});
  read_flag(check, object, "return_token_ids", here, extension.return_token_ids);
  read_flag(check, object, "prefix_cache", here, extension.prefix_cache);
  read_flag(check, object, "deterministic", here, extension.deterministic);
  read_flag(check, object, "ignore_eos", here, extension.ignore_eos);
  read_flag(check, object, "timings", here, extension.timings);
  read_flag(check, object, "event_times", here, extension.event_times);
  if (const JsonValue draft = check.integer(object, "draft", here, Need::kOptional, 64)) {
    extension.draft = static_cast<uint32_t>(draft.node()->u);
  }
  extension.min_tokens = read_count(check, object, "min_tokens", here, 0, 1u << 20);
  if (const JsonValue accept = check.string(object, "accept", here, Need::kOptional)) {
    extension.accept = accept.str();
    if (!is_accept_pattern(extension.accept)) {
      check.fail(here, "accept", "must be all, none, alternate, offset:N or random:N");
    }
  }
  if (const JsonValue script = check.object(object, "script", here, Need::kOptional)) {
    extension.script = read_script(check, script, Path{&here, "script"});
  }
}

}  // namespace hadal::recipe
