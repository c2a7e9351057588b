#include "compute/weights/random_checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "compute/weights/engram_tables.h"
#include "compute/weights/layout.h"
#include "compute/weights/random_values.h"
#include "compute/weights/read_file.h"

namespace hadal::weights {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxConfigBytes = 16 << 20;
constexpr size_t kMaxTokenizerBytes = 256 << 20;
constexpr uint64_t kPieceBytes = 4 << 20;
static_assert(kPieceBytes % kRandomPiece == 0);

core::Error cannot_write(const std::string& path, int error) {
  return core::Error{
      core::Code::kIo,
      fmt::format(
          "cannot write {}: {}; choose an output folder (-o) on a disk that is writable and "
          "has room. Nothing is left behind",
          path, std::strerror(error)),
      path};
}

class OutputFile {
 public:
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  core::Status open(std::string path) {
    path_ = std::move(path);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0) return cannot_write(path_, errno);
    return {};
  }
  core::Status write(const void* data, size_t n) {
    const auto* at = static_cast<const char*>(data);
    while (n > 0) {
      const ssize_t wrote = ::write(fd_, at, n);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return cannot_write(path_, errno);
      at += wrote;
      n -= static_cast<size_t>(wrote);
    }
    return {};
  }
  core::Status close() {  // a disk may tell only now that it is full
    if (::close(std::exchange(fd_, -1)) != 0) return cannot_write(path_, errno);
    return {};
  }

 private:
  std::string path_;
  int fd_ = -1;
};

core::Status write_text(const std::string& path, std::string_view text) {
  OutputFile file;
  HADAL_TRY_VOID(file.open(path));
  HADAL_TRY_VOID(file.write(text.data(), text.size()));
  return file.close();
}

// The temporary folder, removed unless it became the real one.
class Staging {
 public:
  explicit Staging(const std::string& folder)
      : path_(fmt::format("{}.partial-{}", folder, getpid())) {}
  ~Staging() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  const std::string& path() const { return path_; }

  core::Status create() {
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) return cannot_write(path_, error.value());
    return {};
  }
  core::Status become(const std::string& folder) {
    if (std::rename(path_.c_str(), folder.c_str()) != 0) return cannot_write(folder, errno);
    path_.clear();
    return {};
  }

 private:
  std::string path_;
};

struct Shard {
  size_t first = 0, end = 0;  // range of tensors
};

std::vector<Shard> cut_shards(const std::vector<ExpectedTensor>& tensors, uint64_t limit) {
  std::vector<Shard> shards;
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t n = tensors[i].n_bytes();
    if (shards.empty() || (limit > 0 && bytes > 0 && bytes + n > limit)) {
      shards.push_back({i, i});
      bytes = 0;
    }
    bytes += n;
    shards.back().end = i + 1;
  }
  return shards;
}

