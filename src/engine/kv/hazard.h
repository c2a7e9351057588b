#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace hadal::kv {

// What one touch of a block says about when it will be touched again.
struct TouchFeatures {
  uint32_t turn = 1;          // of the conversation, from 1
  bool has_gap = false;       // turn > 1:
  double gap_s = 0;           // since the turn before
  uint32_t n_blocks = 1;      // of the request
  uint32_t n_new_blocks = 1;  // of these, not seen before
  uint32_t n_output = 0;
  uint32_t n_branches = 1;  // most continuations of this block or of a deeper one of the request
  uint32_t n_touches = 1;   // of this block
  bool last_partial = false;
};

// Learns, from all touches so far, the rate of the next touch by age and by kind of touch, and from
// it what a block is worth: the most expected touches per second of waiting that any plan "keep it
// until age b, then give it up" has (a Gittins index).
//
// Kinds ("cells") form groups that share a curve over age; inside a group a cell has one factor,
// itself a product of factors of its features, pulled to its own data as these grow. docs/cache.md
// tells why, and what each part gives.
//
// An observation begins at a touch and has the weight 1 / blocks of the request, so that requests
// count alike. It ends at the next touch (an event), or when the block is forgotten (censored).
class Hazard {
 public:
  static constexpr uint32_t kBins = 42;
  static constexpr uint32_t kTailCells = 5 * 6 * 8 * 4 * 4;
  static constexpr uint32_t kSharedGroups = 3, kSharedCells = 8, kTailGroups = 3;
  static constexpr uint32_t kLastCell = kSharedGroups * kSharedCells;
  static constexpr uint32_t kFirstTail = kLastCell + 1;
  static constexpr uint32_t kCells = kFirstTail + kTailGroups * kTailCells;
  static constexpr uint32_t kGroups = kSharedGroups + 1 + kTailGroups;

  Hazard();

  static uint16_t cell_of(const TouchFeatures& features);
  static uint32_t bin_of(double age_s);
  static double bin_begin(uint32_t bin);  // bin_begin(kBins) ends the last one

  // An observation of this kind ended at this age.
  void end(uint16_t cell, double age_s, double weight, bool touched);

  // Takes up what was seen: first the observations that go on, then the new curves.
  void begin_rebuild();
  void still_running(uint16_t cell, double age_s, double weight);
  void finish_rebuild();

  // Expected touches per second of a block of this kind and age, at the best time to give it up.
  float index(uint16_t cell, uint32_t bin);
  uint64_t bytes() const;

 private:
  struct Cell {
    // By the bin in which observations end: their weight, and their time inside that bin.
    std::array<float, kBins> ended{}, part{}, events{};
    std::array<float, kBins> index{};
    float factor = 1;
    uint32_t epoch = 0;  // of `index`
    bool used = false;
  };
  void fit_group(uint32_t group, uint32_t first_cell, uint32_t n_cells);
  static uint32_t group_of(uint32_t cell);

  std::vector<Cell> cells_;
  std::vector<Cell> now_;  // with the running observations, during a rebuild
  std::array<std::array<double, kBins>, kGroups> rate_{};
  uint32_t epoch_ = 1;
};

}  // namespace hadal::kv
