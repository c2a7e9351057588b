#include <cmath>

#include "base/core/check.h"
#include "compute/formats/elements.h"
#include "conformance/op_cases.h"

namespace hadal::test {

constexpr uint64_t kScratch = 64 << 20;

Bench::Bench(ops::Backend& backend, const std::vector<Output>* reference)
    : backend_(backend), reference_(reference) {
  auto stream = backend.device().make_stream();
  HADAL_CHECK(stream.has_value(), "stream");
  stream_ = std::move(stream).value();
}

void* Bench::bytes(uint64_t n) {
  auto buffer = backend_.device().allocate(n, device::Memory::kDevice);
  HADAL_CHECK(buffer.has_value(), "device memory");
  buffers_.push_back(std::move(buffer).value());
  return buffers_.back().data();
}

ops::Ops::Scratch Bench::scratch() {
  return {static_cast<std::byte*>(bytes(kScratch)), kScratch};
}

void Bench::read(Output& out, void* from) {
  backend_.device().copy(*stream_, out.bytes.data(), from, out.bytes.size());
  sync();
  const size_t i = n_read_++;
  if (reference_ == nullptr || i >= reference_->size()) return;
  const std::vector<std::byte>& want = (*reference_)[i].bytes;
  HADAL_CHECK(want.size() == out.bytes.size(), "an output of another size than the reference's");
  backend_.device().copy(*stream_, from, want.data(), want.size());
  sync();
}

void Bench::sync() {
  HADAL_CHECK(stream_->synchronize().has_value(), "device");
}

float Draw::normal() {  // sum of twelve uniform draws
  float sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<float>(bits() >> 8) * 0x1p-24f;
  return sum;
}

std::vector<float> Draw::f32(int64_t n, float scale) {
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = normal() * scale;
  return v;
}

std::vector<uint16_t> Draw::bf16(int64_t n, float scale, float shift) {
  std::vector<uint16_t> v(static_cast<size_t>(n));
  for (uint16_t& x : v) x = formats::bf16_from_float(normal() * scale + shift);
  return v;
}

std::vector<uint8_t> Draw::e4m3(int64_t n) {
  std::vector<uint8_t> v(static_cast<size_t>(n));
  for (uint8_t& x : v) x = formats::e4m3_from_float(normal() * 40);
  return v;
}

std::vector<uint8_t> Draw::any_bytes(int64_t n) {
  std::vector<uint8_t> v(static_cast<size_t>(n));
  for (uint8_t& x : v) x = static_cast<uint8_t>(bits());
  return v;
}

std::vector<uint8_t> Draw::scales(int64_t n, uint8_t around) {
  std::vector<uint8_t> v(static_cast<size_t>(n));
  for (uint8_t& x : v) x = static_cast<uint8_t>(around + bits() % 3);
  return v;
}

}  // namespace hadal::test