std::string safetensors_header(std::span<const ExpectedTensor> tensors) {
  std::string text = "{";
  uint64_t at = 0;
  for (const ExpectedTensor& t : tensors) {
    fmt::format_to(std::back_inserter(text),
                   "{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                   text.size() > 1 ? "," : "", t.name, stored_type_name(t.type),
                   fmt::join(t.shape, ","), at, at + t.n_bytes());
    at += t.n_bytes();
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

class Writer {
 public:
  Writer(const RandomCheckpointOptions& options, const ModelConfig& config, uint64_t total)
      : options_(options),
        source_{options.seed, &config},
        total_(total),
        buffer_(std::make_unique<std::byte[]>(kPieceBytes)) {}

  core::Status shard(const std::string& path, std::span<const ExpectedTensor> tensors) {
    OutputFile file;
    HADAL_TRY_VOID(file.open(path));
    const std::string header = safetensors_header(tensors);
    const uint64_t header_bytes = header.size();
    HADAL_TRY_VOID(file.write(&header_bytes, 8));
    HADAL_TRY_VOID(file.write(header.data(), header.size()));
    for (const ExpectedTensor& t : tensors) HADAL_TRY_VOID(tensor(file, t));
    return file.close();
  }

 private:
  core::Status tensor(OutputFile& file, const ExpectedTensor& t) {
    const uint64_t n_bytes = t.n_bytes();
    for (uint64_t at = 0; at < n_bytes; at += kPieceBytes) {
      const std::span<std::byte> piece(buffer_.get(), std::min(kPieceBytes, n_bytes - at));
      random_bytes(source_, t, at, piece);
      HADAL_TRY_VOID(file.write(piece.data(), piece.size()));
      done_ += piece.size();
      if (options_.on_progress && done_ - told_ >= kPieceBytes) {
        options_.on_progress(done_, total_);
        told_ = done_;
      }
    }
    return {};
  }

  const RandomCheckpointOptions& options_;
  const RandomSource source_;
  const uint64_t total_;
  const std::unique_ptr<std::byte[]> buffer_;
  uint64_t done_ = 0, told_ = 0;
};

core::Status check_room(const RandomCheckpointOptions& options, const std::string& staging,
                        uint64_t needed) {
  struct statvfs info{};
  if (statvfs(staging.c_str(), &info) != 0) return cannot_write(staging, errno);
  const uint64_t room = uint64_t{info.f_bavail} * info.f_frsize;
  if (room >= needed) return {};
  return core::Error{
      core::Code::kIo,
      fmt::format("{}: the checkpoint needs {} bytes and its disk has {} left; free some or choose "
                  "another output folder (-o)",
                  options.folder, needed, room),
      "output"};
}

core::Status check_folder(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return {};
  if (fs::is_directory(folder, error) && fs::is_empty(folder, error)) return {};
  return core::Error{
      core::Code::kIo,
      fmt::format("{} exists and is not an empty folder; remove it or choose another "
                  "output folder (-o)",
                  folder),
      "output"};
}

core::Status write_index(const std::string& folder, const std::vector<ExpectedTensor>& tensors,
                         const std::vector<Shard>& shards, const std::vector<std::string>& names,
                         uint64_t total) {
  std::string text = fmt::format("{{\"metadata\":{{\"total_size\":{}}},\"weight_map\":{{", total);
  for (size_t s = 0; s < shards.size(); ++s) {
    for (size_t i = shards[s].first; i < shards[s].end; ++i)
      fmt::format_to(std::back_inserter(text), "{}\n\"{}\":\"{}\"", i > 0 ? "," : "",
                     tensors[i].name, names[s]);
  }
  text += "}}\n";
  return write_text(folder + "/model.safetensors.index.json", text);
}

// Without a tokenizer nothing says how the vocabulary folds for Engram: ids modulo the folded size.
core::Status write_token_map(const std::string& folder, const ModelConfig& config) {
  std::string text = "[";
  for (int64_t id = 0; id < config.vocab; ++id)
    fmt::format_to(std::back_inserter(text), "{}{}", id > 0 ? "," : "",
                   id % config.engram.compressed_vocab);
  return write_text(folder + "/engram_token_map.json", text + "]\n");
}

}  // namespace

core::Result<RandomCheckpointTotals> write_random_checkpoint(
    const RandomCheckpointOptions& options) {
  HADAL_TRY(const std::string config_text, read_file(options.config_path, kMaxConfigBytes));
  HADAL_TRY(const ModelConfig config, parse_model_config(config_text, options.config_path));
  HADAL_TRY_VOID(make_engram_hashes(config));
  std::string tokenizer;
  if (!options.tokenizer_path.empty()) {
    HADAL_TRY(tokenizer, read_file(options.tokenizer_path, kMaxTokenizerBytes));
  }
  std::string folder = options.folder;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  HADAL_TRY_VOID(check_folder(folder));

  std::vector<ExpectedTensor> tensors;
  RandomCheckpointTotals totals;
  for_each_tensor(config, [&](const ExpectedTensor& t) {
    totals.n_bytes += t.n_bytes();
    tensors.push_back(t);
  });
  const std::vector<Shard> shards = cut_shards(tensors, options.shard_bytes);
  totals.n_tensors = tensors.size();
  totals.n_shards = shards.size();

  Staging staging(folder);
  HADAL_TRY_VOID(staging.create());
  HADAL_TRY_VOID(check_room(options, staging.path(), totals.n_bytes));
  HADAL_TRY_VOID(write_text(staging.path() + "/config.json", config_text));
  if (!options.tokenizer_path.empty())
    HADAL_TRY_VOID(write_text(staging.path() + "/tokenizer.json", tokenizer));
  if (options.tokenizer_path.empty() && !config.engram.layers.empty() &&
      config.engram.compressed_vocab <= config.vocab)
    HADAL_TRY_VOID(write_token_map(staging.path(), config));
  Writer writer(options, config, totals.n_bytes);
  std::vector<std::string> names;
  for (const Shard& shard : shards) {
    names.push_back(shards.size() == 1 ? "model.safetensors"
                                       : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                     names.size() + 1, shards.size()));
    HADAL_TRY_VOID(writer.shard(staging.path() + "/" + names.back(),
                                std::span(tensors).subspan(shard.first, shard.end - shard.first)));
  }
  if (shards.size() > 1)
    HADAL_TRY_VOID(write_index(staging.path(), tensors, shards, names, totals.n_bytes));
  HADAL_TRY_VOID(staging.become(folder));
  return totals;
}

}  // namespace hadal::weights
