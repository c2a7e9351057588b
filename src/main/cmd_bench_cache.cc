// hadal bench cache: the prefix cache's policy on recorded requests, beside plain LRU and beside
// one that knows the future. Blocks are inserted when a request arrives; a hit is a token of its
// longest resident beginning.
#include <algorithm>
#include <chrono>
#include <compare>
#include <cstdio>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "engine/kv/block_pool.h"
#include "engine/kv/prefix_cache.h"
#include "main/cache_trace.h"
#include "main/commands.h"

namespace hadal::main {
namespace {

struct Score {
  double hit_percent = 0;
  double us_per_request = 0;
  double bytes_per_block = 0;
};

uint64_t tokens_of(const CacheTrace& trace, const CacheTrace::Request& request, size_t n_blocks) {
  return std::min<uint64_t>(request.n_input, uint64_t{n_blocks} * trace.block_tokens);
}

// One request arrives: what it finds counts, then its blocks are put in as far as the policy wants
// them. Returns the leading blocks found.
uint32_t play(const CacheTrace& trace, const CacheTrace::Request& request,
              std::span<const kv::BlockHash> chain, uint32_t n_blocks, kv::PrefixCache& cache) {
  const uint32_t n_hit = cache.match(chain).n_resident;
  kv::Touch touch;
  touch.now_s = request.t_s;
  touch.n_blocks = static_cast<uint32_t>(chain.size());
  touch.last_is_partial = uint64_t{chain.size()} * trace.block_tokens > request.n_input;
  touch.n_output = request.n_output;
  touch.arrival = cache.arrive(chain, request.t_s);
  cache.touch(chain, touch);
  kv::NodeId parent = kv::kNoNode;
  for (const kv::BlockHash& hash : chain) {
    kv::NodeId node = cache.find(hash);
    if (node == kv::kNoNode) break;
    if (cache.block_of(node) == kv::kNoBlock) {
      if (!cache.wanted(node)) break;
      const kv::BlockId block =
          cache.n_resident() < n_blocks ? kv::BlockId{cache.n_resident()} : *cache.evict();
      node = cache.insert(hash, parent, block);
      cache.unhold(node);
    }
    parent = node;
  }
  return n_hit;
}

Score simulate(const CacheTrace& trace, uint32_t n_blocks, kv::Policy policy) {
  kv::PrefixCache cache({n_blocks, policy, std::nullopt});
  uint64_t n_tokens = 0, n_found = 0;
  std::vector<kv::BlockHash> chain;
  const auto begin = std::chrono::steady_clock::now();
  for (const CacheTrace::Request& request : trace.requests) {
    chain.clear();
    for (const uint64_t name : request.blocks) chain.push_back({name, name * 0x9E3779B97F4A7C15u});
    n_tokens += request.n_input;
    n_found += tokens_of(trace, request, play(trace, request, chain, n_blocks, cache));
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  Score score;
  score.hit_percent = 100.0 * static_cast<double>(n_found) / static_cast<double>(n_tokens);
  score.us_per_request = took.count() / static_cast<double>(trace.requests.size());
  score.bytes_per_block = static_cast<double>(cache.bytes()) / n_blocks;
  return score;
}

// Gives up what is used again last. A block is used again no later than those below it, so that
// "the latest next use, deeper first" evicts leaves only.
double clairvoyant(const CacheTrace& trace, uint64_t n_blocks) {
  std::vector<std::vector<uint32_t>> next_use(trace.requests.size());
  std::unordered_map<uint64_t, uint32_t> seen;
  for (size_t i = trace.requests.size(); i-- > 0;) {
    for (const uint64_t name : trace.requests[i].blocks) {
      const auto [at, fresh] = seen.try_emplace(name, 0xFFFFFFFFu);
      next_use[i].push_back(at->second);
      at->second = static_cast<uint32_t>(i);
    }
  }
  struct Place {
    uint32_t next, depth;
    uint64_t name;
    auto operator<=>(const Place&) const = default;
  };
  std::set<Place> resident;
  std::unordered_map<uint64_t, Place> place_of;
  uint64_t n_tokens = 0, n_found = 0;
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    const CacheTrace::Request& request = trace.requests[i];
    size_t n_hit = 0;
    while (n_hit < request.blocks.size() && place_of.contains(request.blocks[n_hit])) ++n_hit;
    n_tokens += request.n_input;
    n_found += tokens_of(trace, request, n_hit);
    for (size_t j = 0; j < request.blocks.size(); ++j) {
      const Place place{next_use[i][j], static_cast<uint32_t>(j), request.blocks[j]};
      if (const auto old = place_of.find(place.name); old != place_of.end())
        resident.erase(old->second);
      resident.insert(place);
      place_of[place.name] = place;
    }
    while (resident.size() > n_blocks) {
      place_of.erase(resident.rbegin()->name);
      resident.erase(std::prev(resident.end()));
    }
  }
  return 100.0 * static_cast<double>(n_found) / static_cast<double>(n_tokens);
}

std::vector<uint32_t> sizes_for(const CacheTrace& trace, const BenchCacheOptions& options) {
  std::vector<uint32_t> sizes = options.blocks;
  for (const double percent : options.percent)
    sizes.push_back(static_cast<uint32_t>(static_cast<double>(trace.n_unique) * percent / 100.0));
  if (!sizes.empty()) return sizes;
  if (trace.block_tokens == 512) return {1000, 3000, 10'000, 30'000, 50'000, 100'000};
  for (const double percent : {1.0, 2.0, 5.0, 10.0, 20.0})
    sizes.push_back(static_cast<uint32_t>(static_cast<double>(trace.n_unique) * percent / 100.0));
  return sizes;
}

void run_trace(const CacheTrace& trace, const std::string& label,
               const BenchCacheOptions& options) {
  for (const uint32_t n_blocks : sizes_for(trace, options)) {
    const Score lru = simulate(trace, n_blocks, kv::Policy::kLru);
    const Score ours = simulate(trace, n_blocks, kv::Policy::kTurnHazard);
    std::string best;
    if (options.clairvoyant)
      best = fmt::format(", \"clairvoyant\": {:.2f}", clairvoyant(trace, n_blocks));
    fmt::print(
        "{{\"bench\": \"cache\", \"trace\": \"{}\", \"requests\": {}, \"block_tokens\": {}, "
        "\"unique_blocks\": {}, \"blocks\": {}, \"hit_percent\": {:.2f}, \"lru\": {:.2f}{}, "
        "\"over_lru\": {:.2f}, \"us_per_request\": {:.1f}, \"lru_us_per_request\": {:.1f}, "
        "\"bytes_per_block\": {:.0f}}}\n",
        label, trace.requests.size(), trace.block_tokens, trace.n_unique, n_blocks,
        ours.hit_percent, lru.hit_percent, best, ours.hit_percent - lru.hit_percent,
        ours.us_per_request, lru.us_per_request, ours.bytes_per_block);
    std::fflush(stdout);
  }
}

// Policy and index alone, filled to the brim: conversations of 16 blocks, a tenth of which goes on.
int run_capacity(uint32_t n_blocks) {
  kv::PrefixCache cache({n_blocks, kv::Policy::kTurnHazard, std::nullopt});
  CacheTrace trace;
  trace.block_tokens = 128;
  CacheTrace::Request request;
  std::vector<kv::BlockHash> chain(16);
  const uint64_t n_requests = uint64_t{n_blocks} / 8;  // each block comes about twice
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < n_requests; ++i) {
    request.t_s = static_cast<double>(i) * 0.01;
    const uint64_t talk = i % 10 == 9 ? i - i % 97 : i;
    for (uint64_t j = 0; j < chain.size(); ++j) {
      const uint64_t x = (talk * 16 + j + 1) * 0x9E3779B97F4A7C15u;
      chain[j] = {x, (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u};
    }
    request.n_input = 16 * 128;
    play(trace, request, chain, n_blocks, cache);
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  const double index = static_cast<double>(cache.bytes()) / n_blocks;
  const double pool =
      sizeof(uint32_t) + 2.0 * sizeof(uint32_t);  // kv::BlockPool, free list at most
  fmt::print(
      "{{\"bench\": \"cache_capacity\", \"blocks\": {}, \"resident\": {}, \"requests\": {}, "
      "\"us_per_request_of_16_blocks\": {:.2f}, \"policy_and_index_bytes_per_block\": {:.1f}, "
      "\"pool_bytes_per_block\": {:.1f}}}\n",
      n_blocks, cache.n_resident(), n_requests, took.count() / static_cast<double>(n_requests),
      index, pool);
  return 0;
}

}  // namespace

int cmd_bench_cache(const BenchCacheOptions& options) {
  if (options.capacity > 0) return run_capacity(options.capacity);
  std::vector<std::string> files;
  for (const std::string& path : options.traces) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
    }
  }
  if (files.empty()) {
    fmt::print(stderr,
               "hadal bench cache: no trace; name files or folders with *.jsonl, see "
               "docs/cache.md for the forms\n");
    return 1;
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    const bool sessions = has_sessions(file);
    const std::vector<double> spreads = sessions ? options.spread_hours : std::vector<double>{0};
    for (const double hours : spreads) {
      const auto trace = read_cache_trace(file, hours * 3600.0, options.seed);
      if (!trace) {
        fmt::print(stderr, "hadal bench cache: {}\n", trace.error().message);
        return 1;
      }
      const std::string label =
          sessions ? fmt::format("{}, starts over {} h", trace->name, hours) : trace->name;
      run_trace(*trace, label, options);
    }
  }
  return 0;
}

}  // namespace hadal::main
