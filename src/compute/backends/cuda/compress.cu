#include <algorithm>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/cache_rows.cuh"
#include "compute/backends/cuda/channels.cuh"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/kv_write.h"
#include "compute/backends/cuda/linear.h"
#include "compute/backends/cuda/scratch.h"

// Entries and index keys of a KV source (docs/model.md 3.5 and 3.6).
namespace hadal::cuda {
namespace {

constexpr int kMaxThreads = 1024;

__device__ float normed(uint16_t x, uint16_t weight, float factor) {
  return snap_bf16(bf16_to_float(weight) * (bf16_to_float(x) * factor));
}

// Channel `i` of a vector of n whose last d_rope channels rotate by adjacent pairs; neighbouring
// lanes hold neighbouring channels, the even one in the even lane. All lanes of the warp take part.
__device__ float rotated(float x, int i, int n, int d_rope, const float* angles) {
  const float other = __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  const int at = i - (n - d_rope);
  if (at < 0) return x;
  const float c = angles[at & ~1], s = angles[at | 1];
  return snap_bf16((at & 1) == 0 ? x * c - other * s : other * s + x * c);
}

// Stores the pair of codes of two neighbouring lanes as a byte.
__device__ void store_pair(uint8_t* codes, int i, uint32_t code) {
  const uint32_t high = __shfl_down_sync(0xFFFFFFFFu, code, 1);
  if (i % 2 == 0) codes[i / 2] = static_cast<uint8_t>(code | high << 4);
}

struct CompressJob {
  StepView step;
  SourceView source;
  const float* vg;
  int64_t vg_stride;
  const uint8_t* slots;
  int64_t slot_bytes;
  int64_t group_offset;
  const uint16_t* norm;
  const uint16_t* k_norm;
  const float* rope;
  uint16_t* latent;  // [T, d_head]
  uint16_t* key;     // [T, d_index]
  int32_t d_head, d_index, d_rope;
  float eps;
  bool overlap;
};

// True if the token at position p of `seq` ends a group whose entry is to be written.
__device__ bool ends_group(const CompressJob& job, const ops::BatchSeq& seq, int p) {
  return (p + 1) % job.source.ratio == 0 && p >= seq.write_from;
}

constexpr int kMaxRatio = 8;

// Where member m of the group that ends at row t of `seq` lies: in this step's rows, or in the open
// group of the sequence's slot.
__device__ const float* member(const CompressJob& job, const ops::BatchSeq& seq, int t, int p,
                               int m) {
  const int back = job.source.ratio - 1 - m, q = p - back;
  if (q < seq.first_position) {
    const uint8_t* open = job.slots + seq.slot * job.slot_bytes + job.group_offset;
    return reinterpret_cast<const float*>(open) + static_cast<int64_t>(m) * 2 * job.d_head;
  }
  return job.vg + (back == 0 ? t : job.step.row_at(seq, q)) * job.vg_stride;
}

// Channel c of the softmax-weighted mean of a group, per channel.
__device__ float pooled(const CompressJob& job, const ops::BatchSeq& seq, int t, int p, int c) {
  float value[kMaxRatio], gate[kMaxRatio];
#pragma unroll
  for (int m = 0; m < kMaxRatio; ++m) {
    if (m >= job.source.ratio) break;
    const float* from = member(job, seq, t, p, m);
    value[m] = from[c];
    gate[m] = from[job.d_head + c];
  }
  float top = gate[0], e[kMaxRatio], sum = 0;
#pragma unroll
  for (int m = 1; m < kMaxRatio; ++m) {
    if (m >= job.source.ratio) break;
    top = gate[m] > top ? gate[m] : top;
  }
#pragma unroll
  for (int m = 0; m < kMaxRatio; ++m) {
    if (m >= job.source.ratio) break;
    e[m] = static_cast<float>(exp_f64(gate[m] - top));
    sum = sum + e[m];
  }
  float out = __fdiv_rn(e[0], sum) * value[0];
#pragma unroll
  for (int m = 1; m < kMaxRatio; ++m) {
    if (m >= job.source.ratio) break;
    out = out + __fdiv_rn(e[m], sum) * value[m];
  }
  return out;
}

// The latents before rotation. Rows that end no group give zeros, which nobody reads.
__global__ void __launch_bounds__(kMaxThreads, 1) group_kernel(const CompressJob job) {
  extern __shared__ __align__(16) float squares[];  // [d_head], then the values
  float* values = squares + job.d_head;
  const int me = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  expect_weights(job.overlap, job.norm, job.d_head * 2);
  follow_previous(job.overlap);
  const int t = static_cast<int>(blockIdx.x), p = job.step.positions[t];
  const ops::BatchSeq& seq = job.step.seq(t);
  uint16_t* out = job.latent + static_cast<int64_t>(t) * job.d_head;
  if (!ends_group(job, seq, p)) {
    for (int c = me; c < job.d_head; c += threads) out[c] = 0;
    return;
  }
  uint16_t weight = 0;
  for (int c = me; c < job.d_head; c += threads) {
    weight = job.norm[c];
    const float v = snap_bf16(job.source.ratio == 1 ? job.vg[t * job.vg_stride + c]
                                                    : pooled(job, seq, t, p, c));
    values[c] = v;
    squares[c] = v * v;
  }
  __syncthreads();
  const float factor = rms_factor(sum_terms(squares, job.d_head), job.d_head, job.eps);
  for (int c = me; c < job.d_head; c += threads) {
    if (threads < job.d_head) weight = job.norm[c];
    out[c] = bf16_from_float(bf16_to_float(weight) * (values[c] * factor));
  }
}

// Rotates, quantises and stores the entry and its index key: a warp has 32 channels of either.
__global__ void __launch_bounds__(kMaxThreads, 1) entry_kernel(const CompressJob job) {
  expect_weights(job.overlap, job.k_norm, job.d_index * 2);
  follow_previous(job.overlap);
  const int t = static_cast<int>(blockIdx.x), p = job.step.positions[t];
  const ops::BatchSeq& seq = job.step.seq(t);
  if (!ends_group(job, seq, p)) return;
  const float* angles = job.rope + static_cast<int64_t>(t) * job.d_rope;
  const int entry = p / job.source.ratio;
  const uint32_t* table = job.step.tables + seq.table_offset;
  const int lane = static_cast<int>(threadIdx.x) % 32, of_latent = job.d_head / 32;
  for (int w = static_cast<int>(threadIdx.x) / 32; w < of_latent + job.d_index / 32;
       w += static_cast<int>(blockDim.x) / 32) {
    if (w < of_latent) {
      const int i = 32 * w + lane;
      uint8_t* record = job.source.entry(table, entry);
      const float x = bf16_to_float(job.latent[static_cast<int64_t>(t) * job.d_head + i]);
      const float v = rotated(x, i, job.d_head, job.d_rope, angles);
      const uint8_t scale = fq4e4_scale(group_max<16>(fabsf(v)));
      store_pair(record, i, fq4e4_code(v, scale));
      if (i % 16 == 0) record[job.d_head / 2 + i / 16] = scale;
      continue;
    }
    const int g = w - of_latent, i = 32 * g + lane;
    uint8_t* codes = job.source.key_codes(table, entry);
    uint8_t* scales = job.source.key_scales(table, entry);
    const uint16_t* key = job.key + static_cast<int64_t>(t) * job.d_index;
    const float sum = warp_sum32(job.d_index, [&](int k) {
      const float v = bf16_to_float(key[k]);
      return v * v;
    });
    const float factor = rms_factor(sum, job.d_index, job.eps);
    const float v =
        rotated(normed(key[i], job.k_norm[i], factor), i, job.d_index, job.d_rope, angles);
    const uint32_t scale = fq4e8_scale(group_max<32>(fabsf(v)));
    store_pair(codes, i, fq4e8_code(v, scale));
    if (lane == 0) scales[g] = static_cast<uint8_t>(scale);
  }
}

}  // namespace

uint64_t compress_scratch_bytes(const ops::Ops::Limits& limits) {
  const auto rows = static_cast<uint64_t>(limits.max_rows);
  return scratch_padded(rows * static_cast<uint64_t>(limits.d_head) * 2) +
         scratch_padded(rows * static_cast<uint64_t>(limits.d_index) * 2);
}

void launch_compress(const ops::CompressArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                     cudaStream_t stream) {
  if (args.n_rows == 0) return;
  const ops::KvSource& source = args.layout->sources[static_cast<size_t>(args.source)];
  HADAL_CHECK(args.d_head % 32 == 0 && args.d_head <= 6144 && args.d_index % 32 == 0 &&
                  source.ratio <= kMaxRatio,
              "compress shapes");
  ScratchCutter cut(scratch);
  const int64_t n = args.n_rows;
  CompressJob job{};
  job.step = step_view(*args.rows);
  job.source = source_view(*args.kv, *args.layout, args.source);
  job.vg = args.vg.data;
  job.vg_stride = args.vg.stride;
  job.slots = reinterpret_cast<const uint8_t*>(args.kv->slots);
  job.slot_bytes = args.slot->slot_bytes;
  job.group_offset = source.group_offset;
  job.norm = args.norm;
  job.k_norm = args.k_norm;
  job.rope = args.rope;
  job.latent = cut.take<uint16_t>(n * args.d_head);
  job.key = cut.take<uint16_t>(n * args.d_index);
  job.d_head = args.d_head;
  job.d_index = args.d_index;
  job.d_rope = args.d_rope;
  job.eps = args.eps;
  job.overlap = gpu.overlap;
  const dim3 grid(static_cast<unsigned>(n));
  // A thread a channel where multiprocessors are idle; else fewer, that share what a row asks once.
  const bool few = n <= 2 * gpu.sm_count;
  const auto threads = [few](int most) {
    return dim3(static_cast<unsigned>(few ? std::min(most, kMaxThreads) : std::min(most, 128)));
  };
  launch_following(gpu.overlap, 1, group_kernel, grid, threads(args.d_head),
                   static_cast<size_t>(args.d_head) * 8, stream, job);
  ops::LinearArgs linear;
  linear.weight = args.wk;
  linear.x = {job.latent, n, args.d_head};
  linear.plain_input = true;
  linear.y = {job.key, n, args.d_index};
  launch_linear(linear, cut.rest(), gpu, stream);
  launch_following(gpu.overlap, 1, entry_kernel, grid, threads(args.d_head + args.d_index), 0,
                   stream, job);
}

}  // namespace hadal::cuda
