#include "main/cli.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "main/commands.h"
#include "main/option_table.h"

namespace hadal::main {
namespace {

constexpr const char* kVersion = "0.1.0";

// The nearest known flag or command to the first word that `app` does not know, or "".
std::string nearest(const CLI::App& app, std::string_view word) {
  std::vector<std::string> known;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(sub->get_name());
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  std::string best;
  size_t best_distance = std::max<size_t>(3, word.size() / 2);
  for (const std::string& name : known) {
    const size_t distance = edit_distance(word, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

int report_usage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* where = &app;
  for (const CLI::App* sub : app.get_subcommands()) where = sub;
  std::string text = error.what();
  for (const std::string& word : where->remaining()) {
    const std::string near = nearest(*where, word.substr(0, word.find('=')));
    text = fmt::format("unknown argument {}{}", word,
                       near.empty() ? "" : fmt::format("; did you mean {}?", near));
    break;
  }
  fmt::print(stderr, "hadal: {}\nsee: {} --help\n", text,
             where == &app ? "hadal" : fmt::format("hadal {}", where->get_name()));
  return 2;
}

}  // namespace

int run_cli(int argc, char** argv) {
  CLI::App app{"Hadal: inference for DeepSeek-V4.1-Flash", "hadal"};
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  std::function<int()> chosen;

  // Commands in the order of docs/architecture.md 3.2.

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return report_usage(app, e);
  }
  return chosen ? chosen() : 2;
}

}  // namespace hadal::main
