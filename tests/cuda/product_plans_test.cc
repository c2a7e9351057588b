#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "compute/backends/cuda/list_jobs.h"
#include "compute/backends/cuda/thin_plan.h"
#include "compute/backends/cuda/wide_jobs.h"

// How the CUDA backend shares out matrix products: the choices and the index arithmetic are pure.
namespace hadal::cuda {
namespace {

constexpr Gpu kH200 = {
    .sm_count = 132, .cc_major = 9, .cc_minor = 0, .smem_optin = 232448, .l2_bytes = 50 << 20};

TEST(ThinPlan, BlocksFitTheirSmOrAreRefused) {
  for (const int64_t units : {1, 100, 131, 132, 133, 264, 265, 2048, 100000}) {
    for (size_t block = 1000; block < 240000; block += 19999) {
      for (size_t stage = 2000; stage < 60000; stage += 7777) {
        for (const int most : {1, 2, 4, 10}) {
          for (const int pair : {0, 2, 4}) {
            const ThinNeeds needs = {.block = block,
                                     .team = 8192,
                                     .stage = stage,
                                     .max_stages = most,
                                     .pair_stages = pair};
            const ThinPlan plan = plan_thin(units, needs, kH200);
            if (plan.shared_bytes == 0) {
              EXPECT_GT(thin_bytes(needs, 1, 1), kH200.smem_optin);
              continue;
            }
            EXPECT_EQ(plan.shared_bytes, thin_bytes(needs, plan.teams, plan.stages));
            EXPECT_LE(plan.blocks, units);
            EXPECT_GE(plan.teams, 1);
            EXPECT_LE(plan.teams, kMaxTeams);
            EXPECT_GE(plan.stages, 1);
            if (plan.blocks > kH200.sm_count) {
              EXPECT_EQ(plan.stages, pair);
              EXPECT_EQ(plan.blocks, 2 * kH200.sm_count);
              EXPECT_LE(2 * (plan.shared_bytes + 1024), kH200.smem_optin + 1024);
            } else {
              EXPECT_LE(plan.stages, most);
              EXPECT_LE(plan.shared_bytes, kH200.smem_optin);
            }
          }
        }
      }
    }
  }
}

TEST(ThinPlan, TwoBlocksOnAnSmWhereTheirTurnsAreFull) {
  const ThinNeeds needs = {
      .block = 10000, .team = 2048, .stage = 30000, .max_stages = 3, .pair_stages = 2};
  EXPECT_EQ(plan_thin(112, needs, kH200).blocks, 112);
  EXPECT_EQ(plan_thin(112, needs, kH200).teams, 1);
  EXPECT_EQ(plan_thin(320, needs, kH200).blocks, 132);  // 1.2 turns of two blocks
  EXPECT_EQ(plan_thin(320, needs, kH200).teams, 2);
  EXPECT_EQ(plan_thin(320, needs, kH200).stages, 3);
  EXPECT_EQ(plan_thin(512, needs, kH200).blocks, 264);  // 1.9
  EXPECT_EQ(plan_thin(512, needs, kH200).teams, 1);
  EXPECT_EQ(plan_thin(2048, needs, kH200).blocks, 264);
  // Rows that need room leave it to one block, and to fewer teams of two stages.
  const ThinNeeds large = {
      .block = 110000, .team = 8192, .stage = 30000, .max_stages = 3, .pair_stages = 2};
  EXPECT_EQ(plan_thin(2048, large, kH200).blocks, 132);
  EXPECT_EQ(plan_thin(2048, large, kH200).teams, 1);
  EXPECT_EQ(plan_thin(2048, large, kH200).stages, 3);
}

TEST(ThinPlan, UnitsOfBlocksFollowEachOther) {
  for (int64_t shared = 0; shared < 40; ++shared) {
    for (int64_t routed = 0; routed < 200; routed += 7) {
      for (const int64_t blocks : {1, 2, 7, 32, 132}) {
        EXPECT_EQ(routed_begin(shared, routed, 0, blocks), 0);
        EXPECT_EQ(routed_begin(shared, routed, blocks, blocks), routed);
        for (int64_t b = 0; b < blocks; ++b) {
          ASSERT_LE(routed_begin(shared, routed, b, blocks),
                    routed_begin(shared, routed, b + 1, blocks))
              << shared << " shared, " << routed << " routed, block " << b << " of " << blocks;
          ASSERT_LE(unit_begin(routed, b, blocks), unit_begin(routed, b + 1, blocks));
        }
      }
    }
  }
}

// The released experts at 8 rows: 49 tiles of 160 units, and no block has more bytes than another
// by more than a unit of FP8.
TEST(ThinPlan, BytesOfBlocksAreEven) {
  const int64_t shared = 160, routed = 48 * 160, blocks = kMaxTeams * 132;
  int64_t least = INT64_MAX, most = 0;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t bytes = 2 * (unit_begin(shared, b + 1, blocks) - unit_begin(shared, b, blocks)) +
                          routed_begin(shared, routed, b + 1, blocks) -
                          routed_begin(shared, routed, b, blocks);
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  EXPECT_LE(most - least, 2);
}

void expect_each_place_once(const WideSpace& s, int32_t strips) {
  // Of every group, row tile, strip and slice.
  std::vector<uint8_t> seen(static_cast<size_t>(s.n_groups * s.row_tiles() * s.n_strips * kSlices));
  for (int64_t i = 0; i < count_wide_jobs(s, strips); ++i) {
    const WideJob job = wide_job_at(s, strips, i);
    ASSERT_GE(job.tile.n_rows, 1);
    ASSERT_LE(job.tile.n_rows, kTileRows);
    ASSERT_EQ(job.tile.first % kTileRows, 0);
    ASSERT_LE(job.tile.first + job.tile.n_rows, s.n_rows);
    ASSERT_LT(job.tile.group, s.n_groups);
    ASSERT_GE(job.n_strips, 1);
    ASSERT_LE(job.n_strips, strips);
    ASSERT_LE(job.first_strip + job.n_strips, s.n_strips);
    const int32_t tile = job.tile.group * s.row_tiles() + job.tile.first / kTileRows;
    for (int32_t strip = 0; strip < job.n_strips; ++strip) {
      const int32_t at = (tile * s.n_strips + job.first_strip + strip) * kSlices;
      for (int32_t slice = job.first_slice; slice < job.last_slice; ++slice)
        ++seen[static_cast<size_t>(at + slice)];
    }
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](uint8_t n) { return n == 1; }));
}

