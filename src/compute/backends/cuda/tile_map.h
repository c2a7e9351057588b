#pragma once

#include <cstdint>

#include <cuda.h>

namespace hadal::cuda {

// Boxes of a matrix in device memory for the copy engine: `box_rows` rows by `box_bytes` bytes of
// rows `pitch` bytes apart. They lie in shared memory row behind row; what is outside the matrix
// comes as zeros, and counts as copied. A box begins at any multiple of kMapUnit bytes of a row.
inline constexpr int kMapUnit = 8;

// REQUIRES: base and pitch are multiples of 16, box_bytes is one too and at most 2048, box_rows at
// most 256. Host only; nothing waits, so that it may be called while a graph is recorded.
CUtensorMap make_tile_map(const void* base, int64_t pitch, int64_t n_rows, int32_t box_bytes,
                          int32_t box_rows);

}  // namespace hadal::cuda
