#include "compute/backends/cuda/big_jobs.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

// How products of many rows are cut into jobs of the CUDA backend: pure index arithmetic.
namespace hadal::cuda {
namespace {

constexpr int kSms = 132;  // of an H200

TEST(BigJobs, EveryRowTileOfEveryStripOnce) {
  for (const int32_t rows : {1, 64, 65, 500, 2304, 2305, 5000, 8192}) {
    for (const int32_t n_strips : {1, 8, 9, 24, 112}) {
      for (const int32_t tile : {64, 128, 192}) {
        for (const int32_t cluster : {1, 2}) {
          const BigSpace s = {.n_groups = rows < 600 ? 3 : 1,
                              .n_strips = n_strips,
                              .n_rows = rows,
                              .tile_rows = tile,
                              .cluster = cluster};
          std::vector<uint8_t> seen(static_cast<size_t>(s.n_groups * s.row_tiles() * n_strips));
          for (int32_t i = 0; i < s.turns(); ++i) {
            for (int32_t rank = 0; rank < cluster; ++rank) {
              const BigJob job = big_job_at(s, i, rank);
              // The blocks of a cluster share their rows.
              ASSERT_EQ(job.first_row, big_job_at(s, i, 0).first_row);
              ASSERT_EQ(job.first_row % tile, 0);
              ASSERT_GE(job.n_rows, 1);
              ASSERT_LE(job.n_rows, tile);
              ASSERT_LE(job.first_row + job.n_rows, rows);
              ASSERT_TRUE(job.n_rows == tile || job.first_row + job.n_rows == rows);
              ASSERT_LT(job.group, s.n_groups);
              ASSERT_LE(job.n_strips, kBigStrips);
              const int32_t at = job.group * s.row_tiles() + job.first_row / tile;
              for (int32_t strip = 0; strip < job.n_strips; ++strip)
                ++seen.at(static_cast<size_t>(at * n_strips + job.first_strip + strip));
            }
          }
          EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](uint8_t n) { return n == 1; }))
              << rows << " rows, " << n_strips << " strips, tile " << tile;
        }
      }
    }
  }
}

// A super tile's rows pass all weights before the next one begins.
TEST(BigJobs, RowsOfASuperTileStayTogether) {
  const BigSpace s = {
      .n_groups = 1, .n_strips = 112, .n_rows = 8192, .tile_rows = 192, .cluster = 2};
  int32_t low = 0, high = 0, supers = 1;
  for (int32_t i = 0; i < s.turns(); ++i) {
    const BigJob job = big_job_at(s, i, 0);
    if (job.first_row >= low + kBigSuperRows ||
        (job.first_strip == 0 && job.first_row > high && big_job_at(s, i - 1, 0).first_strip > 0)) {
      low = job.first_row;
      ++supers;
    }
    high = std::max(high, job.first_row);
    ASSERT_GE(job.first_row, low);
    ASSERT_LT(job.first_row, low + kBigSuperRows);
  }
  EXPECT_EQ(supers, 4);  // of 43 row tiles: 11, 11, 11 and 10
}

TEST(BigJobs, ChoiceForReleasedMatrices) {
  const auto choose = [](int32_t groups, int32_t outputs, int32_t rows) {
    return choose_big(groups, outputs / 16, rows, kSms);
  };
  EXPECT_EQ(choose(1, 1792, 8192).tile_rows, 192);  // 5 turns of 192 rows, or 7 of 128
  EXPECT_EQ(choose(1, 1792, 1024).tile_rows, 128);  // 112 blocks of 128 rows: one turn
  EXPECT_EQ(choose(1, 1792, 512).tile_rows, 64);
  EXPECT_EQ(choose(1, 5120, 512).tile_rows, 192);  // 120 blocks
  EXPECT_EQ(choose(8, 1024, 512).tile_rows, 128);  // 192 blocks of 192 rows, 256 of 128: two turns
  EXPECT_EQ(choose(1, 129280, 256).tile_rows, 128);
  // The gate has 3 tiles of outputs: its blocks are no pairs.
  EXPECT_EQ(choose(1, 384, 8192).cluster, 1);
  EXPECT_EQ(choose(1, 384, 8192).tile_rows, 192);  // 129 blocks: one turn
  EXPECT_EQ(choose(1, 1024, 8192).cluster, 2);
}

TEST(BigJobs, FewRowsAndOutputsAreNotBig) {
  const auto enough = [](int32_t groups, int32_t outputs, int64_t rows) {
    return big_enough(groups, (outputs + 15) / 16, rows, kSms);
  };
  EXPECT_FALSE(enough(1, 384, 512));
  EXPECT_TRUE(enough(1, 384, 1024));
  EXPECT_FALSE(enough(1, 1024, 256));
  EXPECT_TRUE(enough(1, 1024, 512));
  EXPECT_TRUE(enough(1, 1792, 256));
  EXPECT_TRUE(enough(8, 1024, 256));
  EXPECT_FALSE(enough(1, 129280, 255));
  EXPECT_FALSE(enough(1, 1, 1000));
}

}  // namespace
}  // namespace hadal::cuda
