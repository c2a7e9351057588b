#include <algorithm>
#include <atomic>
#include <thread>

#include <fmt/format.h>
#include <sys/mman.h>

#include "compute/weights/checkpoint.h"
#include "compute/weights/layout.h"
#include "compute/weights/model_config.h"
#include "compute/weights/random_values.h"

// A checkpoint that lies in memory alone. Tensors that play the same role in different layers, and
// the experts of a layer from the second on, are views of the same bytes: a few GB stand for
// hundreds.
namespace hadal::weights {
namespace {

constexpr uint64_t kPiece = 4 << 20;
static_assert(kPiece % kRandomPiece == 0);

// The name without the number of its layer, and of its expert unless that is 0.
std::string role_of(const ExpectedTensor& t) {
  std::string name = t.name;
  const auto blank = [&name](std::string_view before, bool keep_zero) {
    const size_t at = name.find(before);
    if (at == std::string::npos) return;
    const size_t begin = at + before.size();
    const size_t end = name.find('.', begin);
    if (keep_zero && name.compare(begin, end - begin, "0") == 0) return;
    name.replace(begin, end - begin, "n");
  };
  blank("layers.", false);
  blank(".experts.", true);
  for (const int64_t d : t.shape) name += fmt::format(" {}", d);
  return name;
}

void fill(const RandomSource& source, const std::vector<ExpectedTensor>& tensors,
          const std::vector<std::span<std::byte>>& places, int n_threads) {
  struct Piece {
    size_t tensor;
    uint64_t begin;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i)
    for (uint64_t at = 0; at < places[i].size(); at += kPiece) pieces.push_back({i, at});
  std::atomic<size_t> next{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < n_threads; ++i) {
    threads.emplace_back([&] {
      for (size_t p = next++; p < pieces.size(); p = next++) {
        const std::span<std::byte> all = places[pieces[p].tensor];
        const uint64_t n = std::min<uint64_t>(kPiece, all.size() - pieces[p].begin);
        random_bytes(source, tensors[pieces[p].tensor], pieces[p].begin,
                     all.subspan(pieces[p].begin, n));
      }
    });
  }
}

}  // namespace

core::Result<std::unique_ptr<Checkpoint>> Checkpoint::make_random(const ModelConfig& config,
                                                                  uint64_t seed, int n_threads) {
  std::unique_ptr<Checkpoint> out(new Checkpoint("random weights"));
  std::vector<ExpectedTensor> tensors;                // one of each role
  std::unordered_map<std::string, size_t> place_of;   // role -> index into tensors
  std::vector<std::pair<std::string, size_t>> names;  // every tensor -> index
  uint64_t total = 0;
  for_each_tensor(config, [&](const ExpectedTensor& t) {
    if (t.optional) return;
    const auto [at, fresh] = place_of.try_emplace(role_of(t), tensors.size());
    if (fresh) {
      tensors.push_back(t);
      total += (t.n_bytes() + 63) / 64 * 64;
    }
    names.emplace_back(t.name, at->second);
    out->total_bytes_ += t.n_bytes();
  });
  void* data = mmap(nullptr, total, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return core::Error{core::Code::kOverloaded,
                       fmt::format("cannot map {} MiB for random weights", total >> 20)};
  }
  out->keep(data, total);
  std::vector<std::span<std::byte>> places;
  auto* at = static_cast<std::byte*>(data);
  for (const ExpectedTensor& t : tensors) {
    places.emplace_back(at, t.n_bytes());
    at += (t.n_bytes() + 63) / 64 * 64;
  }
  fill({.seed = seed, .config = &config}, tensors, places, std::max(1, n_threads));
  for (const auto& [name, i] : names)
    out->tensors_[name] = {.type = tensors[i].type, .shape = tensors[i].shape, .bytes = places[i]};
  return out;
}

}  // namespace hadal::weights
