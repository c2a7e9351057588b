#pragma once

#include <cmath>

#include "compute/backends/cuda/attend_decode.cuh"
#include "compute/backends/cuda/attend_job.cuh"
#include "compute/backends/cuda/attend_mma.cuh"

// Tiles of attention at released sizes: 64 rows (heads or keys) of 512 bf16 channels in shared
// memory, in columns of 64 channels.
namespace hadal::cuda {

inline constexpr int kD = 512;
inline constexpr int kH = 64;
inline constexpr int kColumnBytes = 64 * 128;              // 64 rows by 64 values
inline constexpr int kTileBytes = kD / 64 * kColumnBytes;  // 64 KiB

// Byte of value `c` of row `r` in a tile.
__device__ __forceinline__ int place_of(int r, int c) {
  return c / 64 * kColumnBytes + r * 128 + ((c / 8 % 8) ^ (r % 8)) * 16 + c % 8 * 2;
}
__device__ __forceinline__ void store16(uint32_t address, const uint32_t (&v)[4]) {
  // No clobber: nothing of the compiler's reads it back; barriers and fences keep the order.
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(v[0]), "r"(v[1]),
               "r"(v[2]), "r"(v[3]));
}
__device__ __forceinline__ uint4 fetch16(const uint8_t* from) {
  return __ldg(reinterpret_cast<const uint4*>(from));
}

// 2^x, relative error below 2^-22.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
inline constexpr float kLog2e = 1.44269504088896340736f;

// Maximum and sum over the four lanes that share a row of a product.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x = x + __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

}  // namespace hadal::cuda
