#pragma once

#include <string_view>

#include "gateway/recipe/request_rules.h"

namespace hadal::recipe {

// A custom (free text) tool is shown to the model as a function with the one string parameter
// `input`. Sets kind, parameters and grammar of `input`; `syntax` "" if it has no grammar.
void make_custom_tool(std::string_view syntax, std::string_view grammar, RequestText& text,
                      ToolInput& input);

// Arguments of a call of such a function.
std::string_view custom_arguments(std::string_view input, RequestText& text);

// The description of apply_patch that deepseek-recipe 0.2.0 shows.
std::string_view apply_patch_description(Version version, RequestText& text);

}  // namespace hadal::recipe
