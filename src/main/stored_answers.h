#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/core/result.h"

namespace hadal::main {

// Greedy answers of a model, kept where it was right, so that another build or machine can be told
// from a right one: selfcheck.json of a model folder, written by `hadal selfcheck --write`.
//
//   {"hadal_selfcheck":1,"vocab":N,"layers":N,"weight_bytes":N,
//    "answers":[{"prompt":[ids],"ids":[ids],"margins":[nats]}]}
struct StoredAnswer {
  std::vector<int32_t> prompt;
  std::vector<int32_t> ids;     // one after the other, each the likeliest
  std::vector<double> margins;  // of each id: how far its logit is above the next one
};

struct StoredAnswers {
  // Of the model that gave them; another model is refused.
  int64_t vocab = 0, n_layers = 0, weight_bytes = 0;
  std::vector<StoredAnswer> answers;
};

core::Result<StoredAnswers> read_stored_answers(const std::string& path);
core::Status write_stored_answers(const StoredAnswers& stored, const std::string& path);

// kInvalidRequest unless `stored`, from `path`, belongs to a model of these sizes.
core::Status check_same_model(const StoredAnswers& stored, const StoredAnswers& model,
                              const std::string& path);

// Where an answer leaves the stored one.
struct Departure {
  size_t at = 0;  // of the answer's ids
  int32_t want = -1, got = -1;
  double margin = 0;  // of the stored id
};
std::optional<Departure> first_departure(const StoredAnswer& stored, std::span<const int32_t> got);

}  // namespace hadal::main
