#pragma once

#include <string_view>

#include "gateway/recipe/options.h"

// The fixed texts of the prompt formats (V4: texts of the 0731 and 0813 models).
namespace hadal::recipe {

inline constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystemToken = "<｜System｜>";
inline constexpr std::string_view kUserToken = "<｜User｜>";
inline constexpr std::string_view kAssistantToken = "<｜Assistant｜>";
inline constexpr std::string_view kReminderToken = "<｜latest_reminder｜>";
inline constexpr std::string_view kThinkOpen = "<think>";
inline constexpr std::string_view kThinkClose = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";
inline constexpr std::string_view kImageToken = "<｜deepseek_image｜>";
inline constexpr std::string_view kUnsupportedImage = "[Unsupported Image]";
inline constexpr std::string_view kFimBegin = "<｜fim▁begin｜>";
inline constexpr std::string_view kFimHole = "<｜fim▁hole｜>";
inline constexpr std::string_view kFimEnd = "<｜fim▁end｜>";

// Names of the call markup; the space of V4.1 is part of the name.
struct TagNames {
  std::string_view block, invoke, parameter;
};
TagNames tag_names(Version version);

// The tool description up to the schemas, and after them.
std::string_view tool_text_head(Version version);
std::string_view tool_text_tail();

std::string_view v4_effort_text(std::string_view word);
// Text before a JSON Schema that the answer must follow, and all of the text for json_object.
std::string_view schema_format_head();
std::string_view json_object_text(Version version);

// The control token of a quick task, "" if there is no task of that name.
std::string_view task_token(std::string_view task);

}  // namespace hadal::recipe
