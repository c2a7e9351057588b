#include "engine/grammar/json_schema.h"

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
  return std::shared_ptr<const Grammar>(std::move(grammar));
}

std::shared_ptr<const Grammar> any_json_object() {
  auto grammar = std::make_shared<Grammar>();
  const uint32_t top = grammar->add_rule();
  JsonRules rules(*grammar);
  grammar->mark_end(grammar->rule(grammar->start(top), rules.object()));
  return grammar;
}

}  // namespace hadal::grammar
