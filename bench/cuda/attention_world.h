#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <cuda_runtime.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/formats/quantise.h"
#include "compute/ops/step_batch.h"
#include "conformance/op_cases.h"

// Random caches, steps and arguments for the attention ops, the same on the host and on the GPU.
namespace hadal::test {

inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(2);
}

// An array with a copy on each side.
template <class T>
class Twin {
 public:
  explicit Twin(std::vector<T> host) : host_(std::move(host)) {
    must(cudaMalloc(&device_, std::max<size_t>(bytes(), 1)), "allocate");
    upload();
  }
  explicit Twin(int64_t n) : Twin(std::vector<T>(static_cast<size_t>(n))) {}
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;
  ~Twin() { cudaFree(device_); }
  void upload() {
    must(cudaMemcpy(device_, host_.data(), bytes(), cudaMemcpyHostToDevice), "upload");
  }
  std::vector<T> download() const {
    std::vector<T> out(host_.size());
    must(cudaMemcpy(out.data(), device_, bytes(), cudaMemcpyDeviceToHost), "download");
    return out;
  }
  // Every byte of the GPU's copy, so that what is not written shows.
  void poison() { must(cudaMemset(device_, 0xA5, bytes()), "poison"); }
  T* at(bool gpu) { return gpu ? device_ : host_.data(); }
  std::vector<T>& host() { return host_; }
  size_t bytes() const { return host_.size() * sizeof(T); }

 private:
  std::vector<T> host_;
  T* device_ = nullptr;
};

struct Dims {
  int32_t heads, d_head, d_rope, lora;
  int32_t index_heads, d_index, top_k;
  int32_t window, ring, ratio;
  int32_t pool_block, pool_blocks;
  int32_t block_tokens;
};
inline constexpr Dims kReleased{64, 512, 64, 1280, 32, 128, 512, 128, 133, 2, 8, 2048, 128};

struct SeqSpec {
  int32_t position;  // of the first row
  int32_t n_rows;
  int32_t window_floor = 0;
  int32_t write_from = 0;
};

// One layer's cache with a source, filled with valid records, and one step's rows.
struct World {
  Dims dims;
  Draw draw;
  bool rough;
  ops::KvLayouts layouts;
  std::unique_ptr<Twin<uint8_t>> slabs, slots;
  ops::StepBatch batch;
  std::vector<int32_t> ids;
  std::unique_ptr<Twin<int32_t>> t_ids, positions, seq_of, row_of;
  std::unique_ptr<Twin<uint8_t>> image;
  std::unique_ptr<Twin<ops::BatchSeq>> seqs;
  std::unique_ptr<Twin<uint32_t>> tables;

  // `n_blocks` slabs are dealt to the sequences in turn; more than there are: shared.
  // `rough`: some keys and queries have groups of very unlike scales.
  World(const Dims& d, const std::vector<SeqSpec>& specs, int32_t n_blocks, uint64_t seed,
        bool rough_scales = false)
      : dims(d), draw(seed), rough(rough_scales) {
    ops::KvShape shape;
    shape.n_layers = 1;
    shape.window = d.window;
    shape.ring_tokens = d.ring;
    shape.d_head = d.d_head;
    shape.d_index = d.d_index;
    shape.max_ngram = 4;
    shape.source_layers = {0};
    shape.source_ratios = {d.ratio};
    layouts = ops::make_kv_layouts(shape, d.block_tokens);
    fill_slabs(n_blocks);
    fill_slots(static_cast<int32_t>(specs.size()));
    make_batch(specs, n_blocks);
  }

  ops::KvView view(bool gpu) {
    ops::KvView v;
    v.slabs = reinterpret_cast<std::byte*>(slabs->at(gpu));
    v.slots = reinterpret_cast<std::byte*>(slots->at(gpu));
    v.n_blocks =
        static_cast<uint32_t>(slabs->bytes()) / static_cast<uint32_t>(layouts.kv.slab_bytes);
    v.n_slots = static_cast<uint32_t>(seqs->host().size());
    return v;
  }
  ops::StepRows rows(bool gpu) {
    ops::StepRows r;
    r.n_rows = batch.n_rows();
    r.n_seqs = batch.n_seqs();
    r.max_end = batch.max_end;
    r.ids = t_ids->at(gpu);
    r.positions = positions->at(gpu);
    r.seq_of = seq_of->at(gpu);
    r.row_of = row_of->at(gpu);
    r.image = image->at(gpu);
    r.seqs = seqs->at(gpu);
    r.tables = tables->at(gpu);
    return r;
  }
  std::vector<uint8_t> window_records(int64_t n) {
    const int64_t bytes = ops::window_record_bytes(dims.d_head);
    std::vector<uint8_t> out(static_cast<size_t>(n * bytes));
    for (int64_t i = 0; i < n; ++i)
      formats::pack_window(draw.bf16(dims.d_head).data(), dims.d_head, out.data() + i * bytes);
    return out;
  }
  std::vector<uint8_t> index_queries(int64_t n) {
    const int64_t bytes = ops::key_record_bytes(dims.d_index);
    std::vector<uint8_t> out(static_cast<size_t>(n * dims.index_heads * bytes));
    for (int64_t i = 0; i < n * dims.index_heads; ++i) {
      uint8_t* r = out.data() + i * bytes;
      formats::pack_key(draw.bf16(dims.d_index).data(), dims.d_index, r, r + dims.d_index / 2);
      if (rough && draw.bits() % 64 == 0) roughen(r + dims.d_index / 2);
    }
    return out;
  }

