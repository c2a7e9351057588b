#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hadal::core {

using Sha256Digest = std::array<uint8_t, 32>;

// SHA-256 of bytes given in pieces. finish() gives the digest and starts anew, so that one object
// serves many short messages.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(const void* data, size_t size);
  Sha256Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hadal::core
