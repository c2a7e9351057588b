#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"

namespace hadal::serving {

// Outputs for clients that cannot send a script of their own (docs/architecture.md 3.4): one JSON
// object a line, tried in order; the first that matches and was used fewer than `times` times
// plays. Thread-safe after load.
class ScriptFile {
 public:
  struct Line {
    std::optional<recipe::Api> api;
    std::string tool, last_role;
    std::vector<std::string> contains;
    std::string reasoning, text, finish = "stop";
    uint32_t step = 1, pace_ms = 0;
    uint64_t times = 0;  // 0: no limit
  };

  // kInvalidRequest names the file and the number of a wrong line.
  static core::Result<std::unique_ptr<ScriptFile>> load(const std::string& path);
  static core::Result<std::unique_ptr<ScriptFile>> parse(std::string_view text,
                                                         std::string_view origin);

  // The script that plays for a request, with its reasoning in front if the prompt opened a think
  // section; nothing if no line matches.
  std::optional<recipe::Extension::Script> match(const recipe::CodecRequest& request,
                                                 recipe::Api api);

 private:
  struct Entry {
    Line line;
    std::atomic<uint64_t> n_used{0};
  };
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace hadal::serving
