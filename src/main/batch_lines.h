#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/core/result.h"

// The files of `hadal generate`: request lines in, result lines out, in OpenAI's batch form.
namespace hadal::main {

// Lines of a text file, empty ones left out. `number` counts all, from 1.
class LineReader {
 public:
  static core::Result<LineReader> open(const std::string& path);
  bool next(std::string& line, uint64_t& number);
  // Offset behind the line that next() gave; whether it had an end.
  uint64_t offset() const { return offset_; }
  bool complete() const { return complete_; }

 private:
  explicit LineReader(std::ifstream in) : in_(std::move(in)) {}
  std::ifstream in_;
  uint64_t n_lines_ = 0, offset_ = 0;
  bool complete_ = true;
};

// What a line is known by in both files: its custom_id if it has one, else its place.
std::string batch_key(std::string_view line, uint64_t number);

// Counts the lines of an input file. Two lines with one custom_id are refused: their results could
// not be told apart.
core::Result<uint64_t> count_batch_lines(const std::string& path);

// The output file, held by one process at a time. Lines are appended whole; kill -9 loses none that
// append() took, a power cut at most those since the last sync().
class BatchOutput {
 public:
  // Makes the file, or goes on with it: drops a last line that was cut, learns what is there.
  static core::Result<BatchOutput> open(const std::string& path, const std::string& input);
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  ~BatchOutput();

  bool has(const std::string& key) const { return keys_.contains(key); }
  uint64_t size() const { return keys_.size(); }
  // `line` ends in a newline. On failure the file is as before.
  core::Status append(std::string_view line);
  core::Status sync();

 private:
  BatchOutput(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  core::Status recover();

  std::string path_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
  std::unordered_set<std::string> keys_;
};

}  // namespace hadal::main
