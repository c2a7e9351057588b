#include <algorithm>

#include <cuda_fp8.h>

#include "base/core/check.h"
#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/fp8_weights.cuh"
#include "compute/backends/cuda/wgmma_fp8.cuh"
#include "compute/backends/cuda/wide_fp8.h"
#include "compute/backends/cuda/wide_fp8_copy.cuh"

// A block goes through jobs of up to 256 rows x 128 outputs. Four warps bring a window of weights
// and of rows at a time to a ring of stages; two warpgroups of 64 outputs take the weights to
// registers as E4M3 (FP8 tiles bit by bit, FP4 by byte look-ups) and multiply. One of them
// multiplies while the other fetches weights or takes sums to f32.
namespace hadal::cuda {
namespace {

using namespace fp8;  // NOLINT(google-build-using-namespace): its other half, wide_fp8_copy.cuh

__device__ __forceinline__ uint32_t whole_codes(uint32_t word) {
  return __byte_perm(fp8_whole(word, 0), fp8_whole(word, 1), fp8_order());
}

// Four E4M3 codes times 2^-down, to nearest even.
__device__ __forceinline__ uint32_t lower_codes(uint32_t word, __half2 factor) {
  const auto half_of = [&](uint32_t pair) -> uint32_t {
    const __half2 v(__nv_cvt_fp8x2_to_halfraw2(static_cast<uint16_t>(pair), __NV_E4M3));
    return __nv_cvt_halfraw2_to_fp8x2(static_cast<__half2_raw>(__hmul2(v, factor)), __NV_SATFINITE,
                                      __NV_E4M3);
  };
  return half_of(word & 0xFFFFu) | half_of(word >> 16) << 16;
}

// A window of a warp's strip as the A operands of four products; the power of two that all of them
// lack, as f32. table: of the FP4 magnitudes, so that 8 times a field is the entry.
template <WeightFormat F>
__device__ __forceinline__ float load_weights(const uint8_t* strip, const uint8_t* info,
                                              uint32_t table, int n_blocks,
                                              uint32_t (&a)[kWindowBlocks][4]) {
  using S = Shape<F>;
  const int lane = threadIdx.x % 32;
  float power = 1;
  if constexpr (S::kFp4) {
    load_fp4_window(strip, table, n_blocks, a);
  } else {
    const WindowInfo at = *reinterpret_cast<const WindowInfo*>(info);
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < kWindowBlocks; ++i) top = max(top, at.fields >> (8 * i) & 0xFFu);
    power = __uint_as_float(max(static_cast<int>(top) - 120, 0) << 23);
#pragma unroll
    for (int i = 0; i < kWindowBlocks; ++i) {
      const uint4 code = *reinterpret_cast<const uint4*>(
          strip + i * S::kBlockBytes + (at.gaps >> (8 * i) & 0xFFu) * 16 + lane * 16);
      const bool there = i < n_blocks;
      a[i][0] = there ? whole_codes(code.x) : 0, a[i][2] = there ? whole_codes(code.y) : 0;
      a[i][1] = there ? whole_codes(code.z) : 0, a[i][3] = there ? whole_codes(code.w) : 0;
      const uint32_t field = at.fields >> (8 * i) & 0xFFu;
      if (field != top) {
        const __half2 factor =
            __float2half2_rn(__uint_as_float((127 - min(top - field, 20u)) << 23));
#pragma unroll
        for (int j = 0; j < 4; ++j) a[i][j] = lower_codes(a[i][j], factor);
      }
    }
  }
  return power;
}

// Two neighbouring outputs of a row from a lane that has two rows of an output.
__device__ __forceinline__ uint32_t transposed(uint32_t pair) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}
__device__ __forceinline__ uint32_t rounded_pair(float low, float high) {
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

// total += a window's products of kRows rows, those at `x`, times the rows' scales and `power`.
template <int kRows, bool kPower>
__device__ __forceinline__ void multiply_add(uint32_t x, const float* scales, float power,
                                             const uint32_t (&a)[kWindowBlocks][4],
                                             float (&total)[32]) {
  float sum[kRows / 2];
  const uint64_t b = wgmma_operand(x, kRowTileBytes);
  wgmma_fence();
  wgmma_fp8<kRows, false>(sum, a[0], b);
  wgmma_fp8<kRows, true>(sum, a[1], b + (256 >> 4));
  wgmma_fp8<kRows, true>(sum, a[2], b + (512 >> 4));
  wgmma_fp8<kRows, true>(sum, a[3], b + (768 >> 4));
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
    float2 scale = *reinterpret_cast<const float2*>(scales + j * 8);
    if constexpr (kPower) scale.x *= power, scale.y *= power;
    float* t = total + j * 4;
    const float* s = sum + j * 4;
    t[0] = fmaf(s[0], scale.x, t[0]), t[1] = fmaf(s[1], scale.y, t[1]);
    t[2] = fmaf(s[2], scale.x, t[2]), t[3] = fmaf(s[3], scale.y, t[3]);
  }
}