 private:
  // One group's scale of a record: up to 16 times as large or as small, or far away.
  void roughen(uint8_t* scales) {
    uint8_t& one = scales[draw.bits() % static_cast<uint32_t>(dims.d_index / 32)];
    const auto by = static_cast<int>(draw.bits() % 9) - 4;
    one = static_cast<uint8_t>(draw.bits() % 16 == 0 ? 127 + 12 * by : one + by);
  }

  // Records are drawn for 64 entries and varied by their place, which is quick.
  void fill_slabs(int32_t n_blocks) {
    const ops::KvSource& s = layouts.kv.sources[0];
    std::vector<uint8_t> host(static_cast<size_t>(n_blocks * layouts.kv.slab_bytes));
    constexpr int kDrawn = 64;
    std::vector<std::vector<uint8_t>> entry, key, scale;
    for (int i = 0; i < kDrawn; ++i) {
      entry.emplace_back(static_cast<size_t>(s.entry_bytes));
      formats::pack_entry(draw.bf16(dims.d_head).data(), dims.d_head, entry.back().data());
      key.emplace_back(static_cast<size_t>(s.key_code_bytes));
      scale.emplace_back(static_cast<size_t>(s.key_scale_bytes));
      formats::pack_key(draw.bf16(dims.d_index).data(), dims.d_index, key.back().data(),
                        scale.back().data());
    }
    for (int32_t b = 0; b < n_blocks; ++b) {
      uint8_t* slab = host.data() + b * layouts.kv.slab_bytes;
      for (int64_t e = 0; e < s.n_entries; ++e) {
        const size_t from = draw.bits() % kDrawn;
        uint8_t* to = slab + s.entry_offset + e * s.entry_bytes;
        std::copy(entry[from].begin(), entry[from].end(), to);
        uint8_t* codes = slab + s.key_offset + e * s.key_code_bytes;
        std::copy(key[from].begin(), key[from].end(), codes);
        for (int64_t i = 0; i < s.entry_bytes - dims.d_head / 16; i += 4)
          to[i] = static_cast<uint8_t>(to[i] ^ draw.bits());
        for (int64_t i = 0; i < s.key_code_bytes; i += 2)
          codes[i] = static_cast<uint8_t>(codes[i] ^ draw.bits());
        uint8_t* scales = slab + s.key_scale_offset + e * s.key_scale_bytes;
        std::copy(scale[from].begin(), scale[from].end(), scales);
        if (rough && draw.bits() % 97 == 0) roughen(scales);
      }
    }
    slabs = std::make_unique<Twin<uint8_t>>(std::move(host));
  }

  void fill_slots(int32_t n) {
    const ops::SlotLayout& s = layouts.slot;
    std::vector<uint8_t> host(static_cast<size_t>(n * s.slot_bytes));
    for (int32_t i = 0; i < n; ++i) {
      const std::vector<uint8_t> ring = window_records(s.ring_tokens);
      uint8_t* slot = host.data() + i * s.slot_bytes;
      std::copy(ring.begin(), ring.end(), slot + s.ring_offset);
      if (dims.ratio > 1) {
        const std::vector<float> group = draw.f32((dims.ratio - 1) * 2 * dims.d_head);
        std::copy_n(reinterpret_cast<const uint8_t*>(group.data()), group.size() * 4,
                    slot + layouts.kv.sources[0].group_offset);
      }
    }
    slots = std::make_unique<Twin<uint8_t>>(std::move(host));
  }

  void make_batch(const std::vector<SeqSpec>& specs, int32_t n_blocks) {
    int32_t longest = 0, most = 0;
    for (const SeqSpec& s : specs) {
      longest = std::max(longest, s.position + s.n_rows);
      most = std::max(most, s.n_rows);
    }
    for (int32_t i = 0; i < most; ++i) ids.push_back(static_cast<int32_t>(draw.bits() % 256));
    std::vector<std::vector<uint32_t>> blocks(specs.size());
    uint32_t next = 0;
    const auto per_seq = static_cast<size_t>(longest / dims.block_tokens + 1);
    for (auto& b : blocks)
      for (size_t i = 0; i < per_seq; ++i)
        b.push_back(next++ * 7919u % static_cast<uint32_t>(n_blocks));
    std::vector<ops::SeqChunk> chunks;
    for (size_t i = 0; i < specs.size(); ++i) {
      ops::SeqChunk c;
      c.slot = static_cast<uint32_t>(specs.size() - 1 - i);
      c.position = specs[i].position;
      c.ids = std::span<const int32_t>(ids).first(static_cast<size_t>(specs[i].n_rows));
      c.blocks = blocks[i];
      c.window_floor = specs[i].window_floor;
      c.write_from = specs[i].write_from;
      chunks.push_back(c);
    }
    build_step_batch({.n_layers = 1, .window = dims.window, .split = 1}, chunks, batch);
    t_ids = std::make_unique<Twin<int32_t>>(batch.ids);
    positions = std::make_unique<Twin<int32_t>>(batch.positions);
    seq_of = std::make_unique<Twin<int32_t>>(batch.seq_of);
    row_of = std::make_unique<Twin<int32_t>>(batch.row_of);
    image = std::make_unique<Twin<uint8_t>>(batch.image);
    seqs = std::make_unique<Twin<ops::BatchSeq>>(batch.seqs);
    tables = std::make_unique<Twin<uint32_t>>(batch.tables);
  }
};

}  // namespace hadal::test
