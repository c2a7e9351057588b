#pragma once

#include <array>
#include <cstdint>

#include "base/core/check.h"

namespace hadal::device {

// A matrix that somebody else owns: rows of `n_cols` elements, `stride` elements apart. bf16 values
// are uint16_t bits throughout the compute folders.
template <class T>
struct Matrix {
  T* data = nullptr;
  int64_t n_rows = 0;
  int64_t n_cols = 0;
  int64_t stride = 0;

  Matrix() = default;
  Matrix(T* first, int64_t rows, int64_t cols) : Matrix(first, rows, cols, cols) {}
  Matrix(T* first, int64_t rows, int64_t cols, int64_t row_stride)
      : data(first), n_rows(rows), n_cols(cols), stride(row_stride) {}

  T* row(int64_t r) const { return data + r * stride; }
  // The first `n` rows.
  Matrix head(int64_t n) const {
    HADAL_CHECK(n <= n_rows, "more rows than the matrix has");
    return Matrix(data, n, n_cols, stride);
  }
  // Columns [first, first + n).
  Matrix cols(int64_t first, int64_t n) const {
    HADAL_CHECK(first + n <= n_cols, "more columns than the matrix has");
    return Matrix(data + first, n_rows, n, stride);
  }
  operator Matrix<const T>() const {  // NOLINT(google-explicit-constructor)
    return Matrix<const T>(data, n_rows, n_cols, stride);
  }
};

}  // namespace hadal::device
