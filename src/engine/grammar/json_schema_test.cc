#include "engine/grammar/json_schema.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/grammar/automaton.h"
#include "engine/grammar/token_mask.h"

namespace hadal::grammar {
namespace {

std::shared_ptr<const Grammar> compile(const std::string& schema) {
  const auto grammar = compile_json_schema(schema);
  EXPECT_TRUE(grammar) << schema << ": " << (grammar ? "" : grammar.error().message);
  return grammar ? *grammar : any_json_object();
}

bool accepts(const std::string& schema, const std::string& text) {
  Automaton automaton(compile(schema));
  return automaton.accepts(automaton.next(automaton.start(), text));
}

struct Case {
  const char* schema;
  std::vector<const char*> valid, invalid;
};

const Case kCases[] = {
    {R"({"type":"string"})",
     {R"("")", R"("a")", R"("é\n\u00e9\"雨😀")"},
     {"a", R"("a)", "\"\n\"", R"("\x")", R"("\ud83d")", "\"\xff\"", "1", ""}},
    {R"({"type":"integer"})", {"0", "-7", "120"}, {"01", "1.5", "-", "+1", "1e3", "\"1\""}},
    {R"({"type":"number"})", {"0", "-7.25", "1e5", "1.5E-7"}, {"01", ".5", "1.", "1e", "NaN"}},
    {R"({"type":"integer","minimum":0})", {"0", "5", "100"}, {"-1", "-0"}},
    {R"({"type":"integer","minimum":-12,"maximum":105})",
     {"-12", "-9", "-1", "0", "9", "10", "99", "100", "105"},
     {"-13", "106", "110", "999", "-100"}},
    {R"({"type":"integer","exclusiveMinimum":9,"exclusiveMaximum":12})", {"10", "11"}, {"9", "12"}},
    {R"({"type":"boolean"})", {"true", "false"}, {"True", "null"}},
    {R"({"type":["string","null"]})", {"null", R"("x")"}, {"0"}},
    {R"({"enum":["a",1,null,{"b":[]}]})", {R"("a")", "1", "null", R"({"b":[]})"}, {"2", R"("b")"}},
    {R"({"const":"x y"})", {R"("x y")"}, {R"("x")"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false})",
     {R"({"a":1})", R"({"a": 1, "b": "x"})", "{\n  \"a\": 1,\n  \"b\": \"\"\n}"},
     {"{}", R"({"b":"x"})", R"({"a":1,})", R"({"a":1,"c":2})", R"({"a":1 "b":"x"})",
      R"({"a":1,"a":2})"}},
    {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}}})",
     {"{}", R"({"a":null})", R"({"b":null})", R"({"a":null,"c":null})", R"({"b":null,"c":null})"},
     {R"({"c":null,"a":null})", R"({,"a":null})", R"({"a":null,,"c":null})"}},
    {R"({"type":"object","additionalProperties":{"type":"integer"}})",
     {"{}", R"({"x":1,"y":2})"},
     {R"({"x":"1"})", R"({x:1})"}},
    {R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1, 2]"}, {"[1,]", "[,]", "[1"}},
    {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
     {"[1]", "[1, 2]", "[1,2,3]"},
     {"[]", "[1,2,3,4]", "[1,]", "[\"1\"]"}},
    {R"({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":false})",
     {"[]", R"(["a"])", R"(["a",1])"},
     {"[1]", R"(["a",1,2])"}},
    {R"({"type":"string","minLength":2,"maxLength":3})",
     {R"("ab")", R"("é雨😀")", R"("\n\n")"},
     {R"("a")", R"("abcd")"}},
    {R"({"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"boolean"}}]})",
     {"1", "[true]", "[]"},
     {"[1]", "true"}},
    {R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k","v"]},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]})",
     {R"({"k":"a","v":1})", R"({"k":"b"})"},
     {R"({"k":"a"})", R"({"k":"c"})"}},
    {R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/node"})",
     {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
     {R"({"v":1})", R"({"v":1,"next":{"v":2}})"}},
    {R"({"type":"string","format":"date"})",
     {R"("2026-11-30")", R"("2024-02-28")"},
     {R"("2026-13-01")", R"("2026-02-30")", R"("26-1-1")"}},
    {R"({"type":"string","format":"ipv6"})",
     {R"("::")", R"("2001:db8::1")", R"("1:2:3:4:5:6:7:8")"},
     {R"("1:2")", R"(":::")", R"("1::2::3")", R"("g::")"}},
    {R"({"type":"string","format":"ipv4"})",
     {R"("192.168.0.1")", R"("255.255.255.255")"},
     {R"("256.1.1.1")", R"("1.2.3")", R"("01.2.3.4")"}},
    {R"({"type":"string","format":"email","maxLength":12})",
     {R"("a.b@c.de")"},
     {R"("a@")", R"("a b@c.de")", R"("abcdefgh@cdef.de")"}},
    {R"({"type":"object","unevaluatedProperties":false})", {"{}"}, {R"({"a":1})"}},
    {R"({"allOf":[{"type":"object","properties":{"a":{"type":"number"}},"required":["a"]},{"properties":{"a":{"minimum":2,"maximum":3},"b":{"type":"null"}},"required":["b"]}]})",
     {R"({"a":2.5,"b":null})"},
     {R"({"a":1,"b":null})", R"({"a":2})", R"({"b":null})"}},
    {R"({"allOf":[{"type":"object","properties":{"a":true},"additionalProperties":false},{"properties":{"b":true}}]})",
     {"{}", R"({"a":1})"},
     {R"({"b":1})"}},
    {R"({"allOf":[{"pattern":"^a"},{"pattern":"b$"},{"type":"string","maxLength":3}]})",
     {R"("ab")", R"("axb")"},
     {R"("abc")", R"("axxb")"}},
    {R"({"$defs":{"p":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}},"$ref":"#/$defs/p","properties":{"y":{"type":"boolean"}},"required":["y"],"unevaluatedProperties":false})",
     {R"({"y":true,"x":1})"},
     {R"({"x":1})", R"({"y":true})", R"({"y":true,"x":1,"z":1})"}},
    {R"({"type":"object","properties":{"k":{"type":"string"}},"required":["k"],"anyOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"properties":{"b":{"const":2}},"required":["b"]}]})",
     {R"({"k":"","a":1})", R"({"k":"","b":2})"},
     {R"({"k":""})", R"({"a":1})"}},
    {R"({"$defs":{"n":{"allOf":[{"type":"object","properties":{"v":{"type":"integer"}},"required":["v"]},{"properties":{"next":{"$ref":"#/$defs/n"}}}]}},"$ref":"#/$defs/n"})",
     {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
     {R"({"v":1,"next":{}})"}},
    {R"({"type":"string","enum":["a","bb","ccc"],"minLength":2})",
     {R"("bb")", R"("ccc")"},
     {R"("a")"}},
    {R"({"type":"number","minimum":0})", {"0", "0.5", "17.25"}, {"-1", "-0.5"}},
    {R"({"type":"number","exclusiveMinimum":0,"maximum":1})",
     {"0.5", "1", "0.000001"},
     {"0", "0.0", "1.5", "-0.5"}},
    {R"({"type":"number","minimum":-1.5,"exclusiveMaximum":0})",
     {"-0.5", "-1"},
     {"0", "-1.6", "-2", "0.5"}},
    {R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "7007"}, {"1", "-1", "70001"}},
    {R"({"type":"integer","multipleOf":5,"minimum":1,"maximum":20})",
     {"5", "20"},
     {"0", "25", "6"}},
    {R"({"type":"object","properties":{"a":false}})", {"{}"}, {R"({"a":1})"}},
    {R"({"type":"object","properties":{"a":false,"b":{"type":"null"}}})",
     {"{}", R"({"b":null})"},
     {R"({"a":1})"}},
    {R"(true)", {"1", R"([{"a":[]},null])", R"({"a":{}})"}, {"[1,]", "{]", "nul"}},
};

