#include "main/cache_trace.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/core/philox.h"

namespace hadal::main {
namespace {

using Json = nlohmann::json;
constexpr uint32_t kMooncakeBlock = 512;
constexpr uint32_t kSessionBlock = 64;
constexpr uint32_t kGroup = 16;  // session blocks in one of ours

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 30)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

CacheTrace::Request mooncake_request(const Json& line) {
  CacheTrace::Request request;
  request.t_s = line.at("timestamp").get<double>() / 1000.0;
  request.n_input = line.at("input_length").get<uint32_t>();
  request.n_output = line.at("output_length").get<uint32_t>();
  for (const Json& id : line.at("hash_ids")) request.blocks.push_back(mix(id.get<uint64_t>(), 1));
  return request;
}

// [t_s, input_tokens, output_tokens, api_time_s, think_time_s, keep, [[start, len], ...]]
void add_chain(const Json& list, double start_s, uint64_t session, CacheTrace& trace) {
  std::vector<uint32_t> ids;
  for (const Json& entry : list) {
    if (entry.is_object()) {
      add_chain(entry.at("req"), start_s + entry.at("t").get<double>(), session, trace);
      continue;
    }
    ids.resize(std::min<size_t>(ids.size(), entry.at(5).get<size_t>()));
    for (const Json& run : entry.at(6)) {
      for (uint32_t i = 0; i < run.at(1).get<uint32_t>(); ++i)
        ids.push_back(run.at(0).get<uint32_t>() + i);
    }
    CacheTrace::Request& request = trace.requests.emplace_back();
    request.t_s = start_s + entry.at(0).get<double>();
    request.n_input = entry.at(1).get<uint32_t>();
    request.n_output = entry.at(2).get<uint32_t>();
    uint64_t name = session;
    for (size_t i = 0; i < ids.size(); ++i) {
      name = mix(name, ids[i]);
      if (i % kGroup == kGroup - 1 || i + 1 == ids.size()) request.blocks.push_back(name);
    }
  }
}

}  // namespace

bool has_sessions(const std::string& path) {
  std::ifstream in(path);
  std::string begin(256, '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin.find("\"tool_tokens\"") != std::string::npos;
}

core::Result<CacheTrace> read_cache_trace(const std::string& path, double spread_s, uint64_t seed) {
  std::ifstream in(path);
  if (!in) return core::Error{core::Code::kIo, fmt::format("cannot read the trace {}", path)};
  CacheTrace trace;
  trace.name = std::filesystem::path(path).stem().string();
  std::string line;
  for (uint64_t n = 0; std::getline(in, line); ++n) {
    try {
      const Json json = Json::parse(line);
      if (json.contains("hash_ids")) {
        trace.block_tokens = kMooncakeBlock;
        trace.requests.push_back(mooncake_request(json));
      } else {
        trace.block_tokens = kSessionBlock * kGroup;
        const auto draw = core::philox4x32({static_cast<uint32_t>(n), 0, 0, 0},
                                           {static_cast<uint32_t>(seed), 0xCAC4Eu});
        add_chain(json.at("req"), spread_s * (draw[0] / 4294967296.0), mix(n, 2), trace);
      }
    } catch (const std::exception& e) {  // the JSON library throws
      return core::Error{core::Code::kInvalidRequest,
                         fmt::format("{} line {}: {}; see docs/cache.md for the two forms", path,
                                     n + 1, e.what())};
    }
  }
  if (trace.requests.empty())
    return core::Error{core::Code::kInvalidRequest, fmt::format("{} has no requests", path)};
  std::stable_sort(trace.requests.begin(), trace.requests.end(),
                   [](const auto& a, const auto& b) { return a.t_s < b.t_s; });
  std::unordered_set<uint64_t> names;
  for (const auto& request : trace.requests)
    names.insert(request.blocks.begin(), request.blocks.end());
  trace.n_unique = names.size();
  return trace;
}

}  // namespace hadal::main
