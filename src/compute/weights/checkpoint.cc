#include "compute/weights/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/weights/read_file.h"

namespace hadal::weights {
namespace {

constexpr size_t kMaxIndexBytes = 256 << 20;

struct TypeRow {
  StoredType type;
  std::string_view name;
  int64_t bytes;
};
constexpr TypeRow kTypes[] = {{StoredType::kBf16, "BF16", 2},
                              {StoredType::kF32, "F32", 4},
                              {StoredType::kE4m3, "F8_E4M3", 1},
                              {StoredType::kE8m0, "F8_E8M0", 1},
                              {StoredType::kI8, "I8", 1}};

std::optional<StoredType> type_of(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

}  // namespace

std::string released_name(std::string_view name) {
  if (name.starts_with("model.")) name.remove_prefix(6);
  std::string out(name);
  if (name == "lm_head.weight") out = "head.weight";
  if (name == "embed_tokens.weight") out = "embed.weight";
  for (const std::string_view ending : {".weight_scale_inv", ".weight_scale"}) {
    if (!name.ends_with(ending)) continue;
    out.resize(out.size() - ending.size());
    out += ".scale";
    break;
  }
  return out;
}

std::string_view stored_type_name(StoredType type) {
  return kTypes[static_cast<size_t>(type)].name;
}
int64_t stored_type_bytes(StoredType type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}

class Checkpoint::Mapping {
 public:
  Mapping(void* data, size_t size) : data_(data), size_(size) {}
  ~Mapping() {
    if (size_ > 0) munmap(data_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

  static core::Result<std::unique_ptr<Mapping>> map(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info{};
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      const std::string why = fd >= 0 && errno == 0 ? "not a regular file" : std::strerror(errno);
      if (fd >= 0) close(fd);
      return core::Error{
          core::Code::kIo,
          fmt::format("cannot open {}: {}; check that the model folder is complete and readable",
                      path, why),
          path};
    }
    const auto size = static_cast<size_t>(info.st_size);
    void* data = size > 0 ? mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0) : nullptr;
    const int error = errno;
    close(fd);
    if (size > 0 && data == MAP_FAILED) {
      return core::Error{core::Code::kIo,
                         fmt::format("cannot map {}: {}", path, std::strerror(error)), path};
    }
    return std::make_unique<Mapping>(data, size);
  }

 private:
  void* data_;
  size_t size_;
};

Checkpoint::Checkpoint(std::string folder) : folder_(std::move(folder)) {}
Checkpoint::~Checkpoint() = default;

core::Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return core::Error{core::Code::kNotFound,
                       fmt::format("{}: no such model folder; --model takes a folder with "
                                   "config.json, tokenizer.json and safetensors files",
                                   folder),
                       "model"};
  }
  std::unique_ptr<Checkpoint> made(new Checkpoint(folder));
  const std::string index_path = folder + "/model.safetensors.index.json";
  if (!std::filesystem::exists(index_path, error)) {
    if (!std::filesystem::exists(folder + "/model.safetensors", error)) {
      return core::Error{core::Code::kNotFound,
                         fmt::format("{} holds neither model.safetensors nor "
                                     "model.safetensors.index.json; the weights are missing",
                                     folder),
                         "model"};
    }
    HADAL_TRY_VOID(made->add_shard("model.safetensors"));
    return made;
  }
  HADAL_TRY(const std::string text, read_file(index_path, kMaxIndexBytes));
  HADAL_TRY(const SafetensorsIndex index, parse_safetensors_index(text, index_path));
  for (const std::string& file : index.files) HADAL_TRY_VOID(made->add_shard(file));
  for (const auto& [spelt, file] : index.tensors) {
    const std::string name = released_name(spelt);
    const auto found = made->tensors_.find(name);
    if (found == made->tensors_.end() || found->second.shard != file) {
      const bool foreign = std::any_of(made->foreign_.begin(), made->foreign_.end(),
                                       [&name](const ForeignTensor& f) { return f.name == name; });
      if (foreign) continue;
      return core::Error{core::Code::kCorrupt,
                         fmt::format("{} places {} in {}, which does not hold it; index and shards "
                                     "are not of one download",
                                     index_path, spelt, index.files[file]),
                         name};
    }
  }
  return made;
}

core::Status Checkpoint::add_shard(const std::string& file) {
  const std::string path = folder_ + "/" + file;
  HADAL_TRY(auto mapping, Mapping::map(path));
  const std::span<const std::byte> bytes = mapping->bytes();
  HADAL_TRY(const auto entries, parse_safetensors_header(bytes, path));
  const auto shard = static_cast<uint32_t>(shard_paths_.size());
  for (const SafetensorsEntry& entry : entries) {
    const auto type = type_of(entry.type);
    if (!type) {
      foreign_.push_back({released_name(entry.name), entry.type});
      continue;
    }
    Tensor tensor{*type, entry.shape, bytes.subspan(entry.begin, entry.end - entry.begin), shard};
    // Products of dimensions may overflow: divide instead.
    uint64_t left = tensor.bytes.size();
    bool fits = left % static_cast<uint64_t>(stored_type_bytes(*type)) == 0;
    left /= static_cast<uint64_t>(stored_type_bytes(*type));
    bool empty = false;
    for (const int64_t dim : entry.shape) {
      if (dim == 0) {
        empty = true;
      } else if (fits && !empty) {
        fits = left % static_cast<uint64_t>(dim) == 0;
        left /= static_cast<uint64_t>(dim);
      }
    }
    if (!fits || left != (empty ? left : 1) || (empty && !tensor.bytes.empty())) {
      return core::Error{
          core::Code::kCorrupt,
          fmt::format(
              "{}: tensor {} of type {} and shape [{}] cannot have {} bytes; the file is damaged",
              path, entry.name, entry.type, fmt::join(entry.shape, ", "), tensor.bytes.size()),
          entry.name};
    }
    if (!tensors_.emplace(released_name(entry.name), std::move(tensor)).second) {
      return core::Error{core::Code::kCorrupt,
                         fmt::format("tensor {} occurs in {} and once more, there or in another "
                                     "shard; remove the file that "
                                     "does not belong",
                                     entry.name, path),
                         entry.name};
    }
    total_bytes_ += entry.end - entry.begin;
  }
  shard_paths_.push_back(path);
  mappings_.push_back(std::move(mapping));
  return {};
}

const Tensor* Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(std::string(name));
  return found == tensors_.end() ? nullptr : &found->second;
}

namespace {

void advise(std::span<const std::byte> bytes, int advice, bool inner_pages_only) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  auto end = begin + bytes.size();
  begin = inner_pages_only ? (begin + page - 1) / page * page : begin / page * page;
  if (inner_pages_only) end = end / page * page;
  if (begin < end)
    madvise(reinterpret_cast<void*>(begin), end - begin,
            advice);  // NOLINT(performance-no-int-to-ptr): page arithmetic
}

}  // namespace

void Checkpoint::keep(void* mapped, uint64_t bytes) {
  mappings_.push_back(std::make_unique<Mapping>(mapped, bytes));
  in_memory_ = true;
}

void Checkpoint::drop(std::span<const std::byte> bytes) const {
  if (in_memory_) return;
  advise(bytes, MADV_DONTNEED, true);
}
void Checkpoint::advise_random(std::span<const std::byte> bytes) const {
  advise(bytes, MADV_RANDOM, false);
}

}  // namespace hadal::weights
