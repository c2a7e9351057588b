#include "gateway/store/store.h"

#include <atomic>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hadal::store {
namespace {

namespace fs = std::filesystem;
using Tbl = Tables&;

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("hadal_store_" + std::to_string(getpid()));
    fs::create_directories(dir_);
    config_.limits.now = [this] { return now_.load(); };
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(dir_);
  }
  Store& open(bool on_disk = false) {
    store_.reset();
    if (on_disk) config_.path = (dir_ / "s.db").string();
    auto opened = Store::open(config_);
    EXPECT_TRUE(opened.has_value()) << (opened ? "" : opened.error().message);
    store_ = std::move(*opened);
    return *store_;
  }
  static StoredResponse response(std::string tenant, std::string id, std::string previous = "",
                                 size_t size = 10) {
    return {.tenant = std::move(tenant),
            .id = std::move(id),
            .previous = std::move(previous),
            .created = 1000,
            .status = "completed",
            .input = "[]",
            .object = std::string(size, 'x')};
  }
  core::Status put(const StoredResponse& r) {
    auto done = store_->call<bool>([r](Tbl t) -> core::Result<bool> {
      HADAL_TRY_VOID(t.responses.put(r));
      return true;
    });
    if (!done) return done.error();
    return {};
  }
  std::optional<StoredResponse> find(std::string tenant, std::string id) {
    return store_
        ->call<std::optional<StoredResponse>>([=](Tbl t) { return t.responses.find(tenant, id); })
        .value();
  }
  Total total(std::string kind) {
    return store_->call<Total>([=](Tbl t) { return total_of(t.db, kind); }).value();
  }

  std::atomic<int64_t> now_ = 1000;
  StoreConfig config_;
  fs::path dir_;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreTest, AResponseIsSeenByItsTenantOnly) {
  open();
  ASSERT_TRUE(put(response("a", "r1")));
  EXPECT_TRUE(find("a", "r1").has_value());
  EXPECT_FALSE(find("b", "r1").has_value());
  ASSERT_TRUE(put(response("b", "r2", "r1")));
  const auto chain = store_->call<std::vector<StoredResponse>>(
      [](Tbl t) { return t.responses.chain("b", "r2", 1 << 20); });
  ASSERT_FALSE(chain.has_value());
  EXPECT_EQ(chain.error().code, core::Code::kNotFound);
  EXPECT_EQ(chain.error().param, "r1");
  EXPECT_FALSE(store_->call<bool>([](Tbl t) { return t.responses.erase("b", "r1"); }).value());
  EXPECT_TRUE(store_->call<bool>([](Tbl t) { return t.responses.erase("a", "r1"); }).value());
}

TEST_F(StoreTest, EventsAreKeptWithTheResponseAndCount) {
  open();
  const auto events = [&](std::string id) {
    return store_
        ->call<std::optional<std::string>>([=](Tbl t) { return t.responses.events("", id); })
        .value();
  };
  StoredResponse r = response("", "r1");
  ASSERT_TRUE(put(r));
  EXPECT_FALSE(events("r1").has_value()) << "it was not streamed";
  const uint64_t without = total("responses").bytes;
  r.events = "";
  ASSERT_TRUE(put(r));
  EXPECT_EQ(events("r1"), "") << "streamed, and not ended";
  r.events = std::string("a\0b", 3);
  ASSERT_TRUE(put(r));
  EXPECT_EQ(events("r1"), r.events);
  EXPECT_EQ(total("responses").bytes, without + 3);
  EXPECT_FALSE(events("none").has_value());
}

TEST_F(StoreTest, AFileOfTheFirstVersionIsBroughtUp) {
  open(true);
  ASSERT_TRUE(put(response("", "r1")));
  const auto back = store_->call<bool>([](Tbl t) -> core::Result<bool> {
    HADAL_TRY_VOID(t.db.script("ALTER TABLE responses DROP COLUMN events; PRAGMA user_version=1"));
    return true;
  });
  ASSERT_TRUE(back.has_value()) << back.error().message;
  open(true);
  EXPECT_TRUE(find("", "r1").has_value());
  StoredResponse r = response("", "r2");
  r.events = "log";
  EXPECT_TRUE(put(r));
}

