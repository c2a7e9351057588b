#include "engine/grammar/tool_calls.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/grammar/automaton.h"

namespace hadal::grammar {
namespace {

// "@" is the control token here.
bool accepts(const std::shared_ptr<const Grammar>& grammar, std::string text) {
  for (char& c : text) {
    if (c == '@') c = static_cast<char>(Grammar::kControl);
  }
  Automaton automaton(grammar);
  return automaton.accepts(automaton.next(automaton.start(), text));
}

std::string request(const std::string& begins, const std::string& tools, bool single = false) {
  return fmt::format(
      R"({{"begins":"{}","single":{},"tags":{{"block":" calls","invoke":" invoke","parameter":" parameter"}},"tools":[{}]}})",
      begins, single, tools);
}

std::shared_ptr<const Grammar> compile(const std::string& text) {
  const auto grammar = compile_tool_calls(text);
  EXPECT_TRUE(grammar) << text << ": " << (grammar ? "" : grammar.error().message);
  return grammar ? *grammar : nullptr;
}

const char* const kWeather =
    R"({"name":"weather","path":"tools[0].function.parameters","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":9},"unit":{"type":"string","enum":["C","F"]}},"required":["city","days"],"additionalProperties":false}})";
const char* const kFree = R"({"name":"free"})";

const std::string kCall =
    "<@ invoke name=\"weather\">\n<@ parameter name=\"city\" string=\"true\">Oslo <b> \"x\"\n</@ "
    "parameter>\n<@ parameter name=\"days\" string=\"false\">3</@ parameter>\n</@ invoke>\n";

TEST(ToolCalls, BlocksBeginWhereTheOutputStands) {
  const std::string close = "</@ calls>";
  const std::string tools = std::string(kWeather) + "," + kFree;
  EXPECT_TRUE(accepts(compile(request("block", tools)), kCall + close));
  EXPECT_TRUE(accepts(compile(request("marker", tools)), " calls>\n" + kCall + kCall + close));
  EXPECT_TRUE(accepts(compile(request("answer", tools)), "\n\n<@ calls>\n" + kCall + close));
  const std::string body = kCall.substr(kCall.find('\n') + 1);
  EXPECT_TRUE(accepts(compile(request("call", tools)), body + close));
  EXPECT_TRUE(accepts(compile(request("call", tools)), body + kCall + close));
  // One call at least, and one at most where the request says so.
  EXPECT_FALSE(accepts(compile(request("block", tools)), close));
  EXPECT_TRUE(accepts(compile(request("block", tools, true)), kCall + close));
  EXPECT_FALSE(accepts(compile(request("block", tools, true)), kCall + kCall + close));
  EXPECT_FALSE(accepts(compile(request("block", tools)), kCall + close + "x"));
}

TEST(ToolCalls, ArgumentsOfStrictToolsKeepToTheirSchema) {
  const auto grammar = compile(request("block", std::string(kWeather) + "," + kFree));
  const auto call = [&](const std::string& parameters) {
    return accepts(grammar,
                   "<@ invoke name=\"weather\">\n" + parameters + "</@ invoke>\n</@ calls>");
  };
  const std::string city = "<@ parameter name=\"city\" string=\"true\"></@ parameter>\n";
  const std::string days = "<@ parameter name=\"days\" string=\"false\">9</@ parameter>\n";
  const std::string unit = "<@ parameter name=\"unit\" string=\"true\">C</@ parameter>\n";
  EXPECT_TRUE(call(city + days));
  EXPECT_TRUE(call(city + days + unit));
  EXPECT_FALSE(call(city));
  EXPECT_FALSE(call(days + unit));
  EXPECT_FALSE(call(city + days + days));
  EXPECT_FALSE(call(""));
  EXPECT_FALSE(call(city + "<@ parameter name=\"days\" string=\"false\">10</@ parameter>\n"));
  EXPECT_FALSE(call(city + "<@ parameter name=\"days\" string=\"true\">9</@ parameter>\n"));
  EXPECT_FALSE(call(city + days + "<@ parameter name=\"unit\" string=\"true\">K</@ parameter>\n"));
  EXPECT_FALSE(call(city + days + "<@ parameter name=\"other\" string=\"true\">K</@ parameter>\n"));
  EXPECT_FALSE(accepts(grammar, "<@ invoke name=\"unknown\">\n</@ invoke>\n</@ calls>"));
}

TEST(ToolCalls, OtherToolsAreFreeWithinTheMarkup) {
  const auto grammar = compile(request("block", std::string(kWeather) + "," + kFree));
  const auto call = [&](const std::string& parameters) {
    return accepts(grammar, "<@ invoke name=\"free\">\n" + parameters + "</@ invoke>\n</@ calls>");
  };
  EXPECT_TRUE(call(""));
  EXPECT_TRUE(call("\n"));
  EXPECT_TRUE(
      call("<@ parameter name=\"a b\" string=\"true\">x</@ parameter>\n<@ parameter "
           "name=\"c\" string=\"false\">{\"d\": [1, \"e\"]}</@ parameter>\n"));
  EXPECT_FALSE(call("<@ parameter name=\"c\" string=\"false\">{</@ parameter>\n"));
  EXPECT_FALSE(call("<@ parameter name=\"c\">1</@ parameter>\n"));
  EXPECT_FALSE(call("text"));
}

TEST(ToolCalls, ValuesThatMayBeStringsAreRawOrJson) {
  const auto grammar = compile(request(
      "block",
      R"({"name":"t","path":"p","parameters":{"type":"object","properties":{"v":{"anyOf":[{"type":"string","pattern":"^a+$"},{"type":"integer"},{"$ref":"#/$def/e"}]},"w":{"type":["string","null"]}},"$def":{"e":{"enum":["x\ny",true]}}}})"));
  const auto value = [&](const char* name, const char* is_string, const std::string& text) {
    return accepts(grammar, fmt::format("<@ invoke name=\"t\">\n<@ parameter name=\"{}\" "
                                        "string=\"{}\">{}</@ parameter>\n</@ invoke>\n</@ calls>",
                                        name, is_string, text));
  };
  EXPECT_TRUE(value("v", "true", "aa"));
  EXPECT_TRUE(value("v", "true", "x\ny"));
  EXPECT_TRUE(value("v", "false", "7"));
  EXPECT_TRUE(value("v", "false", "true"));
  EXPECT_FALSE(value("v", "true", "7"));
  EXPECT_FALSE(value("v", "false", "\"aa\""));
  EXPECT_TRUE(value("w", "true", "null"));
  EXPECT_TRUE(value("w", "false", "null"));
  EXPECT_FALSE(value("w", "false", "1"));
}

TEST(ToolCalls, CustomInputsMatchTheirExpression) {
  const auto grammar = compile(request(
      "block", R"({"name":"date","path":"p","input":{"syntax":"regex","definition":"\\d{4}"}},)"
               R"({"name":"text","path":"p","input":{"syntax":"","definition":""}})"));
  const auto call = [&](const char* name, const char* text) {
    return accepts(grammar, fmt::format("<@ invoke name=\"{}\">\n<@ parameter name=\"input\" "
                                        "string=\"true\">{}</@ parameter>\n</@ invoke>\n</@ calls>",
                                        name, text));
  };
  EXPECT_TRUE(call("date", "2026"));
  EXPECT_FALSE(call("date", "20260"));
  EXPECT_TRUE(call("text", "any thing"));
}

TEST(ToolCalls, WhatCannotBeKeptToNamesTheField) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"name":"t","path":"tools[1].function.parameters","parameters":{"type":"object","properties":{"a":{"type":"array","items":{"not":{}}}}}})",
       "tools[1].function.parameters.properties.a.items.not"},
      {R"({"name":"t","path":"p","parameters":{"type":"object","properties":{"a":{"$ref":"#/$defs/no"}}}})",
       "p.properties.a.$ref"},
      {R"({"name":"t","path":"p","parameters":{"type":"object","properties":{"a\"b":{}}}})",
       "p.properties.a\"b"},
      {R"({"name":"t","path":"p","parameters":{"type":"object","minProperties":1}})",
       "p.minProperties"},
      {R"({"name":"t","path":"tools[0].format.definition","input":{"syntax":"regex","definition":"(?=a)b"}})",
       "tools[0].format.definition"},
  };
  for (const auto& [tool, path] : wrong) {
    const auto grammar = compile_tool_calls(request("block", tool));
    ASSERT_FALSE(grammar) << tool;
    EXPECT_EQ(grammar.error().param, path) << tool;
  }
}

