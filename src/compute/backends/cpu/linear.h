#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compute/backends/cpu/cpu_level.h"
#include "compute/backends/cpu/pack.h"
#include "compute/backends/cpu/thread_pool.h"

namespace hadal::cpu {

struct PanelJob;

// The product kernels of one level; tables are constants of the program.
struct LinearKernels {
  PackOrder order;  // of the FP4 and FP8 weights that `run` reads
  void (*run)(const PanelJob&);
  // Multiply-adds of bf16 values out of registers, for measuring the peak; returns the operations
  // done, two for each multiply-add. `sink`: 10 f32.
  double (*peak)(int64_t turns, float* sink);
  // What a panel of FP4 costs besides its rows, in the time that one row more takes.
  int64_t panel_rows;
};
const LinearKernels& linear_kernels(CpuLevel level);
// Every program of a level: avx512bf16 has two, of which linear_kernels() names the faster one.
std::span<const LinearKernels> linear_programs(CpuLevel level);

enum class OutputType : uint8_t { kF32, kBF16 };

// Rows [first, first + count) of a call's row list, multiplied by group `group` of the weights.
struct RowGroup {
  int32_t group = 0;
  int32_t first = 0;
  int32_t count = 0;
};

// y[y_index[i], c] = sum_k x[x_index[i], k] * w[group(i)][c, k] for every row i of the row list.
//
// x is bf16 (f32 for kF32 weights), values as they enter the product: an activation that the model
// quantises is passed after its rounding (AQ8 values are bf16 numbers, so nothing is lost). y is
// f32, or the f32 result rounded to nearest even bf16. x and y must not overlap.
//
// ACCUMULATION, per output and the same on every level, for every number of rows and of threads:
//   acc = +0
//   for b = 0, 1, ... ceil(k/32)-1:                     blocks of 32 k, missing k count as 0 * 0
//     s = +0
//     for p = 0 ... 15:                                 pairs, ascending; the odd element first
//       s = fma(x[32b+2p], v[32b+2p], fma(x[32b+2p+1], v[32b+2p+1], s))
//     acc = fma(2^e, s, acc)                            2^e the scale of (row, block), 1 for bf16,
//     f32
// with v the unscaled weight element and f32 fma, round to nearest even. (kF32: each inner fma is a
// rounded product and a rounded sum instead.) vdpbf16ps computes exactly this pair step, and the
// product of two bf16 numbers is exact in f32, so that fma equals multiply, then add: levels
// without fma or dot instructions give the same bits. Bounds: equality holds while no inner value
// is a nonzero number below 2^-126 in magnitude, which vdpbf16ps alone takes as 0. Snapped
// activations times E4M3 or E2M1 elements never come below 2^-40; scales enter outside the dot, so
// small scales are exact. NaN and infinity propagate; payload unspecified.
struct LinearCall {
  const PackedLinear* weights = nullptr;  // packed in the kernels' order
  const void* x = nullptr;
  int64_t x_stride = 0;              // elements between rows
  const int32_t* x_index = nullptr;  // row of x for each row of the list; null: row i
  void* y = nullptr;
  const int32_t* y_index = nullptr;  // row of y, each at most once; null: row i
  int64_t y_stride = 0;              // elements between rows
  OutputType y_type = OutputType::kBF16;
  std::span<const RowGroup> groups;  // a dense linear: one group {0, 0, n_rows}
};

// The work of a call is groups.size() * weights->group_panels() units, the panels of the first
// entry of `groups` first. Any split of [0, units) gives the same result.
int64_t linear_units(const LinearCall& call);
// This lane's units: contiguous, near equal in time (rows of a group and bytes of its weights).
Range linear_share(const LinearKernels& kernels, const LinearCall& call, const Lane& lane);
// Does units [begin, end). `scratch`: linear_scratch_bytes(), 64-byte aligned (a lane's is).
void linear(const LinearKernels& kernels, const LinearCall& call, Range units, std::byte* scratch);
// This lane's share, for use inside ThreadPool::run. No barrier: y is complete after the next one.
void linear(const LinearKernels& kernels, const LinearCall& call, const Lane& lane);
// The whole call on the pool.
void linear(const LinearKernels& kernels, const LinearCall& call, ThreadPool& pool);

int64_t linear_scratch_bytes();

}  // namespace hadal::cpu
