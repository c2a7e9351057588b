#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/backends/cpu/pack.h"

namespace hadal::cpu {

// What a level's kernel gets: some panels of one group times the group's rows. Plain data, since
// level files may use nothing that another level could share (see linear_body.h).
struct PanelJob {
  WeightFormat format;
  const unsigned char* weight;  // of the group's panel 0
  const unsigned char* scale;
  int64_t panel_begin, panel_end;
  int64_t n, k, n_blocks;
  const void* x;
  const int32_t* x_index;  // of the group's first row; null: row i of x
  int64_t x_stride, n_rows;
  void* y;
  const int32_t* y_index;
  int64_t y_stride;
  bool y_is_bf16;
  unsigned char* scratch;
};

namespace level_base {
void run(const PanelJob& job);
double peak(int64_t turns, float* sink);
}  // namespace level_base
#if defined(__x86_64__)
namespace level_avx2 {
void run(const PanelJob& job);
double peak(int64_t turns, float* sink);
}  // namespace level_avx2
namespace level_avx512 {
void run(const PanelJob& job);
double peak(int64_t turns, float* sink);
}  // namespace level_avx512
namespace level_avx512bf16 {  // tiles through vdpbf16ps
void run(const PanelJob& job);
double peak(int64_t turns, float* sink);
}  // namespace level_avx512bf16
namespace level_avx512bf16_fma {  // tiles through fma, unpacking with VBMI
void run(const PanelJob& job);
double peak(int64_t turns, float* sink);
}  // namespace level_avx512bf16_fma
#endif

}  // namespace hadal::cpu
