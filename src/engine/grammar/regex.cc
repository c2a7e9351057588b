#include "engine/grammar/regex.h"

#include "engine/grammar/char_dfa.h"

namespace hadal::grammar {

core::Result<std::shared_ptr<const Grammar>> compile_regex(std::string_view expression) {
  HADAL_TRY(const CharDfa dfa, regex_dfa(expression, Match::kWhole));
  auto grammar = std::make_shared<Grammar>();
  const uint32_t top = grammar->add_rule();
  grammar->mark_end(add_dfa(*grammar, grammar->start(top), dfa, Spelling::kRaw));
  return finish(std::move(grammar));
}

}  // namespace hadal::grammar
