#include <algorithm>
#include <cmath>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/index.h"
#include "compute/backends/cuda/index_fast.h"
#include "compute/backends/cuda/index_job.cuh"
#include "compute/backends/cuda/scratch.h"

namespace hadal::cuda {
namespace {

constexpr int kScoreThreads = 128;         // a key each
constexpr uint64_t kRankBytes = 64 << 20;  // of a tile of rows; a single row may take more

// The e2m1 values times two of four nibbles (the lowest first) as signed bytes.
__device__ __forceinline__ uint32_t doubled(uint32_t nibbles) {
  const uint32_t magnitude = __byte_perm(0x03020100u, 0x0C080604u, nibbles & 0x7777u);
  const uint32_t negative = __byte_perm(0xFDFEFF00u, 0xF4F8FAFCu, nibbles & 0x7777u);
  uint32_t sign = (nibbles & 0x8u) << 4 | (nibbles & 0x80u) << 8 | (nibbles & 0x800u) << 12 |
                  (nibbles & 0x8000u) << 16;
  sign = sign >> 7 & 0x01010101u;
  sign *= 0xFFu;
  return (negative & sign) | (magnitude & ~sign);
}

// 16 bytes of key codes: at once where the layout allows it, else by the two that it always does.
__device__ __forceinline__ uint4 load_codes(const uint8_t* from, bool aligned) {
  if (aligned) return *reinterpret_cast<const uint4*>(from);
  const auto* part = reinterpret_cast<const uint16_t*>(from);
  const auto word = [&](int i) {
    return part[2 * i] | static_cast<uint32_t>(part[2 * i + 1]) << 16;
  };
  return {word(0), word(1), word(2), word(3)};
}

// Scores of a tile's rows: blockIdx.y is the row, blocks of x share its keys. kGroups bounds
// d_index / 32.
template <int kGroups>
__global__ void __launch_bounds__(kScoreThreads)
    score_kernel(const __grid_constant__ IndexJob job) {
  extern __shared__ uint32_t shared[];
  follow_previous(job.overlap);
  const int row = job.first_row + static_cast<int>(blockIdx.y);
  const Domain domain(job, row);
  if (trivial(job, row, domain)) return;
  const int groups = job.d_index / 32, words = job.d_index / 4;
  uint32_t* q = shared;                                               // [heads][words]
  auto* q_scale = reinterpret_cast<float*>(q + job.n_heads * words);  // [heads][groups]
  float* weight = q_scale + job.n_heads * groups;                     // [heads]
  const int record = job.d_index / 2 + groups;
  const uint8_t* iq = job.iq + row * job.iq_stride;
  for (int i = static_cast<int>(threadIdx.x); i < job.n_heads * words; i += kScoreThreads) {
    const uint8_t* pair = iq + i / words * record + i % words * 2;
    q[i] = doubled(pair[0] | static_cast<uint32_t>(pair[1]) << 8);
  }
  for (int i = static_cast<int>(threadIdx.x); i < job.n_heads * groups; i += kScoreThreads)
    q_scale[i] = e8m0_to_float(iq[i / groups * record + job.d_index / 2 + i % groups]) * 0.25f;
  for (int i = static_cast<int>(threadIdx.x); i < job.n_heads; i += kScoreThreads)
    weight[i] = snap_bf16(job.hw[row * job.hw_stride + i]);
  __syncthreads();
  const uint32_t* table = job.step.tables + job.step.seq(row).table_offset;
  uint32_t* ranks = job.ranks + blockIdx.y * job.stride;
  for (int i = static_cast<int>(blockIdx.x * kScoreThreads + threadIdx.x); i < domain.count;
       i += static_cast<int>(gridDim.x) * kScoreThreads) {
    const int entry = domain.entry(i);
    const auto* codes = job.source.key_codes(table, entry);
    const uint8_t* scales = job.source.key_scales(table, entry);
    uint32_t key[kGroups][8];
    float scale[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (g >= groups) break;
      scale[g] = e8m0_to_float(scales[g]);
      const uint4 raw = load_codes(codes + 16 * g, job.aligned);
      const uint32_t part[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        key[g][2 * w] = doubled(part[w] & 0xFFFFu);
        key[g][2 * w + 1] = doubled(part[w] >> 16);
      }
    }
    float total = 0;
    for (int h = 0; h < job.n_heads; ++h) {
      float dot = 0;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        if (g >= groups) break;
        int sum = 0;
#pragma unroll
        for (int w = 0; w < 8; ++w)
          sum =
              __dp4a(static_cast<int>(key[g][w]), static_cast<int>(q[h * words + 8 * g + w]), sum);
        dot = dot + static_cast<float>(sum) * (scale[g] * q_scale[h * groups + g]);
      }
      const float relu = dot > 0.0f ? dot : 0.0f;
      total = total + relu * weight[h];
    }
    ranks[i] = rank_of(total * job.constant);
  }
}

IndexJob job_of(const ops::IndexArgs& args, const Gpu& gpu) {
  IndexJob job{};
  job.overlap = gpu.overlap;
  job.step = step_view(*args.rows);
  job.source = source_view(*args.kv, *args.layout, args.source);
  job.iq = args.iq.data;
  job.iq_stride = args.iq.stride;
  job.hw = args.hw.data;
  job.hw_stride = args.hw.stride;
  job.list = args.list.data;
  job.list_stride = args.list.stride;
  job.n_list = args.n_list;
  job.pool = args.pool.data;
  job.pool_stride = args.pool.stride;
  job.n_pool = args.n_pool;
  job.n_heads = args.n_heads;
  job.d_index = args.d_index;
  job.top_k = args.top_k;
  job.pool_block = args.pool_block;
  job.pool_blocks = static_cast<int32_t>(args.pool.n_cols);
  job.constant =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.d_index) * args.n_heads));
  job.aligned = (job.source.key_offset | job.source.key_code_bytes | job.source.slab_bytes |
                 static_cast<int64_t>(reinterpret_cast<uintptr_t>(job.source.slabs))) %
                    16 ==
                0;
  job.make_pool = args.make_pool;
  job.use_pool = args.use_pool;
  return job;
}

