#include "engine/grammar/ebnf.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/grammar/automaton.h"

namespace hadal::grammar {
namespace {

struct Case {
  EbnfSyntax syntax;
  const char* text;
  std::vector<std::string> yes, no;
};

bool accepts(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  Automaton automaton(grammar);
  return automaton.accepts(automaton.next(automaton.start(), text));
}

constexpr EbnfSyntax kGbnf = EbnfSyntax::kGbnf, kLark = EbnfSyntax::kLark;

// The first is after the chess example of llama.cpp's documentation; the patch grammar is the
// public one of Codex's apply_patch tool (github.com/openai/codex, Apache-2.0).
const Case kCases[] = {
    {kGbnf,
     R"(# a chess opening
root ::= (
    "1. " move " " move "\n"
    ([1-9] [0-9]? ". " move " " move "\n")+
)
move ::= (pawn | nonpawn | castle) [+#]?
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
castle ::= "O-O" "-O"?
)",
     {"1. e4 e5\n2. Nf3 Nc6\n", "1. e4 exd5\n2. O-O-O Qxe7#\n"},
     {"1. e4 e5\n", "2. e4 e5\n2. e4 e5\n", "1. e9 e5\n2. e4 e5\n"}},
    {kGbnf,
     "root ::= item{2,3} \"!\"\nitem ::= \"\\x41\" | [^a-z\\]\\n] \"\\u00e9\"",
     {"AA!", "AAA!", "BéA!", "1éA!"},
     {"A!", "AAAA!", "aéA!", "]éA!"}},
    {kGbnf, "root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "())", ")("}},
    {kGbnf,
     "root ::= root \"+\" term | term\nterm ::= [0-9]+ | \"(\" root \")\"",
     {"1", "1+22+(3+4)"},
     {"", "+1", "1+", "(1"}},
    {kGbnf, "root ::= . \"x\"{0,} \"y\"{1}", {"éy", "\nxxy"}, {"y", "xx"}},
    {kLark,
     R"(start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
)",
     {"*** Begin Patch\n*** Add File: a.txt\n+one\n+\n*** End Patch",
      "*** Begin Patch\n*** Update File: b\n*** Move to: c\n@@ def f():\n-x\n+y\n z\n*** End of "
      "File\n*** Delete File: d\n*** End Patch\n"},
     {"*** Begin Patch\n*** End Patch", "*** Begin Patch\n*** Add File: a\n*** End Patch",
      "*** Begin Patch\n*** Delete File: a\n+b\n*** End Patch"}},
    {kLark,
     R"g(// arithmetic
?start: sum
?sum: product | sum "+" product -> add | sum "-" product -> sub
?product: atom | product "*" atom -> mul
?atom: NUMBER -> number | "-" atom | "(" sum ")"
%import common (NUMBER, WS_INLINE)
%ignore WS_INLINE
)g",
     {"1", "1 + 2*-3", " ( 1.5 - 2e3 ) * 4 "},
     {"", "1 +", "1 2", "1\n+2"}},
    {kLark,
     "start: \"Select\"i WORD (\",\" WORD)* [\"end\"]\nWORD.2: LETTER ~ 2..3 | DIGITS\nDIGITS: "
     "\"0\"..\"4\"+\nLETTER: /[a-z]/i\n%ignore \" \"",
     {"SELECT ab, CDE,01 end", "selectab"},
     {"select abcde,", "select a", "select 5"}},
    {kLark,
     "start: A*\nA: \"x\" | B\nB: /y/s\n%ignore /#[^\\n]*\\n/\n%ignore \" \"",
     {"", "x # c\n y", "xy"},
     {"x # y"}},
    {kLark, "start: items\nitems: item (\",\" item)* | \nitem: \"a\"", {"", "a", "a,a"}, {"a,"}},
};

TEST(Ebnf, TextsOfTheGrammarAndNoOthers) {
  for (const Case& one : kCases) {
    const auto grammar = compile_ebnf(one.text, one.syntax);
    ASSERT_TRUE(grammar) << one.text << grammar.error().message;
    for (const std::string& text : one.yes)
      EXPECT_TRUE(accepts(*grammar, text)) << one.text << text;
    for (const std::string& text : one.no)
      EXPECT_FALSE(accepts(*grammar, text)) << one.text << text;
  }
}

