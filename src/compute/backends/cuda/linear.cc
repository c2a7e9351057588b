#include "compute/backends/cuda/linear.h"

#include <vector>

#include <fmt/format.h>

#include "base/core/check.h"
#include "compute/backends/cuda/product.h"
#include "compute/backends/cuda/staging.h"
#include "compute/backends/cuda/thin.h"

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
  return staged_bytes(limits.max_rows, limits.widest_k) + 256;
}

void launch_linear(const ops::LinearArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                   cudaStream_t stream) {
  const Packed& weight = static_cast<const CudaLinear&>(*args.weight).packed();
  const PackedView& w = weight.view();
  HADAL_CHECK(args.x.n_cols == static_cast<int64_t>(w.k) * w.n_groups, "a linear's input width");
  if (args.x.n_rows == 0) return;
  const bool quantise = weight.quantises() && !args.plain_input;
  const bool f32 = args.y_f32.data != nullptr;
  const int64_t y_stride = f32 ? args.y_f32.stride : args.y.stride;
  if (thin_linear_fits(weight, args.x.n_rows, gpu)) {
    launch_thin_linear(weight, args.x, quantise, args.y.data, args.y_f32.data, y_stride, gpu,
                       stream);
    return;
  }
  HADAL_CHECK(staged_bytes(args.x.n_rows, args.x.n_cols) <= scratch.bytes,
              "op scratch is too small");
  auto* staged = reinterpret_cast<uint16_t*>(scratch.data);
  launch_stage(args.x, quantise, staged, stream);
  Product p;
  p.weight = &weight;
  p.x = staged;
  p.x_stride = staged_columns(args.x.n_cols);
  p.n_rows = static_cast<int32_t>(args.x.n_rows);
  p.y = args.y.data;
  p.y_f32 = args.y_f32.data;
  p.y_stride = y_stride;
  launch_product(p, gpu, stream);
}

}  // namespace hadal::cuda
