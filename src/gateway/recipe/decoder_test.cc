#include "gateway/recipe/decoder.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gateway/recipe/json_value.h"
#include "gateway/recipe/sealed_text.h"

namespace hadal::recipe {
namespace {

struct Collected final : DecoderSink {
  void on_reasoning(std::string_view text, Logprobs) override { reasoning += text; }
  void on_content(std::string_view text, Logprobs) override { content += text; }
  void on_call(std::string_view name) override { calls.emplace_back(name, ""); }
  void on_arguments(std::string_view json) override { calls.back().second += json; }
  void on_call_end(bool) override {}
  bool operator==(const Collected& other) const {
    return reasoning == other.reasoning && content == other.content && calls == other.calls;
  }
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;
};

ParsePlan plan_with_tool(bool thinking) {
  ParsePlan plan;
  plan.thinking = thinking;
  plan.stage = thinking ? StartStage::kReasoning : StartStage::kAnswer;
  plan.tool_calls = true;
  plan.tools.push_back({.name = "f", .ns = "", .local_name = "f", .parameters = "{}"});
  return plan;
}

Collected decode(const ParsePlan& plan, const std::vector<std::string>& pieces) {
  Collected collected;
  Decoder decoder(plan, collected, {});
  for (const std::string& piece : pieces) decoder.push(piece, Origin::kText);
  decoder.finish(types::FinishReason::kStop);
  return collected;
}

const char* const kOutputs[] = {
    "why</think>\n\nok",
    "x</th\n\n</think>y </th z <｜DS",
    "a\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"q \\\" r\" "
    "string=\"true\">a\"\n<b</｜DSML｜ parameter>\n<｜DSML｜ parameter name=\"n\" "
    "string=\"false\">True</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>tail",
    "the <｜DSML｜ token is quoted, and <｜DSML｜ cal is prose",
    "<｜DSML｜toolcals>\n<｜DSML｜invoke name='f'>\n<｜DSML｜parameter string=\"true\" name=q>v",
    "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a\" "
    "string=\"true\">v\n\n"
    "<｜DSML｜ parameter name=\"b\" string=\"false\">[1]\n<｜DSML｜ invoke name=\"f\"></｜DSML｜ "
    "calls>\n"
    "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"></｜DSML｜ invoke></｜DSML｜ calls>\nso <｜DSML｜ "
    "calls>",
    "<｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a\" string=\"true\">a <｜DSML｜ "
    "parameter of "
    "<｜DSML｜ parameter name=\"b\"> <｜DSML｜</｜DSML｜ parameter>",
    "<｜DSML｜ invoke name=\"ghost\">\n</｜DSML｜ invoke>\n<｜DSML｜ invoke  name = \"f\">",
};

TEST(Decoder, AStopSequenceLongerThanSixteenBitsMatches) {
  ParsePlan plan = plan_with_tool(false);
  plan.stop = {std::string(69'999, 'a') + "b"};
  // Begun six bytes too early: the match has to fall back by one byte at a time.
  EXPECT_EQ(decode(plan, {std::string(70'005, 'a'), "bc"}).content, "aaaaaa");
}

TEST(Decoder, EveryTwoWaySplitAndSingleBytesGiveTheSame) {
  for (const bool thinking : {false, true}) {
    const ParsePlan plan = plan_with_tool(thinking);
    for (const std::string output : kOutputs) {
      const Collected whole = decode(plan, {output});
      std::vector<std::string> bytes;
      for (const char byte : output) bytes.emplace_back(1, byte);
      EXPECT_EQ(decode(plan, bytes), whole) << output;
      for (size_t at = 0; at <= output.size(); ++at) {
        EXPECT_EQ(decode(plan, {output.substr(0, at), output.substr(at)}), whole) << output << at;
      }
    }
  }
}

TEST(Decoder, ArgumentsParseAndNamesAreDeclaredWhereverTheOutputIsCut) {
  const ParsePlan plan = plan_with_tool(false);
  for (const std::string output : kOutputs) {
    for (size_t size = 0; size <= output.size(); ++size) {
      // A piece is whole characters.
      if (size < output.size() && (static_cast<unsigned char>(output[size]) & 0xC0) == 0x80)
        continue;
      for (const auto& [name, arguments] : decode(plan, {output.substr(0, size)}).calls) {
        EXPECT_EQ(name, "f");
        JsonDoc doc;
        EXPECT_TRUE(doc.parse(arguments).has_value()) << arguments;
      }
    }
  }
}

TEST(Decoder, NamesAreEscapedAndWhatIsNoJsonBecomesAString) {
  const Collected got = decode(plan_with_tool(false), {kOutputs[2]});
  ASSERT_EQ(got.calls.size(), 1u);
  EXPECT_EQ(got.content, "a");
  EXPECT_EQ(got.calls[0].second.find("True"), got.calls[0].second.find("\"True\"") + 1);
}

TEST(Decoder, QuotedTokenStaysText) {
  EXPECT_EQ(decode(plan_with_tool(false), {kOutputs[3]}).content, kOutputs[3]);
}

TEST(Decoder, MisspeltBlockIsACallAllTheSame) {
  const Collected got = decode(plan_with_tool(false), {kOutputs[4]});
  ASSERT_EQ(got.calls.size(), 1u);
  EXPECT_EQ(got.calls[0].second, R"({"q": "v"})");
}

TEST(Decoder, AForgottenEndOfAValueCostsNothing) {
  const auto calls = decode(plan_with_tool(false), {kOutputs[5]}).calls;
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].second, R"({"a": "v", "b": [1]})");
  EXPECT_EQ(calls[1].second, "{}");
  EXPECT_EQ(calls[2].second, "{}");
}

TEST(Decoder, TagsThatAreQuotedInAValueStayText) {
  const auto calls = decode(plan_with_tool(false), {kOutputs[6]}).calls;
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].second,
            "{\"a\": \"a <｜DSML｜ parameter of <｜DSML｜ parameter name=\\\"b\\\"> <｜DSML｜\"}");
}

TEST(Decoder, CompatKeepsTheFaultsOfTheParser) {
  ParsePlan plan = plan_with_tool(false);
  plan.compat = true;
  const Collected got = decode(
      plan, {"<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"q\">1"
             "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"});
  ASSERT_EQ(got.calls.size(), 1u);
  EXPECT_EQ(got.calls[0].second, "{\"q\">1</｜DSML｜: ");
}

TEST(Decoder, ControlTokensInOrdinaryTokensAreText) {
  const ParsePlan plan = plan_with_tool(true);
  Collected got;
  Decoder decoder(plan, got, {});
  decoder.push("a</think>b", Origin::kToken);
  decoder.push("</think>", Origin::kControl);
  decoder.push("c", Origin::kToken);
  decoder.finish(types::FinishReason::kStop);
  EXPECT_EQ(got.reasoning, "a</think>b");
  EXPECT_EQ(got.content, "c");
}

TEST(SealedText, OpensWithItsKeyAndRefusesChanges) {
  const std::string key(32, 'k');
  std::string sealed = seal_text(key, kReasoningPurpose, "why");
  EXPECT_EQ(open_sealed(key, kReasoningPurpose, sealed).value(), "why");
  EXPECT_FALSE(open_sealed(std::string(32, 'x'), kReasoningPurpose, sealed).has_value());
  EXPECT_FALSE(open_sealed(key, "other", sealed).has_value());
  sealed[10] = sealed[10] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(open_sealed(key, kReasoningPurpose, sealed).has_value());
}

TEST(SealedText, EachTenantHasItsOwnKey) {
  const std::string key(32, 'k');
  const std::string a = tenant_sealing_key(key, "a"), b = tenant_sealing_key(key, "b");
  EXPECT_EQ(a, tenant_sealing_key(key, "a"));
  EXPECT_NE(a, b);
  EXPECT_NE(tenant_sealing_key(key, ""), key);
  const std::string sealed = seal_text(a, kReasoningPurpose, "why");
  EXPECT_FALSE(open_sealed(b, kReasoningPurpose, sealed).has_value());
  EXPECT_EQ(open_sealed(a, kReasoningPurpose, sealed).value(), "why");
}

TEST(SealedText, KeyFilesAreBytesOrHexDigits) {
  const std::string path = testing::TempDir() + "hadal_key";
  const auto read = [&](std::string_view content) {
    std::ofstream(path, std::ios::binary) << content;
    return read_sealing_key(path);
  };
  EXPECT_EQ(read(std::string(32, '\x01')).value(), std::string(32, '\x01'));
  std::string hex;
  for (int i = 0; i < 32; ++i) hex += i % 2 == 0 ? "0a" : "fF";
  EXPECT_EQ(read(hex + "\n").value().substr(0, 2), "\x0a\xff");
  EXPECT_EQ(read(hex + "0").error().code, core::Code::kInvalidRequest);
  EXPECT_EQ(read("secret").error().message.find("secret"), std::string::npos);
  EXPECT_FALSE(read_sealing_key(path + ".none").has_value());
}

}  // namespace
}  // namespace hadal::recipe
