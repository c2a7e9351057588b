#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "compute/backends/cpu/cpu_ops.h"

// Load-time side of the CPU op set: checkpoint matrices into packed panels.
namespace hadal::cpu {
namespace {

WeightFormat packed_format(ops::WeightFormat format) {
  switch (format) {
    case ops::WeightFormat::kFp8Tile:
      return WeightFormat::kFP8;
    case ops::WeightFormat::kFp4Row:
      return WeightFormat::kFP4;
    case ops::WeightFormat::kBf16:
      return WeightFormat::kBF16;
    case ops::WeightFormat::kF32:
      return WeightFormat::kF32;
  }
  return WeightFormat::kF32;
}

WeightSource packed_source(const ops::WeightSource& s) {
  return {.format = packed_format(s.format),
          .weight = static_cast<const std::byte*>(s.weight),
          .scale = reinterpret_cast<const std::byte*>(s.scale),
          .n = s.n,
          .k = s.k};
}

// Rows [first, first + n) of a matrix whose scale tiles begin at `first`.
WeightSource rows_of(const ops::WeightSource& s, int64_t first, int64_t n) {
  WeightSource part = packed_source(s);
  part.weight += source_weight_bytes(part.format, first, s.k);
  if (part.scale != nullptr) part.scale += source_scale_bytes(part.format, first, s.k);
  part.n = n;
  return part;
}

core::Error refused(std::string why) {
  return {core::Code::kInvalidRequest, std::move(why)};
}

}  // namespace

core::Result<std::unique_ptr<ops::Linear>> CpuOps::make_linear(
    std::span<const ops::WeightSource> stack) {
  HADAL_CHECK(!stack.empty() && stack.size() <= PackedLinear::kMaxPieces, "stack of a linear");
  std::vector<int64_t> rows;
  int64_t n = 0;
  for (size_t i = 0; i < stack.size(); ++i) {
    HADAL_CHECK(stack[i].format == stack[0].format && stack[i].k == stack[0].k,
                "a stack of unlike matrices");
    if (i + 1 < stack.size() && stack[i].n % kPanelRows != 0) {
      return refused(
          fmt::format("a matrix of {} outputs cannot be followed by another in one "
                      "product: the count must be a multiple of {}",
                      stack[i].n, kPanelRows));
    }
    rows.push_back(stack[i].n);
    n += stack[i].n;
  }
  PackedLinear packed(packed_format(stack[0].format), linear_.order, 1, rows, stack[0].k);
  for (size_t i = 0; i < stack.size(); ++i)
    packed.pack(pool_, 0, static_cast<int>(i), packed_source(stack[i]), stack[i].mapped);
  return std::unique_ptr<ops::Linear>(std::make_unique<CpuLinear>(std::move(packed), n));
}

core::Result<std::unique_ptr<ops::Linear>> CpuOps::make_grouped(const ops::WeightSource& source,
                                                                int32_t n_groups) {
  const int64_t n = source.n / n_groups;
  HADAL_CHECK(n * n_groups == source.n, "groups of a block-diagonal product");
  if (source.format == ops::WeightFormat::kFp8Tile && n % 32 != 0) {
    return refused(fmt::format(
        "{} outputs in {} groups: a group must be a multiple of 32, the tile of the scales",
        source.n, n_groups));
  }
  const int64_t rows[] = {n};
  PackedLinear packed(packed_format(source.format), linear_.order, n_groups, rows, source.k);
  for (int32_t g = 0; g < n_groups; ++g)
    packed.pack(pool_, g, 0, rows_of(source, g * n, n), source.mapped);
  return std::unique_ptr<ops::Linear>(std::make_unique<CpuLinear>(std::move(packed), n));
}

core::Result<std::unique_ptr<ops::Linear>> CpuOps::make_mix(const ops::WeightSource& source,
                                                            int32_t n_streams) {
  HADAL_CHECK(source.format == ops::WeightFormat::kF32 && source.k % n_streams == 0, "hc fn");
  const int64_t k = source.k / n_streams;
  const int64_t rows[] = {source.n};
  PackedLinear packed(WeightFormat::kF32, linear_.order, n_streams, rows, k);
  std::vector<float> part(static_cast<size_t>(source.n * k));
  for (int32_t j = 0; j < n_streams; ++j) {
    for (int64_t i = 0; i < source.n; ++i) {
      std::memcpy(part.data() + i * k,
                  static_cast<const float*>(source.weight) + i * source.k + j * k,
                  static_cast<size_t>(k) * sizeof(float));
    }
    const WeightSource stream = {.format = WeightFormat::kF32,
                                 .weight = reinterpret_cast<const std::byte*>(part.data()),
                                 .n = source.n,
                                 .k = k};
    packed.pack(pool_, j, 0, stream, false);
  }
  return std::unique_ptr<ops::Linear>(std::make_unique<CpuLinear>(std::move(packed), source.n));
}

core::Result<std::unique_ptr<ops::Experts>> CpuOps::make_experts(
    std::span<const ops::ExpertSource> routed, const ops::ExpertSource& shared) {
  auto out = std::make_unique<CpuExperts>();
  HADAL_CHECK(!routed.empty(), "no experts");
  out->d_inter = shared.w1.n;
  out->d_hidden = shared.w1.k;
  const int64_t up_rows[] = {out->d_inter, out->d_inter};
  const int64_t down_rows[] = {out->d_hidden};
  const auto n = static_cast<int64_t>(routed.size());
  out->up =
      PackedLinear(packed_format(routed[0].w1.format), linear_.order, n, up_rows, out->d_hidden);
  out->down =
      PackedLinear(packed_format(routed[0].w2.format), linear_.order, n, down_rows, out->d_inter);
  out->shared_up =
      PackedLinear(packed_format(shared.w1.format), linear_.order, 1, up_rows, out->d_hidden);
  out->shared_down =
      PackedLinear(packed_format(shared.w2.format), linear_.order, 1, down_rows, out->d_inter);
  for (int64_t e = 0; e < n; ++e) {
    const ops::ExpertSource& s = routed[static_cast<size_t>(e)];
    out->up.pack(pool_, e, 0, packed_source(s.w1), s.w1.mapped);
    out->up.pack(pool_, e, 1, packed_source(s.w3), s.w3.mapped);
    out->down.pack(pool_, e, 0, packed_source(s.w2), s.w2.mapped);
  }
  out->shared_up.pack(pool_, 0, 0, packed_source(shared.w1), shared.w1.mapped);
  out->shared_up.pack(pool_, 0, 1, packed_source(shared.w3), shared.w3.mapped);
  out->shared_down.pack(pool_, 0, 0, packed_source(shared.w2), shared.w2.mapped);
  return std::unique_ptr<ops::Experts>(std::move(out));
}

}  // namespace hadal::cpu
