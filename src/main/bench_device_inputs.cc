#include "main/bench_device_inputs.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace hadal::main {
namespace {

constexpr int32_t kHead = 512, kIndex = 128, kIndexHeads = 32, kHeads = 64, kWindow = 128;
constexpr int32_t kListed = 512, kBlockTokens = 128, kRope = 64;

}  // namespace

HostWeights::HostWeights(ops::WeightFormat format, int64_t n, int64_t k) {
  const bool fp4 = format == ops::WeightFormat::kFp4Row,
             fp8 = format == ops::WeightFormat::kFp8Tile;
  weight.resize(static_cast<size_t>(fp4 ? n * k / 2 : fp8 ? n * k : n * k * 2));
  if (fp8) scale.resize(static_cast<size_t>((n + 31) / 32 * ((k + 31) / 32)));
  if (fp4) scale.resize(static_cast<size_t>(n * k / 32));
  uint64_t state = 88172645463325252u;
  for (size_t i = 0; i < weight.size(); ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    auto b = static_cast<uint8_t>(state >> 24);
    // bf16: the high byte is a sign and an exponent near 2^-5; e4m3: no NaN.
    if (!fp4 && !fp8 && i % 2 == 1) b = static_cast<uint8_t>(0x3C | (b & 0x81));
    if (fp8 && (b & 127) == 127) b = 0x38;
    weight[i] = b;
  }
  for (size_t i = 0; i < scale.size(); ++i) scale[i] = static_cast<uint8_t>(114 + i * 7 % 6);
  source = {.format = format,
            .n = n,
            .k = k,
            .weight = weight.data(),
            .scale = scale.empty() ? nullptr : scale.data()};
}

DeviceInputs::DeviceInputs(ops::Backend& backend) : backend_(backend) {
  stream_ = must(backend.device().make_stream());
}

void DeviceInputs::sync() {
  const core::Status done = stream_->synchronize();
  HADAL_CHECK(done.has_value(), done.has_value() ? "" : done.error().message);
}

void DeviceInputs::release(size_t mark) {
  sync();
  while (buffers_.size() > mark) buffers_.pop_back();
}

std::byte* DeviceInputs::bytes(uint64_t n) {
  auto buffer = backend_.device().allocate(std::max<uint64_t>(n, 256), device::Memory::kDevice);
  HADAL_CHECK(buffer.has_value(), buffer.has_value() ? "" : buffer.error().message);
  buffers_.push_back(std::move(buffer).value());
  return buffers_.back().data();
}

void DeviceInputs::copy(void* to, const void* from, uint64_t n) {
  backend_.device().copy(*stream_, to, from, n);
  sync();
}

uint32_t DeviceInputs::bits() {
  state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
  return static_cast<uint32_t>(state_ >> 24);
}

std::vector<float> DeviceInputs::floats(int64_t n, float scale) {
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) {
    const float sum = static_cast<float>(bits() & 0xFFFF) + static_cast<float>(bits() & 0xFFFF) +
                      static_cast<float>(bits() & 0xFFFF);
    x = scale * (sum / 65536 - 1.5f) * 2;  // three uniform numbers: variance 1
  }
  return out;
}

uint16_t* DeviceInputs::bf16(int64_t n) {
  const std::vector<float> values = floats(std::min<int64_t>(n, 1 << 20), 1);
  std::vector<uint16_t> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) {
    uint32_t u = 0;
    std::memcpy(&u, &values[i % values.size()], 4);
    out[i] = static_cast<uint16_t>(u >> 16);
  }
  return put(out);
}

std::vector<int32_t> DeviceInputs::choices(int64_t rows, int32_t k, int64_t n) {
  std::vector<int32_t> out;
  for (int64_t t = 0; t < rows; ++t) {
    std::set<int32_t> chosen;
    while (static_cast<int32_t>(chosen.size()) < k)
      chosen.insert(static_cast<int32_t>(bits() % static_cast<uint64_t>(n)));
    out.insert(out.end(), chosen.begin(), chosen.end());
  }
  return out;
}

void AttentionInput::fill_slabs(DeviceInputs& in, uint32_t n_sequences, uint32_t blocks_each) {
  const ops::KvSource& s = layouts_.kv.sources[0];
  const auto slab = static_cast<size_t>(layouts_.kv.slab_bytes);
  std::vector<uint8_t> host(slab * blocks_each);
  for (uint8_t& b : host) b = static_cast<uint8_t>(in.bits());
  for (uint32_t block = 0; block < blocks_each; ++block) {
    uint8_t* base = host.data() + slab * block;
    for (int64_t e = 0; e < s.n_entries; ++e) {
      // E4M3 scales near 2^-3, E8M0 scales near 2^-1.
      uint8_t* scales = base + s.entry_offset + e * s.entry_bytes + kHead / 2;
      for (int i = 0; i < kHead / 16; ++i) scales[i] = static_cast<uint8_t>(0x20 | (scales[i] & 7));
      uint8_t* key_scales = base + s.key_scale_offset + e * s.key_scale_bytes;
      for (int64_t i = 0; i < s.key_scale_bytes; ++i)
        key_scales[i] = static_cast<uint8_t>(125 + (key_scales[i] & 1));
    }
  }
  kv_.n_blocks = n_sequences * blocks_each;
  kv_.slabs = in.room<std::byte>(static_cast<int64_t>(slab * kv_.n_blocks));
  in.copy(kv_.slabs, host.data(), host.size());
  for (uint32_t i = 1; i < n_sequences; ++i)
    in.copy(kv_.slabs + i * host.size(), kv_.slabs, host.size());
}

