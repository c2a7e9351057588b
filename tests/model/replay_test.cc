#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "model/model_rig.h"

// Vectors of logits are too long to print.
#define EXPECT_SAME(a, b) EXPECT_TRUE((a) == (b))
#define ASSERT_SAME(a, b) ASSERT_TRUE((a) == (b))

// Tails: a prompt's rows run only as deep as later tokens need (docs/forward.md, "Tails").
namespace hadal::test {
namespace {

std::vector<int32_t> slice(const std::vector<int32_t>& ids, int64_t from, int64_t to) {
  return {ids.begin() + from, ids.begin() + to};
}

double mean_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::fabs(static_cast<double>(a[i]) - b[i]);
  return sum / static_cast<double>(a.size());
}

TEST(Tails, ExactTailsGiveTheBitsOfEveryLayerOnEveryRow) {
  for (const char* name : {"a-tiny", "b-shape", "p-chain"}) {
    Rig rig({.name = name});
    const std::vector<int32_t> ids = some_ids(rig.config(), 230, 1);
    for (const int32_t n : {1, 16, 17, 47, 150, 200}) {
      Seq whole = rig.start(230);
      const std::vector<float> want =
          rig.prefill(whole, slice(ids, 0, n), n, ops::Replay::kExact, true);
      const Logits after = rig.decode(whole, slice(ids, n, n + 20));
      for (const int32_t chunk : {200, 31, 16, 1}) {
        Seq seq = rig.start(230);
        EXPECT_SAME(rig.prefill(seq, slice(ids, 0, n), chunk), want)
            << name << ' ' << n << ' ' << chunk;
        EXPECT_SAME(rig.decode(seq, slice(ids, n, n + 20)), after)
            << name << ' ' << n << ' ' << chunk;
      }
      if (n == 47) break;  // the others run with a fresh pool
    }
  }
}

TEST(Tails, LongPromptsKeepTheirBitsToo) {
  for (const int32_t n : {150, 200}) {
    Rig rig;
    const std::vector<int32_t> ids = some_ids(rig.config(), 230, 2);
    Seq whole = rig.start(230);
    const std::vector<float> want =
        rig.prefill(whole, slice(ids, 0, n), n, ops::Replay::kExact, true);
    const Logits after = rig.decode(whole, slice(ids, n, n + 30));
    for (const int32_t chunk : {200, 31, 16, 7}) {
      Seq seq = rig.start(230);
      EXPECT_SAME(rig.prefill(seq, slice(ids, 0, n), chunk), want) << n << ' ' << chunk;
      EXPECT_SAME(rig.decode(seq, slice(ids, n, n + 30)), after) << n << ' ' << chunk;
      EXPECT_SAME(rig.block_bytes(seq, n), rig.block_bytes(whole, n));
    }
  }
}

TEST(Tails, RowsBelowTheTailStopAtTheSplit) {
  const ops::BatchShape shape{.n_layers = 40, .window = 128, .split = 20};
  EXPECT_EQ(row_depth(shape, ops::Replay::kExact, 8191, 8191), 40);
  EXPECT_EQ(row_depth(shape, ops::Replay::kExact, 8190, 8191), 39);
  EXPECT_EQ(row_depth(shape, ops::Replay::kExact, 8191 - 127, 8191), 39);
  EXPECT_EQ(row_depth(shape, ops::Replay::kExact, 8191 - 128, 8191), 38);
  EXPECT_EQ(row_depth(shape, ops::Replay::kExact, 0, 8191), 20);
  EXPECT_EQ(row_depth(shape, ops::Replay::kExact, 9000, 8191), 40);  // decode
  EXPECT_EQ(row_depth(shape, ops::Replay::kBounded, 8191 - 127, 8191), 40);
  EXPECT_EQ(row_depth(shape, ops::Replay::kBounded, 8191 - 128, 8191), 20);
  // Whole rows of layers 21 to 39: 21,736, less the 127 that each needs only latents of.
  int64_t rows = 0;
  for (int32_t p = 0; p <= 8191; ++p)
    rows += std::max(0, row_depth(shape, ops::Replay::kExact, p, 8191) - 21);
  EXPECT_EQ(rows, 21736);
}

TEST(Bounded, ChunksDoNotChangeItAndCachesAreExact) {
  Rig rig;
  const std::vector<int32_t> ids = some_ids(rig.config(), 180, 3);
  Seq exact = rig.start(180);
  const std::vector<float> close = rig.prefill(exact, slice(ids, 0, 150), 150);
  Seq whole = rig.start(180);
  const std::vector<float> want =
      rig.prefill(whole, slice(ids, 0, 150), 150, ops::Replay::kBounded);
  EXPECT_NE(want, close);
  EXPECT_LT(mean_difference(want, close), 0.5);  // deviation of the logits: 3
  EXPECT_SAME(rig.block_bytes(whole, 150), rig.block_bytes(exact, 150));
  const Logits after = rig.decode(whole, slice(ids, 150, 180));
  for (const int32_t chunk : {64, 9, 1}) {
    Seq seq = rig.start(180);
    EXPECT_SAME(rig.prefill(seq, slice(ids, 0, 150), chunk, ops::Replay::kBounded), want) << chunk;
    EXPECT_SAME(rig.decode(seq, slice(ids, 150, 180)), after) << chunk;
  }
}

TEST(Bounded, APromptWithinTheWindowIsExact) {
  Rig rig;
  const std::vector<int32_t> ids = some_ids(rig.config(), 16, 4);
  Seq a = rig.start(16), b = rig.start(16);
  EXPECT_SAME(rig.prefill(a, ids, 16), rig.prefill(b, ids, 5, ops::Replay::kBounded));
}

// A prefix hit without a snapshot: blocks of the first 96 tokens are there, rings are not.
TEST(Bounded, PrefixReplayKeepsTheCachedEntriesAndStaysClose) {
  Rig rig;
  const std::vector<int32_t> ids = some_ids(rig.config(), 120, 5);
  Seq cold = rig.start(120);
  const std::vector<float> want = rig.prefill(cold, ids, 40);
  const std::vector<std::byte> cached = rig.block_bytes(cold, 120);
  const int32_t hit = 96, floor = hit - rig.config().window;
  std::vector<float> first;
  for (const int32_t chunk : {40, 13}) {
    Seq warm = rig.start(0);
    warm.blocks = cold.blocks;
    warm.length = floor;
    const std::vector<int32_t> before = slice(ids, 0, floor);
    rig.model().seed_slot(rig.kv(), warm.slot, floor, before, {}, rig.stream());
    Logits last;
    for (int32_t at = floor; at < 120; at += chunk) {
      Piece p;
      p.seq = &warm;
      p.ids = slice(ids, at, std::min(120, at + chunk));
      p.n_logits = at + chunk >= 120 ? 1 : 0;
      p.depth_from = 119;
      p.replay = ops::Replay::kBounded;
      p.window_floor = floor;
      p.write_from = hit;
      last = rig.step({p});
    }
    EXPECT_LT(mean_difference(last.at(0), want), 0.5);
    if (first.empty()) first = last.at(0);
    EXPECT_SAME(last.at(0), first) << "chunk " << chunk;
    EXPECT_TRUE(std::equal(cached.begin(),
                           cached.begin() + hit / 8 * rig.model().kv_layout().slab_bytes,
                           rig.block_bytes(cold, 120).begin()));
  }
}

}  // namespace
}  // namespace hadal::test
