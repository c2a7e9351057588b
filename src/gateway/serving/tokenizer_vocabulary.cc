#include "gateway/serving/tokenizer_vocabulary.h"

namespace hadal::serving {

TokenizerVocabulary::TokenizerVocabulary(const tokenizer::Tokenizer& tokenizer)
    : tokenizer_(tokenizer) {
  end_of_sentence = tokenizer.id_of("<｜end▁of▁sentence｜>");
  think = tokenizer.id_of("<think>");
  think_end = tokenizer.id_of("</think>");
  dsml = tokenizer.id_of("｜DSML｜");
}

size_t TokenizerVocabulary::count_tokens(std::string_view text) const {
  std::vector<types::TokenId> ids;
  tokenizer_.encode(text, tokenizer::Added::kMatch, ids);
  return ids.size();
}

}  // namespace hadal::serving
