#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hadal::recipe {

enum class Version : uint8_t { kV4, kV41 };
enum class Api : uint8_t { kChat, kMessages, kResponses, kCompletions };

// Which encoder decides where two exist (docs/recipe.md, "Profiles"): the published codec's, or
// the one that came with the checkpoint.
enum class Profile : uint8_t { kRecipe, kReference };

// How requests are read and answers written. Plain data, set once by the program.
struct CodecOptions {
  // Do what deepseek-recipe 0.2.0 does, known faults, refusals and texts included.
  bool compat = false;
  Profile profile = Profile::kRecipe;
  Version version = Version::kV41;
  bool default_thinking = true;
  // Thinking on and an earlier assistant turn with calls brings no reasoning: 400 instead of "".
  bool reject_missing_reasoning = false;
  bool messages_web_search_dropped = false;  // else a declared web search tool is a 400
  bool responses_web_search_dropped = true;
  // The server runs these tools itself; declaring one is then no 400 and nothing is dropped.
  bool web_search = false, web_fetch = false;
  // A picture may be an http(s) address, which somebody else fetches; else only a data URL.
  bool remote_pictures = true;
  uint32_t max_tokens_limit = 393216;
  uint32_t context_limit = 1048576;
  // Accepted model names; "claude-*" style entries end in '*'. Empty: every name. With `compat` the
  // two names of 0.2.0 are used instead.
  std::vector<std::string> model_names;
  std::vector<std::string> messages_model_names;  // accepted in Messages besides model_names
  // Chat streams: the OpenAI form of usage (a last chunk with no choices, only when asked for).
  bool strict_usage_chunk = false;
  // 32 bytes that seal reasoning handed to clients (encrypted_content, signatures); "": not sealed.
  std::string reasoning_key;
};

}  // namespace hadal::recipe
