#include <algorithm>

#include "compute/backends/cuda/sampler_draw.cuh"
#include "compute/backends/cuda/sampler_kernel.h"
#include "compute/backends/cuda/sampler_quick.cuh"
#include "compute/backends/cuda/sampler_stream.cuh"

// One cluster of blocks per row, each block a slice of the vocabulary. Rows that need no more than
// the largest value are read past; the others lie in shared memory and are worked on there. Steps
// and their order: engine/sampling/sampler.h.
namespace hadal::cuda {
namespace {

__host__ __device__ int32_t slice_tokens(int32_t n_vocab) {
  const int32_t each = (n_vocab + kSampleBlocks - 1) / kSampleBlocks;
  return (each + 3) / 4 * 4;
}

__device__ SampleBlock block_of(Exchange& exchange, float* values, const SampleArrays& a) {
  const int32_t each = slice_tokens(a.n_vocab), first = blockIdx.x % kSampleBlocks * each;
  return {.cluster = cooperative_groups::this_cluster(),
          .shared = exchange,
          .values = values,
          .n = max(0, min(each, a.n_vocab - first)),
          .first = first};
}

__global__ void __cluster_dims__(kSampleBlocks, 1, 1) __launch_bounds__(kStreamThreads, 4)
    stream_kernel(const __grid_constant__ SampleArrays a) {
  __shared__ StreamShared m;
  const SampleTerms& row = a.rows[blockIdx.x / kSampleBlocks];
  SampleBlock block = block_of(m.s.exchange, nullptr, a);
  stream_row(block, m, row, a);
}

struct GivenRows {
  SampleTerms rows[kGivenRows];
};
__global__ void __cluster_dims__(kSampleBlocks, 1, 1) __launch_bounds__(kStreamThreads, 4)
    given_kernel(const __grid_constant__ SampleArrays a, const __grid_constant__ GivenRows given) {
  __shared__ StreamShared m;
  SampleBlock block = block_of(m.s.exchange, nullptr, a);
  stream_row(block, m, given.rows[blockIdx.x / kSampleBlocks], a);
}

// The slice's logits with penalties, mask, then bias and bans.
__device__ void load_slice(float* values, const SampleBlock& block, const SampleTerms& row,
                           const SampleArrays& a) {
  const float* from = a.logits + row.row * a.stride + block.first;
  const bool wide = block.n % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  if (wide) {
    const auto* four = reinterpret_cast<const float4*>(from);
    auto* to = reinterpret_cast<float4*>(values);
#pragma unroll 4
    for (int i = threadIdx.x; i < block.n / 4; i += kSampleThreads) to[i] = __ldg(four + i);
  } else {
    for (int i = threadIdx.x; i < block.n; i += kSampleThreads) values[i] = from[i];
  }
  __syncthreads();
  if (!is_plain(row)) {
    for (int i = threadIdx.x; i < block.n; i += kSampleThreads)
      values[i] = adjusted(values[i], block.first + i, row, a);
    __syncthreads();
  }
  const LogitEdit* edits = a.edits + row.first_edit;
  for (int e = threadIdx.x; e < row.n_edits; e += kSampleThreads) {
    const int32_t token = edits[e].token, at = token - block.first;
    if (at < 0 || at >= block.n || (e > 0 && edits[e - 1].token == token)) continue;
    float v = values[at];
    for (int i = e; i < row.n_edits && edits[i].token == token; ++i)
      v = edits[i].bias == -kInfinity ? -kInfinity : __fadd_rn(v, edits[i].bias);
    values[at] = v;
  }
  if (row.n_edits > 0) __syncthreads();
}

// Log-probabilities of the chosen token and of the likeliest.
__device__ void log_probabilities(SampleBlock& block, SampleShared& s, const SampleTerms& row,
                                  float top, float chosen, ops::SampledToken& out) {
  double mass = 0;
  for (int i = threadIdx.x; i < block.n; i += kSampleThreads)
    mass += static_cast<double>(expf(block.values[i] - top));
  mass = log(block.sum_of(mass));
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(top) - mass);
  };
  if (block.rank() == 0 && threadIdx.x == 0) out.logprob = logprob(chosen);
  if (row.n_top == 0) return;
  const Cut cut = select(block, s, {}, top, {.count = static_cast<uint32_t>(row.n_top)});
  if (threadIdx.x == 0) s.n_listed = 0;
  block.cluster.sync();
  SampleShared* list = block.cluster.map_shared_rank(&s, 0);
  for (int i = threadIdx.x; i < block.n; i += kSampleThreads) {
    const float v = block.values[i];
    if (!cut.keeps(v, block.first + i)) continue;
    const uint32_t at = atomicAdd(&list->n_listed, 1u);
    if (at < ops::SampledToken::kMaxTop) list->listed[at] = {v, block.first + i, v};
  }
  block.cluster.sync();
  if (block.rank() != 0 || threadIdx.x >= 32) return;
  const int n = min(static_cast<int>(s.n_listed), ops::SampledToken::kMaxTop);
  if (static_cast<int>(threadIdx.x) < n) {
    const Contender mine = s.listed[threadIdx.x];
    int place = 0;
    for (int i = 0; i < n; ++i) place += wins(s.listed[i], mine) ? 1 : 0;
    out.top[place] = mine.token;
    out.top_logprob[place] = logprob(mine.value);
  }
  if (threadIdx.x == 0) out.n_top = n;
}

