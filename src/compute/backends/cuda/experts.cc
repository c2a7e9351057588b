#include "compute/backends/cuda/experts.h"

#include <fmt/format.h>

#include "base/core/check.h"
#include "compute/backends/cuda/big.h"
#include "compute/backends/cuda/big_list.h"
#include "compute/backends/cuda/big_list_fp8.h"
#include "compute/backends/cuda/dispatch.h"
#include "compute/backends/cuda/expert_rows.h"
#include "compute/backends/cuda/fp8_rows.h"
#include "compute/backends/cuda/lists.h"
#include "compute/backends/cuda/thin.h"
#include "compute/backends/cuda/wide.h"

namespace hadal::cuda {
namespace {

constexpr int64_t pad256(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// Scratch of moe_ffn, cut in one place for its size and its use. The shared expert's rows stand
// behind the places.
struct Areas {
  Dispatch list;
  int64_t n_places = 0;     // room for places, a multiple of 8
  float* slices = nullptr;  // kWideSliceBytes
  uint16_t* x = nullptr;    // [places + T, H] quantised, tiled; then the experts' outputs
  uint16_t* up = nullptr;   // [places + T, 2 inter] gate, then up
  uint16_t* act = nullptr;  // [places + T, inter] quantised, tiled
  int64_t bytes = 0;

  Areas(std::byte* base, int64_t rows, int64_t top_k, int64_t n_experts, int64_t d_hidden,
        int64_t d_inter) {
    const auto take = [&](int64_t size) {
      std::byte* p = base + bytes;
      bytes += pad256(size);
      return static_cast<void*>(p);
    };
    const int64_t choices = rows * top_k;
    n_places = max_places(choices, n_experts);
    const int64_t all = n_places + (rows + 7) / 8 * 8;
    list.row = static_cast<int32_t*>(take(all * 4));
    list.weight = static_cast<float*>(take(n_places * 4));
    list.place = static_cast<int32_t*>(take(choices * 4));
    list.tiles = static_cast<RowTile*>(
        take(max_row_tiles(choices, n_experts) * static_cast<int64_t>(sizeof(RowTile))));
    list.n_tiles = static_cast<int32_t*>(take(4));
    list.class_ends = static_cast<int32_t*>(take(kTileClasses * 4));
    list.counts = static_cast<int32_t*>(take(kDispatchParts * n_experts * 4));
    slices = static_cast<float*>(take(kWideSliceBytes));
    x = static_cast<uint16_t*>(take(all * d_hidden * 2));
    up = static_cast<uint16_t*>(take(all * 2 * d_inter * 2));
    act = static_cast<uint16_t*>(take(all * d_inter * 2));
  }
};

// Many rows, of a step or of an expert on average: tiles of up to kLongTileRows rows, by class.
// With so many of an expert the tensor cores bind, not the weights' bytes.
constexpr int64_t kLongTileMean = 48;
bool takes_long_tiles(const CudaExperts& e, const WideProduct& shared, const WideProduct& routed,
                      int64_t n_choices, const Gpu& gpu) {
  return (!lists_fit(shared, routed) || n_choices >= kLongTileMean * e.up.view().n_groups) &&
         big_list_fits(e.up, gpu) && big_list_fits(e.down, gpu);
}

void multiply_shared(const WideProduct& shared, const Gpu& gpu, cudaStream_t stream) {
  if (big_fits(*shared.weight, shared.n_rows, gpu)) {
    launch_big(shared, gpu, stream);
  } else {
    launch_wide(shared, gpu, stream);
  }
}

void multiply(const WideProduct& shared, const WideProduct& routed, const int32_t* class_ends,
              int64_t n_places, const Gpu& gpu, cudaStream_t stream) {
  if (class_ends == nullptr && lists_fit(shared, routed))
    return launch_lists(shared, routed, gpu, stream);
  multiply_shared(shared, gpu, stream);
  if (class_ends != nullptr) return launch_big_list(routed, class_ends, n_places, gpu, stream);
  launch_wide(routed, gpu, stream);
}

// Both products of the routed experts in E4M3 or none, so that a row's codes have one layout.
bool fp8_takes_experts(const CudaExperts& e, int64_t rows, int64_t top_k, const Gpu& gpu) {
  return fp8_fits(e.up, rows, gpu) && fp8_fits(e.down, rows, gpu) &&
         fp8_experts_pay(rows, top_k, e.up.view().n_groups);
}

// moe_ffn up to the sum over a row's experts. The shared expert keeps its parity kernels. The areas
// are those of the other kernels: a window of a row's codes is smaller than its bf16 values from 96
// columns on.
void launch_fp8_experts(const ops::MoeArgs& args, const CudaExperts& experts, const Areas& at,
                        const Gpu& gpu, cudaStream_t stream) {
  const int64_t rows = args.h.n_rows, top_k = args.expert.n_cols, n_places = at.n_places;
  const int64_t hidden = experts.d_hidden, inter = experts.d_inter;
  const int32_t n_experts = experts.up.view().n_groups;
  auto* x = reinterpret_cast<uint8_t*>(at.x);
  auto* act = reinterpret_cast<uint8_t*>(at.act);
  Fp8Product routed = {.weight = &experts.up,
                       .x = x,
                       .x_rows = n_places,
                       .tiles = at.list.tiles,
                       .class_ends = at.list.class_ends,
                       .max_tiles = static_cast<int32_t>(max_row_tiles(rows * top_k, n_experts)),
                       .y = at.up,
                       .y_stride = 2 * inter};
  WideProduct shared;
  shared.weight = &experts.shared_up;
  shared.x = at.x + n_places * hidden;
  shared.x_columns = hidden;
  shared.n_rows = static_cast<int32_t>(rows);
  shared.y = at.up + n_places * 2 * inter;
  shared.y_stride = 2 * inter;
  shared.slices = at.slices;
  launch_dispatch(args.expert.data, args.expert.stride, args.weight.data, args.weight.stride,
                  static_cast<int32_t>(rows), static_cast<int32_t>(top_k), n_experts, kFp8TileRows,
                  at.list, stream);
  launch_fp8_rows(args.h, at.list.row, n_places, x, stream);
  launch_tile_rows(args.h, nullptr, rows, true, at.x + n_places * hidden, stream);
  multiply_shared(shared, gpu, stream);
  launch_big_list_fp8(routed, gpu, stream);
  launch_fp8_swiglu(at.up, at.list.weight, at.list.row, n_places, experts.d_inter, args.limit, act,
                    stream);
  launch_swiglu(at.up + n_places * 2 * inter, nullptr, at.list.row + n_places, 0, rows,
                experts.d_inter, args.limit, at.act + n_places * inter, stream);
  routed.weight = &experts.down;
  routed.x = act;
  routed.y = at.x;
  routed.y_stride = hidden;
  shared.weight = &experts.shared_down;
  shared.x = at.act + n_places * inter;
  shared.x_columns = inter;
  shared.y = at.x + n_places * hidden;
  shared.y_stride = hidden;
  multiply_shared(shared, gpu, stream);
  launch_big_list_fp8(routed, gpu, stream);
}

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
  HADAL_TRY(out->meeting, DeviceBytes::make(sizeof(uint32_t)));
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
  const auto choices = static_cast<int32_t>(top_k);
  if (thin_experts_fit(experts, rows, top_k, gpu)) {
    launch_thin_experts(args,
                        {.experts = &experts, .act = at.act, .out = at.x, .place = at.list.place},
                        gpu, stream);
    launch_combine(at.x, at.list.place, choices, rows * top_k, rows, experts.d_hidden, args.y.data,
                   args.y.stride, stream);
    return;
  }
  if (fp8_takes_experts(experts, rows, top_k, gpu)) {
    launch_fp8_experts(args, experts, at, gpu, stream);
    launch_combine(at.x, at.list.place, choices, at.n_places, rows, experts.d_hidden, args.y.data,
                   args.y.stride, stream);
    return;
  }
  WideProduct routed;
  routed.weight = &experts.up;
  routed.x = at.x;
  routed.x_columns = hidden;
  routed.tiles = at.list.tiles;
  routed.n_tiles = at.list.n_tiles;
  routed.max_tiles = static_cast<int32_t>(max_row_tiles(rows * top_k, n_experts));
  routed.y = at.up;
  routed.y_stride = 2 * inter;
  WideProduct shared;
  shared.weight = &experts.shared_up;
  shared.x = at.x + at.n_places * hidden;
  shared.x_columns = hidden;
  shared.n_rows = static_cast<int32_t>(rows);
  shared.y = at.up + at.n_places * 2 * inter;
  shared.y_stride = 2 * inter;
  shared.slices = at.slices;

  const int64_t all = at.n_places + (rows + 7) / 8 * 8;
  const bool long_tiles = takes_long_tiles(experts, shared, routed, rows * top_k, gpu);
  Dispatch list = at.list;
  if (!long_tiles) list.class_ends = nullptr;
  launch_dispatch(args.expert.data, args.expert.stride, args.weight.data, args.weight.stride,
                  static_cast<int32_t>(rows), choices, n_experts,
                  long_tiles ? kLongTileRows : kTileRows, list, stream);
  launch_tile_rows(args.h, list.row, all, true, at.x, stream);
  multiply(shared, routed, list.class_ends, at.n_places, gpu, stream);

  launch_swiglu(at.up, at.list.weight, at.list.row, at.n_places, all, experts.d_inter, args.limit,
                at.act, stream);

  uint16_t* out = at.x;
  routed.weight = &experts.down;
  routed.x = at.act;
  routed.x_columns = inter;
  routed.y = out;
  routed.y_stride = hidden;
  shared.weight = &experts.shared_down;
  shared.x = at.act + at.n_places * inter;
  shared.x_columns = inter;
  shared.y = out + at.n_places * hidden;
  shared.y_stride = hidden;
  multiply(shared, routed, list.class_ends, at.n_places, gpu, stream);
  launch_combine(out, at.list.place, choices, at.n_places, rows, experts.d_hidden, args.y.data,
                 args.y.stride, stream);
}

}  // namespace hadal::cuda
