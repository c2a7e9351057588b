#pragma once

// The roles of a block's warps in the kernels for many rows (big.cu, big_list.cu, wide.cu and those
// in E4M3): two warpgroups multiply, one warp of a third brings weights and rows.
namespace hadal::cuda {

inline constexpr int kWarpgroups = 2;
inline constexpr int kConsumers = kWarpgroups * 128;
inline constexpr int kThreads = kConsumers + 128;  // the copying warp takes a warpgroup's place
// Registers of a thread that copies, and of one that multiplies, of the 168 that each starts with.
inline constexpr int kCopyRegisters = 40, kProductRegisters = 232;

}  // namespace hadal::cuda