TEST_F(StoreTest, WhatIsLeftOfAChainBeginsBehindTheGap) {
  open();
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(
        put(response("", "r" + std::to_string(i), i == 0 ? "" : "r" + std::to_string(i - 1))));
  ASSERT_TRUE(store_->call<bool>([](Tbl t) { return t.responses.erase("", "r1"); }).value());
  const auto left = [&](std::string id) {
    return store_->call<std::vector<StoredResponse>>(
        [=](Tbl t) { return t.responses.chain("", id, 1 << 20, Responses::Chain::kWhatIsLeft); });
  };
  ASSERT_TRUE(left("r3").has_value());
  EXPECT_EQ(left("r3")->size(), 2u);
  EXPECT_EQ(left("r3")->front().id, "r2");
  EXPECT_EQ(left("r1").error().code, core::Code::kNotFound);
}

TEST_F(StoreTest, AChainComesOldestFirstAndIsBounded) {
  open();
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(put(
        response("", "r" + std::to_string(i), i == 0 ? "" : "r" + std::to_string(i - 1), 1000)));
  const auto get = [&](uint64_t bytes) {
    return store_->call<std::vector<StoredResponse>>(
        [=](Tbl t) { return t.responses.chain("", "r49", bytes); });
  };
  const auto chain = get(1 << 20);
  ASSERT_TRUE(chain.has_value());
  ASSERT_EQ(chain->size(), 50u);
  EXPECT_EQ(chain->front().id, "r0");
  EXPECT_EQ(get(20'000).error().code, core::Code::kTooLarge);
}

TEST_F(StoreTest, TheOldestMakeRoomAndTotalsStayRight) {
  config_.limits.max_responses = 100;
  config_.limits.max_response_bytes = 50'000;
  open(true);
  for (int i = 0; i < 2000; ++i)
    ASSERT_TRUE(put(response("", "r" + std::to_string(i), "", i % 3 == 0 ? 3000 : 10)));
  const Total t = total("responses");
  EXPECT_LE(t.n, 100u);
  EXPECT_LE(t.bytes, 50'000u);
  EXPECT_TRUE(find("", "r1999").has_value());
  EXPECT_FALSE(find("", "r0").has_value());
  ASSERT_TRUE(put(response("", "r1999", "", 4000)));  // replaced
  const auto sum = store_->call<int64_t>([](Tbl tables) -> core::Result<int64_t> {
    Statement row = tables.db.query("SELECT sum(bytes) FROM responses");
    HADAL_TRY([[maybe_unused]] const bool found, row.next());
    return row.integer(0);
  });
  EXPECT_EQ(static_cast<uint64_t>(*sum), total("responses").bytes);
  EXPECT_EQ(put(response("", "huge", "", 60'000)).error().code, core::Code::kTooLarge);
}

TEST_F(StoreTest, OldAgeEndsAResponse) {
  open();
  ASSERT_TRUE(put(response("", "r1")));
  now_ += config_.limits.ttl_s - 1;
  EXPECT_TRUE(find("", "r1").has_value());
  now_ += 1;
  EXPECT_FALSE(find("", "r1").has_value());
}

TEST_F(StoreTest, AFailedTaskCostsItsNeighboursNothing) {
  open();
  std::atomic<int> n_good = 0, n_bad = 0;
  for (int i = 0; i < 500; ++i) {
    store_->post<bool>(
        [=](Tbl t) -> core::Result<bool> {
          HADAL_TRY_VOID(t.responses.put(response("", "r" + std::to_string(i))));
          if (i % 7 == 0) return core::Error{core::Code::kInvalidRequest, "no"};
          return true;
        },
        [&](core::Result<bool> done) { ++(done ? n_good : n_bad); });
  }
  EXPECT_EQ(total("responses").n, static_cast<uint64_t>(500 - 72));
  EXPECT_EQ(n_bad, 72);
  EXPECT_FALSE(find("", "r7").has_value());
}

TEST_F(StoreTest, AFullDiskRefusesWhatNeedsItAndNothingElse) {
  open(true);
  ASSERT_TRUE(put(response("", "small")));
  (void)store_->call<bool>([](Tbl t) -> core::Result<bool> {
    HADAL_TRY_VOID(t.db.script("PRAGMA max_page_count=120"));
    return true;
  });
  std::atomic<int> n_kept = 0, n_full = 0, n_other = 0;
  for (int i = 0; i < 40; ++i) {
    const size_t size = i % 10 == 0 ? 1'000'000 : 100;
    store_->post<bool>(
        [=](Tbl t) -> core::Result<bool> {
          HADAL_TRY_VOID(t.responses.put(response("", "r" + std::to_string(i), "", size)));
          return true;
        },
        [&](const core::Result<bool>& done) {
          ++(done ? n_kept : done.error().code == core::Code::kUnavailable ? n_full : n_other);
        });
  }
  EXPECT_EQ(total("responses").n, 37u);  // reading goes on, too
  EXPECT_EQ(n_kept, 36);
  EXPECT_EQ(n_full, 4);
  EXPECT_EQ(n_other, 0);
  EXPECT_TRUE(find("", "small").has_value());
}

TEST_F(StoreTest, AClosedStoreRunsWhatItTookAndRefusesTheRest) {
  open();
  std::atomic<int> n_done = 0;
  for (int i = 0; i < 100; ++i) {
    store_->post<bool>([](Tbl) -> core::Result<bool> { return true; },
                       [&](const core::Result<bool>&) { ++n_done; });
  }
  store_->close();
  EXPECT_EQ(n_done, 100);
  EXPECT_EQ(put(response("", "late")).error().code, core::Code::kUnavailable);
}

TEST_F(StoreTest, WhatWasAcknowledgedSurvivesKill9) {
  config_.path = (dir_ / "s.db").string();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto opened = Store::open(config_);
    for (int i = 0;; ++i) {
      (*opened)->post<bool>(
          [=](Tbl t) -> core::Result<bool> {
            HADAL_TRY_VOID(t.responses.put(response("", "r" + std::to_string(i), "", 500)));
            return true;
          },
          [=](core::Result<bool> done) {
            if (done && write(pipe_ends[1], &i, sizeof i) != sizeof i) _exit(1);
          });
      if (i % 50 == 0)
        (void)(*opened)->call<Total>([](Tbl t) { return total_of(t.db, "responses"); });
    }
  }
  close(pipe_ends[1]);
  int last = -1, seen = 0;
  while (seen < 3000 && read(pipe_ends[0], &last, sizeof last) == sizeof last) ++seen;
  kill(child, SIGKILL);
  int acknowledged = last;
  while (read(pipe_ends[0], &last, sizeof last) == sizeof last) acknowledged = last;
  close(pipe_ends[0]);
  waitpid(child, nullptr, 0);
  open(true);
  for (int i = 0; i <= acknowledged; ++i)
    ASSERT_TRUE(find("", "r" + std::to_string(i)).has_value()) << i << " of " << acknowledged;
}

TEST_F(StoreTest, ASecondServerAndAForeignFileAreRefused) {
  open(true);
  const auto second = Store::open(config_);
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.error().message.find("another process"), std::string::npos)
      << second.error().message;
  store_.reset();
  config_.path = (dir_ / "text").string();
  std::ofstream(config_.path) << std::string(5000, 'q');
  EXPECT_EQ(Store::open(config_).error().code, core::Code::kCorrupt);
  std::ifstream in(config_.path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), std::string(5000, 'q'));
}

TEST_F(StoreTest, ANewerVersionIsRefusedAndLeftAsItIs) {
  open(true);
  (void)store_->call<bool>([](Tbl t) -> core::Result<bool> {
    HADAL_TRY_VOID(t.responses.put(response("", "r1")));
    return true;
  });
  store_.reset();
  {
    auto db = Database::open(config_.path);
    ASSERT_TRUE(db->script("PRAGMA user_version=99"));
  }
  EXPECT_NE(Store::open(config_).error().message.find("version 99"), std::string::npos);
  {
    auto db = Database::open(config_.path);
    ASSERT_TRUE(db->script("PRAGMA user_version=2"));
  }
  open(true);
  EXPECT_TRUE(find("", "r1").has_value());
}

TEST_F(StoreTest, ConversationsGrowAreListedAndEnd) {
  config_.limits.max_conversation_bytes = 40'000;
  open();
  const auto done = store_->call<bool>([](Tbl t) -> core::Result<bool> {
    HADAL_TRY_VOID(t.conversations.create("a", {"c1", 1, "{}"}));
    HADAL_TRY_VOID(
        t.conversations.append("a", "c1", {{"i1", "one"}, {"i2", "two"}, {"i3", "three"}}));
    HADAL_TRY_VOID(t.conversations.erase_item("a", "c1", "i2"));
    HADAL_TRY(const auto newest, t.conversations.items("a", "c1", {.limit = 1}));
    EXPECT_EQ(newest.entries.at(0).id, "i3");
    EXPECT_TRUE(newest.has_more);
    HADAL_TRY(const auto rest, t.conversations.items("a", "c1", {.after = "i3", .limit = 5}));
    EXPECT_EQ(rest.entries.size(), 1u);
    EXPECT_EQ(t.conversations.items("b", "c1", {}).error().code, core::Code::kNotFound);
    EXPECT_FALSE(t.conversations.append("a", "c1", {{"i9", "x"}, {"i1", "twice"}}));
    return true;
  });
  ASSERT_TRUE(done.has_value()) << done.error().message;
  const auto bytes = total("conversations").bytes;
  EXPECT_GT(bytes, 8u);
  const auto big = store_->call<bool>([](Tbl t) -> core::Result<bool> {
    HADAL_TRY_VOID(t.conversations.append("a", "c1", {{"big", std::string(20'000, 'x')}}));
    return true;
  });
  EXPECT_EQ(big.error().code, core::Code::kTooLarge);
  for (int c = 0; c < 20; ++c) {
    const auto made = store_->call<bool>([=](Tbl t) -> core::Result<bool> {
      const std::string id = "d" + std::to_string(c);
      HADAL_TRY_VOID(t.conversations.create("a", {id, 1, "{}"}));
      HADAL_TRY_VOID(t.conversations.append("a", id, {{"i", std::string(5000, 'x')}}));
      return true;
    });
    ASSERT_TRUE(made.has_value()) << made.error().message;
  }
  EXPECT_LE(total("conversations").bytes, 40'000u);
  (void)store_->call<bool>([](Tbl t) -> core::Result<bool> {
    for (int c = 0; c < 20; ++c) (void)t.conversations.erase("a", "d" + std::to_string(c));
    (void)t.conversations.erase("a", "c1");
    return true;
  });
  EXPECT_EQ(total("conversations").bytes, 0u);
  EXPECT_EQ(total("conversations").n, 0u);
}

TEST_F(StoreTest, FilesComeBackByteForByteAndAreBounded) {
  config_.limits.max_file_bytes = 3'000'000;
  open();
  std::string content(1'000'001, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 2654435761u >> 13);
  const auto put_file = [&](std::string id) {
    return store_->call<bool>([&content, id](Tbl t) -> core::Result<bool> {
      HADAL_TRY_VOID(t.files.put("a", {.id = id, .filename = "f", .purpose = "batch"}, content));
      return true;
    });
  };
  ASSERT_TRUE(put_file("f1").has_value());
  std::string back;
  Files::Cursor cursor;
  while (true) {
    const auto piece =
        store_->call<std::string>([&](Tbl t) { return t.files.read("a", "f1", cursor); });
    ASSERT_TRUE(piece.has_value());
    if (piece->empty()) break;
    back += *piece;
  }
  EXPECT_EQ(back, content);
  ASSERT_TRUE(put_file("f2").has_value());
  EXPECT_EQ(put_file("f3").error().code, core::Code::kUnavailable);
  const auto listed = store_->call<Listed<StoredFile>>(
      [](Tbl t) { return t.files.list("a", "batch", {.limit = 1}); });
  EXPECT_EQ(listed->entries.at(0).id, "f2");
  EXPECT_TRUE(listed->has_more);
  EXPECT_TRUE(store_->call<Listed<StoredFile>>([](Tbl t) { return t.files.list("b", "", {}); })
                  ->entries.empty());
  (void)store_->call<bool>([](Tbl t) -> core::Result<bool> {
    (void)t.files.erase("b", "f1");
    (void)t.files.erase("a", "f1");
    return true;
  });
  EXPECT_EQ(total("files").bytes, content.size());
}

TEST_F(StoreTest, BatchResultsAreKeptOnceAndReadInOrder) {
  open();
  const auto done = store_->call<bool>([this](Tbl t) -> core::Result<bool> {
    StoredBatch batch{.tenant = "a",
                      .id = "b1",
                      .endpoint = "/v1/x",
                      .input_file = "f",
                      .window = "24h",
                      .created = 5,
                      .expires = 99};
    HADAL_TRY_VOID(t.batches.create(batch));
    HADAL_TRY(batch, t.batches.find("a", "b1"));
    EXPECT_EQ(t.batches.find("b", "b1").error().code, core::Code::kNotFound);
    HADAL_TRY_VOID(t.batches.add_results(batch.seq, {{3, false, "three\n"}, {1, false, "one\n"}}));
    HADAL_TRY_VOID(t.batches.add_results(batch.seq, {{3, true, "again\n"}, {2, true, "bad\n"}}));
    HADAL_TRY(batch, t.batches.at(batch.seq));
    EXPECT_EQ(batch.n_completed, 2u);
    EXPECT_EQ(batch.n_failed, 1u);
    HADAL_TRY(const auto lines, t.batches.lines_done(batch.seq, 1, 2));
    EXPECT_EQ(lines, (std::vector<uint64_t>{1, 2}));
    HADAL_TRY_VOID(t.batches.make_result_files(batch, "out", "err"));
    batch.state = BatchState::kCompleted;
    HADAL_TRY_VOID(t.batches.update(batch));
    Files::Cursor at, at_errors;
    HADAL_TRY(const std::string out, t.files.read("a", "out", at));
    EXPECT_EQ(out, "one\nthree\n");
    HADAL_TRY(const std::string end, t.files.read("a", "out", at));
    EXPECT_EQ(end, "");
    HADAL_TRY(const std::string bad, t.files.read("a", "err", at_errors));
    EXPECT_EQ(bad, "bad\n");
    EXPECT_EQ(t.files.find("a", "out")->bytes, 10u);
    HADAL_TRY(const auto open_ones, t.batches.open_batches());
    EXPECT_TRUE(open_ones.empty());
    HADAL_TRY_VOID(t.files.erase("a", "out"));
    HADAL_TRY_VOID(t.batches.forget_expired());
    HADAL_TRY(const auto again, t.batches.find("a", "b1"));
    EXPECT_EQ(again.state, BatchState::kCompleted);
    return true;
  });
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(total("files").bytes, 4u);
  now_ += config_.limits.ttl_s;
  const auto gone = store_->call<bool>([](Tbl t) -> core::Result<bool> {
    HADAL_TRY_VOID(t.batches.forget_expired());
    return true;
  });
  ASSERT_TRUE(gone.has_value()) << gone.error().message;
  EXPECT_EQ(total("files").bytes, 0u);
  EXPECT_EQ(total("files").n, 0u);
}

}  // namespace
}  // namespace hadal::store
