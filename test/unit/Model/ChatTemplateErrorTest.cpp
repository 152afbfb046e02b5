//===- ChatTemplateErrorTest.cpp - What templates are refused for ---------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ChatTemplateTestData.h"
#include "stem/Support/Error.h"

#include <gtest/gtest.h>

using namespace stem;
using namespace stem::test;

namespace {

std::string errorOf(const std::string &source) {
  try {
    ChatTemplate::parse(source, "t").render(conversation, makeOptions());
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

void expectErrors(std::initializer_list<TemplateCase> cases) {
  for (const TemplateCase &test : cases) {
    SCOPED_TRACE(test.source);
    EXPECT_EQ(errorOf(test.source), test.expected);
  }
}

TEST(ChatTemplateError, Syntax) {
  expectErrors({
      {"{{ 'a'|wordcount }}",
       "chat template 't', line 1: the filter 'wordcount' is not supported"},
      {"{{ 'a' is callable }}",
       "chat template 't', line 1: the test 'callable' is not supported"},
      {"{% include 'x' %}",
       "chat template 't', line 1: the tag 'include' is not supported"},
      {"{% raw %}{{ }{% endraw %}",
       "chat template 't', line 1: the tag 'raw' is not supported"},
      {"{% endif %}", "chat template 't', line 1: the tag 'endif' closes "
                      "nothing that is open here"},
      {"{% if true %}", "chat template 't', line 1: the template ends where "
                        "'endif' was expected"},
      {"{% for x in y %}", "chat template 't', line 1: the template ends where "
                           "'endfor' was expected"},
      {"{% if true %}{% endfor %}",
       "chat template 't', line 1: the tag 'endfor' closes nothing that is "
       "open here"},
      {"{% set x %}", "chat template 't', line 1: the template ends where "
                      "'endset' was expected"},
      {"{% break %}",
       "chat template 't', line 1: 'break' stands outside a loop"},
      {"{% for x in [1] %}{% set y %}{% break %}{% endset %}{% endfor %}",
       "chat template 't', line 1: 'break' stands outside a loop"},
      {"{% for x in [1] recursive %}{% endfor %}",
       "chat template 't', line 1: a recursive loop is not supported"},
      {"{% for x of y %}{% endfor %}",
       "chat template 't', line 1: expected 'in' but found 'of'"},
      {"{% set x y %}",
       "chat template 't', line 1: expected '=' but found 'y'"},
      {"{% set true = 1 %}",
       "chat template 't', line 1: 'true' cannot be assigned to"},
      {"{% set 5 = 1 %}",
       "chat template 't', line 1: expected a name to assign to but found '5'"},
      {"{{ 1", "chat template 't', line 1: the tag '{{' is not closed"},
      {"{% if", "chat template 't', line 1: the tag '{%' is not closed"},
      {"{# x", "chat template 't', line 1: the comment '{#' is not closed; "
               "'#}' is missing"},
      {"{{ 'abc", "chat template 't', line 1: the string that starts with ' is "
                  "not closed"},
      {"{{ \"\\x1\" }}", "chat template 't', line 1: the escape '\\x' wants 2 "
                         "hexadecimal digits"},
      {"{{ \"\\ud800\" }}", "chat template 't', line 1: the escape '\\u' names "
                            "U+D800, which is no character"},
      {"{{ \"\\N{DASH}\" }}", "chat template 't', line 1: the escape '\\N' is "
                              "not supported; write the character"},
      {"{{ a ! b }}",
       "chat template 't', line 1: unexpected character '!' in a tag"},
      {"{{ \303\274 }}",
       "chat template 't', line 1: unexpected character '\303\274' in a tag"},
      {"{{ 1 ) }}", "chat template 't', line 1: ')' closes no bracket"},
      {"{{ (1 }}", "chat template 't', line 1: '}' closes no bracket"},
      {"{{ (1] }}", "chat template 't', line 1: ']' closes no bracket"},
      {"{{ }}",
       "chat template 't', line 1: expected an expression but found '}}'"},
      {"{{ 1 2 }}", "chat template 't', line 1: expected '}}' but found '2'"},
      {"{% if true 1 %}",
       "chat template 't', line 1: expected '%}' but found '1'"},
      {"{% %}",
       "chat template 't', line 1: expected the name of a tag but found '%}'"},
      {"{% 5 %}",
       "chat template 't', line 1: expected the name of a tag but found '5'"},
      {"{{ a. }}",
       "chat template 't', line 1: expected an attribute but found '}}'"},
      {"{{ a| }}",
       "chat template 't', line 1: expected a filter but found '}}'"},
      {"{{ a is }}",
       "chat template 't', line 1: expected a test but found '}}'"},
      {"{{ a[] }}",
       "chat template 't', line 1: expected an index but found ']'"},
      {"{{ +1 }}", "chat template 't', line 1: the operator '+' before a value "
                   "is not supported"},
      {"{{ 2 ** 3 }}",
       "chat template 't', line 1: the operator '**' is not supported"},
      {"{{ f(*a) }}",
       "chat template 't', line 1: '*' before an argument is not supported"},
      {"{{ f(**a) }}",
       "chat template 't', line 1: '**' before an argument is not supported"},
      {"{{ dict(a=1, 2) }}", "chat template 't', line 1: an argument without a "
                             "name follows one with a name"},
      {"{{ a is string is string }}",
       "chat template 't', line 1: tests cannot be chained; use 'and'"},
      {"{{ {'a' 1} }}",
       "chat template 't', line 1: expected ':' but found '1'"},
      {"{{ [1 2] }}", "chat template 't', line 1: expected ',' but found '2'"},
      {"{% macro m(a=1, b) %}{% endmacro %}",
       "chat template 't', line 1: the parameter 'b' needs a default, as the "
       "one before it has one"},
      {"{% continue %}",
       "chat template 't', line 1: 'continue' stands outside a loop"},
      {"{% macro m %}{% endmacro %}",
       "chat template 't', line 1: expected '(' but found '%}'"},
      {"{% macro m(5) %}{% endmacro %}",
       "chat template 't', line 1: expected a parameter but found '5'"},
      {"{% macro m(a b) %}{% endmacro %}",
       "chat template 't', line 1: expected ',' but found 'b'"},
      {"{{ 'a' is nope }}",
       "chat template 't', line 1: the test 'nope' is not supported"},
      {"{% set ns = namespace() %}{% set ns.5 = 1 %}",
       "chat template 't', line 1: expected an attribute of the namespace but "
       "found '5'"},
      {"{{ 1 | 5 }}",
       "chat template 't', line 1: expected a filter but found '5'"},
      {"{{ \"\\u12\" }}", "chat template 't', line 1: the escape '\\u' wants 4 "
                          "hexadecimal digits"},
      {"{{ \"\\U00110000\" }}", "chat template 't', line 1: the escape '\\U' "
                                "names U+110000, which is no character"},
      {"{% generation %}", "chat template 't', line 1: the template ends where "
                           "'endgeneration' was expected"},
      {"{% macro m() %}", "chat template 't', line 1: the template ends where "
                          "'endmacro' was expected"},
      {"{{ 'a\nb\n", "chat template 't', line 1: the string that starts with ' "
                     "is not closed"},
      {"\n{{ (\n", "chat template 't', line 2: the tag '{{' is not closed"},
      {"\n\n{% set x = [\n'a'\n%}",
       "chat template 't', line 5: '}' closes no bracket"},
  });
}

TEST(ChatTemplateError, Evaluation) {
  expectErrors({
      {"{{ a.b }}",
       "chat template 't', line 1: cannot read 'b' of undefined 'a'"},
      {"{{ a[0] }}",
       "chat template 't', line 1: cannot read an item of undefined 'a'"},
      {"{{ a() }}",
       "chat template 't', line 1: the function 'a' is not supported"},
      {"{{ a.b() }}",
       "chat template 't', line 1: cannot call 'b' of undefined 'a'"},
      {"{{ a + 'x' }}", "chat template 't', line 1: '+' cannot be applied to "
                        "undefined 'a' and a string"},
      {"{{ 'x' + messages[0].nokey }}",
       "chat template 't', line 1: '+' cannot be applied to a string and "
       "undefined 'nokey' of a dict"},
      {"{{ 'x' + 1 }}", "chat template 't', line 1: '+' cannot be applied to a "
                        "string and an integer"},
      {"{{ messages }}", "chat template 't', line 1: a list cannot be written "
                         "as text; use the filter 'tojson' or 'join'"},
      {"{{ {} }}", "chat template 't', line 1: a dict cannot be written as "
                   "text; use the filter 'tojson' or 'join'"},
      {"{{ namespace() }}",
       "chat template 't', line 1: a namespace cannot be written as text; use "
       "the filter 'tojson' or 'join'"},
      {"{{ 1 < 'a' }}", "chat template 't', line 1: an integer and a string "
                        "cannot be put in order"},
      {"{{ none < 1 }}",
       "chat template 't', line 1: none and an integer cannot be put in order"},
      {"{{ 1 in 2 }}",
       "chat template 't', line 1: 'in' cannot look into an integer"},
      {"{{ 1 in 'abc' }}", "chat template 't', line 1: what 'in' looks for in "
                           "a string must be a string, not an integer"},
      {"{% for x in 5 %}{% endfor %}",
       "chat template 't', line 1: an integer cannot be iterated over"},
      {"{{ 5|length }}", "chat template 't', line 1: an integer has no length"},
      {"{{ 1 / 0 }}{{ 1 % 0 }}", "chat template 't', line 1: division by zero"},
      {"{{ 'a'.format(1) }}", "chat template 't', line 1: the method 'format' "
                              "of a string is not supported"},
      {"{{ [].append(1) }}", "chat template 't', line 1: the method 'append' "
                             "of a list is not supported"},
      {"{{ {}.update({}) }}", "chat template 't', line 1: the method 'update' "
                              "of a dict is not supported"},
      {"{% set x.y = 1 %}", "chat template 't', line 1: 'x' is not a "
                            "namespace, so 'x.y' cannot be set"},
      {"{% set a, b = [1] %}",
       "chat template 't', line 1: 2 names cannot take the 1 items of a list"},
      {"{{ {1: 2} }}", "chat template 't', line 1: a dict's key must be a "
                       "string, not an integer"},
      {"{{ raise_exception('no way') }}",
       "chat template 't', line 1: the template refuses these messages: no "
       "way"},
      {"{{ raise_exception('\\x1b[31mred') }}",
       "chat template 't', line 1: the template refuses these messages: "
       "\\x1b[31mred"},
      {"{{ raise_exception() }}", "chat template 't', line 1: the template "
                                  "refuses these messages: no reason given"},
      {"{{ range() }}{{ range(1, 2, 0) }}",
       "chat template 't', line 1: 'range' wants a stop"},
      {"{{ range(1, 2, 0) }}",
       "chat template 't', line 1: the step of 'range' is 0"},
      {"{{ range('a') }}", "chat template 't', line 1: an argument of 'range' "
                           "must be an integer, not a string"},
      {"{{ range(1, 2, 3, 4) }}",
       "chat template 't', line 1: 'range' takes 3 arguments but is given 4"},
      {"{{ range(stop=1, end=2) }}", "chat template 't', line 1: 'range' does "
                                     "not support the argument 'end'"},
      {"{{ range(1, start=2) }}", "chat template 't', line 1: 'range' is given "
                                  "the argument 'start' twice"},
      {"{{ strftime_now() }}",
       "chat template 't', line 1: 'strftime_now' wants a format"},
      {"{{ strftime_now('%Q') }}",
       "chat template 't', line 1: 'strftime_now' does not support '%Q'"},
      {"{{ strftime_now('%') }}",
       "chat template 't', line 1: 'strftime_now' does not support '%'"},
      {"{{ strftime_now(1) }}",
       "chat template 't', line 1: the format of 'strftime_now' must be a "
       "string, not an integer"},
      {"{{ namespace(1) }}", "chat template 't', line 1: 'namespace' wants a "
                             "dict or arguments with names"},
      {"{{ 'a'|tojson(true) }}", "chat template 't', line 1: the filter "
                                 "'tojson' supports ensure_ascii=false only"},
      {"{{ 'a'|tojson(indent=99) }}", "chat template 't', line 1: the indent "
                                      "of 'tojson' is 99; it must be 0 to 16"},
      {"{{ 'a'|tojson(indent='x') }}",
       "chat template 't', line 1: the indent of 'tojson' must be an integer, "
       "not a string"},
      {"{{ 'a'|tojson(sort_keys=true) }}",
       "chat template 't', line 1: 'tojson' does not support the argument "
       "'sort_keys'"},
      {"{{ nope|tojson }}",
       "chat template 't', line 1: undefined 'nope' has no JSON form"},
      {"{{ 'a'|items }}", "chat template 't', line 1: the filter 'items' wants "
                          "a dict, not a string"},
      {"{{ 'a'|replace('a') }}",
       "chat template 't', line 1: 'replace' wants an old and a new string"},
      {"{{ 'a'|replace('', 'b') }}",
       "chat template 't', line 1: what 'replace' replaces is empty"},
      {"{{ 'a'|replace(1, 'b') }}",
       "chat template 't', line 1: what 'replace' replaces must be a string, "
       "not an integer"},
      {"{{ 'a'|trim(1) }}", "chat template 't', line 1: the characters to "
                            "strip must be a string, not an integer"},
      {"{{ 'a'.split('') }}",
       "chat template 't', line 1: the separator of 'split' is empty"},
      {"{{ 'a'.split(1) }}", "chat template 't', line 1: the separator of "
                             "'split' must be a string, not an integer"},
      {"{{ 'a'.startswith() }}",
       "chat template 't', line 1: 'startswith' wants a string"},
      {"{{ 'a'.startswith(1) }}",
       "chat template 't', line 1: the argument of 'startswith' must be a "
       "string, not an integer"},
      {"{{ 'a'.upper(1) }}",
       "chat template 't', line 1: 'upper' takes 0 arguments but is given 1"},
      {"{{ {}.get() }}", "chat template 't', line 1: 'get' wants a key"},
      {"{{ []|selectattr }}",
       "chat template 't', line 1: the filter 'selectattr' wants an attribute"},
      {"{{ []|select('nope') }}",
       "chat template 't', line 1: the test 'nope' is not supported"},
      {"{{ []|map }}", "chat template 't', line 1: the filter 'map' wants an "
                       "attribute or a filter"},
      {"{{ []|map('nope') }}",
       "chat template 't', line 1: the filter 'nope' is not supported"},
      {"{{ []|map(1) }}", "chat template 't', line 1: a filter's or test's "
                          "name must be a string, not an integer"},
      {"{{ 'a' is odd }}", "chat template 't', line 1: the value of the test "
                           "'odd' must be an integer, not a string"},
      {"{{ 1 is divisibleby 0 }}",
       "chat template 't', line 1: division by zero"},
      {"{{ 1 is defined(2) }}", "chat template 't', line 1: the test 'defined' "
                                "takes no operand but is given 1 arguments"},
      {"{{ 1 is eq }}", "chat template 't', line 1: the test 'eq' takes an "
                        "operand but is given 0 arguments"},
      {"{{ 'abc'[::0] }}", "chat template 't', line 1: a slice's step is 0"},
      {"{{ 5[1:] }}", "chat template 't', line 1: a slice wants a list or a "
                      "string, not an integer"},
      {"{{ 'abc'['a':] }}", "chat template 't', line 1: a slice's bound must "
                            "be an integer, not a string"},
      {"{{ (1)() }}",
       "chat template 't', line 1: a call wants a function, not an integer"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
       "chat template 't', line 1: the macro 'm' takes 1 arguments but is "
       "given 2"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=1) }}",
       "chat template 't', line 1: the macro 'm' has no parameter 'b'"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, a=1) }}",
       "chat template 't', line 1: the macro 'm' is given 'a' twice"},
      {"{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}",
       "chat template 't', line 1: cannot read 'x' of undefined 'a'"},
      {"{{ (1 if false).x }}", "chat template 't', line 1: cannot read 'x' of "
                               "undefined result of an 'if' without 'else'"},
      {"{{ ([]|first).x }}", "chat template 't', line 1: cannot read 'x' of "
                             "undefined first item of nothing"},
      {"{{ [1][5].x }}", "chat template 't', line 1: cannot read 'x' of "
                         "undefined item 5 of a list of 1 items"},
      {"{{ none.x.y }}",
       "chat template 't', line 1: cannot read 'y' of undefined 'x' of none"},
      {"{{ none[0].y }}", "chat template 't', line 1: cannot read 'y' of "
                          "undefined item of none under an integer"},
      {"a\n\nb{{ 1 +\n 2 + \n nope.x }}",
       "chat template 't', line 5: cannot read 'x' of undefined 'nope'"},
      {"{{ [1,2]|length(3) }}",
       "chat template 't', line 1: 'length' takes 0 arguments but is given 1"},
      {"{{ 'a'|default(1,2,3) }}",
       "chat template 't', line 1: 'default' takes 2 arguments but is given 3"},
      {"{{ 'x'|tojson(ensure_ascii=true) }}",
       "chat template 't', line 1: the filter 'tojson' supports "
       "ensure_ascii=false only"},
      {"{{ {}.get('a', 1, 2) }}",
       "chat template 't', line 1: 'get' takes 2 arguments but is given 3"},
      {"{{ 'a'.strip(chars='a', x=1) }}",
       "chat template 't', line 1: 'strip' does not support the argument 'x'"},
      {"{% else %}", "chat template 't', line 1: the tag 'else' closes nothing "
                     "that is open here"},
      {"{{ 'a'.split('a', 'b') }}", "chat template 't', line 1: the limit of "
                                    "'split' must be an integer, not a string"},
      {"{{ 'a'|replace('a', 1) }}", "chat template 't', line 1: what 'replace' "
                                    "writes must be a string, not an integer"},
      {"{{ 'a'|replace('a', 'b', 'c') }}",
       "chat template 't', line 1: the count of 'replace' must be an integer, "
       "not a string"},
      {"{{ -'a' }}", "chat template 't', line 1: '-' cannot be applied to an "
                     "integer and a string"},
      {"{{ namespace({}, {}) }}", "chat template 't', line 1: 'namespace' "
                                  "wants a dict or arguments with names"},
      {"{{ 'a' is divisibleby 2 }}",
       "chat template 't', line 1: the value of the test 'divisibleby' must be "
       "an integer, not a string"},
      {"{{ 4 is divisibleby 'a' }}",
       "chat template 't', line 1: the operand of the test 'divisibleby' must "
       "be an integer, not a string"},
      {"{{ [1]|selectattr('a', 5) }}",
       "chat template 't', line 1: a filter's or test's name must be a string, "
       "not an integer"},
      {"{{ []|reject('x') }}",
       "chat template 't', line 1: the test 'x' is not supported"},
      {"{{ []|rejectattr }}",
       "chat template 't', line 1: the filter 'rejectattr' wants an attribute"},
      {"{{ range }}", "chat template 't', line 1: a function cannot be written "
                      "as text; use the filter 'tojson' or 'join'"},
      {"{{ nope.strip() }}",
       "chat template 't', line 1: cannot call 'strip' of undefined 'nope'"},
      {"{{ loop.index }}",
       "chat template 't', line 1: cannot read 'index' of undefined 'loop'"},
      {"a\r\nb\n{{ 1 +\n 2 + \n nope.x }}",
       "chat template 't', line 5: cannot read 'x' of undefined 'nope'"},
  });
}