template <int kGroups>
void launch_score(const IndexJob& job, int rows, const Gpu& gpu, cudaStream_t stream) {
  const int64_t chunks = (job.stride + kScoreThreads - 1) / kScoreThreads;
  const int64_t wanted = std::max<int64_t>(1, 8 * gpu.sm_count / rows);
  const dim3 grid(static_cast<unsigned>(std::min(chunks, wanted)), static_cast<unsigned>(rows));
  const int groups = job.d_index / 32;
  const auto shared = static_cast<size_t>(job.n_heads * (job.d_index / 4 + groups + 1)) * 4;
  launch_following(job.overlap, 1, score_kernel<kGroups>, grid, dim3(kScoreThreads), shared, stream,
                   job);
}

constexpr int64_t rank_stride(int64_t entries) {
  return (entries + 63) / 64 * 64;
}

// Ranks and tops of a row.
constexpr int64_t row_words(int64_t stride) {
  return stride + stride / kTopGroup;
}

}  // namespace

uint64_t index_select_scratch_bytes(const ops::Ops::Limits& limits) {
  const uint64_t row = static_cast<uint64_t>(row_words(rank_stride(limits.max_end))) * 4;
  return scratch_padded(
      std::max(row, std::min(kRankBytes, row * static_cast<uint64_t>(limits.max_rows))));
}

void launch_index_select(const ops::IndexArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                         cudaStream_t stream) {
  if (args.n_rows == 0) return;
  HADAL_CHECK(args.d_index % 32 == 0 && args.d_index <= 256, "index_select: index head width");
  IndexJob job = job_of(args, gpu);
  job.stride = std::max<int64_t>(rank_stride(args.rows->max_end / job.source.ratio), 64);
  const auto fit =
      static_cast<int64_t>(std::min(scratch.bytes, kRankBytes)) / (row_words(job.stride) * 4);
  const int64_t tile = std::min<int64_t>(std::clamp<int64_t>(fit, 1, 1024), args.n_rows);
  ScratchCutter cut(scratch);
  job.ranks = cut.take<uint32_t>(tile * row_words(job.stride));
  job.tops = job.ranks + tile * job.stride;
  const bool fast = index_mma_takes(job);
  for (int64_t first = 0; first < args.n_rows; first += tile) {
    const auto rows = static_cast<int>(std::min<int64_t>(tile, args.n_rows - first));
    job.first_row = static_cast<int32_t>(first);
    if (fast)
      launch_score_mma(job, rows, gpu, stream);
    else if (args.d_index <= 32)
      launch_score<1>(job, rows, gpu, stream);
    else if (args.d_index <= 128)
      launch_score<4>(job, rows, gpu, stream);
    else
      launch_score<8>(job, rows, gpu, stream);
    if (fast && index_pick_takes(job))
      launch_pick(job, rows, stream);
    else
      launch_select(job, rows, stream);
  }
}

}  // namespace hadal::cuda