// A warpgroup's part of a job: 64 rows at a time, 32 if no more are left. While a warpgroup takes
// weights to registers and sums to f32, the other one multiplies. One body for all numbers of rows:
// with several the compiler finds no registers to keep products in flight (ptxas C7511).
template <WeightFormat F>
__device__ void consume(const Call& call, const Fp8Job& job, Ring<Shape<F>>& ring) {
  using S = Shape<F>;
  constexpr int kPieces = kFp8TileRows / 64;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
  const int strip = min(warp, job.n_strips - 1);
  const uint32_t table = S::kFp4 ? shared_address(ring.stages + S::kTableAt) +
                                       (kFp4Powers - 1 - call.w.top_field[job.group]) * 8
                                 : 0;
  float total[kPieces][32] = {};
  for (int window = 0; window < call.n_windows; ++window) {
    barrier_wait(ring.full + ring.at, ring.phase);
    const uint8_t* stage = ring.stage();
    const uint32_t x = shared_address(stage + S::kRowsAt);
    const float* scales = reinterpret_cast<const float*>(stage + S::kScalesAt) + c * 2;
    uint32_t a[kWindowBlocks][4];
    const float power =
        load_weights<F>(stage + strip * S::kStripBytes, stage + S::kInfoAt + strip * 16, table,
                        call.w.n_blocks - window * kWindowBlocks, a);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int left = job.n_rows - piece * 64;
      const uint32_t rows = x + piece * 8 * kRowTileBytes;
      if (left > 32) {
        multiply_add<64, !S::kFp4>(rows, scales + piece * 64, power, a, total[piece]);
      } else if (left > 0) {
        multiply_add<32, !S::kFp4>(rows, scales + piece * 64, power, a, total[piece]);
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.empty + ring.at);
    ring.next();
  }
  if (warp >= job.n_strips) return;
  const float factor = S::kFp4 ? call.w.fp4_scale[job.group] : call.w.out_scale[job.group];
  uint16_t* y =
      call.y + (job.first_row + g) * call.y_stride + (job.first_strip + warp) * kStripRows + c * 2;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    if (piece * 64 >= job.n_rows) break;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float* t = total[piece] + j * 4;
      const uint32_t low = transposed(rounded_pair(t[0] * factor, t[1] * factor));
      const uint32_t high = transposed(rounded_pair(t[2] * factor, t[3] * factor));
      const int row = piece * 64 + j * 8;
      if (row + g >= job.n_rows) continue;
      auto* to = reinterpret_cast<uint32_t*>(y + row * call.y_stride);
      to[0] = low;
      to[4] = high;
    }
  }
}

