#include "engine/kv/hazard.h"

#include <gtest/gtest.h>

namespace hadal::kv {
namespace {

TEST(Hazard, BinsCoverAllAgesWithoutGaps) {
  for (uint32_t bin = 0; bin < Hazard::kBins; ++bin) {
    EXPECT_EQ(Hazard::bin_of(Hazard::bin_begin(bin)), bin);
    EXPECT_EQ(Hazard::bin_of(Hazard::bin_begin(bin + 1) * 0.999), bin);
  }
  EXPECT_EQ(Hazard::bin_of(1e9), Hazard::kBins - 1);
}

TEST(Hazard, CellsAreDistinctInsideTheirRange) {
  TouchFeatures f;
  EXPECT_LT(Hazard::cell_of(f), Hazard::kCells);
  f.turn = 9;
  f.has_gap = true;
  f.gap_s = 1e9;
  f.n_blocks = 1000;
  f.n_new_blocks = 1000;
  f.n_output = 10000;
  EXPECT_LT(Hazard::cell_of(f), Hazard::kCells);
  f.n_branches = 9;
  f.n_touches = 255;
  EXPECT_EQ(Hazard::cell_of(f), 2 * Hazard::kSharedCells + 7);
}

TEST(Hazard, AKindThatComesBackIsWorthMoreThanOneThatDoesNot) {
  Hazard hazard;
  TouchFeatures first, later;
  later.turn = 3;
  later.has_gap = true;
  later.gap_s = 20;
  const uint16_t one = Hazard::cell_of(first), more = Hazard::cell_of(later);
  ASSERT_NE(one, more);
  for (int i = 0; i < 1000; ++i) {
    hazard.end(one, 3000, 1, false);
    hazard.end(more, 60, 1, true);
  }
  hazard.begin_rebuild();
  hazard.finish_rebuild();
  EXPECT_GT(hazard.index(more, 0), 10 * hazard.index(one, 0));
  // Once the usual time has passed there is less to hope for.
  EXPECT_GT(hazard.index(more, Hazard::bin_of(30)), hazard.index(more, Hazard::bin_of(2000)));
}

TEST(Hazard, WhatStillRunsCountsAsTimeWithoutATouch) {
  Hazard with, without;
  const uint16_t cell = Hazard::cell_of({});
  for (int i = 0; i < 100; ++i) {
    with.end(cell, 50, 1, true);
    without.end(cell, 50, 1, true);
  }
  with.begin_rebuild();
  for (int i = 0; i < 1000; ++i) with.still_running(cell, 500, 1);
  with.finish_rebuild();
  without.begin_rebuild();
  without.finish_rebuild();
  EXPECT_LT(with.index(cell, 0), 0.5f * without.index(cell, 0));
}

}  // namespace
}  // namespace hadal::kv