TEST(Ebnf, ProblemsAreNamedWithTheirLine) {
  const struct {
    EbnfSyntax syntax;
    const char *text, *message;
  } wrong[] = {
      {kGbnf, "root ::= a\nb ::= c", "line 1: the rule a is not defined"},
      {kGbnf, "top ::= \"a\"", "the grammar has no rule root, which is the whole"},
      {kGbnf, "root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule root is defined twice"},
      {kGbnf, "root ::= a\n\na ::= b \"x\"\nb ::= \"\" a",
       "line 3: the rule a calls itself before anything is read, by way of b"},
      {kGbnf, "root ::= \"a\"? root \"b\" | \"c\"",
       "line 1: the rule root calls itself before anything is read"},
      {kGbnf, "root ::= \"a", "line 1: the text has no end"},
      {kGbnf, "root ::= [a", "line 1: the class has no end"},
      {kGbnf, "root ::= (\"a\"", "line 1: the group has no end"},
      {kGbnf, "root ::= \"a\" )", "line 1: unexpected )"},
      {kGbnf, "root ::= \"\\q\"", "line 1: \\q has no meaning"},
      {kGbnf, "root = \"a\"", "line 1: ::= must follow the rule's name"},
      {kGbnf, "root ::= \"a\" root", "no text can satisfy this"},
      {kLark, "start: x\nX: \"a\"", "line 1: the rule x is not defined"},
      {kLark, "start: A\nA: B\nB: A", "line 2: the terminal A refers to itself"},
      {kLark, "start: A\nA: b\nb: \"x\"", "line 2: a terminal cannot refer to the rule b"},
      {kLark, "start: \"a\"\n%declare X", "line 2: %declare is not available"},
      {kLark, "%import python.X\nstart: X", "line 1: only the module common can be imported"},
      {kLark, "%import common.NOPE\nstart: NOPE", "line 1: the module common has no NOPE here"},
      {kLark, "start: /(?=a)/", "line 1: look-ahead is not available (in an expression)"},
      {kLark, "start: /^a$/", "line 1: ^ and $ are not available in a grammar"},
      {kLark, "start: /a/m", "line 1: the flag m is not available"},
      {kLark, "start: \"b\"..\"a\"", "line 1: a range goes from one character to a later one"},
      {kLark, "start: x{\"a\"}", "line 1: templates are not available"},
      {kLark, "start: <|x|>", "line 1: special tokens are not available"},
  };
  for (const auto& [syntax, text, message] : wrong) {
    const auto grammar = compile_ebnf(text, syntax);
    ASSERT_FALSE(grammar) << text;
    EXPECT_EQ(grammar.error().message, message) << text;
  }
}

TEST(Ebnf, HostileGrammarsAreRefusedInBoundedTime) {
  std::string chain = "root ::= a0\n", doubling = "start: A0\n";
  for (int i = 0; i < 40; ++i) {
    doubling += "A" + std::to_string(i) + ": A" + std::to_string(i + 1) + " A" +
                std::to_string(i + 1) + "\n";
  }
  doubling += "A40: \"x\"\n";
  for (int i = 0; i < 2000; ++i) chain += "a" + std::to_string(i) + " ::= \"x\"\n";
  EXPECT_FALSE(compile_ebnf(doubling, kLark));
  EXPECT_FALSE(compile_ebnf(chain, kGbnf));
  EXPECT_FALSE(compile_ebnf("root ::= " + std::string(5000, '(') + "\"a\"", kGbnf));
  EXPECT_FALSE(compile_ebnf("root ::= ((\"a\" root?){1000}){1000}", kGbnf));
  EXPECT_FALSE(compile_ebnf(std::string(kMaxEbnfBytes + 1, ' '), kGbnf));
}

TEST(Ebnf, CallsInTheLastPlaceNeedNoReturns) {
  const auto grammar = compile_ebnf("root ::= \"a\" (\",\" root)?", kGbnf);
  std::string text = "a";
  for (int i = 0; i < 1000; ++i) text += ",a";
  EXPECT_TRUE(accepts(*grammar, text));
}

}  // namespace
}  // namespace hadal::grammar
