#include "compute/backends/cpu/pack.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/core/check.h"
#include "compute/backends/cpu/thread_pool.h"

namespace hadal::cpu {
namespace {

constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kPage = 4096;
constexpr int64_t kOverhang = 64;    // kernels may read a line from its byte 3 ...
constexpr int64_t kLead = 64;        // ... and from three bytes before it
constexpr std::byte kScaleOne{127};  // E8M0 of 2^0

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Bytes of `count` elements of a row.
int64_t row_bytes(WeightFormat format, int64_t count) {
  switch (format) {
    case WeightFormat::kF32:
      return 4 * count;
    case WeightFormat::kBF16:
      return 2 * count;
    case WeightFormat::kFP8:
      return count;
    case WeightFormat::kFP4:
      return ceil_div(count, 2);
  }
  return 0;
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

// The four nibbles of the low halves of v's bytes, as 16 bits.
uint32_t gather_nibbles(uint32_t v) {
  v &= 0x0F0F0F0Fu;
  v = (v | (v >> 4)) & 0x00FF00FFu;
  return (v | (v >> 8)) & 0xFFFFu;
}

// The four nibbles of v's low half, one in each byte.
uint32_t spread_nibbles(uint32_t v) {
  v = (v | (v << 8)) & 0x00FF00FFu;
  return (v | (v << 4)) & 0x0F0F0F0Fu;
}

// Puts 32 elements of row r of a panel, `from`, into its place in the block `to` (layout: pack.h).
void place_row(WeightFormat format, PackOrder order, const std::byte* from, int r, std::byte* to) {
  if (format == WeightFormat::kFP4 && order == PackOrder::kRows) {
    for (int line = 0; line < 4; ++line) {
      const uint32_t v = load<uint32_t>(from + 4 * line);
      store<uint32_t>(to + 64 * line + 4 * r, spread_nibbles(v & 0xFFFFu) | spread_nibbles(v >> 16)
                                                                                << 4);
    }
    return;
  }
  if (format == WeightFormat::kFP8 && order == PackOrder::kRows) {
    for (int line = 0; line < 8; ++line) {
      store<uint32_t>(to + 64 * line + 4 * r, load<uint32_t>(from + 4 * line));
    }
    return;
  }
  switch (format) {
    case WeightFormat::kFP4:
      for (int line = 0; line < 4; ++line) {
        const uint32_t v = load<uint32_t>(from + 4 * line);
        store<uint32_t>(to + 64 * line + 4 * r, gather_nibbles(v) | gather_nibbles(v >> 4) << 16);
      }
      return;
    case WeightFormat::kFP8:
      for (int line = 0; line < 8; ++line) {
        std::byte* const at = to + 64 * line + r / 4 * 16 + r % 4 * 2;
        store<uint16_t>(at, load<uint16_t>(from + 4 * line));
        store<uint16_t>(at + 8, load<uint16_t>(from + 4 * line + 2));
      }
      return;
    case WeightFormat::kBF16:
      for (int line = 0; line < 16; ++line) {
        store<uint32_t>(to + 64 * line + 4 * r, load<uint32_t>(from + 4 * line));
      }
      return;
    case WeightFormat::kF32:
      for (int line = 0; line < 32; ++line) {
        store<uint32_t>(to + 64 * line + 4 * r, load<uint32_t>(from + 4 * line));
      }
      return;
  }
}

}  // namespace

int64_t source_weight_bytes(WeightFormat format, int64_t n, int64_t k) {
  return n * row_bytes(format, k);
}

int64_t source_scale_bytes(WeightFormat format, int64_t n, int64_t k) {
  switch (format) {
    case WeightFormat::kFP8:
      return ceil_div(n, kBlockK) * ceil_div(k, kBlockK);
    case WeightFormat::kFP4:
      return n * ceil_div(k, kBlockK);
    default:
      return 0;
  }
}

PackedBytes::PackedBytes(int64_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  // A mapping is only page-aligned: large ones take one huge page more and use the aligned middle,
  // whose unused ends are never touched and cost address space only.
  const bool huge = bytes >= 2 * kHugePage;
  mapped_ = huge ? bytes + kHugePage : bytes;
  void* const base = mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  HADAL_CHECK(base != MAP_FAILED, fmt::format("no address space for {} bytes of weights", bytes));
  base_ = static_cast<std::byte*>(base);
  data_ = base_;
  if (huge) {
    const auto address = reinterpret_cast<uintptr_t>(base_);
    data_ += (kHugePage - static_cast<int64_t>(address % kHugePage)) % kHugePage;
  }
  // The last, partial huge page stays small, so that a layer of many tensors wastes nothing. That
  // has to be said: where the system gives huge pages to all, it would round every tensor up.
  const int64_t whole = huge ? bytes / kHugePage * kHugePage : 0;
  if (whole > 0) madvise(data_, static_cast<size_t>(whole), MADV_HUGEPAGE);
  if (whole < bytes) {
    madvise(data_ + whole, static_cast<size_t>(base_ + mapped_ - data_ - whole), MADV_NOHUGEPAGE);
  }
}

PackedBytes::~PackedBytes() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(mapped_));
}

PackedBytes::PackedBytes(PackedBytes&& other) noexcept {
  *this = std::move(other);
}

