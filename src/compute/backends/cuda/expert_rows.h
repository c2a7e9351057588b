#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

// The row-wise parts of moe_ffn (docs/model.md 3.10).
namespace hadal::cuda {

// act[i] = AQ8(bf16(weight[i] * (silu(gate) * up))) for n rows of `up` [n, 2 d_inter] (gate, then
// up); act is tiled (wide.h). The weight is 1 from row `n_weighted` on. Rows with a negative row[i]
// are left out.
void launch_swiglu(const uint16_t* up, const float* weight, const int32_t* row, int64_t n_weighted,
                   int64_t n, int32_t d_inter, float limit, uint16_t* act, cudaStream_t stream);

// y[t] = bf16(f32 sum of rows place[t, 0], place[t, 1], ... of `out`, then of row n_places + t).
void launch_combine(const uint16_t* out, const int32_t* place, int32_t top_k, int64_t n_places,
                    int64_t n_rows, int32_t d, uint16_t* y, int64_t y_stride, cudaStream_t stream);

}  // namespace hadal::cuda
