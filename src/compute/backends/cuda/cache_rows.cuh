#pragma once

#include <bit>

#include "compute/ops/ops.h"
#include "compute/ops/step_batch.h"

// How kernels find a row's sequence and its records in the cache: plain values taken from the host
// structs of an op's arguments at launch.
namespace hadal::cuda {

struct StepView {
  const int32_t* positions;
  const int32_t* seq_of;
  const int32_t* row_of;
  const ops::BatchSeq* seqs;
  const uint32_t* tables;

  __device__ const ops::BatchSeq& seq(int row) const { return seqs[seq_of[row]]; }
  // Row of this step that holds `position` of `seq`.
  __device__ int row_at(const ops::BatchSeq& seq, int position) const {
    return row_of[seq.first_index + position - seq.first_position];
  }
};

inline StepView step_view(const ops::StepRows& rows) {
  return {rows.positions, rows.seq_of, rows.row_of, rows.seqs, rows.tables};
}

// One KV source inside the slabs.
struct SourceView {
  uint8_t* slabs;
  int64_t slab_bytes;
  int32_t ratio;
  int32_t n_entries;  // per block
  int32_t shift;      // log2 of it, -1 if it is no power of two
  int32_t entry_bytes;
  int32_t key_code_bytes;
  int32_t key_scale_bytes;
  int64_t entry_offset;
  int64_t key_offset;
  int64_t key_scale_offset;

  __device__ int in_block(int entry) const {
    return shift >= 0 ? entry & (n_entries - 1) : entry % n_entries;
  }
  __device__ uint8_t* slab(const uint32_t* table, int entry) const {
    return slabs + static_cast<int64_t>(table[shift >= 0 ? entry >> shift : entry / n_entries]) *
                       slab_bytes;
  }
  __device__ uint8_t* entry(const uint32_t* table, int entry) const {
    return slab(table, entry) + entry_offset + static_cast<int64_t>(in_block(entry)) * entry_bytes;
  }
  __device__ uint8_t* key_codes(const uint32_t* table, int entry) const {
    return slab(table, entry) + key_offset + static_cast<int64_t>(in_block(entry)) * key_code_bytes;
  }
  __device__ uint8_t* key_scales(const uint32_t* table, int entry) const {
    return slab(table, entry) + key_scale_offset +
           static_cast<int64_t>(in_block(entry)) * key_scale_bytes;
  }
};

inline SourceView source_view(const ops::KvView& kv, const ops::KvLayout& layout, int32_t source) {
  const ops::KvSource& s = layout.sources[static_cast<size_t>(source)];
  const auto n = static_cast<uint32_t>(s.n_entries);
  const int32_t shift = std::has_single_bit(n) ? std::countr_zero(n) : -1;
  return {reinterpret_cast<uint8_t*>(kv.slabs),
          layout.slab_bytes,
          s.ratio,
          static_cast<int32_t>(s.n_entries),
          shift,
          static_cast<int32_t>(s.entry_bytes),
          static_cast<int32_t>(s.key_code_bytes),
          static_cast<int32_t>(s.key_scale_bytes),
          s.entry_offset,
          s.key_offset,
          s.key_scale_offset};
}

}  // namespace hadal::cuda
