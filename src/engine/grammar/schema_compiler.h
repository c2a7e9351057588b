#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/core/result.h"
#include "engine/grammar/char_dfa.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/json_rules.h"

namespace hadal::grammar {

// Makes rules of JSON Schemas in a grammar (what is kept to: json_schema.h). Internal to this
// folder. One compiler for one document: references point into `root`.
//
// nullopt of any function: problem() says what cannot be kept to, and where.
class SchemaCompiler {
 public:
  using Json = nlohmann::ordered_json;
  using Rule = std::optional<uint32_t>;

  // All outlive the compiler.
  SchemaCompiler(Grammar& grammar, JsonRules& rules, const Json& root)
      : grammar_(&grammar), rules_(rules), root_(root) {}

  // The JSON texts that are valid under `s`; `path` is its pointer ("#/properties/a").
  Rule schema(const Json& s, const std::string& path);

  // The valid texts of a value that is written as it is when it is a string, and as JSON when not.
  struct Texts {
    Rule raw, json;  // at least one
  };
  std::optional<Texts> texts(const Json& s, const std::string& path);

  // The properties of an object that has no others.
  struct Property {
    std::string name, path;
    const Json* schema = nullptr;
    bool required = false;
  };
  std::optional<std::vector<Property>> closed_object(const Json& s);

  core::Error problem() const { return {core::Code::kInvalidRequest, problem_, problem_at_}; }

 private:
  Rule fail(std::string problem, std::string at);
  Rule cannot(std::string_view word, const std::string& path);

  static bool is_annotation(std::string_view word);
  bool has_known_words(const Json& s, const std::string& path);
  // The keyword that stands for the whole of a schema, "" if there is none.
  static std::string whole_word(const Json& s);
  // Does nothing else beside `word` restrict it?
  static bool stands_alone(const Json& s, std::string_view word);
  const Json* find(const std::string& reference) const;
  Rule by_words(const Json& s, const std::string& path);
  Rule whole(const Json& s, std::string_view word, const std::string& path);
  Rule reference(const Json& ref, const std::string& at);

  // One schema for two that must hold together, and for all that `s` refers to or takes in by
  // allOf.
  std::optional<Json> merged(const Json& a, const Json& b, const std::string& path);
  std::optional<Json> flat(const Json& s, const std::string& path, uint32_t depth);
  Rule combined(const Json& s, const std::string& path);
  // anyOf or oneOf, enum or const (`word`) beside other keywords.
  Rule branches(const Json& s, const std::string& word, const std::string& path);
  Rule fitting(const Json& s, const std::string& word, const std::string& path);

  Rule constants(const Json& values, const Json& s, const std::string& at);
  bool read_types(const Json& s, const std::string& path, std::vector<std::string>& out);
  // Of `type`, or those that the keywords are about; none: any.
  bool types_of(const Json& s, const std::string& path, std::vector<std::string>& out);
  Rule typed(const Json& s, const std::string& path);
  Rule of_type(const Json& s, std::string_view type, const std::string& path);

  // A count in a keyword; `fallback` if it is not there.
  bool count(const Json& s, std::string_view word, const std::string& path, uint64_t fallback,
             uint64_t& out);
  struct StringTexts {
    uint32_t low = 0;
    std::optional<uint32_t> high;
    std::optional<CharDfa> dfa;  // pattern and format, with the length; nullopt: the length alone
  };
  std::optional<StringTexts> string_texts(const Json& s, const std::string& path);
  Rule string(const Json& s, const std::string& path);
  bool raw_string(const Json& s, const std::string& path, uint32_t from, uint32_t to);

  static constexpr uint32_t kMaxSplit = 16;  // references and branches within one another
  struct Split {
    uint32_t raw = 0, json = 0, raw_end = 0, json_end = 0;
    bool has_raw = false, has_json = false;
  };
  bool split(const Json& s, const std::string& path, uint32_t depth, Split& out);

  Rule number(const Json& s, bool whole, const std::string& path);
  bool add_pointed(uint32_t start, double low, double high);
  bool add_multiples(uint32_t start, double from, double to, int64_t step, bool bounded);

  uint32_t space(uint32_t from) { return grammar_->rule(from, rules_.space()); }
  Rule array(const Json& s, const std::string& path);
  // `counted` items one by one, then any number more unless `bounded`.
  uint32_t list(const std::vector<uint32_t>& items, Rule rest, uint64_t low, uint64_t counted,
                bool bounded);
  struct Member {
    std::string name;
    uint32_t value = 0;
    bool required = false;
  };
  Rule object(const Json& s, const std::string& path);
  uint32_t map(uint32_t value, uint64_t low);  // any names
  uint32_t members_in_order(const std::vector<Member>& members);

  static constexpr uint32_t kMaxCounted = 4096;  // items or characters that are counted one by one
  static constexpr int64_t kMaxStep = 1000;      // of multipleOf
  static constexpr uint32_t kMaxDepth = 256;     // of schemas within one another

  Grammar* const grammar_;
  JsonRules& rules_;
  const Json& root_;
  std::map<std::string, uint32_t> references_;
  std::map<std::string, uint32_t> combined_;  // by the schema's text
  size_t combined_bytes_ = 0;
  uint32_t depth_ = 0;
  std::string problem_, problem_at_;
};

// Groups of keywords.
namespace schema_words {
using Words = std::span<const std::string_view>;
inline constexpr std::string_view kNumber[] = {"minimum", "maximum", "exclusiveMinimum",
                                               "exclusiveMaximum", "multipleOf"};
}  // namespace schema_words

// A name as a step of a JSON pointer.
std::string pointer_step(std::string_view name);

}  // namespace hadal::grammar
