#include "main/batch_lines.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/recipe/json_value.h"
#include "gateway/serving/batch_line.h"

namespace hadal::main {
namespace {

// A request line may hold a body of the largest kind, and levels around it.
constexpr int kLineDepth = 130;

core::Error failed(const std::string& path, std::string_view what) {
  return {core::Code::kIo, fmt::format("{}: {}: {}", path, what, std::strerror(errno))};
}

}  // namespace

core::Result<LineReader> LineReader::open(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return failed(path, "cannot be read");
  if (std::filesystem::is_directory(path)) {
    errno = EISDIR;
    return failed(path, "cannot be read");
  }
  return LineReader(std::move(in));
}

bool LineReader::next(std::string& line, uint64_t& number) {
  while (std::getline(in_, line)) {
    complete_ = !in_.eof();
    offset_ += line.size() + (complete_ ? 1 : 0);
    number = ++n_lines_;
    if (line.find_first_not_of(" \t\r") != std::string::npos) return true;
  }
  return false;
}

// By the rule that names the results: a line whose custom_id is no good one has a result without.
std::string batch_key(std::string_view line, uint64_t number) {
  serving::BatchLine read;
  const core::Status ignored = serving::read_batch_line(line, read);
  if (read.has_custom_id) return "c" + read.custom_id;
  return "n" + serving::batch_line_id(number);
}

core::Result<uint64_t> count_batch_lines(const std::string& path) {
  HADAL_TRY(LineReader reader, LineReader::open(path));
  std::unordered_map<std::string, uint64_t> seen;
  std::string line;
  uint64_t number = 0, n = 0;
  while (reader.next(line, number)) {
    ++n;
    const auto [at, fresh] = seen.emplace(batch_key(line, number), number);
    if (fresh) continue;
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("{}: lines {} and {} have the same custom_id \"{}\"; give each "
                                   "line its own",
                                   path, at->second, number, at->first.substr(1))};
  }
  return n;
}

core::Result<BatchOutput> BatchOutput::open(const std::string& path, const std::string& input) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return failed(path, "cannot be written");
  BatchOutput output(path, fd);
  struct stat out_stat = {}, in_stat = {};
  if (fstat(fd, &out_stat) == 0 && stat(input.c_str(), &in_stat) == 0 &&
      out_stat.st_dev == in_stat.st_dev && out_stat.st_ino == in_stat.st_ino) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("{} is the input file; give the output another name", path)};
  }
  if (S_ISREG(out_stat.st_mode)) {
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      return core::Error{core::Code::kIo,
                         fmt::format("{}: another hadal generate writes to it; wait for its end, "
                                     "or give another file",
                                     path)};
    }
    HADAL_TRY_VOID(output.recover());
  }
  return output;
}

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      keys_(std::move(other.keys_)) {}

BatchOutput::~BatchOutput() {
  if (fd_ >= 0) close(fd_);
}

core::Status BatchOutput::recover() {
  HADAL_TRY(LineReader reader, LineReader::open(path_));
  std::string line;
  uint64_t number = 0, bad_line = 0;
  recipe::JsonDoc doc;
  while (reader.next(line, number)) {
    if (bad_line != 0) {
      return core::Error{core::Code::kInvalidRequest,
                         fmt::format("{}: line {} is no batch result, so it cannot be gone on "
                                     "with; give another output file",
                                     path_, bad_line)};
    }
    const bool good = reader.complete() && doc.parse(line, kLineDepth) && doc.root().is_object() &&
                      doc.root()["id"].is_string();
    if (!good) {
      bad_line = number;
      continue;
    }
    const recipe::JsonValue custom = doc.root()["custom_id"];
    keys_.insert(custom.is_string() ? "c" + std::string(custom.str())
                                    : "n" + std::string(doc.root()["id"].str()));
    bytes_ = reader.offset();
  }
  // A last line that is no result was cut when the machine stopped; anything else is not ours.
  if (bad_line != 0 && reader.complete() && keys_.empty()) {
    return core::Error{
        core::Code::kInvalidRequest,
        fmt::format("{} holds something else than batch results; give another output file", path_)};
  }
  if (ftruncate(fd_, static_cast<off_t>(bytes_)) != 0) return failed(path_, "cannot be shortened");
  return {};
}

core::Status BatchOutput::append(std::string_view line) {
  const ssize_t n = write(fd_, line.data(), line.size());
  if (n == static_cast<ssize_t>(line.size())) {
    bytes_ += line.size();
    return {};
  }
  if (n >= 0) errno = ENOSPC;
  core::Error error = failed(path_, "cannot be written; the same command goes on later");
  // Best effort: a piece that stays is dropped by the next run.
  if (n > 0 && ftruncate(fd_, static_cast<off_t>(bytes_)) != 0) error.message += ", last line cut";
  return error;
}

core::Status BatchOutput::sync() {
  if (fdatasync(fd_) != 0 && errno != EINVAL && errno != EROFS)
    return failed(path_, "cannot be written; the same command goes on later");
  return {};
}

}  // namespace hadal::main