TEST(ChatTemplateError, Bounds) {
  expectErrors({
      {"{{ 9223372036854775807 + 1 }}",
       "chat template 't', line 1: an integer result does not fit 64 bits"},
      {"{{ 9223372036854775808 }}", "chat template 't', line 1: the integer "
                                    "9223372036854775808 does not fit 64 bits"},
      {"{{ -9223372036854775807 - 2 }}",
       "chat template 't', line 1: an integer result does not fit 64 bits"},
      {"{{ 4611686018427387904 * 2 }}",
       "chat template 't', line 1: an integer result does not fit 64 bits"},
      {"{{ (-9223372036854775807 - 1) // -1 }}",
       "chat template 't', line 1: an integer result does not fit 64 bits"},
      {"{% set ns = namespace() %}{% set ns.a = ns %}",
       "chat template 't', line 1: a namespace cannot be kept in a list, dict "
       "or namespace"},
      {"{% set ns = namespace() %}{{ [ns] }}",
       "chat template 't', line 1: a namespace cannot be kept in a list, dict "
       "or namespace"},
      {"{% for x in [1] %}{{ {'l': loop} }}{% endfor %}",
       "chat template 't', line 1: a loop cannot be kept in a list, dict or "
       "namespace"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
       "chat template 't', line 1: constructs and macro calls are nested "
       "deeper than 400"},
      {"{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% "
       "endmacro %}{{ m(60) }}",
       "chat template 't', line 1: rendering takes more than 134217728 units "
       "of work (bytes and steps); the template loops or repeats too much, or "
       "the messages are too long"},
      {"{{ range(1000000000) }}",
       "chat template 't', line 1: rendering takes more than 134217728 units "
       "of work (bytes and steps); the template loops or repeats too much, or "
       "the messages are too long"},
      {"{% for i in range(9999) %}{% for j in range(9999) %}{% for k in "
       "range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
       "chat template 't', line 1: rendering takes more than 134217728 units "
       "of work (bytes and steps); the template loops or repeats too much, or "
       "the messages are too long"},
      {"{{ 'x' * 9223372036854775807 }}",
       "chat template 't', line 1: rendering takes more than 134217728 units "
       "of work (bytes and steps); the template loops or repeats too much, or "
       "the messages are too long"},
      {"{{ '' * 9223372036854775807 }}",
       "chat template 't', line 1: rendering takes more than 134217728 units "
       "of work (bytes and steps); the template loops or repeats too much, or "
       "the messages are too long"},
      {"{% set ns = namespace(a='xx') %}{% for i in range(99) %}{% set ns.a = "
       "ns.a + ns.a %}{% endfor %}",
       "chat template 't', line 1: rendering takes more than 134217728 units "
       "of work (bytes and steps); the template loops or repeats too much, or "
       "the messages are too long"},
      {"{% set ns = namespace(a=[1]) %}{% for i in range(99) %}{% set ns.a = "
       "ns.a + ns.a %}{% endfor %}",
       "chat template 't', line 1: rendering takes more than 134217728 units "
       "of work (bytes and steps); the template loops or repeats too much, or "
       "the messages are too long"},
      {"{% set ns = namespace(a=[1]) %}{% for i in range(99) %}{% set ns.a = "
       "[ns.a, ns.a] %}{% endfor %}",
       "chat template 't', line 1: lists and dicts are nested deeper than 64"},
      {"{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = "
       "[ns.a, ns.a] %}{% endfor %}{{ ns.a|tojson }}",
       "chat template 't', line 1: rendering takes more than 134217728 units "
       "of work (bytes and steps); the template loops or repeats too much, or "
       "the messages are too long"},
      {"{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set "
       "ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a "
       "== ns.b }}",
       "chat template 't', line 1: rendering takes more than 134217728 units "
       "of work (bytes and steps); the template loops or repeats too much, or "
       "the messages are too long"},
      {"{{ {'a': namespace()} }}",
       "chat template 't', line 1: a namespace cannot be kept in a list, dict "
       "or namespace"},
  });
}

