#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "compute/backends/cuda/thin_plan.h"
#include "compute/backends/cuda/wide_jobs.h"

// How the CUDA backend shares out matrix products: the choices and the index arithmetic are pure.
namespace hadal::cuda {
namespace {

constexpr Gpu kH200 = {
    .sm_count = 132, .cc_major = 9, .cc_minor = 0, .smem_optin = 232448, .l2_bytes = 50 << 20};

TEST(ThinPlan, BlocksOfAnSmFitItsSharedMemory) {
  for (const int64_t units : {1, 100, 131, 132, 133, 396, 397, 2048, 4000, 100000}) {
    for (size_t small = 1000; small < 240000; small += 9999) {
      for (size_t more = 0; more < 240000; more += 45678) {
        const ThinPlan plan = plan_thin(units, small, small + more, kH200);
        EXPECT_EQ(plan.shared_bytes, plan.deep ? small + more : small);
        EXPECT_GE(plan.blocks_per_sm, 1);
        EXPECT_LE(plan.blocks_per_sm, plan.deep ? 2 : 3);
        // Only a block that cannot be launched at all is larger than an SM, and then no other kind
        // would fit.
        if (plan.shared_bytes > kH200.smem_optin) {
          EXPECT_GT(small, kH200.smem_optin);
          continue;
        }
        EXPECT_LE(static_cast<size_t>(plan.blocks_per_sm) * (plan.shared_bytes + 1024),
                  kH200.smem_optin + 1024);
      }
    }
  }
}

TEST(ThinPlan, ThreeShortRingsOnlyWhereTheirTurnsAreFull) {
  constexpr size_t kShort = 60 << 10, kDeep = 100 << 10;
  // Three blocks an SM take 396 units a turn of 3 x 0.87, two take 264 a turn of 2.
  EXPECT_TRUE(plan_thin(112, kShort, kDeep, kH200).deep);  // one turn of either: 2.61 > 2
  EXPECT_TRUE(plan_thin(264, kShort, kDeep, kH200).deep);
  EXPECT_FALSE(plan_thin(396, kShort, kDeep, kH200).deep);  // 1 turn, 2.61, for 2 turns, 4
  EXPECT_TRUE(plan_thin(400, kShort, kDeep, kH200).deep);   // 2 turns, 5.22, for 2 turns, 4
  EXPECT_FALSE(plan_thin(2048, kShort, kDeep, kH200).deep);
  EXPECT_TRUE(plan_thin(2048, kDeep, kDeep, kH200).deep);    // bytes that are not decoded
  EXPECT_FALSE(plan_thin(112, kShort, 240000, kH200).deep);  // a deep one does not fit
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
  const int64_t shared = 160, routed = 48 * 160, blocks = 3 * 132;
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

}  // namespace
}  // namespace hadal::cuda
