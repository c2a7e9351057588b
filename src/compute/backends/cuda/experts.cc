#include "compute/backends/cuda/experts.h"

#include <fmt/format.h>

#include "base/core/check.h"
#include "compute/backends/cuda/dispatch.h"
#include "compute/backends/cuda/expert_rows.h"
#include "compute/backends/cuda/product.h"
#include "compute/backends/cuda/staging.h"
#include "compute/backends/cuda/thin.h"

namespace hadal::cuda {
namespace {

constexpr int64_t pad256(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// Scratch of moe_ffn, cut in one place for its size and its use. Places of the list are followed by
// the shared expert's rows.
struct Areas {
  Dispatch list;
  uint16_t* x = nullptr;    // [T, H] quantised
  uint16_t* up = nullptr;   // [places + T, 2 inter] gate, then up
  uint16_t* act = nullptr;  // [places + T, inter] quantised
  uint16_t* out = nullptr;  // [places + T, H]
  int64_t bytes = 0;

  Areas(std::byte* base, int64_t rows, int64_t top_k, int64_t n_experts, int64_t d_hidden,
        int64_t d_inter) {
    const auto take = [&](int64_t size) {
      std::byte* p = base + bytes;
      bytes += pad256(size);
      return static_cast<void*>(p);
    };
    const int64_t places = rows * top_k, all = places + rows;
    list.row = static_cast<int32_t*>(take(places * 4));
    list.weight = static_cast<float*>(take(places * 4));
    list.place = static_cast<int32_t*>(take(places * 4));
    list.first = static_cast<int32_t*>(take((n_experts + 1) * 4));
    list.tiles = static_cast<RowTile*>(
        take(max_row_tiles(places, n_experts) * static_cast<int64_t>(sizeof(RowTile))));
    list.n_tiles = static_cast<int32_t*>(take(4));
    x = static_cast<uint16_t*>(take(rows * staged_columns(d_hidden) * 2));
    up = static_cast<uint16_t*>(take(all * 2 * d_inter * 2));
    act = static_cast<uint16_t*>(take(all * staged_columns(d_inter) * 2));
    out = static_cast<uint16_t*>(take(all * d_hidden * 2));
  }
};

}  // namespace

core::Result<std::unique_ptr<ops::Experts>> make_experts(std::span<const ops::ExpertSource> routed,
                                                         const ops::ExpertSource& shared) {
  HADAL_CHECK(!routed.empty(), "no experts");
  if (routed.size() > static_cast<size_t>(kMaxExperts)) {
    return core::Error{core::Code::kInvalidRequest, "more than 1024 experts in a layer"};
  }
  const int64_t inter = shared.w1.n, hidden = shared.w1.k;
  if (inter % kBlockK != 0 || hidden % kBlockK != 0) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("experts of {} inputs and {} inner values: both must be "
                                   "multiples of 32, the group of the quantiser",
                                   hidden, inter)};
  }
  auto out = std::make_unique<CudaExperts>();
  const auto n = static_cast<int64_t>(routed.size());
  out->d_inter = static_cast<int32_t>(inter);
  out->d_hidden = static_cast<int32_t>(hidden);
  HADAL_TRY(Packer packer, Packer::make());
  HADAL_TRY(out->up, Packed::make(routed[0].w1.format, n, 2 * inter, hidden));
  HADAL_TRY(out->down, Packed::make(routed[0].w2.format, n, hidden, inter));
  HADAL_TRY(out->shared_up, Packed::make(shared.w1.format, 1, 2 * inter, hidden));
  HADAL_TRY(out->shared_down, Packed::make(shared.w2.format, 1, hidden, inter));
  for (int64_t e = 0; e < n; ++e) {
    const ops::ExpertSource& s = routed[static_cast<size_t>(e)];
    const ops::WeightSource up[] = {s.w1, s.w3};
    HADAL_TRY_VOID(packer.pack(up, e, out->up));
    HADAL_TRY_VOID(packer.pack({&s.w2, 1}, e, out->down));
  }
  const ops::WeightSource up[] = {shared.w1, shared.w3};
  HADAL_TRY_VOID(packer.pack(up, 0, out->shared_up));
  HADAL_TRY_VOID(packer.pack({&shared.w2, 1}, 0, out->shared_down));
  return std::unique_ptr<ops::Experts>(std::move(out));
}

