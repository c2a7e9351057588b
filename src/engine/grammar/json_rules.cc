#include "engine/grammar/json_rules.h"

namespace hadal::grammar {
namespace {

constexpr uint32_t kMaxIndent = 16;

}  // namespace

uint32_t JsonRules::made(uint32_t& slot, void (JsonRules::*make)(uint32_t rule)) {
  if (slot == kNone) {
    slot = g_.add_rule();
    (this->*make)(slot);
  }
  return slot;
}

uint32_t JsonRules::space() {
  return made(space_, &JsonRules::make_space);
}
uint32_t JsonRules::value() {
  return made(value_, &JsonRules::make_value);
}
uint32_t JsonRules::object() {
  return made(object_, &JsonRules::make_object);
}
uint32_t JsonRules::array() {
  return made(array_, &JsonRules::make_array);
}
uint32_t JsonRules::string() {
  return made(string_, &JsonRules::make_string);
}
uint32_t JsonRules::number() {
  return made(number_, &JsonRules::make_number);
}
uint32_t JsonRules::integer() {
  return made(integer_, &JsonRules::make_integer);
}
uint32_t JsonRules::boolean() {
  return made(boolean_, &JsonRules::make_boolean);
}
uint32_t JsonRules::string_character() {
  return made(character_, &JsonRules::make_character);
}

void JsonRules::make_space(uint32_t rule) {
  const uint32_t start = g_.start(rule);
  g_.mark_end(start);
  g_.mark_end(g_.literal(start, " "));
  uint32_t at = g_.literal(start, "\n");
  g_.mark_end(at);
  for (uint32_t i = 0; i < kMaxIndent; ++i) g_.mark_end(at = g_.literal(at, " "));
}

void JsonRules::make_value(uint32_t rule) {
  const uint32_t start = g_.start(rule);
  for (const uint32_t kind : {object(), array(), string(), number(), boolean()}) {
    g_.mark_end(g_.rule(start, kind));
  }
  g_.mark_end(g_.literal(start, "null"));
}

void JsonRules::make_object(uint32_t rule) {
  uint32_t open = g_.rule(g_.literal(g_.start(rule), "{"), space());
  const uint32_t close = g_.add_node();
  g_.mark_end(g_.literal(close, "}"));
  g_.free(open, close);
  const uint32_t member = g_.add_node();
  g_.free(open, member);
  uint32_t at = g_.rule(g_.rule(member, string()), space());
  at = g_.rule(g_.rule(g_.literal(at, ":"), space()), value());
  at = g_.rule(at, space());
  g_.free(at, close);
  g_.free(g_.rule(g_.literal(at, ","), space()), member);
}

void JsonRules::make_array(uint32_t rule) {
  const uint32_t open = g_.rule(g_.literal(g_.start(rule), "["), space());
  const uint32_t close = g_.add_node();
  g_.mark_end(g_.literal(close, "]"));
  g_.free(open, close);
  const uint32_t item = g_.add_node();
  g_.free(open, item);
  const uint32_t at = g_.rule(g_.rule(item, value()), space());
  g_.free(at, close);
  g_.free(g_.rule(g_.literal(at, ","), space()), item);
}

void JsonRules::make_character(uint32_t rule) {
  const uint32_t start = g_.start(rule);
  const uint32_t end = g_.add_node();
  g_.mark_end(end);
  g_.character(start, 0x20, 0x21, end);
  g_.character(start, 0x23, 0x5B, end);
  g_.character(start, 0x5D, 0x10FFFF, end);
  const uint32_t escape = g_.literal(start, "\\");
  for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) {
    g_.bytes(escape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), end);
  }
  // \uXXXX but no surrogates: a pair would be two escapes for one character.
  const auto hex = [&](uint32_t from, uint32_t to) {
    g_.bytes(from, '0', '9', to);
    g_.bytes(from, 'a', 'f', to);
    g_.bytes(from, 'A', 'F', to);
  };
  const uint32_t u = g_.literal(escape, "u");
  const uint32_t second = g_.add_node(), third = g_.add_node(), fourth = g_.add_node();
  g_.bytes(u, '0', '9', second);
  for (const char c : {'a', 'b', 'c', 'e', 'f'}) {
    g_.bytes(u, static_cast<uint8_t>(c), static_cast<uint8_t>(c), second);
    g_.bytes(u, static_cast<uint8_t>(c - 32), static_cast<uint8_t>(c - 32), second);
  }
  hex(second, third);
  const uint32_t after_d = g_.literal(u, "d");
  g_.bytes(u, 'D', 'D', after_d);
  g_.bytes(after_d, '0', '7', third);
  hex(third, fourth);
  hex(fourth, end);
}

void JsonRules::make_string(uint32_t rule) {
  const uint32_t inside = g_.literal(g_.start(rule), "\"");
  g_.free(g_.rule(inside, string_character()), inside);
  g_.mark_end(g_.literal(inside, "\""));
}

uint32_t JsonRules::string_of_length(uint32_t low, std::optional<uint32_t> high) {
  const uint32_t rule = g_.add_rule();
  uint32_t at = g_.literal(g_.start(rule), "\"");
  const uint32_t end = g_.add_node();
  g_.mark_end(end);
  const auto quote = [&](uint32_t from) { g_.bytes(from, '"', '"', end); };
  for (uint32_t i = 0; i < low; ++i) at = g_.rule(at, string_character());
  quote(at);
  if (!high) {
    g_.free(g_.rule(at, string_character()), at);
    return rule;
  }
  for (uint32_t i = low; i < *high; ++i) quote(at = g_.rule(at, string_character()));
  return rule;
}

uint32_t JsonRules::digits(uint32_t from, uint32_t low, uint32_t high) {
  const uint32_t end = g_.add_node();
  if (low == 0) g_.free(from, end);
  for (uint32_t i = 1; i <= high; ++i) {
    const uint32_t next = g_.add_node();
    g_.bytes(from, '0', '9', next);
    if (i >= low) g_.free(next, end);
    from = next;
  }
  return end;
}

uint32_t JsonRules::integer_part(uint32_t from) {
  const uint32_t first = g_.add_node(), end = g_.add_node();
  g_.free(from, first);
  g_.bytes(from, '-', '-', first);
  g_.bytes(first, '0', '0', end);
  const uint32_t more = g_.add_node();
  g_.bytes(first, '1', '9', more);
  g_.free(digits(more, 0, 14), end);
  return end;
}

void JsonRules::make_integer(uint32_t rule) {
  g_.mark_end(integer_part(g_.start(rule)));
}

void JsonRules::make_number(uint32_t rule) {
  const uint32_t whole = integer_part(g_.start(rule));
  const uint32_t fraction = digits(g_.literal(whole, "."), 1, 17);
  const uint32_t mantissa = g_.add_node();
  g_.free(whole, mantissa);
  g_.free(fraction, mantissa);
  g_.mark_end(mantissa);
  const uint32_t e = g_.add_node(), sign = g_.add_node();
  g_.bytes(mantissa, 'e', 'e', e);
  g_.bytes(mantissa, 'E', 'E', e);
  g_.free(e, sign);
  g_.bytes(e, '+', '+', sign);
  g_.bytes(e, '-', '-', sign);
  // Two digits: with 15 before the point still a finite double.
  g_.mark_end(digits(sign, 1, 2));
}

void JsonRules::make_boolean(uint32_t rule) {
  g_.mark_end(g_.literal(g_.start(rule), "true"));
  g_.mark_end(g_.literal(g_.start(rule), "false"));
}

}  // namespace hadal::grammar
