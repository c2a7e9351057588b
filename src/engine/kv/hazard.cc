#include "engine/kv/hazard.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace hadal::kv {
namespace {

// Weight of the curve above in every estimate, in requests. 2 to 5 differ by less than 0.2 points
// on the bundled traces; 2 is best on most of them.
constexpr double kPrior = 2;
constexpr double kCellPrior = 20;

constexpr std::array<uint32_t, 5> kRadix{5, 6, 8, 4, 4};  // turn, n, gap, o, n - m

template <size_t N>
uint32_t step_of(double value, const std::array<double, N>& ends) {
  uint32_t i = 0;
  while (i < N && value >= ends[i]) ++i;
  return i;
}

uint32_t tail_cell(const TouchFeatures& f) {
  static constexpr std::array<double, 4> kTurns{2, 3, 4, 8};
  static constexpr std::array<double, 5> kBlocks{3, 8, 24, 64, 128};
  static constexpr std::array<double, 6> kGaps{10.6, 30, 85, 240, 600, 1800};
  static constexpr std::array<double, 3> kOutputs{16, 128, 512};
  static constexpr std::array<double, 3> kNew{3, 8, 32};
  const std::array<uint32_t, 5> digit{step_of(f.turn, kTurns), step_of(f.n_blocks, kBlocks),
                                      f.has_gap ? 1 + step_of(f.gap_s, kGaps) : 0,
                                      step_of(f.n_output, kOutputs), step_of(f.n_new_blocks, kNew)};
  uint32_t cell = 0;
  for (size_t i = 0; i < kRadix.size(); ++i) cell = cell * kRadix[i] + digit[i];
  return cell;
}

std::array<double, Hazard::kBins + 1> make_edges() {
  std::array<double, Hazard::kBins + 1> edges{};
  for (uint32_t i = 1; i <= Hazard::kBins; ++i) edges[i] = 4.0 * std::exp2((i - 1) / 3.0);
  return edges;
}

const std::array<double, Hazard::kBins + 1>& edges() {
  static const auto kEdges = make_edges();
  return kEdges;
}

}  // namespace

Hazard::Hazard() : cells_(kCells) {
  begin_rebuild();
  finish_rebuild();
}

uint16_t Hazard::cell_of(const TouchFeatures& f) {
  if (f.n_branches >= 2) {
    const auto group = std::min<uint32_t>(static_cast<uint32_t>(std::bit_width(f.n_branches)) - 2,
                                          kSharedGroups - 1);
    const auto touches = static_cast<uint32_t>(std::bit_width(std::max(f.n_touches, 1u))) - 1;
    return static_cast<uint16_t>(group * kSharedCells + std::min(touches, kSharedCells - 1));
  }
  if (f.last_partial) return kLastCell;
  const uint32_t group = f.n_output >= 32 ? 0 : f.turn == 1 ? 1 : 2;
  return static_cast<uint16_t>(kFirstTail + group * kTailCells + tail_cell(f));
}

uint32_t Hazard::group_of(uint32_t cell) {
  if (cell < kLastCell) return cell / kSharedCells;
  if (cell == kLastCell) return kSharedGroups;
  return kSharedGroups + 1 + (cell - kFirstTail) / kTailCells;
}

uint32_t Hazard::bin_of(double age_s) {
  if (age_s < edges()[1]) return 0;
  // Edges are 4 * 2^(i/3): thrice the logarithm of age / 4, corrected for rounding.
  auto bin = std::min<uint32_t>(1 + static_cast<uint32_t>(3.0 * std::log2(age_s / 4.0)), kBins - 1);
  while (bin + 1 < kBins && age_s >= edges()[bin + 1]) ++bin;
  while (age_s < edges()[bin]) --bin;
  return bin;
}

double Hazard::bin_begin(uint32_t bin) {
  return edges()[bin];
}

void Hazard::end(uint16_t cell, double age_s, double weight, bool touched) {
  Cell& c = cells_[cell];
  const uint32_t bin = bin_of(age_s);
  c.used = true;
  c.ended[bin] += static_cast<float>(weight);
  c.part[bin] += static_cast<float>(weight * (std::min(age_s, edges()[kBins]) - edges()[bin]));
  if (touched) c.events[bin] += static_cast<float>(weight);
}

void Hazard::begin_rebuild() {
  now_.resize(cells_.size());
  for (uint32_t c = 0; c < kCells; ++c) {
    if (cells_[c].used) {
      now_[c] = cells_[c];
    } else if (now_[c].used) {
      now_[c] = Cell{};
    }
  }
}

void Hazard::still_running(uint16_t cell, double age_s, double weight) {
  Cell& c = now_[cell];
  const uint32_t bin = bin_of(age_s);
  c.used = true;
  c.ended[bin] += static_cast<float>(weight);
  c.part[bin] += static_cast<float>(weight * (std::min(age_s, edges()[kBins]) - edges()[bin]));
}

