#include <algorithm>
#include <cstring>
#include <unordered_set>

#include <fmt/format.h>
#include <simdjson.h>

#include "compute/weights/checkpoint.h"

namespace hadal::weights {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

core::Error corrupt(std::string_view origin, std::string_view what) {
  return {core::Code::kCorrupt,
          fmt::format("{}: {}; the file is damaged or cut: download it again", origin, what),
          std::string(origin)};
}

core::Result<uint64_t> unsigned_at(simdjson::dom::array array, size_t index,
                                   std::string_view origin, std::string_view name,
                                   std::string_view what) {
  uint64_t value = 0;
  if (array.at(index).get_uint64().get(value) != simdjson::SUCCESS) {
    return corrupt(
        origin,
        fmt::format("tensor {} has a {} that is no list of non-negative integers", name, what));
  }
  return value;
}

core::Result<SafetensorsEntry> parse_entry(std::string_view name, simdjson::dom::element value,
                                           uint64_t data_begin, uint64_t file_bytes,
                                           std::string_view origin) {
  SafetensorsEntry entry;
  entry.name = name;
  simdjson::dom::object object;
  std::string_view type;
  simdjson::dom::array shape, offsets;
  if (value.get_object().get(object) != simdjson::SUCCESS ||
      object["dtype"].get_string().get(type) != simdjson::SUCCESS ||
      object["shape"].get_array().get(shape) != simdjson::SUCCESS ||
      object["data_offsets"].get_array().get(offsets) != simdjson::SUCCESS || offsets.size() != 2 ||
      shape.size() > 8) {
    return corrupt(
        origin,
        fmt::format("tensor {} has no proper dtype, shape and data_offsets in the header", name));
  }
  entry.type = type;
  for (size_t i = 0; i < shape.size(); ++i) {
    HADAL_TRY(const uint64_t dim, unsigned_at(shape, i, origin, name, "shape"));
    if (dim > (uint64_t{1} << 48))
      return corrupt(origin, fmt::format("tensor {} has a dimension of {}", name, dim));
    entry.shape.push_back(static_cast<int64_t>(dim));
  }
  HADAL_TRY(const uint64_t begin, unsigned_at(offsets, 0, origin, name, "data_offsets"));
  HADAL_TRY(const uint64_t end, unsigned_at(offsets, 1, origin, name, "data_offsets"));
  const uint64_t data_bytes = file_bytes - data_begin;
  if (begin > end || end > data_bytes) {
    return corrupt(origin, fmt::format("tensor {} claims bytes {} to {} of {} in the file", name,
                                       begin, end, data_bytes));
  }
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

}  // namespace

core::Result<std::vector<SafetensorsEntry>> parse_safetensors_header(
    std::span<const std::byte> file, std::string_view origin) {
  if (file.size() < 8) return corrupt(origin, fmt::format("has only {} bytes", file.size()));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), 8);
  if (header_bytes > kMaxHeaderBytes || header_bytes > file.size() - 8) {
    return corrupt(origin, fmt::format("announces a header of {} bytes in a file of {}",
                                       header_bytes, file.size()));
  }
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  const auto error = parser.parse(simdjson::padded_string(text)).get_object().get(root);
  if (error != simdjson::SUCCESS)
    return corrupt(origin, fmt::format("has a header that is no JSON object ({})",
                                       simdjson::error_message(error)));

  std::vector<SafetensorsEntry> entries;
  std::unordered_set<std::string_view> names;
  for (const auto field : root) {
    if (field.key == "__metadata__") continue;
    if (!names.insert(field.key).second)
      return corrupt(origin, fmt::format("lists tensor {} twice", field.key));
    HADAL_TRY(SafetensorsEntry entry,
              parse_entry(field.key, field.value, 8 + header_bytes, file.size(), origin));
    entries.push_back(std::move(entry));
  }
  std::vector<const SafetensorsEntry*> by_place;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < entry.end) by_place.push_back(&entry);
  }
  std::sort(by_place.begin(), by_place.end(),
            [](const auto* a, const auto* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < by_place.size(); ++i) {
    if (by_place[i]->begin < by_place[i - 1]->end) {
      return corrupt(origin, fmt::format("lets the tensors {} and {} overlap",
                                         by_place[i - 1]->name, by_place[i]->name));
    }
  }
  return entries;
}

core::Result<SafetensorsIndex> parse_safetensors_index(std::string_view json,
                                                       std::string_view origin) {
  simdjson::dom::parser parser;
  simdjson::dom::object root, map;
  if (parser.parse(simdjson::padded_string(json)).get_object().get(root) != simdjson::SUCCESS ||
      root["weight_map"].get_object().get(map) != simdjson::SUCCESS) {
    return corrupt(origin, "is no JSON object with a weight_map");
  }
  SafetensorsIndex index;
  std::unordered_map<std::string_view, uint32_t> numbers;
  std::unordered_set<std::string_view> names;
  for (const auto field : map) {
    std::string_view file;
    if (field.value.get_string().get(file) != simdjson::SUCCESS)
      return corrupt(origin, fmt::format("weight_map.{} is no file name", field.key));
    // A shard lies in the model folder itself: an index must not make us read elsewhere.
    if (file.empty() || file.find('/') != std::string_view::npos ||
        file.find('\0') != std::string_view::npos || file == "." || file == "..") {
      return corrupt(origin,
                     fmt::format("weight_map.{} names the file '{}', which is no plain file name",
                                 field.key, file));
    }
    if (!names.insert(field.key).second)
      return corrupt(origin, fmt::format("weight_map lists {} twice", field.key));
    const auto [at, added] = numbers.emplace(file, static_cast<uint32_t>(index.files.size()));
    if (added) index.files.emplace_back(file);
    index.tensors.emplace_back(field.key, at->second);
  }
  if (index.files.empty()) return corrupt(origin, "has an empty weight_map");
  return index;
}

}  // namespace hadal::weights
