#include <cstdint>
#include <string>

#include "base/core/check.h"
#include "base/tokenizer/tokenizer.h"

// First byte even: the rest is a tokenizer.json. Odd: the rest is text for a small tokenizer made
// here.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hadal::tokenizer;  // NOLINT(google-build-using-namespace): one function
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    (void)Tokenizer::from_json(text, "fuzz");
    return 0;
  }
  static const Tokenizer tokenizer =
      Tokenizer::load(HADAL_SOURCE_DIR "/src/base/tokenizer/testdata/small_tokenizer.json").value();
  for (const Added added : {Added::kMatch, Added::kIgnore}) {
    std::vector<TokenId> ids;
    tokenizer.encode(text, added, ids);
    std::string back;
    for (const TokenId id : ids) back += tokenizer.bytes_of(id);
    HADAL_CHECK(back == text);
  }
  return 0;
}
