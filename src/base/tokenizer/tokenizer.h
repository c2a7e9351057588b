#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"

namespace hadal::tokenizer {

using TokenId = int32_t;

// Whether text that spells an added token ("<think>") becomes that token. Text from users never
// may.
enum class Added : uint8_t { kMatch, kIgnore };

// A tokenizer.json: byte-level BPE with the published V4.1 pre-tokenizer, and its added tokens.
// What the file asks for and we do not do (another model type, a normalizer, an unknown pattern,
// stripping added tokens) is refused when it is loaded.
//
// Equal to the Python package `tokenizers` on valid UTF-8. Bytes that are no UTF-8 are kept: each
// is a character of its own that belongs to no class, so that decoding what was encoded gives the
// same bytes.
//
// Const after loading; any thread. Each thread keeps a cache of short pieces (2 MB), made at its
// first call.
class Tokenizer {
 public:
  static core::Result<Tokenizer> load(const std::string& path);
  static core::Result<Tokenizer> from_json(std::string_view json, std::string_view origin);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Appends the ids of `text`. No token is added in front or behind. Time is near linear in the
  // text's length, whatever it is.
  void encode(std::string_view text, Added added, std::vector<TokenId>& out) const;

  // One past the largest id.
  int32_t size() const;
  // The bytes that a token stands for; empty for an id that the vocabulary does not have.
  std::string_view bytes_of(TokenId id) const;
  bool has(TokenId id) const;
  // Id of the token that stands for exactly these bytes (an added token first), or -1.
  TokenId id_of(std::string_view bytes) const;
  bool is_added(TokenId id) const;
  bool is_special(TokenId id) const;  // the flag of the file; decoding keeps special tokens

  // The token's spelling in the file: byte-level characters for tokens of the base vocabulary.
  std::string file_spelling(TokenId id) const;

  struct Data;

 private:
  explicit Tokenizer(std::unique_ptr<const Data> data);
  std::unique_ptr<const Data> data_;
};

}  // namespace hadal::tokenizer