AttentionInput::AttentionInput(DeviceInputs& in, int32_t rows, int32_t context, bool one_sequence) {
  ops::KvShape shape;
  shape.n_layers = 1;
  shape.window = kWindow;
  shape.d_head = kHead;
  shape.d_index = kIndex;
  shape.source_layers = {0};
  shape.source_ratios = {1};
  layouts_ = ops::make_kv_layouts(shape, kBlockTokens);
  const auto n_sequences = static_cast<uint32_t>(one_sequence ? 1 : rows);
  const auto blocks_each = static_cast<uint32_t>(context / kBlockTokens);
  fill_slabs(in, n_sequences, blocks_each);
  kv_.n_slots = n_sequences;
  const int64_t slot_bytes = layouts_.slot.slot_bytes;
  std::vector<uint8_t> slot(static_cast<size_t>(slot_bytes), 0x30);  // codes and scales of rings
  const int32_t per_sequence = one_sequence ? rows : 1, first = context - per_sequence;
  std::memcpy(slot.data(), &first, 4);
  for (int64_t at = layouts_.slot.ring_offset; at < slot_bytes; ++at) {
    const int64_t in_record = (at - layouts_.slot.ring_offset) % layouts_.slot.window_bytes;
    slot[static_cast<size_t>(at)] =
        static_cast<uint8_t>(in_record < kHead ? 0x28 | (in.bits() & 0x87) : 120 + (in.bits() & 3));
  }
  kv_.slots = in.room<std::byte>(slot_bytes * static_cast<int64_t>(n_sequences));
  for (uint32_t i = 0; i < n_sequences; ++i)
    in.copy(kv_.slots + i * static_cast<size_t>(slot_bytes), slot.data(), slot.size());

  const std::vector<int32_t> ids(static_cast<size_t>(per_sequence), 1);
  std::vector<std::vector<uint32_t>> blocks(n_sequences);
  std::vector<ops::SeqChunk> chunks;
  for (uint32_t i = 0; i < n_sequences; ++i) {
    for (uint32_t b = 0; b < blocks_each; ++b) blocks[i].push_back(i * blocks_each + b);
    chunks.push_back({.slot = i, .position = first, .ids = ids, .blocks = blocks[i]});
  }
  ops::build_step_batch({.n_layers = 1, .window = kWindow, .split = 1}, chunks, batch_);
  rows_ = {.n_rows = batch_.n_rows(),
           .n_seqs = batch_.n_seqs(),
           .max_end = batch_.max_end,
           .ids = in.put(batch_.ids),
           .positions = in.put(batch_.positions),
           .seq_of = in.put(batch_.seq_of),
           .image = in.put(batch_.image),
           .row_of = in.put(batch_.row_of),
           .seqs = in.put(batch_.seqs),
           .tables = in.put(batch_.tables)};

  const int64_t n = rows, keys = kIndexHeads * ops::key_record_bytes(kIndex);
  std::vector<uint8_t> iq(static_cast<size_t>(n * keys));
  for (size_t i = 0; i < iq.size(); ++i) {
    const auto in_record = static_cast<int64_t>(i) % ops::key_record_bytes(kIndex);
    iq[i] = static_cast<uint8_t>(in_record < kIndex / 2 ? in.bits() : 125 + (in.bits() & 1));
  }
  index_.rows = &rows_;
  index_.n_rows = rows;
  index_.kv = &kv_;
  index_.layout = &layouts_.kv;
  index_.n_heads = kIndexHeads;
  index_.d_index = kIndex;
  index_.iq = {in.put(iq), n, keys};
  index_.hw = {in.put(in.floats(n * kIndexHeads, 0.1f)), n, kIndexHeads};
  index_.top_k = kListed;
  index_.list = {in.room<int32_t>(n * kListed), n, kListed};
  index_.n_list = in.room<int32_t>(n);

  const int64_t record = layouts_.slot.window_bytes;
  std::vector<uint8_t> latents(static_cast<size_t>(n * record));
  for (size_t i = 0; i < latents.size(); ++i) {
    const int64_t in_record = static_cast<int64_t>(i) % record;
    latents[i] =
        static_cast<uint8_t>(in_record < kHead ? 0x28 | (in.bits() & 0x87) : 120 + (in.bits() & 3));
  }
  attend_.rows = &rows_;
  attend_.n_rows = rows;
  attend_.kv = &kv_;
  attend_.layout = &layouts_.kv;
  attend_.slot = &layouts_.slot;
  attend_.source = 0;
  attend_.window = kWindow;
  attend_.latents = {in.put(latents), n, record};
  attend_.list = index_.list;
  attend_.n_list = index_.n_list;
  attend_.q = {in.bf16(n * kHeads * kHead), n, kHeads * kHead};
  attend_.sink = in.put(in.floats(kHeads, 1));
  attend_.rope = in.put(in.floats(n * kRope, 0.5f));
  attend_.d_rope = kRope;
  attend_.d_head = kHead;
  attend_.o = {in.room<uint16_t>(n * kHeads * kHead), n, kHeads * kHead};
}

}  // namespace hadal::main
