#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "compute/weights/model_config.h"

namespace hadal::weights {

// Bytes of a model as stored, by what they are for.
struct WeightGroup {
  std::string_view name;
  uint64_t n_tensors = 0, n_bytes = 0;
};

struct MemoryPlan {
  std::vector<WeightGroup> groups;     // of the config's layout, in a fixed order, none empty
  uint64_t engram_table_bytes = 0;     // stay in the file: a token reads n_columns rows of each
  int64_t engram_bytes_per_token = 0;  // of table rows, all Engram layers
  int64_t entry_bytes = 0, key_bytes = 0;
  double records_per_token = 0;   // sum of 1 / ratio over the sources
  double kv_bytes_per_token = 0;  // (entry_bytes + key_bytes) * records_per_token
  int64_t window_record_bytes = 0;
  int64_t window_bytes_per_sequence = 0;  // rings of the backbone: n_layers * window records
  int64_t draft_window_bytes_per_sequence = 0;
};

MemoryPlan make_memory_plan(const ModelConfig& config);

}  // namespace hadal::weights
