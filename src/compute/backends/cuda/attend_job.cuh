#pragma once

#include "compute/backends/cuda/cache_rows.cuh"

namespace hadal::cuda {

inline constexpr int kBlockPlaces = 64;  // keys share a running maximum by blocks of this many

// An attention launch as plain values.
struct AttendJob {
  StepView step;
  SourceView source;  // meaningless without has_source
  const uint8_t* slots;
  int64_t slot_bytes;
  int64_t ring_offset;  // of this layer's ring in a slot
  int32_t ring_tokens;
  int32_t window_bytes;
  const uint8_t* latents;
  int64_t latent_stride;
  const int32_t* list;
  int64_t list_stride;
  const int32_t* n_list;
  const uint16_t* q;
  int64_t q_stride;
  const float* sink;
  const float* rope;
  uint16_t* o;
  int64_t o_stride;
  int32_t n_rows, n_heads, d_head, d_rope, window;
  float scale;  // d_head^-0.5
  bool upper, has_source;
  bool overlap;  // async_copy.cuh
};

// One row's keys by place: the window's positions oldest first, then from place `window` on the
// listed entries.
struct RowKeys {
  const AttendJob& job;
  const ops::BatchSeq& seq;
  int position, first, floor;
  int n_list;
  const int32_t* list;

  __device__ RowKeys(const AttendJob& j, int row) : job(j), seq(j.step.seq(row)) {
    position = j.step.positions[row];
    first = max(position - j.window + 1, 0);
    floor = j.upper ? seq.upper_floor : seq.window_floor;
    n_list = j.has_source ? j.n_list[row] : 0;
    list = j.list + row * j.list_stride;
  }

  __device__ int n_places() const {
    return n_list > 0 ? job.window + n_list : position - first + 1;
  }
  __device__ bool is_window(int place) const { return place < job.window; }
  __device__ const uint8_t* entry(int number) const {
    return job.source.entry(job.step.tables + seq.table_offset, number);
  }
  // The record at a place, or null if nothing is there.
  __device__ const uint8_t* record(int place) const {
    if (place >= job.window) {
      const int i = place - job.window;
      if (i >= n_list) return nullptr;
      return entry(list[i]);
    }
    const int q = first + place;
    if (q > position || q < floor) return nullptr;
    if (q < seq.first_position)
      return job.slots + seq.slot * job.slot_bytes + job.ring_offset +
             static_cast<int64_t>(q % job.ring_tokens) * job.window_bytes;
    return job.latents + static_cast<int64_t>(job.step.row_at(seq, q)) * job.latent_stride;
  }
};

}  // namespace hadal::cuda