PackedBytes& PackedBytes::operator=(PackedBytes&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

PackedLinear::PackedLinear(WeightFormat format, PackOrder order, int64_t n_groups,
                           std::span<const int64_t> piece_rows, int64_t k)
    : format_(format),
      order_(order),
      k_(k),
      n_groups_(n_groups),
      n_blocks_(ceil_div(k, kBlockK)),
      n_pieces_(static_cast<int>(piece_rows.size())) {
  HADAL_CHECK(k >= 1 && n_groups >= 1 && n_pieces_ >= 1 && n_pieces_ <= kMaxPieces);
  for (int i = 0; i < n_pieces_; ++i) {
    HADAL_CHECK(piece_rows[static_cast<size_t>(i)] >= 1);
    piece_rows_[i] = piece_rows[static_cast<size_t>(i)];
    piece_panel_[i + 1] = piece_panel_[i] + ceil_div(piece_rows_[i], kPanelRows);
  }
  group_panels_ = piece_panel_[n_pieces_];
  n_ = piece_column(n_pieces_ - 1) + piece_rows_[n_pieces_ - 1];
  weight_ = PackedBytes(kLead + n_groups * group_panels_ * n_blocks_ * block_bytes() + kOverhang);
  scale_ = PackedBytes(n_groups * group_panels_ * n_blocks_ * block_scale_bytes());
}

PackedLinear::PackedLinear(WeightFormat format, PackOrder order, int64_t n, int64_t k)
    : PackedLinear(format, order, 1, std::span<const int64_t>(&n, 1), k) {}

int64_t PackedLinear::block_bytes() const {
  return kPanelRows * row_bytes(format_, kBlockK);
}

int64_t PackedLinear::block_scale_bytes() const {
  switch (format_) {
    case WeightFormat::kFP8:
      return 1;
    case WeightFormat::kFP4:
      return kPanelRows;
    default:
      return 0;
  }
}

const std::byte* PackedLinear::group_weight(int64_t group) const {
  return weight_.data() + kLead + group * group_panels_ * n_blocks_ * block_bytes();
}

const std::byte* PackedLinear::group_scale(int64_t group) const {
  return scale_.data() == nullptr
             ? nullptr
             : scale_.data() + group * group_panels_ * n_blocks_ * block_scale_bytes();
}

void PackedLinear::pack(int64_t group, int piece, const WeightSource& source, int64_t begin,
                        int64_t end) {
  HADAL_CHECK(group >= 0 && group < n_groups_ && piece >= 0 && piece < n_pieces_);
  HADAL_CHECK(
      source.format == format_ && source.k == k_ && source.n == piece_rows_[piece],
      fmt::format("source {} x {}, piece {} x {}", source.n, source.k, piece_rows_[piece], k_));
  HADAL_CHECK(begin >= 0 && end <= piece_panels(piece));
  const int64_t stride = row_bytes(format_, k_);
  const int64_t unit = row_bytes(format_, kBlockK);
  for (int64_t p = begin; p < end; ++p) {
    const int64_t panel = group * group_panels_ + piece_panel_[piece] + p;
    std::byte* const to = weight_.data() + kLead + panel * n_blocks_ * block_bytes();
    const int64_t rows = std::min(kPanelRows, source.n - p * kPanelRows);
    for (int64_t b = 0; b < n_blocks_; ++b) {
      const int64_t have = std::min(kBlockK, k_ - b * kBlockK);
      for (int64_t r = 0; r < rows; ++r) {
        const std::byte* from = source.weight + (p * kPanelRows + r) * stride + b * unit;
        std::byte padded[4 * kBlockK] = {};
        if (have < kBlockK) {
          const int64_t bytes = row_bytes(format_, have);
          std::memcpy(padded, from, static_cast<size_t>(bytes));
          if (format_ == WeightFormat::kFP4 && have % 2 == 1) padded[bytes - 1] &= std::byte{0x0F};
          from = padded;
        }
        place_row(format_, order_, from, static_cast<int>(r), to + b * block_bytes());
      }
    }
    pack_scales(source, p, rows, panel);
  }
}

void PackedLinear::pack_scales(const WeightSource& source, int64_t p, int64_t rows, int64_t panel) {
  if (format_ == WeightFormat::kFP8) {
    std::memcpy(scale_.data() + panel * n_blocks_,
                source.scale + p * kPanelRows / kBlockK * n_blocks_,
                static_cast<size_t>(n_blocks_));
  } else if (format_ == WeightFormat::kFP4) {
    std::byte* const to = scale_.data() + panel * n_blocks_ * kPanelRows;
    const std::byte* const from = source.scale + p * kPanelRows * n_blocks_;
    for (int64_t b = 0; b < n_blocks_; ++b) {
      for (int64_t r = 0; r < kPanelRows; ++r) {
        to[b * kPanelRows + r] = r < rows ? from[r * n_blocks_ + b] : kScaleOne;
      }
    }
  }
}

void PackedLinear::pack(ThreadPool& pool, int64_t group, int piece, const WeightSource& source,
                        bool drop_source) {
  // Pieces of about 4 MiB: what is mapped and not yet dropped stays small.
  const int64_t panel_bytes = n_blocks_ * block_bytes();
  const int64_t step = std::max<int64_t>(1, (4 << 20) / panel_bytes);
  pool.run([&](const Lane& lane) {
    const Range mine = share(piece_panels(piece), lane);
    for (int64_t p = mine.begin; p < mine.end; p += step) {
      const int64_t end = std::min(mine.end, p + step);
      pack(group, piece, source, p, end);
      if (drop_source) {
        const int64_t stride = row_bytes(format_, k_);
        const int64_t last = std::min(end * kPanelRows, source.n);
        drop_mapped_pages(source.weight + p * kPanelRows * stride,
                          (last - p * kPanelRows) * stride);
      }
    }
  });
}

void drop_mapped_pages(const std::byte* data, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t last = (begin + static_cast<uintptr_t>(bytes)) / kPage * kPage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace hadal::cpu
