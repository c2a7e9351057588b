#include "compute/backends/cuda/tile_map.h"

#include <cuda_runtime_api.h>

#include "base/core/check.h"

namespace hadal::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The module links the runtime only, so that the driver's own functions are asked for.
Encode find_encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult state = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                         cudaEnableDefault, &state);
  HADAL_CHECK(e == cudaSuccess && state == cudaDriverEntryPointSuccess,
              "the driver has no cuTensorMapEncodeTiled: it is older than CUDA 12.0");
  return reinterpret_cast<Encode>(found);
}

}  // namespace

CUtensorMap make_tile_map(const void* base, int64_t pitch, int64_t n_rows, int32_t box_bytes,
                          int32_t box_rows) {
  static const Encode encode = find_encode();
  CUtensorMap map;
  const cuuint64_t size[2] = {static_cast<cuuint64_t>(pitch / kMapUnit),
                              static_cast<cuuint64_t>(n_rows)};
  const cuuint64_t stride[1] = {static_cast<cuuint64_t>(pitch)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_bytes / kMapUnit),
                             static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t step[2] = {1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 2, const_cast<void*>(base), size, stride, box,
             step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HADAL_CHECK(result == CUDA_SUCCESS, "boxes of a matrix");
  return map;
}

}  // namespace hadal::cuda
