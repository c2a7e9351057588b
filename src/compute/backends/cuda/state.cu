#include "compute/backends/cuda/cache_rows.cuh"
#include "compute/backends/cuda/scratch.h"
#include "compute/backends/cuda/state.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxSources = 16;
constexpr int kMaxHistory = 16;
constexpr int32_t kDead = -1;  // an image token, or a place before the start

struct GroupPart {
  int32_t ratio;
  int64_t offset;  // in a slot
};

struct CommitJob {
  StepView step;
  const int32_t* ids;
  const uint8_t* image;
  const int32_t* n_accepted;
  const int32_t* n_latent;
  const uint8_t* latents;
  int64_t row_capacity;
  const float* const* groups;
  const int32_t* token_map;
  uint8_t* slots;
  int64_t slot_bytes, ring_offset, ring_bytes, window_bytes;
  int32_t ring_tokens, n_history, d_head, n_sources;
  GroupPart sources[kMaxSources];
};

// Compressed id of the token at `position`; reads the slot's history for places before the step.
__device__ int32_t history_at(const CommitJob& job, const ops::BatchSeq& seq, const int32_t* header,
                              int position) {
  if (position < 0) return kDead;
  if (position < seq.first_position) {
    const int back = seq.first_position - position;
    return back <= job.n_history ? header[1 + job.n_history - back] : kDead;
  }
  const int row = job.step.row_at(seq, position);
  return job.image[row] != 0 ? kDead : job.token_map[job.ids[row]];
}

template <class Word>
__device__ void copy_ring(const CommitJob& job, const ops::BatchSeq& seq, uint8_t* slot, int layer,
                          int end) {
  uint8_t* ring = slot + job.ring_offset + layer * job.ring_bytes;
  const uint8_t* latents = job.latents + layer * job.row_capacity * job.window_bytes;
  const int words = static_cast<int>(job.window_bytes / static_cast<int64_t>(sizeof(Word)));
  const int first = max(seq.first_position, end - job.ring_tokens);
  for (int i = static_cast<int>(threadIdx.x); i < (end - first) * words; i += kThreads) {
    const int p = first + i / words, word = i % words;
    const int row = job.step.row_at(seq, p);
    if (row >= job.n_latent[layer]) continue;
    reinterpret_cast<Word*>(ring + p % job.ring_tokens * job.window_bytes)[word] =
        reinterpret_cast<const Word*>(latents + row * job.window_bytes)[word];
  }
}

__device__ void copy_groups(const CommitJob& job, const ops::BatchSeq& seq, uint8_t* slot,
                            int end) {
  const int width = 2 * job.d_head;
  for (int s = 0; s < job.n_sources; ++s) {
    const int ratio = job.sources[s].ratio;
    for (int p = max(end - end % ratio, seq.first_position); p < end; ++p) {
      auto* to = reinterpret_cast<float*>(slot + job.sources[s].offset) + p % ratio * width;
      const float* from = job.groups[s] + static_cast<int64_t>(job.step.row_at(seq, p)) * width;
      for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) to[i] = from[i];
    }
  }
}

// Block (layer, sequence); that of layer 0 also writes what is not per layer.
template <class Word>
__global__ void commit_kernel(const __grid_constant__ CommitJob job) {
  const int layer = static_cast<int>(blockIdx.x);
  const ops::BatchSeq seq = job.step.seqs[blockIdx.y];
  const int accepted = job.n_accepted[blockIdx.y];
  if (accepted == 0) return;
  uint8_t* slot = job.slots + seq.slot * job.slot_bytes;
  const int end = seq.first_position + accepted;
  copy_ring<Word>(job, seq, slot, layer, end);
  if (layer != 0) return;
  copy_groups(job, seq, slot, end);
  auto* header = reinterpret_cast<int32_t*>(slot);
  const int h = static_cast<int>(threadIdx.x);
  const int32_t fresh =
      h < job.n_history ? history_at(job, seq, header, end - job.n_history + h) : 0;
  __syncthreads();  // the old history is read
  if (h < job.n_history) header[1 + h] = fresh;
  if (h == 0) header[0] = end;
}

}  // namespace

void launch_commit(const ops::CommitArgs& args, const Gpu&, cudaStream_t stream) {
  const ops::StepRows& rows = *args.rows;
  const ops::SlotLayout& slot = *args.slot;
  if (rows.n_seqs == 0 || slot.n_ring_layers == 0) return;
  HADAL_CHECK(slot.n_history <= kMaxHistory, "n-grams longer than 17");
  HADAL_CHECK(args.layout->sources.size() <= kMaxSources, "more than 16 KV sources");
  CommitJob job{};
  job.step = step_view(rows);
  job.ids = rows.ids;
  job.image = rows.image;
  job.n_accepted = args.n_accepted;
  job.n_latent = args.n_latent;
  job.latents = args.latents;
  job.row_capacity = args.row_capacity;
  job.groups = args.groups;
  job.token_map = args.token_map;
  job.slots = reinterpret_cast<uint8_t*>(args.kv->slots);
  job.slot_bytes = slot.slot_bytes;
  job.ring_offset = slot.ring_offset;
  job.ring_bytes = slot.ring_bytes();
  job.window_bytes = slot.window_bytes;
  job.ring_tokens = slot.ring_tokens;
  job.n_history = slot.n_history;
  job.d_head = args.d_head;
  job.n_sources = static_cast<int32_t>(args.layout->sources.size());
  for (int s = 0; s < job.n_sources; ++s) {
    const ops::KvSource& source = args.layout->sources[static_cast<size_t>(s)];
    job.sources[s] = {source.ratio, source.group_offset};
  }
  const dim3 grid(static_cast<unsigned>(slot.n_ring_layers), static_cast<unsigned>(rows.n_seqs));
  const auto aligned =
      static_cast<uint64_t>(slot.slot_bytes | slot.ring_offset | slot.window_bytes) |
      reinterpret_cast<uint64_t>(args.kv->slots) | reinterpret_cast<uint64_t>(args.latents);
  if (aligned % 16 == 0)
    commit_kernel<uint4><<<grid, kThreads, 0, stream>>>(job);
  else
    commit_kernel<uint8_t><<<grid, kThreads, 0, stream>>>(job);
}

}  // namespace hadal::cuda
