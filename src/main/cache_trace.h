#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/core/result.h"

namespace hadal::main {

// A recorded stream of requests, as names of blocks: equal names mean an equal prefix up to and
// with that block.
struct CacheTrace {
  struct Request {
    double t_s = 0;
    uint32_t n_input = 0, n_output = 0;  // tokens
    std::vector<uint64_t> blocks;        // the last may be partial
  };
  std::string name;
  uint32_t block_tokens = 0;
  std::vector<Request> requests;  // by time
  uint64_t n_unique = 0;          // blocks
};

// Reads a file of Mooncake's form (timestamp, input_length, output_length, hash_ids; 512 tokens a
// block) or of the sessions of coding agents (traces/README.md; 64-token blocks put together to
// 1,024). Sessions carry no start: they are spread evenly at random over `spread_s`.
core::Result<CacheTrace> read_cache_trace(const std::string& path, double spread_s, uint64_t seed);

// Does the file hold sessions without start times?
bool has_sessions(const std::string& path);

}  // namespace hadal::main
