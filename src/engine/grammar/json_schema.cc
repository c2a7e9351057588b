#include "engine/grammar/json_schema.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "engine/grammar/json_rules.h"
#include "engine/grammar/schema_compiler.h"

namespace hadal::grammar {

core::Result<std::shared_ptr<const Grammar>> compile_json_schema(std::string_view schema) {
  const auto root = nlohmann::ordered_json::parse(schema, nullptr, false);
  if (root.is_discarded()) return core::Error{core::Code::kInvalidRequest, "the schema is no JSON"};
  auto grammar = std::make_shared<Grammar>();
  const uint32_t top = grammar->add_rule();
  JsonRules rules(*grammar);
  SchemaCompiler compiler(*grammar, rules, root);
  const auto rule = compiler.schema(root, "#");
  if (!rule) return compiler.problem();
  grammar->mark_end(grammar->rule(grammar->start(top), *rule));
  auto finished = finish(std::move(grammar));
  if (!finished) return core::Error{core::Code::kInvalidRequest, finished.error().message, "#"};
  return finished;
}

std::string request_path(std::string_view pointer) {
  std::string out;
  for (const char c : pointer.substr(std::min<size_t>(1, pointer.size()))) {
    out += c == '/' ? '.' : c;
  }
  return out;
}

std::shared_ptr<const Grammar> any_json_object() {
  auto grammar = std::make_shared<Grammar>();
  const uint32_t top = grammar->add_rule();
  JsonRules rules(*grammar);
  grammar->mark_end(grammar->rule(grammar->start(top), rules.object()));
  return grammar;
}

}  // namespace hadal::grammar
