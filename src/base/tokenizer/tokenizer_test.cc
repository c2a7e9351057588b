#include "base/tokenizer/tokenizer.h"

#include <fstream>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

#include "base/tokenizer/engram_map.h"
#include "base/tokenizer/pre_tokenizer.h"
#include "base/tokenizer/utf8.h"

namespace hadal::tokenizer {
namespace {

const std::string kData = std::string(HADAL_SOURCE_DIR) + "/src/base/tokenizer/testdata/";

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

const Tokenizer& small() {
  static const Tokenizer tokenizer = Tokenizer::load(kData + "small_tokenizer.json").value();
  return tokenizer;
}

std::vector<TokenId> ids_of(const Tokenizer& tokenizer, std::string_view text,
                            Added added = Added::kIgnore) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, added, ids);
  return ids;
}

std::string bytes_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string out;
  for (const TokenId id : ids) out += tokenizer.bytes_of(id);
  return out;
}

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> out;
  PreTokenizer pre(text, 3);
  for (auto piece = pre.next(); !piece.empty(); piece = pre.next()) out.emplace_back(piece);
  return out;
}

using Strings = std::vector<std::string>;

// Expected pieces: the published patterns through the Python package `tokenizers`.
TEST(PreTokenizer, CutsAsThePublishedPatternsDo) {
  EXPECT_EQ(pieces("Hello, world!"), (Strings{"Hello", ",", " world", "!"}));
  EXPECT_EQ(pieces("12345678"), (Strings{"123", "456", "78"}));
  EXPECT_EQ(pieces("a  b"), (Strings{"a", " ", " b"}));
  EXPECT_EQ(pieces("x \n \n  y"), (Strings{"x", " \n \n", " ", " y"}));
  EXPECT_EQ(pieces("end   "), (Strings{"end", "   "}));
  EXPECT_EQ(pieces("  12"), (Strings{"  ", "12"}));
  EXPECT_EQ(pieces("_name(x)"), (Strings{"_name", "(x", ")"}));
  EXPECT_EQ(pieces("a ==> b;\n\nc"), (Strings{"a", " ==>", " b", ";\n\n", "c"}));
  EXPECT_EQ(pieces("我有3本书。ok"), (Strings{"我有", "3", "本书", "。", "ok"}));
  EXPECT_EQ(pieces("カー・ド゜x"), (Strings{"カー", "・", "ド", "゜", "x"}));
  EXPECT_EQ(pieces("\x01\x02"
                   "abc"),
            (Strings{"\x01",
                     "\x02"
                     "abc"}));
  EXPECT_EQ(pieces("e\xcc\x81t"), (Strings{"e\xcc\x81t"}));
}

TEST(Tokenizer, GivesBackTheBytesOfAnyInput) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t i = random() % 200; i > 0; --i)
      text += static_cast<char>(round % 2 == 0 ? random() : random() % 128);
    EXPECT_EQ(bytes_of(small(), ids_of(small(), text)), text);
    EXPECT_EQ(bytes_of(small(), ids_of(small(), text, Added::kMatch)), text);
  }
}

TEST(Tokenizer, SpelledControlTokensStayTextUnlessAsked) {
  const TokenId user = small().id_of("<｜User｜>");
  ASSERT_GE(user, 0);
  EXPECT_TRUE(small().is_added(user));
  const std::string text = "a<｜User｜>b";
  const auto plain = ids_of(small(), text);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), user), 0);
  const auto matched = ids_of(small(), text, Added::kMatch);
  EXPECT_EQ(std::count(matched.begin(), matched.end(), user), 1);
  EXPECT_EQ(bytes_of(small(), plain), text);
}

TEST(Tokenizer, ShortAndLongPiecesMergeAlike) {
  // The same word inside a piece of more than 48 bytes goes through the heap.
  std::string word;
  for (int i = 0; i < 40; ++i) word += "there";
  std::vector<TokenId> expected = ids_of(small(), word);
  std::vector<TokenId> naive;
  for (const char c : word) naive.push_back(small().id_of(std::string(1, c)));
  EXPECT_LT(expected.size(), naive.size());
  EXPECT_EQ(bytes_of(small(), expected), word);
}

// A quadratic step would take minutes for each of these, and the test runner's limit.
TEST(Tokenizer, NoInputIsQuadratic) {
  for (const char* unit : {"a", " ", "1", "<", "\n", "é", "😀", "的", "<｜"}) {
    std::string text;
    while (text.size() < 200'000) text += unit;
    EXPECT_EQ(bytes_of(small(), ids_of(small(), text, Added::kMatch)).size(), text.size());
  }
}

TEST(Tokenizer, RefusesWhatItDoesNotKnowByFieldName) {
  const std::string good = file_text(kData + "small_tokenizer.json");
  const auto failure = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    const auto made = Tokenizer::from_json(text.replace(at, from.size(), to), "t.json");
    return made.has_value() ? std::string() : made.error().message;
  };
  EXPECT_NE(failure("\"BPE\"", "\"Unigram\"").find("model.type"), std::string::npos);
  EXPECT_NE(failure("\"single_word\": false", "\"single_word\": true")
                .find("added_tokens[0].single_word"),
            std::string::npos);
  EXPECT_NE(failure("{1,3}", "{1,4}").find("pre_tokenizer.pretokenizers[0].pattern.Regex"),
            std::string::npos);
  EXPECT_NE(
      failure("\"byte_fallback\": false", "\"byte_fallback\": true").find("model.byte_fallback"),
      std::string::npos);
  EXPECT_FALSE(Tokenizer::from_json("", "t.json").has_value());
  EXPECT_FALSE(Tokenizer::from_json(std::string(200'000, '['), "t.json").has_value());
  EXPECT_NE(Tokenizer::load("/nonexistent/tokenizer.json")
                .error()
                .message.find("/nonexistent/tokenizer.json"),
            std::string::npos);
}

TEST(Utf8Stream, NeverEndsInsideACharacter) {
  const std::string text = "aé的😀\xff\xe2\x82z";
  const std::string whole = lossy_utf8(text);
  EXPECT_EQ(whole, "aé的😀\xef\xbf\xbd\xef\xbf\xbdz");
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      Utf8Stream stream;
      std::string out;
      const std::string_view view(text);
      for (const auto part :
           {view.substr(0, first), view.substr(first, second - first), view.substr(second)}) {
        stream.push(part, out);
        EXPECT_TRUE(is_valid_utf8(out));
      }
      stream.finish(out);
      EXPECT_EQ(out, whole) << first << " " << second;
    }
  }
}

TEST(EngramMap, FoldsTextsAsThePublishedNormaliser) {
  EXPECT_EQ(engram_normalised("  Été\t\n Straße "), "ete straße");
  EXPECT_EQ(engram_normalised("ﬁ Ａ"), "fi a");
  EXPECT_EQ(engram_normalised(" \t "), " ");
  EXPECT_EQ(engram_normalised("\xc2\xa0"), " ");
  EXPECT_EQ(make_engram_map(small()).n_distinct,
            612);  // engram_compressed_vocab_size of the golden case c-engram
}

}  // namespace
}  // namespace hadal::tokenizer
