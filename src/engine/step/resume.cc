#include "engine/step/resume.h"

#include <algorithm>

namespace hadal::step {
namespace {

// The first position from which rows must run so that at `hit` all rings are whole where they are
// looked at. Started at f, layer l's latents are right from f + l * (window - 1) on: each layer
// costs the reach of one window. They are looked at from hit - (window - 1) on; in layers above the
// split, which run on the tail only, not before the tail's own reach.
int64_t exact_start(const WindowShape& w, int64_t hit, int64_t depth) {
  const int64_t reach = std::max<int64_t>(w.window, 2) - 1;
  int64_t start = hit;
  for (int64_t layer = 0; layer < w.n_layers; ++layer) {
    int64_t needed = hit - reach;
    if (layer > w.split) needed = std::max(needed, depth - (w.n_layers - layer) * reach);
    // Looked at from `needed` on, but by cached rows only, if that is at or past the hit.
    if (needed >= hit) continue;
    start = std::min(start, needed - layer * reach);
  }
  return start;
}

}  // namespace

ResumePoint plan_resume(const WindowShape& windows, uint32_t hit, uint32_t depth,
                        std::optional<uint32_t> snapshot, uint32_t unit) {
  ResumePoint point;
  point.write_from = hit;
  if (hit == 0) return point;
  if (windows.window == 0) {  // no windows: any boundary will do
    point.kind = Begin::kSeed;
    point.start = hit;
    return point;
  }
  int64_t start =
      windows.bounded ? int64_t{hit} - windows.window : exact_start(windows, hit, depth);
  // Windows that begin at the start must not be taken for whole ones by rows at the very beginning
  // of the text, hence a start below 0 is simply the beginning.
  start = start <= 0 ? 0 : start / unit * unit;
  if (snapshot && *snapshot >= start) {
    point.kind = Begin::kSnapshot;
    point.start = *snapshot;
    return point;
  }
  point.start = static_cast<uint32_t>(start);
  if (start > 0) {
    point.kind = Begin::kSeed;
    point.window_floor = point.start;
  }
  return point;
}

}  // namespace hadal::step
