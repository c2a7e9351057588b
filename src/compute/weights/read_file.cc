#include "compute/weights/read_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <sys/stat.h>

namespace hadal::weights {

core::Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  struct stat info{};
  if (!file || fstat(fileno(file.get()), &info) != 0) {
    return core::Error{core::Code::kIo,
                       fmt::format("cannot read {}: {}; check the path and its permissions", path,
                                   std::strerror(errno)),
                       path};
  }
  if (S_ISDIR(info.st_mode))
    return core::Error{core::Code::kIo, fmt::format("{} is a folder, not a file", path), path};
  std::string text;
  char buffer[65536];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, file.get())) {
    text.append(buffer, n);
    if (text.size() > max_bytes) {
      return core::Error{
          core::Code::kTooLarge,
          fmt::format("{} is larger than {} bytes, which no such file is", path, max_bytes), path};
    }
  }
  if (std::ferror(file.get()) != 0)
    return core::Error{core::Code::kIo,
                       fmt::format("reading {} failed: {}", path, std::strerror(errno)), path};
  return text;
}

}  // namespace hadal::weights
