#include "base/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include <fmt/format.h>

#include "base/tokenizer/added_tokens.h"
#include "base/tokenizer/bpe.h"
#include "base/tokenizer/byte_level.h"
#include "base/tokenizer/pre_tokenizer.h"
#include "base/tokenizer/tokenizer_data.h"
#include "base/tokenizer/utf8.h"

namespace hadal::tokenizer {
namespace {

// Ids of short pieces seen before, one cache a thread, direct-mapped. Belongs to one tokenizer at a
// time.
class PieceCache {
 public:
  struct alignas(64) Entry {
    static constexpr size_t kMaxBytes = 22;
    static constexpr size_t kMaxIds = 9;
    uint8_t n_bytes = 0;
    uint8_t n_ids = 0;
    char bytes[kMaxBytes] = {};
    int32_t ids[kMaxIds] = {};
  };

  Entry* slot(std::string_view piece, uint64_t owner) {
    if (entries_.empty()) entries_.resize(kEntries);
    if (owner_ != owner) {
      std::fill(entries_.begin(), entries_.end(), Entry());
      owner_ = owner;
    }
    uint64_t words[3] = {};
    std::memcpy(words, piece.data(), piece.size());
    uint64_t h = (words[0] ^ piece.size()) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 29) ^ words[1]) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 32) ^ words[2]) * 0x94d049bb133111ebu;
    return &entries_[(h >> 40) & (kEntries - 1)];
  }

 private:
  static constexpr size_t kEntries = 1 << 15;
  std::vector<Entry> entries_;
  uint64_t owner_ = 0;
};

PieceCache& thread_cache() {
  thread_local PieceCache cache;
  return cache;
}

void encode_pieces(const Tokenizer::Data& data, std::string_view text, std::vector<TokenId>& out) {
  PieceCache& cache = thread_cache();
  PreTokenizer pieces(text, data.max_digits);
  for (std::string_view piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
    if (piece.size() > PieceCache::Entry::kMaxBytes) {
      data.bpe.encode(piece, out);
      continue;
    }
    PieceCache::Entry* entry = cache.slot(piece, data.number);
    if (entry->n_bytes == piece.size() &&
        std::memcmp(entry->bytes, piece.data(), piece.size()) == 0) {
      out.insert(out.end(), entry->ids, entry->ids + entry->n_ids);
      continue;
    }
    const size_t before = out.size();
    data.bpe.encode(piece, out);
    const size_t n = out.size() - before;
    if (n > PieceCache::Entry::kMaxIds) continue;
    entry->n_bytes = static_cast<uint8_t>(piece.size());
    entry->n_ids = static_cast<uint8_t>(n);
    std::memcpy(entry->bytes, piece.data(), piece.size());
    std::memcpy(entry->ids, out.data() + before, n * sizeof(int32_t));
  }
}

// Calls `gap` for the text between hits of `set`, and appends the hits' ids.
template <typename Gap>
void split_by(const AddedTokens& set, std::string_view text, std::vector<TokenId>& out, Gap gap) {
  size_t at = 0;
  if (!set.empty()) {
    for (auto hit = set.find(text, at); hit.end > hit.begin; hit = set.find(text, at)) {
      if (hit.begin > at) gap(text.substr(at, hit.begin - at));
      out.push_back(hit.id);
      at = hit.end;
    }
  }
  if (at < text.size()) gap(text.substr(at));
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

core::Result<Tokenizer> Tokenizer::from_json(std::string_view json, std::string_view origin) {
  static std::atomic<uint64_t> next_number{1};
  CharClasses::get();  // made now, not in the first request
  HADAL_TRY(std::unique_ptr<Data> data, parse_tokenizer_json(json, origin));
  data->number = next_number.fetch_add(1);
  return Tokenizer(std::move(data));
}

core::Result<Tokenizer> Tokenizer::load(const std::string& path) {
  constexpr size_t kMaxBytes = 256 << 20;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) {
    return core::Error{
        core::Code::kIo,
        fmt::format("cannot read the tokenizer {}: {}; a model folder needs its tokenizer.json",
                    path, std::strerror(errno)),
        "tokenizer"};
  }
  std::string text;
  std::array<char, 65536> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    text.append(buffer.data(), n);
    if (text.size() > kMaxBytes) {
      return core::Error{
          core::Code::kTooLarge,
          fmt::format("{} is larger than {} bytes, which no tokenizer.json is", path, kMaxBytes),
          "tokenizer"};
    }
  }
  if (std::ferror(file.get()) != 0) {
    return core::Error{
        core::Code::kIo,
        fmt::format("reading the tokenizer {} failed: {}", path, std::strerror(errno)),
        "tokenizer"};
  }
  return from_json(text, path);
}

void Tokenizer::encode(std::string_view text, Added added, std::vector<TokenId>& out) const {
  const Data& data = *data_;
  if (added == Added::kIgnore) {
    encode_pieces(data, text, out);
    return;
  }
  split_by(data.added_raw, text, out, [&](std::string_view rest) {
    split_by(data.added_normalized, rest, out,
             [&](std::string_view gap) { encode_pieces(data, gap, out); });
  });
}

int32_t Tokenizer::size() const {
  return static_cast<int32_t>(data_->tokens.size());
}

bool Tokenizer::has(TokenId id) const {
  return id >= 0 && id < size() && data_->tokens[static_cast<size_t>(id)].exists;
}

std::string_view Tokenizer::bytes_of(TokenId id) const {
  return has(id) ? std::string_view(data_->tokens[static_cast<size_t>(id)].bytes)
                 : std::string_view();
}

TokenId Tokenizer::id_of(std::string_view bytes) const {
  const auto found = data_->id_of.find(bytes);
  return found == data_->id_of.end() ? -1 : found->second;
}

bool Tokenizer::is_added(TokenId id) const {
  return has(id) && data_->tokens[static_cast<size_t>(id)].added;
}
bool Tokenizer::is_special(TokenId id) const {
  return has(id) && data_->tokens[static_cast<size_t>(id)].special;
}

std::string Tokenizer::file_spelling(TokenId id) const {
  if (!has(id)) return {};
  const auto& token = data_->tokens[static_cast<size_t>(id)];
  return token.added ? token.bytes : to_byte_level(token.bytes);
}

}  // namespace hadal::tokenizer
