#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/core/philox.h"
#include "compute/backends/cpu/cpu_level.h"
#include "compute/backends/cpu/row_kernels.h"
#include "compute/formats/quantise.h"

// The vector forms of the quantisers give the bytes of compute/formats on every level that this
// machine runs.
namespace hadal::cpu {
namespace {

struct Named {
  const char* name;
  const RowKernels* kernels;
};
std::vector<Named> levels() {
  std::vector<Named> out = {{"base", &kRowKernelsBase}};
#if defined(__x86_64__)
  for (const CpuLevel level : supported_levels()) {
    if (level == CpuLevel::kAvx2) out.push_back({"avx2", &kRowKernelsAvx2});
    if (level == CpuLevel::kAvx512) out.push_back({"avx512", &kRowKernelsAvx512});
  }
#endif
  return out;
}

// Rows of 512 that hold every finite bf16 value: alone in its group as the largest, beside values
// of the same binade, and at random.
std::vector<std::vector<uint16_t>> interesting_rows() {
  std::vector<std::vector<uint16_t>> rows;
  uint32_t counter = 0;
  for (uint32_t u = 0; u < 0x7F80; u += 16) {
    std::vector<uint16_t> row(512);
    for (size_t i = 0; i < row.size(); ++i) {
      const auto draw = core::philox4x32({counter++, 0, 0, 0}, {1, 2});
      const auto top = static_cast<uint16_t>(u + i / 32);
      const uint32_t below = draw[0] % (i % 3 == 0 ? 0x80u : 0x400u);
      const uint32_t magnitude = i % 32 == 0 ? top : top > below ? top - below : 0;
      row[i] = static_cast<uint16_t>(magnitude | (draw[1] & 0x8000u));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

TEST(RowQuantisers, GiveTheBytesOfTheFormats) {
  const auto rows = interesting_rows();
  for (const auto& [name, kernels] : levels()) {
    SCOPED_TRACE(name);
    for (const std::vector<uint16_t>& row : rows) {
      const bool scale_in_range = (row[0] & 0x7FFF) < 0x7C00;  // entries: fq4e8 scale byte fits
      std::vector<uint8_t> want(528), got(528);
      formats::pack_window(row.data(), 512, want.data());
      kernels->pack_window(row.data(), 512, got.data());
      ASSERT_EQ(want, got) << row[0];
      std::vector<uint16_t> want_values(512), got_values(512);
      formats::aq8_values(row.data(), 512, want_values.data());
      kernels->snap8(row.data(), 512, got_values.data());
      ASSERT_EQ(want_values, got_values) << row[0];
      if (!scale_in_range) continue;
      std::fill(want.begin(), want.end(), 0);
      std::fill(got.begin(), got.end(), 0);
      formats::pack_entry(row.data(), 512, want.data());
      kernels->pack_entry(row.data(), 512, got.data());
      ASSERT_EQ(want, got) << row[0];
      formats::pack_key(row.data(), 512, want.data(), want.data() + 256);
      kernels->pack_key(row.data(), 512, got.data(), got.data() + 256);
      ASSERT_EQ(want, got) << row[0];
    }
  }
}

}  // namespace
}  // namespace hadal::cpu