__global__ void __cluster_dims__(kSampleBlocks, 1, 1) __launch_bounds__(kSampleThreads, 2)
    slice_kernel(SampleArrays a) {
  extern __shared__ __align__(16) float values[];
  __shared__ SampleShared s;
  __shared__ SampleTerms row;
  if (threadIdx.x == 0) row = a.rows[blockIdx.x / kSampleBlocks];
  __syncthreads();
  SampleBlock block = block_of(s.exchange, values, a);
  ops::SampledToken& out = a.out[row.row];
  const bool writes = block.rank() == 0 && threadIdx.x == 0;
  load_slice(values, block, row, a);
  Draw draw(s.draw, {row.seed, row.position, row.stream}, row.temperature);
  draw.start();
  block.cluster.sync();  // all blocks run: their memory may be written
  Contender likeliest = {-kInfinity, INT_MAX, 0};
  for (int i = threadIdx.x; i < block.n; i += kSampleThreads)
    take_largest(likeliest, values[i], block.first + i);
  likeliest = block.best_of(likeliest);
  if (writes) {
    out.state = state_of(likeliest);
    out.token = likeliest.token;
    out.logprob = 0;
    out.n_top = 0;
  }
  const float top = likeliest.value;
  if (isinf(top)) return;
  Contender chosen = likeliest;
  if (row.temperature > 0) {
    Cut cut;
    if (row.top_k > 0 && row.top_k < a.n_vocab)
      cut = select(block, s, cut, top, {.count = static_cast<uint32_t>(row.top_k)});
    if (row.top_p < 1) {
      cut = select(block, s, cut, top,
                   {.by_mass = true, .share = row.top_p, .temperature = row.temperature});
    }
    const double inverse_t = 1.0 / static_cast<double>(row.temperature);
    const auto kept = [&](float logit, int32_t token) {
      return cut.keeps(logit, token) &&
             !(row.min_p > 0 && exp((static_cast<double>(logit) - static_cast<double>(top)) *
                                    inverse_t) < static_cast<double>(row.min_p));
    };
    draw.raise(top, likeliest.token);
    for (int begin = threadIdx.x; begin < block.n; begin += 32 * kSampleThreads) {
      uint32_t open = 0;
#pragma unroll 8
      for (int e = 0; e < 32; ++e) {
        const int i = begin + e * kSampleThreads;
        open |= i < block.n && draw.may_win(values[i]) ? 1u << e : 0u;
      }
#pragma unroll 1
      for (; open != 0; open &= open - 1) {
        const int i = begin + (__ffs(static_cast<int>(open)) - 1) * kSampleThreads;
        draw.offer(values[i], block.first + i, kept);
      }
    }
    __syncthreads();
    chosen = block.best_of(draw.best());
    if (writes) out.token = chosen.token;
  }
  if (row.logprobs != 0) log_probabilities(block, s, row, top, chosen.logit, out);
  block.cluster.sync();  // a block's memory outlives what others read of it
}

__global__ void count_kernel(uint32_t* counts, const TokenCount* tokens, int32_t n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  uint32_t* at = counts + tokens[i].token;
  atomicOr(at, kSeenBit);
  if (tokens[i].output != 0) atomicAdd(at, 1u);
}

__global__ void noise_table_kernel(float* out) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 1u << 24) out[i] = noise_value(i);
}

}  // namespace

uint64_t sample_slice_bytes(int32_t n_vocab) {
  return static_cast<uint64_t>(slice_tokens(n_vocab)) * sizeof(float);
}

uint64_t sample_static_bytes() {
  return sizeof(SampleShared) + 1024;  // what the system takes of a block's shared memory
}

bool sample_streams(const SampleTerms& t, int32_t n_vocab) {
  if (t.n_edits > 0 || t.logprobs != 0) return false;
  const bool few = t.top_k > 0 && t.top_k < n_vocab;
  if (t.temperature <= 0 || (!few && !(t.top_p < 1) && !(t.min_p > 0))) return true;
  return t.slot < 0 && t.n_words < 0 && (!few || t.top_k <= kStreamTopK);
}

cudaError_t prepare_sample(int32_t n_vocab) {
  return cudaFuncSetAttribute(slice_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(sample_slice_bytes(n_vocab)));
}

void launch_sample(SampleArrays arrays, int32_t n_streamed, int32_t n_sliced, cudaStream_t stream) {
  if (n_streamed > 0) {
    stream_kernel<<<static_cast<unsigned>(n_streamed * kSampleBlocks), kStreamThreads, 0, stream>>>(
        arrays);
  }
  if (n_sliced == 0) return;
  arrays.rows += n_streamed;
  slice_kernel<<<static_cast<unsigned>(n_sliced * kSampleBlocks), kSampleThreads,
                 sample_slice_bytes(arrays.n_vocab), stream>>>(arrays);
}

void launch_given(SampleArrays arrays, std::span<const SampleTerms> rows, cudaStream_t stream) {
  GivenRows given{};
  std::copy(rows.begin(), rows.end(), given.rows);
  given_kernel<<<static_cast<unsigned>(rows.size() * kSampleBlocks), kStreamThreads, 0, stream>>>(
      arrays, given);
}

void launch_count(uint32_t* counts, const TokenCount* tokens, int32_t n, cudaStream_t stream) {
  if (n == 0) return;
  count_kernel<<<static_cast<unsigned>((n + 255) / 256), 256, 0, stream>>>(counts, tokens, n);
}

void launch_noise_table(float* out, cudaStream_t stream) {
  noise_table_kernel<<<1 << 16, 256, 0, stream>>>(out);
}

}  // namespace hadal::cuda
