#include <cstddef>
#include <cstdint>

#include "compute/weights/engram_tables.h"
#include "compute/weights/layout.h"
#include "compute/weights/memory_plan.h"
#include "compute/weights/model_config.h"

// config.json: an accepted config of moderate size has a layout and a memory plan.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config =
      hadal::weights::parse_model_config({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!config.has_value()) return 0;
  const int64_t n_experts = int64_t{config->n_layers} * config->n_experts +
                            int64_t{config->draft.n_layers} * config->draft.n_experts;
  if (n_experts > 10'000 || config->vision.n_layers > 1000) return 0;  // right, but slow to list
  (void)hadal::weights::make_memory_plan(*config);
  if (config->engram.vocab_base < 100'000 && config->engram.n_columns() < 64)
    (void)hadal::weights::make_engram_hashes(*config);
  return 0;
}
