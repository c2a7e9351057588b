#include "engine/grammar/tool_calls.h"

#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/grammar/char_dfa.h"
#include "engine/grammar/ebnf.h"
#include "engine/grammar/json_rules.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/schema_compiler.h"

namespace hadal::grammar {
namespace {

using Json = nlohmann::ordered_json;

class Compiler {
 public:
  explicit Compiler(const Json& root) : root_(root) {
    const Json& tags = root_.at("tags");
    block_ = tags.at("block").get<std::string>();
    invoke_ = tags.at("invoke").get<std::string>();
    parameter_ = tags.at("parameter").get<std::string>();
  }

  core::Result<std::shared_ptr<const Grammar>> run() {
    const uint32_t top = g_->add_rule();
    make_raw();
    // A rule of its own for each tool: its call from behind the opening tag on.
    std::vector<uint32_t> bodies;
    for (const Json& tool : root_.at("tools")) {
      const uint32_t body = g_->add_rule();
      HADAL_TRY_VOID(add_body(tool, body));
      bodies.push_back(body);
    }
    const std::string begins = root_.at("begins").get<std::string>();
    uint32_t at = g_->start(top);
    if (begins == "answer") at = control(g_->literal(at, "\n\n<"));
    if (begins == "answer" || begins == "marker") at = g_->literal(at, block_ + ">\n");
    uint32_t behind = begins == "call" ? g_->rule(at, bodies.front()) : call(at, bodies);
    if (!root_.at("single").get<bool>()) g_->free(call(behind, bodies), behind);
    g_->mark_end(g_->literal(control(g_->literal(behind, "</")), block_ + ">"));
    if (root_.contains("instead")) HADAL_TRY_VOID(add_text(root_.at("instead"), g_->start(top)));
    return finish(g_);
  }

 private:
  uint32_t control(uint32_t from) {
    const uint32_t to = g_->add_node();
    g_->bytes(from, Grammar::kControl, Grammar::kControl, to);
    return to;
  }
  uint32_t open_tag(uint32_t from, const std::string& word) {
    return g_->literal(control(g_->literal(from, "<")), word);
  }
  uint32_t close_tag(uint32_t from, const std::string& word) {
    return g_->literal(control(g_->literal(from, "</")), word + ">\n");
  }

  uint32_t call(uint32_t from, const std::vector<uint32_t>& bodies) {
    const uint32_t behind = g_->add_node();
    const uint32_t name = g_->literal(open_tag(from, invoke_), " name=\"");
    for (size_t i = 0; i < bodies.size(); ++i) {
      const std::string text = root_.at("tools")[i].at("name").get<std::string>();
      g_->free(g_->rule(g_->literal(name, text + "\">\n"), bodies[i]), behind);
    }
    return behind;
  }

  // A text of a form, in place of calls.
  core::Status add_text(const Json& form, uint32_t from) {
    const std::string kind = form.at("kind").get<std::string>();
    const std::string text = form.at("text").get<std::string>();
    const auto wrong = [&](core::Error error) {
      error.param = form.at("path").get<std::string>() + request_path(error.param);
      return error;
    };
    if (kind == "object") {
      g_->mark_end(g_->rule(from, rules_.object()));
      return {};
    }
    if (kind == "regex") {
      const auto dfa = regex_dfa(text, Match::kWhole);
      if (!dfa) return wrong(dfa.error());
      g_->mark_end(add_dfa(*g_, from, *dfa, Spelling::kRaw));
      return {};
    }
    const Json schema = Json::parse(text);
    SchemaCompiler compiler(*g_, rules_, schema);
    const auto rule = compiler.schema(schema, "#");
    if (!rule) return wrong(compiler.problem());
    g_->mark_end(g_->rule(from, *rule));
    return {};
  }

  // Any text.
  void make_raw() {
    raw_ = g_->add_rule();
    g_->mark_end(g_->start(raw_));
    g_->character(g_->start(raw_), 0, kMaxCode, g_->start(raw_));
  }

  core::Status add_body(const Json& tool, uint32_t body) {
    const uint32_t behind = g_->add_node();  // of all parameters
    if (tool.contains("input")) {
      HADAL_TRY_VOID(add_input(tool, g_->start(body), behind));
    } else if (tool.contains("parameters")) {
      HADAL_TRY_VOID(add_parameters(tool, g_->start(body), behind));
    } else {
      add_any(g_->start(body), behind);
    }
    g_->mark_end(close_tag(behind, invoke_));
    return {};
  }

  // `<parameter name="NAME" string="true">`
  uint32_t open_parameter(uint32_t from, std::string_view name, bool is_string) {
    return g_->literal(open_tag(from, parameter_), fmt::format(" name=\"{}\" string=\"{}\">", name,
                                                               is_string ? "true" : "false"));
  }

