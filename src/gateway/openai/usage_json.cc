#include "gateway/openai/usage_json.h"

#include "gateway/recipe/json_writer.h"

namespace hadal::openai {

using recipe::append_number;

void append_chat_usage(std::string& out, const recipe::Usage& usage, bool reasoning) {
  out.append(R"({"prompt_tokens":)");
  append_number(out, usage.prompt_tokens);
  out.append(R"(,"completion_tokens":)");
  append_number(out, usage.completion_tokens);
  out.append(R"(,"total_tokens":)");
  append_number(out, usage.prompt_tokens + usage.completion_tokens);
  out.append(R"(,"prompt_tokens_details":{"cached_tokens":)");
  append_number(out, usage.cached_tokens);
  if (usage.image_tokens > 0) {
    out.append(R"(,"text_tokens":)");
    append_number(out, usage.prompt_tokens - usage.image_tokens);
    out.append(R"(,"image_tokens":)");
    append_number(out, usage.image_tokens);
  }
  out.push_back('}');
  if (reasoning) {
    out.append(R"(,"completion_tokens_details":{"reasoning_tokens":)");
    append_number(out, usage.reasoning_tokens);
    out.push_back('}');
  }
  out.append(R"(,"prompt_cache_hit_tokens":)");
  append_number(out, usage.cached_tokens);
  out.append(R"(,"prompt_cache_miss_tokens":)");
  append_number(out, usage.prompt_tokens - usage.cached_tokens);
  out.push_back('}');
}

}  // namespace hadal::openai
