#include <chrono>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "compute/weights/random_checkpoint.h"
#include "main/commands.h"

namespace hadal::main {
namespace {

struct Unit {
  double bytes;
  const char* name;
};

// The largest unit of which `total` bytes are at least one.
Unit unit_for(uint64_t total) {
  if (total >= 1'000'000'000) return {1e9, "GB"};
  if (total >= 1'000'000) return {1e6, "MB"};
  return {1e3, "kB"};
}

}  // namespace

int cmd_make_model(const MakeModelOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  auto shown = start;
  bool line_open = false;
  weights::RandomCheckpointOptions make;
  make.config_path = options.config;
  make.tokenizer_path = options.tokenizer;
  make.folder = options.output;
  make.seed = options.seed;
  make.shard_bytes = options.shard_bytes;
  make.on_progress = [&](uint64_t done, uint64_t total) {
    const auto now = Clock::now();
    if (now - shown < std::chrono::seconds(1)) return;
    shown = now;
    line_open = isatty(STDERR_FILENO) != 0;
    const Unit unit = unit_for(total);
    fmt::print(stderr, "{}make-model: {:.1f} of {:.1f} {}{}", line_open ? "\r" : "",
               static_cast<double>(done) / unit.bytes, static_cast<double>(total) / unit.bytes,
               unit.name, line_open ? "" : "\n");
    std::fflush(stderr);
  };
  const auto made = weights::write_random_checkpoint(make);
  if (line_open) fmt::print(stderr, "\n");
  if (!made.has_value()) {
    fmt::print(stderr, "hadal: {}\n", made.error().message);
    return 1;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  fmt::print("{}: {} tensors, {} bytes, {} file{}, {:.1f} s\n", options.output, made->n_tensors,
             made->n_bytes, made->n_shards, made->n_shards == 1 ? "" : "s", seconds);
  return 0;
}

}  // namespace hadal::main