TEST(WideJobs, EveryRowTileOfEveryStripAndSliceOnce) {
  for (const int32_t rows : {1, 9, 64, 65, 300, 2048, 2049, 5000})
    for (const int32_t n_strips : {1, 7, 8, 9, 16, 17, 24})
      for (const bool split : {false, true})
        for (const int32_t strips : {8, 16})
          expect_each_place_once({.n_groups = rows < 100 ? 3 : 1,
                                  .n_strips = n_strips,
                                  .n_rows = rows,
                                  .split = split},
                                 strips);
}

// Rows of each expert, by a few ways of choosing.
std::vector<int64_t> rows_of_experts(int64_t n_choices, int64_t n_experts, int64_t way) {
  std::vector<int64_t> rows(static_cast<size_t>(n_experts));
  for (int64_t i = 0; i < n_choices; ++i) {
    int64_t e = i % n_experts;                                           // even
    if (way == 1) e = 0;                                                 // all one
    if (way == 2) e = i % 65 == 0 ? i / 65 % n_experts : n_experts - 1;  // one row more than a tile
    if (way == 3) e = (i * 2654435761 >> 7) % n_experts;
    ++rows[static_cast<size_t>(e)];
  }
  return rows;
}

TEST(WideJobs, PlacesAndTilesOfExpertsFitTheirRoom) {
  for (const int64_t experts : {1, 4, 48, 384, 1024}) {
    for (const int64_t choices : {1, 6, 7, 48, 64, 65, 383, 384, 1536, 49152}) {
      for (int64_t way = 0; way < 4; ++way) {
        int64_t places = 0, tiles = 0;
        for (const int64_t rows : rows_of_experts(choices, experts, way)) {
          places += (rows + 7) / 8 * 8;
          tiles += (rows + kTileRows - 1) / kTileRows;
        }
        EXPECT_LE(places, max_places(choices, experts)) << choices << " of " << experts;
        EXPECT_LE(tiles, max_row_tiles(choices, experts)) << choices << " of " << experts;
        EXPECT_EQ(max_places(choices, experts) % 8, 0);
      }
    }
  }
}

