#include <cstddef>
#include <cstdint>

#include "compute/weights/checkpoint.h"

// Index files: accepted file names are plain and the numbers of tensors point at them.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto index =
      hadal::weights::parse_safetensors_index({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!index.has_value()) return 0;
  for (const std::string& file : index->files)
    HADAL_CHECK(file.find('/') == std::string::npos && file != "..", "a path in an index");
  for (const auto& [name, file] : index->tensors)
    HADAL_CHECK(file < index->files.size(), "a file number out of range");
  return 0;
}
