#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "compute/weights/checkpoint.h"
#include "compute/weights/model_config.h"

namespace hadal::weights {

// A tensor that a checkpoint of a config must hold.
struct ExpectedTensor {
  std::string name;
  StoredType type = StoredType::kBf16;
  std::vector<int64_t> shape;
  bool optional = false;  // part of a group (mtp.*, vision) that may be absent as a whole
  bool f32_too = false;   // F32 will do if every value is a bf16 number

  uint64_t n_bytes() const;
};

// Calls `each` for every tensor, in the order of the released files (docs/model.md 2.3). Group by
// group, so that tables of a hundred thousand names need not exist at once.
void for_each_tensor(const ModelConfig& config,
                     const std::function<void(const ExpectedTensor&)>& each);

struct LayoutTotals {
  uint64_t n_tensors = 0;
  uint64_t n_bytes = 0;
};
LayoutTotals layout_totals(const ModelConfig& config);

}  // namespace hadal::weights
