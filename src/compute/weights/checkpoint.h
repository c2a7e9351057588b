#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/core/result.h"

namespace hadal::weights {

struct ModelConfig;

// Element types of a safetensors file that this model uses, by their names there.
enum class StoredType : uint8_t { kBf16, kF32, kE4m3, kE8m0, kI8 };

std::string_view stored_type_name(StoredType type);  // "BF16", "F32", "F8_E4M3", "F8_E8M0", "I8"
int64_t stored_type_bytes(StoredType type);

struct Tensor {
  StoredType type = StoredType::kBf16;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // in the mapping of its shard
  uint32_t shard = 0;                // index into Checkpoint::shards()

  int64_t n_elements() const {
    return static_cast<int64_t>(bytes.size()) / stored_type_bytes(type);
  }
};

// A tensor of a type that no tensor of this model has (an unexpected file): name and what was
// found.
struct ForeignTensor {
  std::string name, type;
};

// The tensors of a model folder, memory-mapped: model.safetensors.index.json with its shards, or
// one model.safetensors. Checked at opening: no tensor lies outside its file or overlaps another,
// no name occurs twice. Const afterwards, any thread. A file that is cut while it is mapped gives
// SIGBUS, as with every mapping: replace shards by renaming, never in place.
class Checkpoint {
 public:
  static core::Result<std::unique_ptr<Checkpoint>> open(const std::string& folder);
  // Random weights of a config (random_values.h) in memory, with no file: for measurements of
  // models that nobody has on disk. Layers share their values, and so do the experts of a layer but
  // the first, so that the host holds a few GB whatever the number of layers. Without Engram tables
  // of more than memory: leave Engram out of such a config.
  static core::Result<std::unique_ptr<Checkpoint>> make_random(const ModelConfig& config,
                                                               uint64_t seed, int n_threads);
  ~Checkpoint();

  // By released name, whatever the file's spelling. Null if there is none.
  const Tensor* find(std::string_view name) const;
  const std::unordered_map<std::string, Tensor>& tensors() const { return tensors_; }
  const std::vector<ForeignTensor>& foreign() const { return foreign_; }
  const std::vector<std::string>& shards() const { return shard_paths_; }
  const std::string& folder() const { return folder_; }
  uint64_t total_bytes() const { return total_bytes_; }

  // Tells the kernel that the pages of these bytes are not needed soon (they were repacked), or
  // that they are read at random.
  void drop(std::span<const std::byte> bytes) const;
  void advise_random(std::span<const std::byte> bytes) const;

 private:
  class Mapping;
  explicit Checkpoint(std::string folder);
  core::Status add_shard(const std::string& file);
  void keep(void* mapped, uint64_t bytes);  // takes an anonymous mapping over

  const std::string folder_;
  std::vector<std::string> shard_paths_;
  std::vector<std::unique_ptr<Mapping>> mappings_;
  std::unordered_map<std::string, Tensor> tensors_;
  std::vector<ForeignTensor> foreign_;
  uint64_t total_bytes_ = 0;
  bool in_memory_ = false;  // no file behind: pages must not be dropped
};

// The released spelling of a tensor name. Exports of other programs put "model." before it, say
// lm_head for head, embed_tokens for embed and weight_scale or weight_scale_inv for scale.
std::string released_name(std::string_view name);

// The header of one safetensors file, checked against the size of the file. For Checkpoint and for
// fuzzing.
struct SafetensorsEntry {
  std::string name, type;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the file
};
core::Result<std::vector<SafetensorsEntry>> parse_safetensors_header(
    std::span<const std::byte> file, std::string_view origin);

// weight_map of an index file: file names of the shards, each once, and how many tensors it lists.
struct SafetensorsIndex {
  std::vector<std::string> files;
  std::vector<std::pair<std::string, uint32_t>> tensors;  // name, index into files
};
core::Result<SafetensorsIndex> parse_safetensors_index(std::string_view json,
                                                       std::string_view origin);

}  // namespace hadal::weights