  core::Status add_input(const Json& tool, uint32_t from, uint32_t behind) {
    const std::string syntax = tool.at("input").at("syntax").get<std::string>();
    const std::string definition = tool.at("input").at("definition").get<std::string>();
    const uint32_t value = open_parameter(from, "input", true);
    auto end = input_texts(syntax, definition, value);
    if (!end) {
      core::Error error = std::move(end).error();
      error.param = tool.at("path").get<std::string>();
      return error;
    }
    g_->free(close_tag(*end, parameter_), behind);
    return {};
  }

  core::Result<uint32_t> input_texts(const std::string& syntax, const std::string& definition,
                                     uint32_t from) {
    if (syntax.empty()) return g_->rule(from, raw_);
    if (syntax != "regex") {
      return add_ebnf(*g_, from, definition,
                      syntax == "lark" ? EbnfSyntax::kLark : EbnfSyntax::kGbnf);
    }
    HADAL_TRY(const CharDfa dfa, regex_dfa(definition, Match::kWhole));
    return add_dfa(*g_, from, dfa, Spelling::kRaw);
  }

  // Any parameters, well formed.
  void add_any(uint32_t from, uint32_t behind) {
    no_parameters(from, behind);
    const uint32_t next = g_->add_node();
    g_->free(from, next);
    const uint32_t name = g_->literal(open_tag(next, parameter_), " name=\"");
    const uint32_t letters = g_->add_node();
    for (const auto& [low, high] : {std::pair{0x20u, 0x21u}, std::pair{0x23u, kMaxCode}}) {
      g_->character(name, low, high, letters);
      g_->character(letters, low, high, letters);
    }
    const uint32_t kind = g_->literal(letters, "\" string=\"");
    const uint32_t text = g_->rule(g_->literal(kind, "true\">"), raw_);
    const uint32_t json = g_->rule(g_->literal(kind, "false\">"), rules_.value());
    for (const uint32_t value : {text, json}) {
      const uint32_t end = close_tag(value, parameter_);
      g_->free(end, next);
      g_->free(end, behind);
    }
  }

  // V4.1 leaves an empty line, V4 nothing.
  void no_parameters(uint32_t from, uint32_t behind) {
    g_->free(from, behind);
    g_->free(g_->literal(from, "\n"), behind);
  }

  core::Status add_parameters(const Json& tool, uint32_t from, uint32_t behind) {
    const Json& schema = tool.at("parameters");
    const std::string path = tool.at("path").get<std::string>();
    SchemaCompiler compiler(*g_, rules_, schema);
    const auto members = compiler.closed_object(schema);
    const auto wrong = [&](core::Error error) {
      error.param = path + request_path(error.param);
      return error;
    };
    if (!members) return wrong(compiler.problem());
    // In front of the first parameter, and behind at least one.
    uint32_t first = from;
    std::optional<uint32_t> rest;
    for (const SchemaCompiler::Property& member : *members) {
      if (member.name.find('"') != std::string::npos) {
        return wrong({core::Code::kInvalidRequest, "a parameter's name cannot have a quote",
                      "#/properties/" + pointer_step(member.name)});
      }
      const uint32_t at = g_->add_node(), next = g_->add_node();
      g_->free(first, at);
      if (rest) g_->free(*rest, at);
      const auto texts = compiler.texts(*member.schema, member.path);
      if (!texts) return wrong(compiler.problem());
      if (texts->raw) {
        const uint32_t end = g_->rule(open_parameter(at, member.name, true), *texts->raw);
        g_->free(close_tag(end, parameter_), next);
      }
      if (texts->json) {
        const uint32_t end = g_->rule(open_parameter(at, member.name, false), *texts->json);
        g_->free(close_tag(end, parameter_), next);
      }
      const uint32_t none = g_->add_node();
      if (!member.required) {
        g_->free(first, none);
        if (rest) g_->free(*rest, next);
      }
      first = none;
      rest = next;
    }
    no_parameters(first, behind);
    if (rest) g_->free(*rest, behind);
    return {};
  }

  const Json& root_;
  std::shared_ptr<Grammar> g_ = std::make_shared<Grammar>();
  JsonRules rules_{*g_};
  std::string block_, invoke_, parameter_;
  uint32_t raw_ = 0;
};

}  // namespace

core::Result<std::shared_ptr<const Grammar>> compile_tool_calls(std::string_view text) {
  try {
    const Json root = Json::parse(text);
    return Compiler(root).run();
  } catch (const Json::exception& problem) {
    return core::Error{core::Code::kInternal, problem.what()};
  }
}

}  // namespace hadal::grammar
