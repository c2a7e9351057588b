#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/core/result.h"
#include "gateway/serving/dialects.h"

// Lines of a batch's input, in OpenAI's form: {"custom_id","method":"POST","url","body"}.
namespace hadal::serving {

struct BatchLine {
  const Dialect* dialect = nullptr;
  std::string custom_id, body;
  bool has_custom_id = false;
};

// kInvalidRequest says what is wrong with the line, without its number; `param` is the field. `out`
// then has the custom_id, if there is a good one.
core::Status read_batch_line(std::string_view line, BatchLine& out);

// The dialect that answers a POST of that path, or null.
const Dialect* dialect_of_path(std::string_view path);

// `id` of the result of an input line, from 1; stable over runs.
std::string batch_line_id(uint64_t number);

}  // namespace hadal::serving
