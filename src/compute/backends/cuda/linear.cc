#include "compute/backends/cuda/linear.h"

#include <vector>

#include <fmt/format.h>

#include "base/core/check.h"
#include "compute/backends/cuda/big.h"
#include "compute/backends/cuda/f32_product.h"
#include "compute/backends/cuda/thin.h"
#include "compute/backends/cuda/wide.h"

namespace hadal::cuda {

core::Result<std::unique_ptr<ops::Linear>> make_linear(std::span<const ops::WeightSource> stack) {
  HADAL_CHECK(!stack.empty(), "stack of a linear");
  int64_t n = 0;
  for (const ops::WeightSource& s : stack) n += s.n;
  HADAL_TRY(Packer packer, Packer::make());
  HADAL_TRY(Packed packed, Packed::make(stack[0].format, 1, n, stack[0].k));
  HADAL_TRY_VOID(packer.pack(stack, 0, packed));
  return std::unique_ptr<ops::Linear>(std::make_unique<CudaLinear>(std::move(packed)));
}

core::Result<std::unique_ptr<ops::Linear>> make_grouped(const ops::WeightSource& source,
                                                        int32_t n_groups) {
  const int64_t n = source.n / n_groups;
  HADAL_CHECK(n * n_groups == source.n, "groups of a block-diagonal product");
  const bool fp8 = source.format == ops::WeightFormat::kFp8Tile;
  if (source.k % kBlockK != 0 || (fp8 && n % kBlockK != 0)) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("{} outputs of {} inputs in {} groups: a group must have a "
                                   "multiple of 32 inputs, and of outputs if its weights are FP8",
                                   source.n, source.k, n_groups)};
  }
  HADAL_TRY(Packer packer, Packer::make());
  HADAL_TRY(Packed packed, Packed::make(source.format, n_groups, n, source.k));
  for (int32_t g = 0; g < n_groups; ++g) {
    ops::WeightSource part = source;
    part.n = n;
    part.weight = static_cast<const uint8_t*>(source.weight) + source_bytes(part) * g;
    if (source.scale != nullptr) part.scale = source.scale + source_scales(part) * g;
    HADAL_TRY_VOID(packer.pack({&part, 1}, g, packed));
  }
  return std::unique_ptr<ops::Linear>(std::make_unique<CudaLinear>(std::move(packed)));
}

uint64_t linear_scratch_bytes(const ops::Ops::Limits& limits) {
  return kWideSliceBytes +
         static_cast<uint64_t>(tiled_values(limits.max_rows, limits.widest_k)) * sizeof(uint16_t);
}

void launch_linear(const ops::LinearArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                   cudaStream_t stream) {
  const Packed& weight = static_cast<const CudaLinear&>(*args.weight).packed();
  const PackedView& w = weight.view();
  const int64_t rows = args.x.n_rows, columns = args.x.n_cols;
  HADAL_CHECK(columns == static_cast<int64_t>(w.k) * w.n_groups, "a linear's input width");
  if (rows == 0) return;
  const bool quantise = weight.quantises() && !args.plain_input;
  const bool f32 = args.y_f32.data != nullptr;
  const int64_t y_stride = f32 ? args.y_f32.stride : args.y.stride;
  if (weight.format() == ops::WeightFormat::kF32) {
    launch_f32_product(weight, args.x, args.y.data, args.y_f32.data, y_stride, gpu, stream);
    return;
  }
  if (thin_linear_fits(weight, rows, gpu)) {
    launch_thin_linear(weight, args.x, quantise, args.y.data, args.y_f32.data, y_stride, gpu,
                       stream);
    return;
  }
  const int64_t values = tiled_values(rows, columns);
  HADAL_CHECK(kWideSliceBytes + static_cast<uint64_t>(values) * sizeof(uint16_t) <= scratch.bytes,
              "op scratch is too small");
  auto* tiled = reinterpret_cast<uint16_t*>(scratch.data + kWideSliceBytes);
  launch_tile_rows(args.x, nullptr, rows, quantise, tiled, stream);
  WideProduct p;
  p.weight = &weight;
  p.x = tiled;
  p.x_columns = (columns + kBlockK - 1) / kBlockK * kBlockK;
  p.n_rows = static_cast<int32_t>(rows);
  p.y = args.y.data;
  p.y_f32 = args.y_f32.data;
  p.y_stride = y_stride;
  p.slices = reinterpret_cast<float*>(scratch.data);
  if (big_fits(weight, rows, gpu)) return launch_big(p, gpu, stream);
  launch_wide(p, gpu, stream);
}

}  // namespace hadal::cuda
