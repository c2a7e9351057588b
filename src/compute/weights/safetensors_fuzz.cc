#include <cstddef>
#include <cstdint>

#include "compute/weights/checkpoint.h"

// Headers of safetensors files: whatever the bytes, every entry that is accepted lies in the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto entries = hadal::weights::parse_safetensors_header(
      {reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  if (!entries.has_value()) return 0;
  for (const auto& entry : *entries)
    HADAL_CHECK(entry.begin <= entry.end && entry.end <= size, "an entry outside the file");
  return 0;
}
