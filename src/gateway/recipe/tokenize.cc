#include <array>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/tokenizer/tokenizer.h"
#include "gateway/recipe/encode.h"
#include "gateway/recipe/request_rules.h"
#include "gateway/recipe/template_text.h"

namespace hadal::recipe {

namespace {

// The placeholder of images has two spellings; a tokenizer has one of them.
constexpr std::string_view kOtherImageToken = "<｜image｜>";

// Ids of template tokens, looked up once per prompt.
class TemplateIds {
 public:
  explicit TemplateIds(const tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  types::TokenId of(std::string_view token) {
    for (size_t i = 0; i < n_known_; ++i) {
      if (known_[i].text == token) return known_[i].id;
    }
    types::TokenId id = tokenizer_.id_of(token);
    if (id < 0 && token == kImageToken) id = tokenizer_.id_of(kOtherImageToken);
    if (n_known_ < known_.size()) known_[n_known_++] = {token, id};
    return id;
  }

 private:
  struct Known {
    std::string_view text;
    types::TokenId id = -1;
  };
  const tokenizer::Tokenizer& tokenizer_;
  std::array<Known, 16> known_;  // more than any template has
  size_t n_known_ = 0;
};

}  // namespace

core::Result<std::vector<types::TokenId>> tokenize(const RenderedPrompt& prompt,
                                                   const tokenizer::Tokenizer& tokenizer) {
  const std::string_view text = prompt.text;
  std::vector<types::TokenId> ids;
  ids.reserve(text.size() / 4 + prompt.specials.size() + 16);
  TemplateIds template_ids(tokenizer);
  size_t at = 0;
  for (const SpecialSpan& span : prompt.specials) {
    if (span.begin > at) {
      tokenizer.encode(text.substr(at, span.begin - at), tokenizer::Added::kIgnore, ids);
    }
    const std::string_view token = text.substr(span.begin, span.size);
    const types::TokenId id = template_ids.of(token);
    if (id < 0) {
      return invalid(
          fmt::format("the tokenizer has no token \"{}\"; this prompt format needs it", token), {});
    }
    ids.push_back(id);
    at = span.begin + span.size;
  }
  if (at < text.size()) tokenizer.encode(text.substr(at), tokenizer::Added::kIgnore, ids);
  return ids;
}

}  // namespace hadal::recipe
