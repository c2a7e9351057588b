#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/tokenizer/byte_level.h"
#include "base/tokenizer/tokenizer_data.h"

namespace hadal::tokenizer {
namespace {

using nlohmann::json;

constexpr int64_t kMaxId = 1 << 24;

core::Error refused(std::string_view origin, std::string_view field, std::string_view what) {
  return {core::Code::kInvalidRequest, fmt::format("{}: {}: {}", origin, field, what),
          std::string(field)};
}

const json* member(const json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(name);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

std::string text_of(const json& object, const char* name) {
  const json* value = member(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

bool is_true(const json& object, const char* name) {
  const json* value = member(object, name);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

// Files spell the same pattern in several ways: CR and LF literally or escaped, a quote escaped or
// not.
std::string plain_spelling(const std::string& pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\r') {
      out += "\\r";
    } else if (pattern[i] == '\n') {
      out += "\\n";
    } else if (pattern[i] != '\\' || i + 1 >= pattern.size() || pattern[i + 1] != '"') {
      out += pattern[i];
    }
  }
  return out;
}

constexpr std::string_view kCjkPattern = "[一-龥぀-ゟ゠-ヿ]+";
constexpr std::string_view kWordPattern =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

core::Status read_pre_tokenizer(const json& root, std::string_view origin, Tokenizer::Data& data) {
  const json* pre = member(root, "pre_tokenizer");
  if (pre == nullptr || text_of(*pre, "type") != "Sequence" ||
      member(*pre, "pretokenizers") == nullptr) {
    return refused(origin, "pre_tokenizer",
                   "must be the published Sequence of three Split patterns and ByteLevel");
  }
  const json& steps = (*pre)["pretokenizers"];
  if (!steps.is_array() || steps.size() != 4)
    return refused(origin, "pre_tokenizer.pretokenizers",
                   "must have four steps: digits, CJK, words, ByteLevel");
  for (size_t i = 0; i < 3; ++i) {
    const std::string field = fmt::format("pre_tokenizer.pretokenizers[{}]", i);
    const json* pattern = member(steps[i], "pattern");
    if (text_of(steps[i], "type") != "Split" || text_of(steps[i], "behavior") != "Isolated" ||
        is_true(steps[i], "invert") || pattern == nullptr) {
      return refused(origin, field, "must be a Split with behavior Isolated");
    }
    const std::string regex = plain_spelling(text_of(*pattern, "Regex"));
    const bool known = i == 0 ? regex == R"(\p{N}{1,3})" || regex == R"(\p{N})"
                              : regex == (i == 1 ? kCjkPattern : kWordPattern);
    if (!known)
      return refused(
          origin, field + ".pattern.Regex",
          fmt::format("'{}' is not the published pattern; only that one is known here", regex));
    if (i == 0) data.max_digits = regex == R"(\p{N})" ? 1 : 3;
  }
  if (text_of(steps[3], "type") != "ByteLevel" || is_true(steps[3], "add_prefix_space") ||
      is_true(steps[3], "use_regex")) {
    return refused(origin, "pre_tokenizer.pretokenizers[3]",
                   "must be ByteLevel with add_prefix_space and use_regex false");
  }
  return {};
}

core::Status read_surroundings(const json& root, std::string_view origin) {
  if (const json* normalizer = member(root, "normalizer")) {
    const json* inner = member(*normalizer, "normalizers");
    if (text_of(*normalizer, "type") != "Sequence" || inner == nullptr || !inner->is_array() ||
        !inner->empty()) {
      return refused(origin, "normalizer",
                     "is not null; normalised text is not supported, the published file has none");
    }
  }
  const json* decoder = member(root, "decoder");
  if (decoder == nullptr || text_of(*decoder, "type") != "ByteLevel")
    return refused(origin, "decoder.type", "must be ByteLevel");
  if (const json* post = member(root, "post_processor");
      post != nullptr && text_of(*post, "type") != "ByteLevel") {
    return refused(origin, "post_processor.type",
                   "must be ByteLevel or null: no token is added around a text");
  }
  const json* model = member(root, "model");
  if (model == nullptr || text_of(*model, "type") != "BPE")
    return refused(origin, "model.type", "must be BPE");
  for (const char* name :
       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const json* value = member(*model, name);
    const bool nothing = value == nullptr ||
                         (value->is_string() && value->get<std::string>().empty()) ||
                         (value->is_number() && value->get<double>() == 0);
    if (!nothing)
      return refused(origin, fmt::format("model.{}", name),
                     "must be null, as in the published file");
  }
  for (const char* name : {"byte_fallback", "ignore_merges"}) {
    if (is_true(*model, name))
      return refused(origin, fmt::format("model.{}", name),
                     "must be false, as in the published file");
  }
  return {};
}

core::Result<Tokenizer::Data::Token*> token_slot(Tokenizer::Data& data, int64_t id,
                                                 std::string_view origin, std::string_view field) {
  if (id < 0 || id >= kMaxId)
    return refused(origin, field, fmt::format("id {} is out of range", id));
  if (static_cast<size_t>(id) >= data.tokens.size())
    data.tokens.resize(static_cast<size_t>(id) + 1);
  return &data.tokens[static_cast<size_t>(id)];
}

core::Status read_vocabulary(const json& model, std::string_view origin, Tokenizer::Data& data,
                             std::unordered_map<std::string, TokenId>& id_of_spelling) {
  const json* vocab = member(model, "vocab");
  if (vocab == nullptr || !vocab->is_object())
    return refused(origin, "model.vocab", "must be an object from token to id");
  std::vector<int32_t> byte_ids(256, Bpe::kNone);
  for (const auto& [spelling, id] : vocab->items()) {
    if (!id.is_number_integer())
      return refused(origin, "model.vocab", fmt::format("token '{}' has no integer id", spelling));
    HADAL_TRY(Tokenizer::Data::Token * token,
              token_slot(data, id.get<int64_t>(), origin, "model.vocab"));
    if (token->exists)
      return refused(origin, "model.vocab", fmt::format("id {} has two tokens", id.get<int64_t>()));
    token->exists = true;
    // A spelling outside the byte alphabet (control tokens inside the base vocabulary) stands for
    // itself.
    if (!from_byte_level(spelling, token->bytes)) token->bytes = spelling;
    id_of_spelling.emplace(spelling, id.get<int32_t>());
    if (token->bytes.size() == 1)
      byte_ids[static_cast<uint8_t>(token->bytes[0])] = id.get<int32_t>();
  }
  data.bpe.set_bytes(byte_ids);
  return {};
}

core::Status read_merges(const json& model, std::string_view origin, Tokenizer::Data& data,
                         const std::unordered_map<std::string, TokenId>& id_of_spelling) {
  const json* merges = member(model, "merges");
  if (merges == nullptr || !merges->is_array())
    return refused(origin, "model.merges", "must be a list of pairs");
  data.bpe.reserve(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const json& merge = (*merges)[i];
    std::string left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const size_t space = text.find(' ');
      if (space == std::string::npos)
        return refused(origin, fmt::format("model.merges[{}]", i), "is no pair of tokens");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      return refused(origin, fmt::format("model.merges[{}]", i), "is no pair of tokens");
    }
    const auto a = id_of_spelling.find(left);
    const auto b = id_of_spelling.find(right);
    const auto merged = id_of_spelling.find(left + right);
    if (a == id_of_spelling.end() || b == id_of_spelling.end() || merged == id_of_spelling.end()) {
      return refused(
          origin, fmt::format("model.merges[{}]", i),
          fmt::format("'{}' and '{}' are not, or do not merge to, tokens of the vocabulary", left,
                      right));
    }
    data.bpe.add(a->second, b->second, merged->second);
  }
  return {};
}

core::Status read_added(const json& root, std::string_view origin, Tokenizer::Data& data) {
  const json* added = member(root, "added_tokens");
  if (added == nullptr) return {};
  if (!added->is_array()) return refused(origin, "added_tokens", "must be a list");
  for (size_t i = 0; i < added->size(); ++i) {
    const json& entry = (*added)[i];
    const std::string field = fmt::format("added_tokens[{}]", i);
    const json* id = member(entry, "id");
    const std::string content = text_of(entry, "content");
    if (id == nullptr || !id->is_number_integer() || content.empty())
      return refused(origin, field, "needs an id and a content");
    for (const char* name : {"single_word", "lstrip", "rstrip"}) {
      if (is_true(entry, name))
        return refused(
            origin, fmt::format("{}.{}", field, name),
            "must be false: added tokens that change their neighbours are not supported");
    }
    HADAL_TRY(Tokenizer::Data::Token * token, token_slot(data, id->get<int64_t>(), origin, field));
    if (token->exists && token->bytes != content) {
      return refused(
          origin, field,
          fmt::format("id {} already stands for '{}'", id->get<int64_t>(), token->bytes));
    }
    token->exists = true;
    token->added = true;
    token->special = is_true(entry, "special");
    token->bytes = content;
    (is_true(entry, "normalized") ? data.added_normalized : data.added_raw)
        .add(content, id->get<int32_t>());
  }
  return {};
}

}  // namespace

core::Result<std::unique_ptr<Tokenizer::Data>> parse_tokenizer_json(std::string_view text,
                                                                    std::string_view origin) {
  const json root = json::parse(text.begin(), text.end(), nullptr, false);
  if (root.is_discarded() || !root.is_object()) {
    return refused(origin, "its root",
                   "is not a JSON object; the file is damaged or not a tokenizer.json");
  }
  auto data = std::make_unique<Tokenizer::Data>();
  HADAL_TRY_VOID(read_surroundings(root, origin));
  HADAL_TRY_VOID(read_pre_tokenizer(root, origin, *data));
  std::unordered_map<std::string, TokenId> id_of_spelling;
  HADAL_TRY_VOID(read_vocabulary(root["model"], origin, *data, id_of_spelling));
  HADAL_TRY_VOID(read_merges(root["model"], origin, *data, id_of_spelling));
  HADAL_TRY_VOID(read_added(root, origin, *data));
  for (size_t id = 0; id < data->tokens.size(); ++id) {
    const Tokenizer::Data::Token& token = data->tokens[id];
    if (!token.exists) continue;
    if (token.added) {
      data->id_of[token.bytes] = static_cast<TokenId>(id);
    } else {
      data->id_of.emplace(token.bytes, static_cast<TokenId>(id));
    }
  }
  return data;
}

}  // namespace hadal::tokenizer
