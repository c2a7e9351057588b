#pragma once

#include <cstddef>
#include <string>

#include "base/core/result.h"

namespace hadal::weights {

// A whole small file. kIo if it cannot be read, kTooLarge beyond `max_bytes`; the message names the
// file.
core::Result<std::string> read_file(const std::string& path, size_t max_bytes);

}  // namespace hadal::weights
