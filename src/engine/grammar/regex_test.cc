#include "engine/grammar/regex.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/grammar/automaton.h"
#include "engine/grammar/char_dfa.h"
#include "engine/grammar/json_schema.h"

namespace hadal::grammar {
namespace {

bool accepts(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  Automaton automaton(grammar);
  return automaton.accepts(automaton.next(automaton.start(), text));
}

struct Case {
  const char* expression;
  std::vector<std::string> yes, no;
};

const Case kCases[] = {
    {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
    {"", {""}, {"a"}},
    {"a|bc|", {"a", "bc", ""}, {"ab", "abc"}},
    {"(?:ab)+c?", {"ab", "ababc"}, {"", "a", "abcc"}},
    {"[a-cx-]{2}", {"a-", "xc"}, {"a", "ad", "abc"}},
    {"[^a-y\\n]", {"z", "é", "😀", " "}, {"a", "\n", "zz"}},
    {".", {"a", "雨", "\t"}, {"\n", "\r", "\xE2\x80\xA8", "", "ab", "\xff"}},
    {"\\d{3}-\\d{4}", {"555-1234"}, {"5555-123", "555-12345"}},
    {"\\w+\\s\\W", {"a_1 ?", "A\t."}, {"a b", " ?"}},
    {"a{2,3}?b", {"aab", "aaab"}, {"ab", "aaaab"}},
    {"a{2,}", {"aa", "aaaa"}, {"a"}},
    {"x{0}y", {"y"}, {"xy"}},
    {"^(a|^b)$", {"a", "b"}, {"", "ab"}},
    {"a^b", {}, {"ab", "a", "b"}},
    {"(a|b)*$|c", {"", "abba", "c"}, {"ac"}},
    {"\\x41\\u0042\\u{43}\\u{1F600}\\uD83D\\uDE00", {"ABC😀😀"}, {"ABC😀"}},
    {"\\t\\n\\.\\/\\-\\cA\\0", {std::string("\t\n./-\x01\0", 7)}, {"tn./-"}},
    {"a{,2}}]{x", {"a{,2}}]{x"}, {"aa"}},
    {"[\\d\\-\\]\\b]", {"5", "-", "]", "\b"}, {"b", "\\"}},
    {"[^]", {"\n", "a"}, {""}},
    {"(?<year>\\d{4})", {"2026"}, {"26"}},
    {"é+", {"é", "éé"}, {"e", "\xC3"}},
    {"(a*)*b", {"b", "aaab"}, {"a"}},
    {"((a?){3}){2}", {"", "aaaaaa"}, {"aaaaaaa"}},
};

TEST(Regex, WholeTextsThatMatchAndNoOthers) {
  for (const Case& one : kCases) {
    const auto grammar = compile_regex(one.expression);
    if (one.yes.empty()) {
      EXPECT_FALSE(grammar) << one.expression;
      continue;
    }
    ASSERT_TRUE(grammar) << one.expression << ": " << grammar.error().message;
    const auto dfa = regex_dfa(one.expression, Match::kWhole);
    for (const std::string& text : one.yes) {
      EXPECT_TRUE(accepts(*grammar, text)) << one.expression << " " << text;
      EXPECT_TRUE(dfa->accepts(text)) << one.expression << " " << text;
    }
    for (const std::string& text : one.no) {
      EXPECT_FALSE(accepts(*grammar, text)) << one.expression << " " << text;
      EXPECT_FALSE(dfa->accepts(text)) << one.expression << " " << text;
    }
  }
}

TEST(Regex, WhatIsNotAvailableIsNamedWithItsPlace) {
  const std::pair<const char*, const char*> wrong[] = {
      {"a(?=b)", "look-ahead is not available (at character 2 of the expression)"},
      {"(?!b)", "look-ahead is not available (at character 1 of the expression)"},
      {"é(?<!b)", "look-behind is not available (at character 2 of the expression)"},
      {"(a)\\1", "back-references are not available (at character 4 of the expression)"},
      {"\\k<a>", "back-references are not available (at character 1 of the expression)"},
      {"x\\b", "\\b and \\B are not available (at character 2 of the expression)"},
      {"\\p{L}", "\\p is not available (at character 1 of the expression)"},
      {"(?i)a",
       "flags, conditions and other (? groups are not available (at character 1 of the "
       "expression)"},
      {"a**",
       "a repeat of a repeat; put the first into a group (at character 3 of the expression)"},
      {"*a", "nothing to repeat (at character 1 of the expression)"},
      {"(a", "the group has no end (at character 1 of the expression)"},
      {"a)", "unmatched ) (at character 2 of the expression)"},
      {"[a", "the class has no end (at character 1 of the expression)"},
      {"[b-a]", "the range is out of order (at character 2 of the expression)"},
      {"a{3,2}", "the repeats are out of order (at character 2 of the expression)"},
      {"\\q", "\\q has no meaning (at character 1 of the expression)"},
      {"a\\", "\\ at the end (at character 2 of the expression)"},
      {"\\uD800", "half of a surrogate pair (at character 1 of the expression)"},
      {"^*", "^ and $ cannot be repeated (at character 1 of the expression)"},
      {"[]", "no text matches the expression"},
  };
  for (const auto& [expression, message] : wrong) {
    const auto grammar = compile_regex(expression);
    ASSERT_FALSE(grammar) << expression;
    EXPECT_EQ(grammar.error().message, message) << expression;
  }
}

TEST(Regex, ExpressionsThatBlowUpAreRefusedInBoundedTime) {
  const std::string nested(5000, '(');
  for (const std::string& expression :
       {std::string("(a|b)*a(a|b){20}"), std::string("((((a{100}){100}){100}){100})"),
        std::string("(((){100000}){100000}){100000}"), std::string("a{100000}"),
        std::string("(.*a){2000}"), std::string("((a?){300}){300}"), nested}) {
    EXPECT_FALSE(compile_regex(expression)) << expression.substr(0, 40);
  }
  // Long, but a line of states.
  EXPECT_TRUE(compile_regex("[a-z]{1,4000}"));
  EXPECT_TRUE(compile_regex("(?:[a-z0-9]{1,63}\\.){1,8}[a-z]{2,63}"));
}

TEST(Regex, OperationsOnAutomata) {
  const auto dfa = [](const char* text, Match match) { return *regex_dfa(text, match); };
  const CharDfa words = dfa("[a-c]+", Match::kWhole), has_b = dfa("b", Match::kSearch);
  const CharDfa both = *intersection(words, has_b);
  EXPECT_TRUE(both.accepts("abc"));
  EXPECT_FALSE(both.accepts("ac"));
  EXPECT_FALSE(both.accepts("b!"));
  const CharDfa without_b = *intersection(words, complement(has_b));
  EXPECT_TRUE(without_b.accepts("acca"));
  EXPECT_FALSE(without_b.accepts("abc"));
  EXPECT_TRUE(intersection(has_b, complement(has_b))->is_empty());
  EXPECT_TRUE(complement(dfa("[^]*", Match::kWhole)).is_empty());
  const CharDfa three = *length_dfa(2, 3);
  EXPECT_TRUE(three.accepts("é雨"));
  EXPECT_FALSE(three.accepts("a"));
  EXPECT_FALSE(three.accepts("abcd"));
  EXPECT_TRUE(length_dfa(1, {})->accepts("abcdef"));
}

TEST(Regex, PatternsOfASchemaAreSearchedForAndEscaped) {
  struct {
    const char* schema;
    std::vector<std::string> yes, no;
  } cases[] = {
      {R"({"type":"string","pattern":"b+"})", {R"("b")", R"("abc")", R"("\nb\"")"}, {R"("a")"}},
      {R"({"type":"string","pattern":"^b+$"})", {R"("bb")"}, {R"("abb")", R"("b ")"}},
      {R"({"type":"string","pattern":"^b|c$"})", {R"("bx")", R"("xc")"}, {R"("xb")"}},
      {R"({"type":"string","pattern":"^[\"\\\\\\n\\x01]$"})",
       {R"("\"")", R"("\\")", R"("\n")", R"("\u0001")"},
       {"\"\n\"", R"(""")", R"("\")", R"("a")"}},
      {R"({"type":"string","pattern":"^a*$","minLength":2,"maxLength":3})",
       {R"("aa")", R"("aaa")"},
       {R"("a")", R"("aaaa")"}},
      {R"({"pattern":"^\\d$"})", {R"("7")"}, {"7"}},
  };
  for (const auto& one : cases) {
    const auto grammar = compile_json_schema(one.schema);
    ASSERT_TRUE(grammar) << one.schema << grammar.error().message;
    for (const std::string& text : one.yes) {
      EXPECT_TRUE(accepts(*grammar, text)) << one.schema << text;
    }
    for (const std::string& text : one.no) {
      EXPECT_FALSE(accepts(*grammar, text)) << one.schema << text;
    }
  }
  const auto none = compile_json_schema(R"({"properties":{"a":{"pattern":"^a$","minLength":2}}})");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().param, "#/properties/a/pattern");
}

}  // namespace
}  // namespace hadal::grammar