uint64_t moe_ffn_scratch_bytes(const ops::Ops::Limits& limits) {
  return static_cast<uint64_t>(
      Areas(nullptr, limits.max_rows, limits.top_k, kMaxExperts, limits.d_hidden, limits.d_inter)
          .bytes);
}

void launch_moe_ffn(const ops::MoeArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                    cudaStream_t stream) {
  const auto& experts = static_cast<const CudaExperts&>(*args.experts);
  const int64_t rows = args.h.n_rows, top_k = args.expert.n_cols;
  if (rows == 0) return;
  const int64_t hidden = experts.d_hidden, inter = experts.d_inter;
  const int32_t n_experts = experts.up.view().n_groups;
  const Areas at(scratch.data, rows, top_k, n_experts, hidden, inter);
  HADAL_CHECK(static_cast<uint64_t>(at.bytes) <= scratch.bytes, "op scratch is too small");
  const int64_t places = rows * top_k, all = places + rows;
  if (thin_experts_fit(experts, rows, top_k, gpu)) {
    launch_thin_experts(args,
                        {.experts = &experts, .act = at.act, .out = at.out, .place = at.list.place},
                        gpu, stream);
    launch_combine(at.out, at.list.place, static_cast<int32_t>(top_k), places, rows,
                   experts.d_hidden, args.y.data, args.y.stride, stream);
    return;
  }
  launch_dispatch(args.expert.data, args.expert.stride, args.weight.data, args.weight.stride,
                  static_cast<int32_t>(rows), static_cast<int32_t>(top_k), n_experts, at.list,
                  stream);
  launch_stage(args.h, true, at.x, stream);

  Product up;
  up.weight = &experts.up;
  up.x = at.x;
  up.x_stride = staged_columns(hidden);
  up.x_rows = at.list.row;
  up.tiles = at.list.tiles;
  up.n_tiles = at.list.n_tiles;
  up.max_tiles = max_row_tiles(places, n_experts);
  up.y = at.up;
  up.y_stride = 2 * inter;
  launch_product(up, gpu, stream);
  Product shared_up = up;
  shared_up.weight = &experts.shared_up;
  shared_up.x_rows = nullptr;
  shared_up.tiles = nullptr;
  shared_up.n_rows = static_cast<int32_t>(rows);
  shared_up.y = at.up + places * 2 * inter;
  launch_product(shared_up, gpu, stream);

  const int64_t columns = staged_columns(inter);
  launch_swiglu(at.up, at.list.weight, places, all, experts.d_inter, args.limit, at.act, stream);

  Product down;
  down.weight = &experts.down;
  down.x = at.act;
  down.x_stride = columns;
  down.tiles = at.list.tiles;
  down.n_tiles = at.list.n_tiles;
  down.max_tiles = up.max_tiles;
  down.y = at.out;
  down.y_stride = hidden;
  launch_product(down, gpu, stream);
  Product shared_down = down;
  shared_down.weight = &experts.shared_down;
  shared_down.x = at.act + places * columns;
  shared_down.tiles = nullptr;
  shared_down.n_rows = static_cast<int32_t>(rows);
  shared_down.y = at.out + places * hidden;
  launch_product(shared_down, gpu, stream);

  launch_combine(at.out, at.list.place, static_cast<int32_t>(top_k), places, rows, experts.d_hidden,
                 args.y.data, args.y.stride, stream);
}

}  // namespace hadal::cuda
