#include "gateway/recipe/json_value.h"

#include <ctime>
#include <string>

#include <gtest/gtest.h>

namespace hadal::recipe {
namespace {

std::string round_trip(std::string_view text, FloatStyle style = FloatStyle::kPython) {
  JsonDoc doc;
  if (!doc.parse(text)) return "refused";
  std::string out;
  append_json(out, doc.root(), style);
  return out;
}

TEST(Json, KeepsKeyOrderAndTheLastValueOfARepeatedKeyAtItsFirstPlace) {
  EXPECT_EQ(round_trip(R"({"b":1,"a":[2],"b":{"c":3}})"), R"({"b": {"c": 3}, "a": [2]})");
}

TEST(Json, FindsEveryKeyAndNoOther) {
  std::string text = R"({"":0)";
  for (int i = 1; i < 300; ++i)
    text += ",\"" + std::string(static_cast<size_t>(i % 7), 'k') + std::to_string(i) +
            "\":" + std::to_string(i);
  text += R"(,"a\u0062":300,"":301})";
  JsonDoc doc;
  ASSERT_TRUE(doc.parse(text));
  for (int i = 1; i < 300; ++i) {
    const std::string key = std::string(static_cast<size_t>(i % 7), 'k') + std::to_string(i);
    EXPECT_EQ(doc.root()[key].number(), i) << key;
    EXPECT_FALSE(doc.root()[key + "."]) << key;
  }
  EXPECT_EQ(doc.root()["ab"].number(), 300);
  EXPECT_EQ(doc.root()[""].number(), 301);
  ASSERT_TRUE(doc.parse(R"({"model":1})"));
  EXPECT_FALSE(doc.root()["medol"]);  // as long, with the same characters where the bit is taken
  EXPECT_FALSE(doc.root()[""]);
}

TEST(Json, WritesNumbersAsPromptsDo) {
  EXPECT_EQ(round_trip("[1,-0,1.50,1e-7,100000.0,1e16,18446744073709551615,18446744073709551616]"),
            "[1, -0.0, 1.5, 1e-07, 100000.0, 1e+16, 18446744073709551615, 1.8446744073709552e+19]");
  EXPECT_EQ(round_trip("[1e-7,1e-5,9e-6]", FloatStyle::kRust), "[1e-7, 0.00001, 9e-6]");
}

TEST(Json, RefusesWhatCannotBecomeText) {
  for (const std::string_view text :
       {"", "{", "[1,]", "{\"a\":1,}", "NaN", "1e999", "01", "\"\\ud800\"", "\"\\udc00\"", "\"\n\"",
        "\xEF\xBB\xBF{}", "\"\xff\"", "{} x", "+1", ".5", "\"\\x\"", "\"\\u12\"", "nul"}) {
    EXPECT_EQ(round_trip(text), "refused") << text;
  }
  EXPECT_EQ(round_trip("1e-999"), "0.0");
}

TEST(Json, LimitsNesting) {
  EXPECT_NE(round_trip(std::string(127, '[') + std::string(127, ']')), "refused");
  EXPECT_EQ(round_trip(std::string(128, '[') + std::string(128, ']')), "refused");
  EXPECT_EQ(round_trip(std::string(1 << 20, '[')), "refused");
}

TEST(Json, RepeatedKeysAtEveryDepthCostNoMoreThanTheTextIsWorth) {
  std::string text = "0";
  for (int depth = 0; depth < 120; ++depth) {
    text = R"({"a":1,"x":)" + text + R"(,"a":[1]})";
    if (depth == 0) text = R"({"a":1,"x":[)" + std::string(400000, '1') + R"(],"a":[1]})";
  }
  const std::clock_t start = std::clock();  // of this process, however busy the machine is
  round_trip(text);
  EXPECT_LT(std::clock() - start, CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace hadal::recipe