TEST(WideJobs, ChoiceForReleasedMatrices) {
  const auto choose = [](int32_t groups, int32_t outputs, int32_t rows) {
    const WideSpace s = {
        .n_groups = groups, .n_strips = outputs / 16, .n_rows = rows, .split = false};
    return choose_wide(s, 8, false, 0, int64_t{groups} * outputs, true, kH200.sm_count);
  };
  // wq_a and wkv: 14 jobs at 64 rows, so that a slice is a job of its own.
  EXPECT_TRUE(choose(1, 1792, 64).split);
  EXPECT_EQ(choose(1, 1792, 64).max_jobs, 14 * kSlices);
  EXPECT_FALSE(choose(1, 32768, 64).split);  // wq_b: 256 jobs
  EXPECT_FALSE(choose(1, 32768, 64).twice);
  EXPECT_TRUE(choose(1, 32768, 256).twice);
  EXPECT_TRUE(choose(8, 1024, 8192).twice);  // wo_a
  EXPECT_TRUE(choose(1, 384, 8192).max_jobs > 0);
  // A list's length is on the device: the larger kernel, for as many tiles as there may be.
  const WideSpace experts = {.n_groups = 384, .n_strips = 4608 / 16, .n_rows = 0, .split = false};
  const WideChoice listed = choose_wide(experts, 8, true, 384 + 6, 384 * 4608, false, 132);
  EXPECT_TRUE(listed.twice);
  EXPECT_EQ(listed.max_jobs, 390 * 18);
  // Sums of slices never outgrow their room.
  for (int32_t rows = 1; rows < 3000; rows += 13) {
    for (int32_t outputs = 16; outputs < 20000; outputs += 512) {
      if (!choose(1, outputs, rows).split) continue;
      EXPECT_LE(uint64_t{8} * 4 * static_cast<uint64_t>(rows) * static_cast<uint64_t>(outputs),
                kWideSliceBytes);
    }
  }
}

TEST(TileCut, TilesCoverAnExpertsRowsEvenlyAndKeepToTheirClass) {
  for (const int32_t most : {64, 192, 256}) {
    for (int32_t rows = 0; rows < 6000; rows += rows < 600 ? 1 : 37) {
      const TileCut cut(rows, most);
      ASSERT_EQ(cut.n_tiles, (rows + most - 1) / most);
      int32_t at = 0;
      for (int32_t i = 0; i < cut.n_tiles; ++i) {
        ASSERT_EQ(cut.first(i), at);
        ASSERT_EQ(at % 8, 0);
        ASSERT_GT(cut.rows(i), 0) << rows << " rows, tile " << i;
        ASSERT_LE(cut.rows(i), cut.most_rows());
        at += cut.rows(i);
      }
      ASSERT_EQ(at, rows);
      ASSERT_LE(cut.most_rows(), most);
      if (most == kLongTileRows && rows > 0) {
        const int c = tile_class(cut.most_rows());
        ASSERT_LE(cut.most_rows(), kTileClassRows[c]);
        if (c + 1 < kTileClasses) {
          ASSERT_GT(cut.most_rows(), kTileClassRows[c + 1]);
        }
      }
    }
  }
}

TEST(ListJobs, BlocksTakeEveryStripOnceAndEqualBytes) {
  constexpr int64_t kWeight = kSharedJobWeight;
  for (const int32_t of_tile : {1, 5, 16, 17, 288, 320}) {
    for (const int32_t tiles : {0, 1, 6, 48, 244, 400}) {
      for (const int64_t shared : {0, 1, 18, 20, 288}) {
        for (const int64_t blocks : {1, 7, 132}) {
          const int64_t routed = int64_t{of_tile} * tiles;
          std::vector<int> seen(static_cast<size_t>(routed));
          int64_t before = 0, heaviest = 0;
          for (int64_t b = 0; b < blocks; ++b) {
            const auto begin = [&](int64_t of) {
              return list_job_begin(of_tile, list_begin(shared, kWeight, routed, of, blocks));
            };
            ListWalk walk(of_tile, begin(b), begin(b + 1));
            ASSERT_EQ(walk.at, before);
            ASSERT_LE(walk.at, walk.end);
            before = walk.end;
            heaviest =
                std::max(heaviest, walk.end - walk.at +
                                       kWeight * (shared * (b + 1) / blocks - shared * b / blocks));
            int32_t tile = -1;
            for (; !walk.done(); walk.next()) {
              if (walk.enter()) {
                ASSERT_GT(walk.tile, tile) << "a tile's jobs are neighbours";
                tile = walk.tile;
              }
              ASSERT_GT(walk.n_strips(), 0);
              ASSERT_LE(walk.n_strips(), kListStrips);
              ASSERT_LE(walk.first_strip() + walk.n_strips(), of_tile);
              for (int32_t s = 0; s < walk.n_strips(); ++s)
                ++seen[static_cast<size_t>(walk.tile * of_tile + walk.first_strip() + s)];
            }
          }
          ASSERT_EQ(before, routed);
          for (const int n : seen) ASSERT_EQ(n, 1) << of_tile << " x " << tiles;
          const int64_t total = kWeight * shared + routed;
          if (total / blocks >= kWeight * ((shared + blocks - 1) / blocks)) {
            EXPECT_LE(heaviest, total / blocks + 2 + kListStrips)
                << of_tile << " x " << tiles << ", " << shared;
          } else if (shared < blocks) {
            EXPECT_LE(heaviest, kWeight + kListStrips)
                << of_tile << " x " << tiles << ", " << shared;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace hadal::cuda
