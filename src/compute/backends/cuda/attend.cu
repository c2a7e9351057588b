#include <cmath>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/attend.h"
#include "compute/backends/cuda/attend_hopper.h"
#include "compute/backends/cuda/attend_job.cuh"
#include "compute/backends/cuda/elements.cuh"

// The form for any shape: one block does one row and up to eight heads, key block after key block.
namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kHeads = 8;

struct Shared {
  float* q;        // [kHeads][d]
  float* out;      // [kHeads][d]
  float* score;    // [kHeads][64]
  float* max;      // [kHeads]
  float* den;      // [kHeads]
  float* fade;     // [kHeads]
  uint16_t* keys;  // [64][d + 2]: the padding spreads a column over the banks
};

size_t shared_bytes(int d) {
  return static_cast<size_t>(2 * kHeads * d + kHeads * kBlockPlaces + 3 * kHeads) * 4 +
         static_cast<size_t>(kBlockPlaces * (d + 2)) * 2;
}

__device__ Shared carve(float* memory, int d) {
  Shared s;
  s.q = memory;
  s.out = s.q + kHeads * d;
  s.score = s.out + kHeads * d;
  s.max = s.score + kHeads * kBlockPlaces;
  s.den = s.max + kHeads;
  s.fade = s.den + kHeads;
  s.keys = reinterpret_cast<uint16_t*>(s.fade + kHeads);
  return s;
}

// Channel c of a record as bf16: exact.
__device__ uint16_t decoded(const uint8_t* record, bool window, int d, int c) {
  const float v = window ? e4m3_to_float(record[c]) * e8m0_to_float(record[d + c / 32])
                         : e2m1_to_float(record[c / 2] >> (c % 2 * 4) & 15u) *
                               e4m3_to_float(record[d / 2 + c / 16]);
  return static_cast<uint16_t>(__float_as_uint(v) >> 16);
}

// Fills s.keys with a block's keys, one warp a key; returns in every thread which are there.
__device__ uint64_t load_keys(const RowKeys& row, int block, const Shared& s, uint64_t* there) {
  const int d = row.job.d_head;
  if (threadIdx.x == 0) *there = 0;
  __syncthreads();
  for (int k = static_cast<int>(threadIdx.x) / 32; k < kBlockPlaces; k += kWarps) {
    const int place = block * kBlockPlaces + k;
    const uint8_t* record = row.record(place);
    if (record != nullptr && threadIdx.x % 32 == 0)
      atomicOr(reinterpret_cast<unsigned long long*>(there), 1ull << k);
    for (int c = static_cast<int>(threadIdx.x) % 32; c < d; c += 32)
      s.keys[k * (d + 2) + c] =
          record != nullptr ? decoded(record, row.is_window(place), d, c) : uint16_t{0};
  }
  __syncthreads();
  return *there;
}

__device__ void score_block(const Shared& s, int d, float scale, uint64_t there) {
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * kBlockPlaces; i += kThreads) {
    const int h = i / kBlockPlaces, k = i % kBlockPlaces;
    float sum = 0;
    const uint16_t* key = s.keys + k * (d + 2);
    for (int c = 0; c < d; c += 2) {
      const uint32_t pair = *reinterpret_cast<const uint32_t*>(key + c);
      sum = fmaf(s.q[h * d + c], bf16_low(pair), sum);
      sum = fmaf(s.q[h * d + c + 1], bf16_high(pair), sum);
    }
    s.score[i] = (there >> k & 1) != 0 ? sum * scale : -INFINITY;
  }
}

// Softmax weights of the block against the maximum so far, rounded to bf16; a warp has one head.
__device__ void weigh_block(const Shared& s) {
  const int h = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float* score = s.score + h * kBlockPlaces;
  const float a = score[lane], b = score[lane + 32];
  const float now = fmaxf(s.max[h], group_max<32>(fmaxf(a, b)));
  const auto pa = static_cast<float>(exp_f64(a - now));
  const auto pb = static_cast<float>(exp_f64(b - now));
  const float sum = warp_sum32(32, [&](int) { return pa + pb; });
  score[lane] = snap_bf16(pa);
  score[lane + 32] = snap_bf16(pb);
  __syncwarp();
  if (lane == 0) {
    s.fade[h] = static_cast<float>(exp_f64(s.max[h] - now));
    s.den[h] = s.den[h] * s.fade[h] + sum;
    s.max[h] = now;
  }
}

__device__ void mix_block(const Shared& s, int d) {
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * d; i += kThreads) {
    const int h = i / d, c = i % d;
    float sum = 0;
    for (int k = 0; k < kBlockPlaces; ++k)
      sum = fmaf(s.score[h * kBlockPlaces + k], bf16_to_float(s.keys[k * (d + 2) + c]), sum);
    s.out[i] = s.out[i] * s.fade[h] + sum;
  }
}

