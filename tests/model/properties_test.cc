#include <algorithm>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "compute/weights/checkpoint.h"
#include "model/model_rig.h"

// Vectors of logits are too long to print.
#define EXPECT_SAME(a, b) EXPECT_TRUE((a) == (b))
#define ASSERT_SAME(a, b) ASSERT_TRUE((a) == (b))

// Properties of one forward that hold to the last bit: a row depends on its sequence and nothing
// else.
namespace hadal::test {
namespace {

// The logits of every position, from one whole prefill.
Logits truth(Rig& rig, const std::vector<int32_t>& ids) {
  Seq seq = rig.start(static_cast<int32_t>(ids.size()));
  Piece p;
  p.seq = &seq;
  p.ids = ids;
  p.n_logits = static_cast<int32_t>(ids.size());
  return rig.step({p});
}

std::vector<int32_t> slice(const std::vector<int32_t>& ids, int64_t from, int64_t to) {
  return {ids.begin() + from, ids.begin() + to};
}

// Whole pages of `bytes` that this process has mapped at this moment, of how many.
std::pair<size_t, size_t> mapped_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page;
  const size_t end = (reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size()) / page;
  std::vector<uint64_t> entries(end - begin);
  const int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  const size_t n_bytes = entries.size() * sizeof(uint64_t);
  const ssize_t n_read =
      pread(file, entries.data(), n_bytes, static_cast<off_t>(begin * sizeof(uint64_t)));
  EXPECT_EQ(n_read, static_cast<ssize_t>(n_bytes));
  close(file);
  const auto n = std::count_if(entries.begin(), entries.end(),
                               [](uint64_t entry) { return (entry >> 63) != 0; });
  return {static_cast<size_t>(n), entries.size()};
}

TEST(OneForward, AStepLeavesNoTableResident) {
  Rig rig({.name = "c-engram"});
  const std::span<const std::byte> table = rig.checkpoint().find("embed.weight")->bytes;
  for (const int32_t n : {5, 200, 7}) {
    // A row and what the kernel maps around it.
    [[maybe_unused]] const volatile std::byte touched = table[table.size() / 2];
    ASSERT_GT(mapped_pages(table).first, 0u);
    truth(rig, some_ids(rig.config(), n, 9));
    EXPECT_EQ(mapped_pages(table).first, 0u) << n;
  }
}

TEST(OneForward, ChunksOfAnySizeGiveTheWholePromptsBits) {
  for (const char* name : {"a-tiny", "b-shape", "c-engram"}) {
    Rig rig({.name = name});
    const std::vector<int32_t> ids = some_ids(rig.config(), 130, 1);
    const Logits want = truth(rig, ids);
    for (const int32_t chunk : {1, 2, 3, 5, 16, 63}) {
      Seq seq = rig.start(130);
      for (int32_t at = 0; at < 130; at += chunk) {
        const int32_t end = std::min(130, at + chunk);
        Piece p;
        p.seq = &seq;
        p.ids = slice(ids, at, end);
        p.n_logits = end - at;
        const Logits got = rig.step({p});
        for (int32_t i = at; i < end; ++i)
          ASSERT_SAME(got[static_cast<size_t>(i - at)], want[static_cast<size_t>(i)])
              << name << " chunk " << chunk << " position " << i;
      }
    }
  }
}

TEST(OneForward, PromptsOfEveryShortLengthAgreeWithTheLongerOne) {
  Rig rig;
  const std::vector<int32_t> ids = some_ids(rig.config(), 129, 2);
  const Logits want = truth(rig, ids);
  for (const int32_t n : {1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 64, 129}) {
    Seq seq = rig.start(n);
    EXPECT_SAME(rig.prefill(seq, slice(ids, 0, n), n), want[static_cast<size_t>(n - 1)]) << n;
  }
}

TEST(OneForward, ARowDoesNotDependOnItsBatch) {
  for (const char* name : {"a-tiny", "b-shape"}) {
    Rig rig({.name = name, .threads = 2});
    // Sequences of unlike ages: each is prefilled to its own length, then one step holds a prefill
    // chunk, decode rows and verification rows of all of them.
    const int32_t ages[] = {0, 1, 17, 40, 95};
    const int32_t rows[] = {33, 1, 6, 1, 4};
    std::vector<Seq> seqs;
    std::vector<std::vector<int32_t>> ids;
    std::vector<Logits> want;
    for (uint32_t s = 0; s < 5; ++s) {
      ids.push_back(some_ids(rig.config(), ages[s] + rows[s], 10 + s));
      want.push_back(truth(rig, ids.back()));
      seqs.push_back(rig.start(ages[s] + rows[s]));
      if (ages[s] > 0)
        rig.prefill(seqs.back(), slice(ids.back(), 0, ages[s]), 11, ops::Replay::kExact, true);
    }
    std::vector<Piece> pieces;
    for (size_t s = 0; s < 5; ++s) {
      Piece p;
      p.seq = &seqs[s];
      p.ids = slice(ids[s], ages[s], ages[s] + rows[s]);
      p.n_logits = rows[s];
      pieces.push_back(p);
    }
    const Logits got = rig.step(pieces);
    size_t at = 0;
    for (size_t s = 0; s < 5; ++s) {
      for (int32_t i = 0; i < rows[s]; ++i)
        EXPECT_SAME(got[at++], want[s][static_cast<size_t>(ages[s] + i)])
            << name << " sequence " << s;
    }
  }
}

TEST(OneForward, RejectedRowsLeaveNoTrace) {
  Rig rig;
  const std::vector<int32_t> ids = some_ids(rig.config(), 90, 3);
  const Logits want = truth(rig, ids);
  const std::vector<int32_t> wrong = some_ids(rig.config(), 6, 4);
  Seq seq = rig.start(100);
  rig.prefill(seq, slice(ids, 0, 41), 41);
  // Verify six rows of which the first `accept` are the true ones.
  for (int32_t accept = 0; seq.length + 6 < 90; accept = (accept + 1) % 7) {
    Piece p;
    p.seq = &seq;
    const int32_t at = seq.length;
    p.ids = slice(ids, at, at + accept);
    p.ids.insert(p.ids.end(), wrong.begin(), wrong.begin() + (6 - accept));
    p.n_logits = 6;
    p.accept = accept;
    const Logits got = rig.step({p});
    for (int32_t i = 0; i < accept; ++i)
      ASSERT_SAME(got[static_cast<size_t>(i)], want[static_cast<size_t>(at + i)]);
    if (accept == 6) {  // and a plain row now and then
      const auto next = static_cast<size_t>(seq.length);
      EXPECT_SAME(rig.decode(seq, {ids[next]})[0], want[next]);
    }
  }
}

TEST(OneForward, ASnapshotContinuesInAnotherSlotBitForBit) {
  for (const int32_t cut : {1, 2, 15, 33, 64}) {
    Rig rig;
    const std::vector<int32_t> ids = some_ids(rig.config(), 80, 5);
    const Logits want = truth(rig, ids);
    Seq first = rig.start(80);
    rig.prefill(first, slice(ids, 0, cut), 7);
    const std::vector<std::byte> snapshot = rig.slot_bytes(first);
    rig.decode(first, slice(ids, cut, 70));  // goes on
    Seq second = rig.start(0);
    second.blocks = first.blocks;  // shared: what lies in them depends on the prefix only
    second.length = cut;
    rig.model().load_slot(rig.kv(), second.slot, snapshot.data(), rig.stream());
    const Logits got = rig.decode(second, slice(ids, cut, 80));
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_SAME(got[i], want[static_cast<size_t>(cut) + i]) << "cut " << cut;
  }
}

TEST(OneForward, BlockSizeAndRingSizeChangeNoBit) {
  std::vector<Logits> all;
  for (const auto& [block, ring] : {std::pair{8, 0}, {2, 0}, {128, 0}, {8, 31}, {4, 22}}) {
    Rig rig({.block_tokens = block, .ring_tokens = ring});
    const std::vector<int32_t> ids = some_ids(rig.config(), 100, 6);
    Seq seq = rig.start(100);
    rig.prefill(seq, slice(ids, 0, 57), 20);
    all.push_back(rig.decode(seq, slice(ids, 57, 100)));
    EXPECT_SAME(all.back(), all.front()) << "block " << block << " ring " << ring;
  }
}

// 512 rows against 500,000 entries would be a gigabyte of scores; a row alone is two megabytes.
TEST(OneForward, TheScoresOfALongPromptAreTiled) {
  const Rig rig;
  const auto scratch = [&](int32_t rows, int32_t context) {
    const model::StepLimits limits = {
        .max_rows = rows, .max_seqs = 1, .max_logits = 1, .max_context = context};
    return rig.model().plan_workspace(limits).scratch;
  };
  EXPECT_LE(scratch(512, 1'000'000), uint64_t{64} << 20);
  EXPECT_GT(scratch(512, 1'000'000), scratch(512, 1000));
}

TEST(OneForward, ImageRowsTakeTheOtherBiasAndBlockTheNgrams) {
  Rig rig({.name = "c-engram"});
  const std::vector<int32_t> ids = some_ids(rig.config(), 40, 7);
  Logits runs[2];
  for (int image = 0; image < 2; ++image) {
    for (const int32_t chunk : {40, 3}) {  // flags cross chunk borders through the history
      Seq seq = rig.start(40);
      Logits got;
      for (int32_t at = 0; at < 40; at += chunk) {
        Piece p;
        p.seq = &seq;
        p.ids = slice(ids, at, std::min(40, at + chunk));
        p.n_logits = static_cast<int32_t>(p.ids.size());
        for (int32_t i = at; i < at + p.n_logits; ++i)
          p.image.push_back(image == 1 && i >= 10 && i < 15 ? 1 : 0);
        const Logits part = rig.step({p});
        got.insert(got.end(), part.begin(), part.end());
      }
      if (chunk == 40) runs[image] = got;
      EXPECT_SAME(got, runs[image]) << "chunk " << chunk;
    }
  }
  EXPECT_TRUE(std::equal(runs[0].begin(), runs[0].begin() + 10, runs[1].begin()));
  EXPECT_NE(runs[0][12], runs[1][12]);  // the image rows themselves
  EXPECT_NE(runs[0][16], runs[1][16]);  // and text whose n-grams reach into the span
}

}  // namespace
}  // namespace hadal::test
