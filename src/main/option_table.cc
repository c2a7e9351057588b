#include "main/option_table.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>

#include <fmt/format.h>
#include <toml++/toml.h>

namespace hadal::main {
namespace {

template <typename T>
bool parse_number(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_bool(std::string_view text, bool& out) {
  if (text == "true" || text == "1" || text == "on" || text == "yes") {
    out = true;
  } else if (text == "false" || text == "0" || text == "off" || text == "no") {
    out = false;
  } else {
    return false;
  }
  return true;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out + '"';
}

template <typename T>
Option integer_option(std::string name, T& field, T low, T high, std::string help) {
  return {std::move(name),
          Option::Kind::kInt,
          std::move(help),
          [&field, low, high](std::string_view text) {
            T value{};
            if (!parse_number(text, value) || value < low || value > high) return false;
            field = value;
            return true;
          },
          [&field] { return fmt::format("{}", field); },
          fmt::format("an integer from {} to {}", low, high)};
}

// TOML spelling of a name: kv.host-bytes -> kv.host_bytes.
std::string file_spelling(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// A TOML value as the text that a flag would carry; false for tables and dates.
bool value_as_text(const toml::node& node, std::string& out) {
  if (const auto* text = node.as_string()) {
    out = text->get();
  } else if (const auto* integer = node.as_integer()) {
    out = fmt::format("{}", integer->get());
  } else if (const auto* number = node.as_floating_point()) {
    out = fmt::format("{}", number->get());
  } else if (const auto* truth = node.as_boolean()) {
    out = truth->get() ? "true" : "false";
  } else {
    return false;
  }
  return true;
}

void flatten(const toml::table& table, const std::string& prefix,
             std::vector<std::pair<std::string, const toml::node*>>& out) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const auto* inner = node.as_table()) {
      flatten(*inner, name + ".", out);
    } else {
      out.emplace_back(name, &node);
    }
  }
}

// A reader that takes what `parse` takes from `low` on.
template <typename T>
auto at_least(bool (*parse)(std::string_view, T&), T& field, T low) {
  return [parse, &field, low](std::string_view text) {
    T value = 0;
    if (!parse(text, value) || value < low) return false;
    field = value;
    return true;
  };
}

core::Status joined(const std::vector<std::string>& mistakes) {
  if (mistakes.empty()) return {};
  return core::Error{core::Code::kInvalidRequest, fmt::format("{}", fmt::join(mistakes, "\n")), {}};
}

}  // namespace

bool parse_bytes(std::string_view text, uint64_t& out) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0)) return false;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  static constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},
                                                                   {"B", 1},
                                                                   {"kB", 1e3},
                                                                   {"KB", 1e3},
                                                                   {"MB", 1e6},
                                                                   {"GB", 1e9},
                                                                   {"TB", 1e12},
                                                                   {"KiB", 1024.0},
                                                                   {"MiB", 1048576.0},
                                                                   {"GiB", 1073741824.0},
                                                                   {"TiB", 1099511627776.0}};
  for (const auto& [name, factor] : kUnits) {
    if (unit == name && value * factor < 1e19) {
      out = static_cast<uint64_t>(value * factor);
      return true;
    }
  }
  return false;
}

