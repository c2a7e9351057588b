#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/core/result.h"
#include "compute/model/logit_rows.h"
#include "compute/ops/step_batch.h"
#include "main/loaded_model.h"

// The likeliest ids after prompts, made in one of the ways that a step can be cut.
namespace hadal::main {

struct Way {
  std::string name;
  int32_t chunk = 0;      // 0: whole prompts
  bool together = false;  // all prompts in the same steps
  bool all_layers = false;
  int32_t snapshot_at = 0;  // after so many generated ids the slot moves to another one
  int32_t copies = 1;       // of every prompt, each a sequence of its own
};

struct Answer {
  std::vector<int32_t> ids;
  std::vector<double> margins;  // of each id above the next likeliest
  std::vector<float> logits;    // of the last row, as witness
  bool operator==(const Answer&) const = default;
};

class WayRunner {
 public:
  // Room for `n_prompts` prompts of up to `max_prompt` ids, `copies` of each, and `n_new` ids
  // behind them. Errors: memory that is not there.
  static core::Result<std::unique_ptr<WayRunner>> make(LoadedModel loaded, int32_t max_prompt,
                                                       int32_t n_prompts, int32_t n_new,
                                                       int32_t copies);

  // An answer a prompt; with copies, all first copies, then all second ones.
  core::Result<std::vector<Answer>> run(const std::vector<std::vector<int32_t>>& prompts,
                                        const Way& way);

 private:
  struct Running;
  bool finished(const Running& r) const;
  core::Status step(const std::vector<Running*>& group, const Way& way);
  void move_slot(Running& r);

  LoadedModel loaded_;
  model::WorkspacePtr workspace_;
  std::unique_ptr<device::Stream> stream_;
  device::Buffer slabs_, slots_;
  ops::KvView kv_;
  ops::StepBatch batch_;
  model::LogitRows logits_;
  uint32_t blocks_each_ = 0;
  int32_t n_new_ = 0;
};

}  // namespace hadal::main