template <WeightFormat F>
__global__ void __launch_bounds__(kThreads, 1) wide_fp8_kernel(const __grid_constant__ Call call) {
  using S = Shape<F>;
  extern __shared__ __align__(128) uint8_t shared[];
  Ring<S> ring(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(ring.full + i, S::kFp4 ? 1 : 2);
      barrier_init(ring.empty + i, kConsumers / 32);
    }
    barrier_init_done();
  }
  if (S::kFp4 && threadIdx.x < kFp4Powers) {
    const int power = kMinFp4Power + static_cast<int>(threadIdx.x);
    reinterpret_cast<uint2*>(shared + S::kTableAt)[threadIdx.x] = {fp4_magnitudes(power, 0),
                                                                   fp4_magnitudes(power, 1)};
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  const int64_t n_jobs = count_jobs(call);
  if (threadIdx.x >= kConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopyRegisters));
    const int role = (threadIdx.x - kConsumers) / 32;
    for (int64_t index = blockIdx.x; index < n_jobs; index += gridDim.x) {
      const Fp8Job job = job_at(call, index);
      if (role < 3) {
        copy_job<F>(call, job, role, ring);
      } else if constexpr (!S::kFp4) {
        inform_job(call, job, ring);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kProductRegisters));
    for (int64_t index = blockIdx.x; index < n_jobs; index += gridDim.x)
      consume<F>(call, job_at(call, index), ring);
  }
}

template <WeightFormat F>
void launch(const Call& call, int64_t max_jobs, const Gpu& gpu, cudaStream_t stream) {
  using S = Shape<F>;
  const auto grid = static_cast<unsigned>(std::clamp<int64_t>(max_jobs, 1, gpu.sm_count));
  cudaFuncSetAttribute(wide_fp8_kernel<F>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       S::kSharedBytes);
  launch_overlapped(wide_fp8_kernel<F>, dim3(grid), dim3(kThreads), S::kSharedBytes, stream, call);
}

}  // namespace

bool fp8_fits(const Packed& weight, int64_t n_rows, const Gpu& gpu) {
  const PackedView& w = weight.view();
  const bool format = weight.format() == WeightFormat::kFp8Tile ||
                      (weight.format() == WeightFormat::kFp4Row && weight.fp4_exact_in_fp8());
  return gpu.fp8_products && gpu.cc_major == 9 && format && n_rows >= kFp8LeastRows &&
         w.n % kStripRows == 0 && w.k >= 96;
}

bool fp8_experts_pay(int64_t n_rows, int64_t top_k, int64_t n_experts) {
  return top_k >= 2 && n_rows * top_k >= 96 * n_experts;
}

void launch_wide_fp8(const Fp8Product& p, const Gpu& gpu, cudaStream_t stream) {
  Call call = {};
  call.w = p.weight->view();
  call.x = p.x;
  call.x_row_tiles = (p.x_rows + 7) / 8;
  call.n_windows = count_windows(call.w.n_blocks);
  call.tiles = p.tiles;
  call.n_tiles = p.n_tiles;
  call.space = {call.w.n_strips, p.n_rows, fp8_tile_rows(p.n_rows, call.w.n_strips, gpu.sm_count)};
  call.y = p.y;
  call.y_stride = p.y_stride;
  HADAL_CHECK(p.tiles != nullptr || call.w.n_groups == 1, "groups of an FP8 product without tiles");
  HADAL_CHECK(p.y_stride % 2 == 0 && reinterpret_cast<uintptr_t>(p.y) % 4 == 0,
              "outputs of an FP8 product go in pairs");
  const int64_t jobs = p.tiles != nullptr ? p.max_tiles * call.space.across() : call.space.n_jobs();
  if (p.weight->format() == WeightFormat::kFp4Row) {
    launch<WeightFormat::kFp4Row>(call, jobs, gpu, stream);
  } else {
    launch<WeightFormat::kFp8Tile>(call, jobs, gpu, stream);
  }
}

}  // namespace hadal::cuda
