#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/core/result.h"
#include "gateway/store/store.h"

namespace hadal::serving {

// The lines of a stored file, one after another; a piece of it and one line are in memory. Thread:
// its owner's, not the store's.
class BatchInput {
 public:
  BatchInput(store::Store& store, std::string tenant, std::string file)
      : store_(&store), tenant_(std::move(tenant)), file_(std::move(file)) {}

  struct Line {
    uint64_t number = 0;  // from 1, empty lines counted
    std::string text = {};
  };
  // The next line that holds something; false at the end. Errors are those of the store.
  core::Result<bool> next(Line& line);

 private:
  store::Store* store_;
  std::string tenant_, file_;
  store::Files::Cursor cursor_;
  std::string piece_;
  size_t at_ = 0;  // in piece_
  uint64_t n_lines_ = 0;
  bool at_end_ = false;
};

}  // namespace hadal::serving