bool parse_millis(std::string_view text, int64_t& out) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0) || value > 1e12) return false;
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1}, {"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 3.6e6}};
  for (const auto& [name, factor] : kUnits) {
    if (unit == name) {
      out = static_cast<int64_t>(value * factor);
      return true;
    }
  }
  return false;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

void OptionTable::flag(std::string name, bool& field, std::string help) {
  options_.push_back({std::move(name), Option::Kind::kBool, std::move(help),
                      [&field](std::string_view text) { return parse_bool(text, field); },
                      [&field] { return std::string(field ? "true" : "false"); }, "true or false"});
}

void OptionTable::integer(std::string name, int64_t& field, int64_t low, int64_t high,
                          std::string help) {
  options_.push_back(integer_option(std::move(name), field, low, high, std::move(help)));
}

void OptionTable::integer(std::string name, uint32_t& field, uint32_t low, uint32_t high,
                          std::string help) {
  options_.push_back(integer_option(std::move(name), field, low, high, std::move(help)));
}

void OptionTable::integer(std::string name, uint16_t& field, uint16_t low, uint16_t high,
                          std::string help) {
  options_.push_back(integer_option(std::move(name), field, low, high, std::move(help)));
}

void OptionTable::number(std::string name, double& field, double low, double high,
                         std::string help) {
  options_.push_back({std::move(name), Option::Kind::kNumber, std::move(help),
                      [&field, low, high](std::string_view text) {
                        double value = 0;
                        if (!parse_number(text, value) || !(value >= low && value <= high))
                          return false;
                        field = value;
                        return true;
                      },
                      [&field] { return fmt::format("{}", field); },
                      fmt::format("a number from {} to {}", low, high)});
}

void OptionTable::bytes(std::string name, uint64_t& field, std::string help, uint64_t low) {
  std::string expects = "a size such as 8GiB, 100MB or 4096";
  if (low > 0) expects += fmt::format(", at least {}", low);
  options_.push_back({std::move(name), Option::Kind::kBytes, std::move(help),
                      at_least(parse_bytes, field, low),
                      [&field] { return fmt::format("{}", field); }, std::move(expects)});
}

void OptionTable::millis(std::string name, int64_t& field_ms, std::string help, int64_t low_ms) {
  std::string expects = "a time such as 30s, 250ms or 2m";
  if (low_ms > 0) expects += fmt::format(", at least {}ms", low_ms);
  options_.push_back({std::move(name), Option::Kind::kMillis, std::move(help),
                      at_least(parse_millis, field_ms, low_ms),
                      [&field_ms] { return fmt::format("{}", field_ms); }, std::move(expects)});
}

void OptionTable::text(std::string name, std::string& field, std::string help) {
  options_.push_back({std::move(name), Option::Kind::kText, std::move(help),
                      [&field](std::string_view text) {
                        field = text;
                        return true;
                      },
                      [&field] { return json_text(field); }, "a text"});
}

void OptionTable::choice(std::string name, std::string& field, std::vector<std::string> values,
                         std::string help) {
  std::vector<std::string> words;  // "" stands for no choice
  std::copy_if(values.begin(), values.end(), std::back_inserter(words),
               [](const std::string& word) { return !word.empty(); });
  std::string expects = fmt::format("one of {}", fmt::join(words, ", "));
  options_.push_back({std::move(name), Option::Kind::kText, std::move(help),
                      [&field, values = std::move(values)](std::string_view text) {
                        if (std::find(values.begin(), values.end(), text) == values.end())
                          return false;
                        field = text;
                        return true;
                      },
                      [&field] { return json_text(field); }, std::move(expects)});
}

void OptionTable::text_list(std::string name, std::vector<std::string>& field, std::string help) {
  options_.push_back({std::move(name), Option::Kind::kTextList, std::move(help),
                      [&field, first = true](std::string_view text) mutable {
                        if (first) field.clear();
                        first = false;
                        field.emplace_back(text);
                        return true;
                      },
                      [&field] {
                        std::vector<std::string> quoted;
                        for (const std::string& item : field) quoted.push_back(json_text(item));
                        return fmt::format("[{}]", fmt::join(quoted, ","));
                      },
                      "a text; repeat the flag for more"});
}

const Option* OptionTable::find(std::string_view name) const {
  for (const Option& option : options_) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

std::string OptionTable::nearest(std::string_view name) const {
  const Option* best = nullptr;
  size_t best_distance = std::max<size_t>(3, name.size() / 2);
  for (const Option& option : options_) {
    const size_t distance = edit_distance(name, option.name);
    if (distance < best_distance) {
      best_distance = distance;
      best = &option;
    }
  }
  return best == nullptr ? std::string() : best->name;
}

core::Status OptionTable::apply_flags(const std::vector<std::string>& args) const {
  std::vector<std::string> mistakes;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string_view arg = args[i];
    if (!arg.starts_with("--")) {
      mistakes.push_back(fmt::format("unexpected argument {}: flags begin with --", arg));
      continue;
    }
    arg.remove_prefix(2);
    const size_t equals = arg.find('=');
    std::string name(arg.substr(0, equals));
    std::replace(name.begin(), name.end(), '_', '-');
    const Option* option = find(name);
    if (option == nullptr) {
      const std::string near = nearest(name);
      mistakes.push_back(
          fmt::format("unknown flag --{}{}", name,
                      near.empty() ? "" : fmt::format("; did you mean --{}?", near)));
      if (equals == std::string_view::npos && i + 1 < args.size() && !args[i + 1].starts_with("--"))
        ++i;
      continue;
    }
    std::string value;
    if (equals != std::string_view::npos) {
      value = arg.substr(equals + 1);
    } else if (option->kind == Option::Kind::kBool &&
               (i + 1 >= args.size() || args[i + 1].starts_with("--"))) {
      value = "true";
    } else if (i + 1 < args.size()) {
      value = args[++i];
    } else {
      mistakes.push_back(fmt::format("--{} needs a value: {}", name, option->expects));
      continue;
    }
    if (!option->set(value))
      mistakes.push_back(fmt::format("--{} {}: expected {}", name, value, option->expects));
  }
  return joined(mistakes);
}

core::Status OptionTable::apply_file(const std::string& path) const {
  toml::table root;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("{} is a folder; give a TOML file", path), "config"};
  }
  try {
    root = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    return core::Error{
        core::Code::kInvalidRequest,
        fmt::format("{}:{}: {}", path, error.source().begin.line, error.description()), "config"};
  }
  std::vector<std::pair<std::string, const toml::node*>> entries;
  flatten(root, "", entries);
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.second->source().begin.line < b.second->source().begin.line;
  });
  std::vector<std::string> mistakes;
  for (const auto& [key, node] : entries) {
    const auto line = node->source().begin.line;
    const auto found =
        std::find_if(options_.begin(), options_.end(), [&, &wanted = key](const Option& option) {
          return !option.flag_only && file_spelling(option.name) == wanted;
        });
    if (found == options_.end()) {
      std::string dashed = key;
      std::replace(dashed.begin(), dashed.end(), '_', '-');
      const std::string near = nearest(dashed);
      mistakes.push_back(
          fmt::format("{}:{}: unknown key {}{}", path, line, key,
                      near.empty() ? "" : fmt::format("; did you mean {}?", file_spelling(near))));
      continue;
    }
    std::vector<const toml::node*> values;
    if (const auto* array = node->as_array();
        array != nullptr && found->kind == Option::Kind::kTextList) {
      for (const toml::node& item : *array) values.push_back(&item);
    } else {
      values.push_back(node);
    }
    for (const toml::node* value : values) {
      std::string text;
      if (!value_as_text(*value, text) || !found->set(text)) {
        mistakes.push_back(fmt::format("{}:{}: {}: expected {}", path, line, key, found->expects));
      }
    }
  }
  return joined(mistakes);
}

std::string OptionTable::help() const {
  std::string out;
  for (const Option& option : options_) {
    out += fmt::format("  --{:<28} {} (default {})\n", option.name, option.help, option.to_json());
  }
  return out;
}

std::string OptionTable::to_json() const {
  // Dotted names become one level of nesting; groups keep the order in which they first occur.
  std::string out = "{";
  std::vector<std::string> order;
  std::map<std::string, std::string> groups;
  for (const Option& option : options_) {
    const size_t dot = option.name.find('.');
    const std::string group =
        dot == std::string::npos ? std::string() : file_spelling(option.name.substr(0, dot));
    const std::string leaf =
        file_spelling(dot == std::string::npos ? option.name : option.name.substr(dot + 1));
    if (!groups.contains(group)) order.push_back(group);
    std::string& members = groups[group];
    members += (members.empty() ? "" : ",") + json_text(leaf) + ":" + option.to_json();
  }
  bool first = true;
  for (const std::string& group : order) {
    if (!first) out += ",";
    first = false;
    out += group.empty() ? groups[group] : json_text(group) + ":{" + groups[group] + "}";
  }
  return out + "}";
}

}  // namespace hadal::main
