#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/grammar/grammar.h"

namespace hadal::grammar {

// Rules of JSON itself, made in a grammar when they are first asked for. The grammar's root must be
// there already.
class JsonRules {
 public:
  explicit JsonRules(Grammar& grammar) : g_(grammar) {}

  uint32_t space();   // white space, or none
  uint32_t value();   // any value, nested at will
  uint32_t object();  // any object
  uint32_t array();
  uint32_t string();
  uint32_t number();
  uint32_t integer();
  uint32_t boolean();

  // Between the quotes: one character, escapes included.
  uint32_t string_character();
  // A string of `low` to `high` characters.
  uint32_t string_of_length(uint32_t low, std::optional<uint32_t> high);

 private:
  uint32_t made(uint32_t& slot, void (JsonRules::*make)(uint32_t rule));
  void make_space(uint32_t rule);
  void make_value(uint32_t rule);
  void make_object(uint32_t rule);
  void make_array(uint32_t rule);
  void make_string(uint32_t rule);
  void make_number(uint32_t rule);
  void make_integer(uint32_t rule);
  void make_boolean(uint32_t rule);
  void make_character(uint32_t rule);
  // Optional minus and digits; returns the nodes behind.
  uint32_t integer_part(uint32_t from);
  uint32_t digits(uint32_t from, uint32_t low, uint32_t high);

  static constexpr uint32_t kNone = ~uint32_t{0};
  Grammar& g_;
  uint32_t space_ = kNone, value_ = kNone, object_ = kNone, array_ = kNone, string_ = kNone,
           number_ = kNone, integer_ = kNone, boolean_ = kNone, character_ = kNone;
};

}  // namespace hadal::grammar