void Hazard::finish_rebuild() {
  // From here on `part` is the exposure of the whole cell in each bin.
  std::array<double, kBins> exposure_all{}, events_all{};
  std::array<std::array<double, kBins>, kGroups> exposure{}, events{};
  for (uint32_t c = 0; c < kCells; ++c) {
    Cell& cell = now_[c];
    if (!cell.used) continue;
    const uint32_t g = group_of(c);
    double older = 0;
    for (uint32_t i = kBins; i-- > 0;) {
      cell.part[i] += static_cast<float>(older * (edges()[i + 1] - edges()[i]));
      older += cell.ended[i];
      exposure[g][i] += cell.part[i];
      events[g][i] += cell.events[i];
      exposure_all[i] += cell.part[i];
      events_all[i] += cell.events[i];
    }
  }
  for (uint32_t i = 0; i < kBins; ++i) {
    const double middle = (edges()[i] + edges()[i + 1]) / 2;
    const double prior = 0.2 / (middle + 30);  // the rough shape of all traces that were looked at
    const double all = (events_all[i] + kPrior) / (exposure_all[i] + kPrior / prior);
    for (uint32_t g = 0; g < kGroups; ++g)
      rate_[g][i] = (events[g][i] + kPrior) / (exposure[g][i] + kPrior / all);
  }
  for (uint32_t g = 0; g < kSharedGroups; ++g) fit_group(g, g * kSharedCells, kSharedCells);
  for (uint32_t g = 0; g < kTailGroups; ++g)
    fit_group(kSharedGroups + 1 + g, kFirstTail + g * kTailCells, kTailCells);
  ++epoch_;
}

// Factors of the cells of one group: proportional fitting of one factor per feature value (two
// sweeps), then each cell's own ratio of seen to expected touches.
void Hazard::fit_group(uint32_t group, uint32_t first_cell, uint32_t n_cells) {
  struct Used {
    uint32_t cell;
    std::array<uint32_t, 5> value;
    double seen, expected;
  };
  std::vector<Used> used;
  const bool tail = n_cells == kTailCells;
  for (uint32_t c = 0; c < n_cells; ++c) {
    Cell& cell = now_[first_cell + c];
    if (!cell.used) continue;
    Used u{first_cell + c, {}, 0, 0};
    for (uint32_t i = 0; i < kBins; ++i) {
      u.seen += cell.events[i];
      u.expected += cell.part[i] * rate_[group][i];
    }
    uint32_t rest = c;
    for (size_t f = kRadix.size(); tail && f-- > 0;) {
      u.value[f] = rest % kRadix[f];
      rest /= kRadix[f];
    }
    if (!tail) u.value[0] = c;
    used.push_back(u);
  }
  const size_t n_features = tail ? kRadix.size() : 1;
  std::array<std::array<double, 8>, 5> factor;
  for (auto& f : factor) f.fill(1.0);
  const auto product = [&](const std::array<uint32_t, 5>& value) {
    double p = 1;
    for (size_t f = 0; f < n_features; ++f) p *= factor[f][value[f]];
    return p;
  };
  for (int sweep = 0; sweep < 2; ++sweep) {
    for (size_t f = 0; f < n_features; ++f) {
      std::array<double, 8> seen{}, expected{};
      for (const Used& u : used) {
        seen[u.value[f]] += u.seen;
        expected[u.value[f]] += u.expected * product(u.value) / factor[f][u.value[f]];
      }
      for (size_t v = 0; v < 8; ++v) factor[f][v] = (seen[v] + kPrior) / (expected[v] + kPrior);
    }
  }
  for (uint32_t c = 0; c < n_cells; ++c) {  // also of cells that come into use before the next fit
    std::array<uint32_t, 5> value{};
    uint32_t rest = c;
    for (size_t f = kRadix.size(); tail && f-- > 0;) {
      value[f] = rest % kRadix[f];
      rest /= kRadix[f];
    }
    if (!tail) value[0] = c;
    cells_[first_cell + c].factor = static_cast<float>(product(value));
  }
  for (const Used& u : used) {
    const double p = product(u.value);
    cells_[u.cell].factor =
        static_cast<float>(p * (u.seen + kCellPrior) / (u.expected * p + kCellPrior));
  }
}

float Hazard::index(uint16_t cell, uint32_t bin) {
  Cell& c = cells_[cell];
  if (c.epoch != epoch_) {
    c.epoch = epoch_;
    std::array<double, kBins> rate, touched;
    for (uint32_t i = 0; i < kBins; ++i) {
      rate[i] = c.factor * rate_[group_of(cell)][i];
      touched[i] = -std::expm1(-rate[i] * (edges()[i + 1] - edges()[i]));
    }
    for (uint32_t a = 0; a < kBins; ++a) {
      double alive = 1, hits = 0, time = 0, best = 0;
      for (uint32_t b = a; b < kBins && alive > 1e-6; ++b) {
        hits += alive * touched[b];
        time += alive * touched[b] / rate[b];
        alive *= 1 - touched[b];
        best = std::max(best, hits / time);
      }
      c.index[a] = static_cast<float>(best);
    }
  }
  return c.index[bin];
}

uint64_t Hazard::bytes() const {
  return (cells_.capacity() + now_.capacity()) * sizeof(Cell);
}

}  // namespace hadal::kv
