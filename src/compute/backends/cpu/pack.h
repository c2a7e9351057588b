#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/core/result.h"

namespace hadal::cpu {

class ThreadPool;

enum class WeightFormat : uint8_t {
  kF32,   // f32
  kBF16,  // bf16
  kFP8,   // E4M3 with one E8M0 scale for 32 x 32 elements, [ceil(n/32), ceil(k/32)]
  kFP4,  // E2M1, low nibble = even k, with one E8M0 scale for 32 elements of a row, [n, ceil(k/32)]
};

// In which order a block of FP4 or FP8 weights lies in memory; each level's kernels read one.
enum class PackOrder : uint8_t {
  kPairs,  // what bf16 pairs (k, k+1) of a row are made of with the fewest shuffles
  kRows,   // the same k of all rows in turn
};

inline constexpr int64_t kPanelRows =
    16;                                 // output rows of a panel: the lanes of one 512-bit register
inline constexpr int64_t kBlockK = 32;  // elements that share a scale

// One matrix [n, k] as the checkpoint holds it: row-major, rows contiguous (FP4: ceil(k/2) bytes a
// row), scales contiguous behind their own pointer (null for kF32, kBF16).
struct WeightSource {
  WeightFormat format = WeightFormat::kBF16;
  const std::byte* weight = nullptr;
  const std::byte* scale = nullptr;
  int64_t n = 0;
  int64_t k = 0;
};

// Bytes of the source's weight and scale arrays.
int64_t source_weight_bytes(WeightFormat format, int64_t n, int64_t k);
int64_t source_scale_bytes(WeightFormat format, int64_t n, int64_t k);

// Zeroed memory of its own mapping (2 MiB pages where large), so that pages land on the node of the
// thread that packs into them and go back to the system when it is destroyed.
class PackedBytes {
 public:
  PackedBytes() = default;
  explicit PackedBytes(int64_t bytes);
  ~PackedBytes();
  PackedBytes(PackedBytes&& other) noexcept;
  PackedBytes& operator=(PackedBytes&& other) noexcept;
  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::byte* base_ = nullptr;  // of the mapping; data_ is aligned inside it
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
  int64_t mapped_ = 0;
};

// Weights in the order in which the kernels read them (R16): panels of 16 output rows, in a panel
// blocks of 32 k, in a block 64-byte lines. Order kPairs:
//   kFP4   4 lines a block; 16-bit word 2r+e of line l holds k = 8l+e, 8l+2+e, 8l+4+e, 8l+6+e of
//   row
//          r, lowest nibble first
//   kFP8   8 lines; 16-byte lane q of line l holds bytes (k0,k1) of rows 4q..4q+3, then (k2,k3) of
//          the same rows, k0 = 4l
// order kRows:
//   kFP4   4 lines; byte j of dword r of line l holds k = 8l+j (low nibble) and 8l+4+j of row r
//   kFP8   8 lines; byte j of dword r of line l holds k = 4l+j of row r
// either order:
//   kBF16  16 lines; dword r of line l holds k = 2l (low half) and 2l+1 of row r
//   kF32   32 lines; float r of line l holds k = l of row r
// and scales apart: kFP4 16 bytes a block (one a row), kFP8 one byte a block. Rows and k that do
// not exist are zero weights with scale 2^0. It is a permutation of the checkpoint's bytes plus
// padding.
//
// One PackedLinear holds `n_groups` equal shapes (the experts of a layer; 1 for a dense linear); a
// group is a stack of pieces (w1 over w3; wq_a over wkv), each padded to whole panels. The columns
// of a product are those of the stack: piece i begins at column piece_column(i), a multiple of 16;
// columns of padding inside the stack are written as 0, those behind the last piece not at all.
//
// Thread safety: pack() may run for different (group, piece, panels) at once; const afterwards.
class PackedLinear {
 public:
  static constexpr int kMaxPieces = 4;
  PackedLinear() = default;
  PackedLinear(WeightFormat format, PackOrder order, int64_t n_groups,
               std::span<const int64_t> piece_rows, int64_t k);
  PackedLinear(WeightFormat format, PackOrder order, int64_t n, int64_t k);

  WeightFormat format() const { return format_; }
  // Whether kernels that read `order` can read these weights.
  bool readable_in(PackOrder order) const {
    return order == order_ || format_ == WeightFormat::kF32 || format_ == WeightFormat::kBF16;
  }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }  // columns of a group's product, padding between pieces included
  int64_t n_groups() const { return n_groups_; }
  int64_t n_blocks() const { return n_blocks_; }
  int64_t group_panels() const { return group_panels_; }
  int64_t piece_column(int piece) const { return piece_panel_[piece] * kPanelRows; }
  int64_t bytes() const { return weight_.size() + scale_.size(); }
  const std::byte* group_weight(int64_t group) const;
  const std::byte* group_scale(int64_t group) const;  // null where the format has none
  int64_t block_bytes() const;                        // of one panel's block of 32 k
  int64_t block_scale_bytes() const;                  // likewise

  // Fills panels [begin, end) of a piece. REQUIRES: source has this format, k and the piece's rows.
  void pack(int64_t group, int piece, const WeightSource& source, int64_t begin, int64_t end);
  // The whole piece, on the threads of `pool`. With `drop_source` the source's pages are given back
  // to the system as they are consumed (it must be a file mapping), so that the peak stays near the
  // packed size.
  void pack(ThreadPool& pool, int64_t group, int piece, const WeightSource& source,
            bool drop_source);

 private:
  int64_t piece_panels(int piece) const { return piece_panel_[piece + 1] - piece_panel_[piece]; }

  void pack_scales(const WeightSource& source, int64_t p, int64_t rows, int64_t panel);

  WeightFormat format_ = WeightFormat::kBF16;
  PackOrder order_ = PackOrder::kPairs;
  int64_t k_ = 0, n_ = 0, n_groups_ = 0, n_blocks_ = 0, group_panels_ = 0;
  int n_pieces_ = 0;
  int64_t piece_panel_[kMaxPieces + 1] = {};
  int64_t piece_rows_[kMaxPieces] = {};
  PackedBytes weight_, scale_;
};

// Tells the system that the whole pages inside [data, data + bytes) of a file mapping are not
// needed for now: they leave this process's resident memory and come back from the file when
// touched.
void drop_mapped_pages(const std::byte* data, int64_t bytes);

}  // namespace hadal::cpu