__global__ void __launch_bounds__(kThreads) attend_kernel(const __grid_constant__ AttendJob job) {
  extern __shared__ float memory[];
  __shared__ uint64_t there;
  follow_previous(job.overlap);
  const int row = static_cast<int>(blockIdx.x), h0 = static_cast<int>(blockIdx.y) * kHeads;
  const int d = job.d_head, n = min(kHeads, job.n_heads - h0);
  const Shared s = carve(memory, d);
  const uint16_t* q = job.q + row * job.q_stride + static_cast<int64_t>(h0) * d;
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * d; i += kThreads) {
    s.q[i] = i < n * d ? bf16_to_float(q[i]) : 0.0f;
    s.out[i] = 0;
  }
  if (threadIdx.x < kHeads) {
    s.max[threadIdx.x] = -1e30f;
    s.den[threadIdx.x] = 0;
  }
  const RowKeys keys(job, row);
  const int blocks = (keys.n_places() + kBlockPlaces - 1) / kBlockPlaces;
  bool any = false;
  for (int b = 0; b < blocks; ++b) {
    const uint64_t found = load_keys(keys, b, s, &there);
    if (found == 0) {
      __syncthreads();  // all have read it before it is cleared
      continue;
    }
    any = true;
    score_block(s, d, job.scale, found);
    __syncthreads();
    weigh_block(s);
    __syncthreads();
    mix_block(s, d);
    __syncthreads();
  }
  __syncthreads();
  uint16_t* o = job.o + row * job.o_stride + static_cast<int64_t>(h0) * d;
  const float* angles = job.rope + static_cast<int64_t>(row) * job.d_rope;
  for (int i = static_cast<int>(threadIdx.x) * 2; i < n * d; i += 2 * kThreads) {
    const int h = i / d, at = i % d - (d - job.d_rope);
    const float den = s.den[h] + static_cast<float>(exp_f64(job.sink[h0 + h] - s.max[h]));
    float x0 = any ? snap_bf16(__fdiv_rn(s.out[i], den)) : 0.0f;
    float x1 = any ? snap_bf16(__fdiv_rn(s.out[i + 1], den)) : 0.0f;
    if (at >= 0) {  // back by the row's own angles
      const float c = angles[at], sine = -angles[at + 1], x = x0;
      x0 = x * c - x1 * sine;
      x1 = x * sine + x1 * c;
    }
    *reinterpret_cast<uint32_t*>(o + i) = bf16_pair(x0, x1);
  }
}

AttendJob job_of(const ops::AttendArgs& args, const Gpu& gpu) {
  AttendJob job{};
  job.overlap = gpu.overlap;
  job.step = step_view(*args.rows);
  job.has_source = args.source >= 0;
  if (job.has_source) job.source = source_view(*args.kv, *args.layout, args.source);
  job.slots = reinterpret_cast<const uint8_t*>(args.kv->slots);
  job.slot_bytes = args.slot->slot_bytes;
  job.ring_offset = args.slot->ring_offset + args.ring_layer * args.slot->ring_bytes();
  job.ring_tokens = args.slot->ring_tokens;
  job.window_bytes = static_cast<int32_t>(args.slot->window_bytes);
  job.latents = args.latents.data;
  job.latent_stride = args.latents.stride;
  job.list = args.list.data;
  job.list_stride = args.list.stride;
  job.n_list = args.n_list;
  job.q = args.q.data;
  job.q_stride = args.q.stride;
  job.sink = args.sink;
  job.rope = args.rope;
  job.o = args.o.data;
  job.o_stride = args.o.stride;
  job.n_rows = args.n_rows;
  job.n_heads = static_cast<int32_t>(args.q.n_cols / args.d_head);
  job.d_head = args.d_head;
  job.d_rope = args.d_rope;
  job.window = args.window;
  job.scale = 1.0f / std::sqrt(static_cast<float>(args.d_head));
  job.upper = args.upper;
  return job;
}

}  // namespace

uint64_t sparse_attend_scratch_bytes(const ops::Ops::Limits&) {
  return 0;
}

void launch_sparse_attend(const ops::AttendArgs& args, ops::Ops::Scratch, const Gpu& gpu,
                          cudaStream_t stream) {
  if (args.n_rows == 0) return;
  const AttendJob job = job_of(args, gpu);
  const auto listed = args.source >= 0 ? static_cast<int>(args.list.n_cols) : 0;
  if (attend_hopper_takes(job, args.window + listed, gpu)) {
    if (attend_cluster_takes(job, args.window + listed, gpu))
      return launch_attend_cluster(job, stream);
    return launch_attend_hopper(job, gpu, stream);
  }
  const size_t bytes = shared_bytes(args.d_head);
  HADAL_CHECK(args.d_head % 32 == 0 && bytes <= gpu.smem_optin, "sparse_attend: head width");
  cudaFuncSetAttribute(attend_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(bytes));
  const dim3 grid(static_cast<unsigned>(args.n_rows),
                  static_cast<unsigned>((job.n_heads + kHeads - 1) / kHeads));
  launch_following(job.overlap, 1, attend_kernel, grid, dim3(kThreads), bytes, stream, job);
}

}  // namespace hadal::cuda
