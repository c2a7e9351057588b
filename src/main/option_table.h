#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"

namespace hadal::main {

// One configurable value: its dotted name ("kv.host-bytes"), where it goes, and what it says in
// help. In a TOML file the same name is a key of a table, with '_' for '-': [kv] host_bytes =
// "8GiB". Flags win over the file.
struct Option {
  enum class Kind : uint8_t { kBool, kInt, kNumber, kBytes, kMillis, kText, kTextList };
  std::string name;
  Kind kind;
  std::string help;
  std::function<bool(std::string_view)> set;  // false: not a value of that kind or out of range
  std::function<std::string()> to_json;       // the value in force
  std::string expects;                        // for messages: "an integer from 1 to 65535"
  bool flag_only = false;                     // never in a file (file names of the file itself)
};

// A table of options bound to the fields of a plain struct, which must outlive it.
class OptionTable {
 public:
  void flag(std::string name, bool& field, std::string help);
  void integer(std::string name, int64_t& field, int64_t low, int64_t high, std::string help);
  void integer(std::string name, uint32_t& field, uint32_t low, uint32_t high, std::string help);
  void integer(std::string name, uint16_t& field, uint16_t low, uint16_t high, std::string help);
  void number(std::string name, double& field, double low, double high, std::string help);
  // "8GiB", "100MB", "4096"; at least `low`.
  void bytes(std::string name, uint64_t& field, std::string help, uint64_t low = 0);
  // "5s", "250ms", "2m"; at least `low_ms`.
  void millis(std::string name, int64_t& field_ms, std::string help, int64_t low_ms = 0);
  void text(std::string name, std::string& field, std::string help);
  void choice(std::string name, std::string& field, std::vector<std::string> values,
              std::string help);
  void text_list(std::string name, std::vector<std::string>& field,
                 std::string help);  // repeatable; replaces the default

  // Applies --name value, --name=value; a flag of kind bool may stand alone. Every mistake is
  // reported, one a line, each with the flag, what it expects, and the nearest name for an unknown
  // one.
  core::Status apply_flags(const std::vector<std::string>& args) const;
  // Applies a TOML file; mistakes carry file, line and key, in the order of the lines.
  core::Status apply_file(const std::string& path) const;

  std::string help() const;     // one line an option
  std::string to_json() const;  // all values, nested as the names are dotted
  const std::vector<Option>& options() const { return options_; }

 private:
  const Option* find(std::string_view name) const;
  std::string nearest(std::string_view name) const;
  std::vector<Option> options_;
};

// "8GiB" -> 8 << 30, "1.5MB" -> 1'500'000; false if it is no size.
bool parse_bytes(std::string_view text, uint64_t& out);
// "250ms", "5s", "2m", "1h"; a bare number is milliseconds.
bool parse_millis(std::string_view text, int64_t& out);
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace hadal::main