TEST(JsonSchema, TextsThatAreValidAndNoOthers) {
  for (const Case& one : kCases) {
    for (const char* text : one.valid) EXPECT_TRUE(accepts(one.schema, text)) << one.schema << text;
    for (const char* text : one.invalid) {
      EXPECT_FALSE(accepts(one.schema, text)) << one.schema << text;
    }
  }
}

TEST(JsonSchema, WhatCannotBeKeptToIsRefusedWithItsPlace) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"not":{}})", "#/not"},
      {R"({"type":"object","properties":{"a/b":{"type":"string","pattern":"(?=x)y"}}})",
       "#/properties/a~1b/pattern"},
      {R"({"type":"array","uniqueItems":true})", "#/uniqueItems"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "#/oneOf"},
      {R"({"allOf":[{"not":{}},{}]})", "#/allOf/0/not"},
      {R"({"allOf":[{"type":"array","prefixItems":[{}]},{"items":{}}]})", "#/items"},
      {R"({"$ref":"#","type":"object"})", "#"},
      {R"({"enum":["a"],"minLength":2})", "#/enum"},
      {R"({"$ref":"http://x/"})", "#/$ref"},
      {R"({"$ref":"#/$defs/x"})", "#/$ref"},
      {R"({"type":"number","multipleOf":3})", "#/multipleOf"},
      {R"({"type":"integer","multipleOf":3,"minimum":0})", "#/multipleOf"},
      {R"({"type":"text"})", "#/type"},
      {R"({"properties":{"a":false},"required":["a"]})", "#/required"},
      {R"({"if":{},"then":{}})", "#/if"},
      {"7", "#"},
  };
  for (const auto& [schema, place] : wrong) {
    const auto grammar = compile_json_schema(schema);
    ASSERT_FALSE(grammar) << schema;
    EXPECT_EQ(grammar.error().param, place) << schema;
  }
  EXPECT_FALSE(compile_json_schema("{"));
}

TEST(JsonSchema, WhatHasNoTextIsRefused) {
  for (
      const char* schema :
      {R"({"$ref":"#"})",
       R"({"$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"]}},"$ref":"#/$defs/n"})"}) {
    EXPECT_FALSE(compile_json_schema(schema)) << schema;
  }
  // Only the branch that has no text is left out.
  const char* list =
      R"({"$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/n"}}},"$ref":"#/$defs/n"})";
  EXPECT_TRUE(accepts(list, "[[], [[]]]"));
}

// Every byte a token of its own, and some longer ones.
TEST(TokenMasks, EveryWalkThroughTheMasksIsValidJson) {
  std::vector<std::string> bytes;  // views point into it: it must not move
  bytes.reserve(512);
  bytes.resize(256);
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (int i = 0; i < 256; ++i) {
    bytes[static_cast<size_t>(i)] = std::string(1, static_cast<char>(i));
    tokens.emplace_back(bytes[static_cast<size_t>(i)], i);
  }
  const std::vector<std::string> longer = {"\", \"", "\":",  "{\"a", "null", "},{",
                                           "  ",     "1234", "é",    "\"}"};
  for (const std::string& text : longer) {
    bytes.push_back(text);
    tokens.emplace_back(text, static_cast<int32_t>(bytes.size() - 1));
  }
  const VocabTrie trie(tokens, static_cast<int32_t>(bytes.size()));
  std::mt19937 random(5);
  int n_wrong = 0;
  for (const Case& one : kCases) {
    TokenMasks masks(compile(one.schema), trie);
    Automaton& automaton = masks.automaton();
    for (int walk = 0; walk < 20; ++walk) {
      std::string text;
      Automaton::State state = automaton.start();
      for (int n = 0; n < 400 && !automaton.accepts(state); ++n) {
        const std::span<const uint32_t> mask = masks.mask(state);
        std::vector<uint32_t> allowed;
        for (uint32_t t = 0; t < bytes.size(); ++t) {
          const bool in = ((mask[t / 32] >> (t % 32)) & 1) != 0;
          n_wrong += in != (automaton.next(state, bytes[t]) != Automaton::kDead) ? 1 : 0;
          if (in) allowed.push_back(t);
        }
        ASSERT_FALSE(allowed.empty()) << one.schema << text;
        // Towards an end: quotes and closing brackets are taken when they may come.
        uint32_t token = allowed[random() % allowed.size()];
        for (const char c : {'"', '}', ']'}) {
          if (n > 40 && ((mask[static_cast<size_t>(c) / 32] >> (c % 32)) & 1) != 0) {
            token = static_cast<uint32_t>(c);
          }
        }
        text += bytes[token];
        state = automaton.next(state, bytes[token]);
      }
      if (!automaton.accepts(state)) continue;
      EXPECT_FALSE(nlohmann::json::parse(text, nullptr, false).is_discarded()) << text;
    }
  }
  EXPECT_EQ(n_wrong, 0);
}

TEST(Automaton, StatesAreFewForLongTexts) {
  Automaton automaton(compile(R"({"type":"array","items":{"type":"string"}})"));
  std::string text = "[";
  for (int i = 0; i < 2000; ++i) text += "\"item " + std::to_string(i) + "\", ";
  EXPECT_NE(automaton.next(automaton.start(), text), Automaton::kDead);
  EXPECT_LT(automaton.n_states(), 40u);
}

TEST(Automaton, NestingBeyondTheLimitIsRefused) {
  Automaton automaton(compile("true"));
  EXPECT_NE(automaton.next(automaton.start(), std::string(100, '[')), Automaton::kDead);
  EXPECT_EQ(automaton.next(automaton.start(), std::string(5000, '[')), Automaton::kDead);
  EXPECT_TRUE(automaton.overflowed());
}

}  // namespace
}  // namespace hadal::grammar