std::string repeat(std::string_view text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i)
    result += text;
  return result;
}

TEST(ChatTemplateError, DeepTemplatesDoNotOverflowTheStack) {
  const std::string constructs =
      "chat template 't', line 1: constructs and macro calls are nested deeper "
      "than 400";
  const std::string expression =
      "chat template 't', line 1: an expression is nested deeper than 200";
  size_t n = 100000;
  EXPECT_EQ(errorOf("{{ " + repeat("(", n) + "1" + repeat(")", n) + " }}"),
            constructs);
  EXPECT_EQ(errorOf("{{ " + repeat("[", n) + repeat("]", n) + " }}"),
            constructs);
  EXPECT_EQ(errorOf("{{ " + repeat("not ", n) + "1 }}"), constructs);
  EXPECT_EQ(errorOf("{{ " + repeat("-", n) + "1 }}"), constructs);
  EXPECT_EQ(errorOf("{{ 1" + repeat(" if 1 else 1", 50000) + " }}"),
            constructs);
  EXPECT_EQ(errorOf(repeat("{% if true %}", 50000)), constructs);
  EXPECT_EQ(errorOf("{{ 1" + repeat(" + 1", n) + " }}"), expression);
  EXPECT_EQ(errorOf("{{ a" + repeat(".b", n) + " }}"), expression);
  EXPECT_EQ(errorOf("{{ 1" + repeat("|string", n) + " }}"), expression);
}

TEST(ChatTemplateError, LongTemplate) {
  EXPECT_EQ(errorOf(repeat("x", 1048577)),
            "chat template 't', line 1: the template has 1048577 bytes; at "
            "most 1048576 are read");
}

TEST(ChatTemplateError, RolesAreWords) {
  ChatTemplate chat = ChatTemplate::parse("{{ messages[1].role }}", "t");
  for (const char *role : {"", "user<|im_end|>", "a b", "\xC3\xA9"}) {
    SCOPED_TRACE(role);
    try {
      chat.render({{"user", "a"}, {role, "b"}}, ChatOptions());
      ADD_FAILURE() << "no error";
    } catch (const Error &error) {
      EXPECT_EQ(std::string(error.what()),
                fmt::format("the role '{}' of message 1 is not a word of "
                            "letters, digits, '_' and '-'",
                            role));
    }
  }
}

} // namespace
