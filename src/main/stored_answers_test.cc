#include "main/stored_answers.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hadal::main {
namespace {

class StoredAnswersFile : public testing::Test {
 protected:
  ~StoredAnswersFile() override { std::filesystem::remove(path_); }
  void put(const std::string& text) { std::ofstream(path_) << text; }
  const std::string path_ = testing::TempDir() + "stored_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
};

const StoredAnswers kStored{.vocab = 100,
                            .n_layers = 3,
                            .weight_bytes = 5'000'000'000,
                            .answers = {{{1}, {7, 8}, {0.5, 1.25}}, {{2, 3, 99}, {9, 0}, {3, 0}}}};

TEST_F(StoredAnswersFile, ReadsWhatItWrote) {
  ASSERT_TRUE(write_stored_answers(kStored, path_));
  const auto read = read_stored_answers(path_);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(check_same_model(*read, kStored, path_));
  ASSERT_EQ(read->answers.size(), 2u);
  EXPECT_EQ(read->answers[1].prompt, kStored.answers[1].prompt);
  EXPECT_EQ(read->answers[1].ids, kStored.answers[1].ids);
  EXPECT_EQ(read->answers[0].margins, kStored.answers[0].margins);
}

TEST_F(StoredAnswersFile, AnotherModelIsRefused) {
  StoredAnswers other = kStored;
  other.weight_bytes = 1;
  const core::Status status = check_same_model(kStored, other, "FILE");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::HasSubstr("FILE: was written by a model of 100"));
}

TEST_F(StoredAnswersFile, SaysWhichFieldIsWrong) {
  const std::string head = R"({"hadal_selfcheck":1,"vocab":10,"layers":1,"weight_bytes":1,)";
  const std::pair<std::string, const char*> bad[] = {
      {"", "hadal_selfcheck"},
      {"[1]", "hadal_selfcheck"},
      {R"({"hadal_selfcheck":2})", "hadal_selfcheck"},
      {R"({"hadal_selfcheck":1,"vocab":-1})", "vocab"},
      {R"({"hadal_selfcheck":1,"vocab":18446744073709551615})", "vocab"},
      {head + R"("answers":[]})", "answers"},
      {head + R"("answers":[3]})", "answers[0].prompt"},
      {head + R"("answers":[{"prompt":[10],"ids":[1],"margins":[1]}]})", "answers[0].prompt"},
      {head + R"("answers":[{"prompt":[1],"ids":["1"],"margins":[1]}]})", "answers[0].ids"},
      {head + R"("answers":[{"prompt":[1],"ids":[1],"margins":[]}]})", "answers[0].margins"},
      {head + R"("answers":[{"prompt":[1],"ids":[1],"margins":[-1]}]})", "answers[0].margins"},
      {head + R"("answers":[{"prompt":[1],"ids":[1],"margins":[1]},)"
              R"({"prompt":[1],"ids":[1,2],"margins":[1,1]}]})",
       "answers[1].ids"},
  };
  for (const auto& [text, field] : bad) {
    put(text);
    const auto read = read_stored_answers(path_);
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().message, testing::HasSubstr(std::string(": ") + field + " ")) << text;
  }
}

TEST_F(StoredAnswersFile, FindsTheFirstIdThatDiffers) {
  const StoredAnswer& stored = kStored.answers[0];
  EXPECT_FALSE(first_departure(stored, std::vector<int32_t>{7, 8}));
  const auto departure = first_departure(stored, std::vector<int32_t>{7, 9});
  ASSERT_TRUE(departure);
  EXPECT_EQ(departure->at, 1u);
  EXPECT_EQ(departure->want, 8);
  EXPECT_EQ(departure->got, 9);
  EXPECT_EQ(departure->margin, 1.25);
  EXPECT_EQ(first_departure(stored, std::vector<int32_t>{7})->got, -1);
}

TEST_F(StoredAnswersFile, AFolderThatIsMissingIsAnError) {
  EXPECT_FALSE(write_stored_answers(kStored, "/nonexistent/folder/file"));
  EXPECT_FALSE(read_stored_answers("/nonexistent/file"));
}

}  // namespace
}  // namespace hadal::main
