#pragma once

#include <string>
#include <string_view>

namespace hadal::recipe {

// Reads the free text of a custom tool back out of its arguments {"input": "..."}, as they come.
// Arguments of another shape are passed on as they are.
class CustomInput {
 public:
  // Appends what is certain of the input now.
  void feed(std::string_view arguments, std::string& out);
  // At the end of the arguments: what was held back.
  void finish(std::string& out);

 private:
  enum class State : uint8_t { kPrefix, kText, kRaw, kDone };
  void read_prefix(std::string& out);
  void read_text(std::string& out);

  State state_ = State::kPrefix;
  std::string held_;  // not understood yet: the prefix, or an unfinished escape
};

}  // namespace hadal::recipe