TEST(ToolCalls, ATextOfAFormMayComeInsteadAndNothingElse) {
  const auto with = [](const std::string& form) {
    std::string text = request("answer", kFree);
    text.insert(text.size() - 1, ",\"instead\":" + form);
    return text;
  };
  const std::string calls = "\n\n<@ calls>\n<@ invoke name=\"free\">\n</@ invoke>\n</@ calls>";
  const auto object = compile(with(R"({"kind":"object","text":"","path":""})"));
  for (const std::string& text : {calls, std::string(R"({"a": [1, {"b": null}]})")}) {
    EXPECT_TRUE(accepts(object, text)) << text;
  }
  for (const std::string& text :
       {std::string("[1]"), std::string("I look."), R"({"a": 1})" + calls, calls + "{}"}) {
    EXPECT_FALSE(accepts(object, text)) << text;
  }
  const auto schema = compile(
      with(R"({"kind":"schema","text":"{\"type\":\"integer\",\"minimum\":5}","path":"f.schema"})"));
  EXPECT_TRUE(accepts(schema, "17"));
  EXPECT_TRUE(accepts(schema, calls));
  EXPECT_FALSE(accepts(schema, "4"));
  const auto regex = compile(with(R"({"kind":"regex","text":"yes|no","path":"f.regex"})"));
  EXPECT_TRUE(accepts(regex, "yes"));
  EXPECT_TRUE(accepts(regex, calls));
  EXPECT_FALSE(accepts(regex, "yes" + calls));
  const auto wrong =
      compile_tool_calls(with(R"({"kind":"schema","text":"{\"not\":{}}","path":"f.schema"})"));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().param.substr(0, 8), "f.schema");
}

}  // namespace
}  // namespace hadal::grammar
