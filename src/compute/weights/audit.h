#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/core/result.h"
#include "compute/weights/checkpoint.h"
#include "compute/weights/model_config.h"

namespace hadal::weights {

struct AuditOptions {
  bool values = true;          // read every weight once and look for NaN and infinity
  bool engram_tables = false;  // the tables too; else their rows are never read here
  int32_t n_threads = 0;       // 0: all
  // Bytes of values that were read, of how many. On the caller's thread; may be empty.
  std::function<void(uint64_t done, uint64_t total)> on_progress = {};
};

// E8M0 exponents of all scale tensors of one name pattern, "layers.*.attn.wq_a.scale".
struct ScaleRange {
  uint64_t n_tensors = 0;
  int32_t low = 128, high = -128;  // exponents of two, without the bias
  uint64_t n_zero_bytes = 0;       // 2^-127, which no healthy export has
};

struct AuditReport {
  static constexpr size_t kMaxLines = 20;

  uint64_t n_tensors = 0, n_bytes = 0;
  bool has_draft = false, has_vision = false;
  uint64_t n_problems = 0;
  std::vector<std::string> lines;  // the first kMaxLines problems
  uint64_t n_scanned_bytes = 0;
  uint64_t n_not_finite = 0;                 // values that are NaN or infinite
  std::map<std::string, ScaleRange> scales;  // by name pattern; empty without `values`
};

// Compares a checkpoint with what its config asks for: every tensor that is missing, superfluous,
// of another shape or type, and every tensor with values that are no numbers. The groups mtp.* and
// vision.* + aligner.* + image_* may be absent, each as a whole.
AuditReport audit(const Checkpoint& checkpoint, const ModelConfig& config,
                  const AuditOptions& options = {});

// A report as one error (kCorrupt) with its first lines, and both steps in one: call it before a
// model is made of the checkpoint: its loader relies on shapes and types.
core::Error audit_error(const AuditReport& report, const Checkpoint& checkpoint);
core::Status audit_checkpoint(const Checkpoint& checkpoint, const ModelConfig& config,
                              const AuditOptions& options = {});

// Values of `bytes` that are NaN or infinite, read as `type`. I8 (packed FP4) has none.
uint64_t count_not_finite(StoredType type, std::span<const std::byte> bytes);

}  // namespace hadal::weights
