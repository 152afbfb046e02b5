//===- ChatTemplateTest.cpp - What the template language does -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The expected texts are what Jinja2 3.1 renders with the settings of chat
// templates (trim_blocks, lstrip_blocks, the json filter without escapes).
//
//===----------------------------------------------------------------------===//

#include "ChatTemplateTestData.h"
#include "stem/Support/Error.h"

#include <gtest/gtest.h>

using namespace stem;
using namespace stem::test;

namespace {

void expectRendered(std::initializer_list<TemplateCase> cases) {
  for (const TemplateCase &test : cases) {
    SCOPED_TRACE(test.source);
    std::string text;
    for (const ChatPiece &piece : ChatTemplate::parse(test.source, "t")
                                      .render(conversation, makeOptions()))
      text += piece.text;
    EXPECT_EQ(text, test.expected);
  }
}

TEST(ChatTemplate, Expressions) {
  expectRendered({
      {"{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 "
       "}} {{ 6 / 2 }} {{ 1.5 * 2 }} {{ 2.5 // 1 }} {{ 1e20 }} {{ 0.0001 }} {{ "
       "1e-5 }} {{ -3 }} {{ - 2.5 }}",
       "3 3 -4 2 3.5 3.0 3.0 2.0 1e+20 0.0001 1e-05 -3 -2.5"},
      {"{{ 1 ~ 2 }} {{ 1 ~ 'x' ~ none ~ true }}", "12 1xNoneTrue"},
      {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true "
       "== 1 }} {{ 1 != 2 }} {{ 2 >= 2 }} {{ 'b' <= 'a' }}",
       "True False True True True True True False"},
      {"{{ 'a' in 'cat' }} {{ 1 in [1,2] }} {{ 'k' in {'k': 1} }} {{ 'z' not "
       "in 'cat' }} {{ 'x' in nope }} {{ not 'a' in 'b' }}",
       "True True True True False True"},
      {"{{ 1 and 0 }} {{ '' or 'x' }} {{ not 1 }} {{ none or false }} {{ 0 and "
       "1 == 2 }}",
       "0 x False False 0"},
      {"{{ {'a': {'b': [1, 2.5, none, true, \"q\\\"\\n\\u00e9\"]}, 'c': []} | "
       "tojson }} {{ {} | tojson }}",
       "{\"a\": {\"b\": [1, 2.5, null, true, \"q\\\"\\n\303\251\"]}, \"c\": "
       "[]} {}"},
      {"{{ {'a': {'b': [1, 2.5, none, true]}, 'c': [], 'd': {}} | "
       "tojson(indent=2) }}",
       "{\n  \"a\": {\n    \"b\": [\n      1,\n      2.5,\n      null,\n      "
       "true\n    ]\n  },\n  \"c\": [],\n  \"d\": {}\n}"},
      {"{{ strftime_now('%Y-%m-%d %H:%M:%S %A %a %B %b %j %p %I %y %-d %%') }}",
       "2024-07-05 09:08:07 Friday Fri July Jul 187 AM 09 24 5 %"},
      {"{{ messages[0].role }}{{ messages[0]['role'] }}{{ messages[0].nokey "
       "}}{{ messages[9] }}|{{ none.foo }}|{{ 'a'.foo }}|{{ (1).x }}|",
       "systemsystem||||"},
      {"{{ 1.0 }} {{ 1e16 }} {{ 123456789012345.678 }} {{ 1/3 }} {{ 1e22 }} {{ "
       "10 // 3.0 }} {{ -7.5 % 2 }}",
       "1.0 1e+16 123456789012345.67 0.3333333333333333 1e+22 3.0 0.5"},
      {"{{ not true == false }} {{ not (true and false) }} {{ 1 + 1 == 2 and "
       "not false }} {{ 'a' ~ 'b' == 'ab' }}",
       "True True True True"},
      {"{{ 1 }}{", "1{"},
  });
}

TEST(ChatTemplate, Filters) {
  expectRendered({
      {"{{ 'a' 'b' }}{{ \"q\\\"\\x41\\u00e9\\101\\d\\t|\" }}",
       "abq\"A\303\251A\\d\t|"},
      {"{{ 'y' if true else 'n' }} {{ 'y' if false }}| {{ 1 if 0 else 2 if 0 "
       "else 3 }}",
       "y | 3"},
      {"{{ 'abc'[0] }}{{ 'abc'[-1] }}{{ 'abc'[1:] }}{{ 'abc'[::-1] }}{{ "
       "'abcdef'[1:5:2] }}{{ 'abc'[5:] }}{{ 'abc'[-2:] }}{{ 'abc'[:-1] }}{{ "
       "'abc'[9] }}|{{ '\303\274ber'[0] }}{{ 'abcdef'[4:1:-1] }}{{ 'abc'[-9:2] "
       "}}{{ 'abc'[9::-2] }}",
       "acbccbabdbcab|\303\274edcabca"},
      {"{{ [1,2,3][1:]|join(',') }} {{ [1,2,3][::-1]|join }} {{ (1,2)|length "
       "}} {{ ()|length }} {{ {'a':1,'b':2}|length }} {{ '\303\244b'|length }} "
       "{{ nope|length }}",
       "2,3 321 2 0 2 2 0"},
      {"{{ [1,[2,[]]] | tojson(false, 2) }} {{ \"a\\u2028</script>'\" | tojson "
       "}}",
       "[\n  1,\n  [\n    2,\n    []\n  ]\n] \"a\342\200\250</script>'\""},
      {"{{ '  x '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ 'Ab'|upper }}{{ "
       "'Ab'|lower }}{{ 'hELLO wORLD'|capitalize }}{{ '\303\244\303\251'|upper "
       "}}",
       "x|a|ABabHello world\303\204\303\211"},
      {"{{ nope|default('d') }} {{ ''|default('d') }}|{{ ''|default('d', true) "
       "}} {{ none|default('d') }} {{ nope|d }}| {{ ''|default('e', "
       "boolean=true) }}",
       "d |d None | e"},
      {"{{ [1,2]|first }}{{ [1,2]|last }}{{ []|first }}{{ 'abc'|first }}{{ "
       "'abc'|list|join('-') }}{{ {'a':1}|list|join }}",
       "12aa-b-ca"},
      {"{{ 'a-b-c'|replace('-', '+') }} {{ 'a-b-c'|replace('-', '+', 1) }} {{ "
       "'a-b'.replace('-', '') }} {{ 'aXbX'.replace('X','y',1) }}",
       "a+b+c a+b-c ab aybX"},
      {"{{ messages|selectattr('role','equalto','user')|list|length }} {{ "
       "messages|rejectattr('role','eq','user')|map(attribute='role')|join(',')"
       " }} {{ messages|selectattr('nokey')|list|length }} {{ "
       "messages|selectattr('role','in',['system','user'])|list|length }} {{ "
       "messages|selectattr('x','defined')|list|length }}",
       "2 system,assistant 0 3 0"},
      {"{{ [1,2,3,4]|select('odd')|join }} {{ "
       "[1,2,3,4]|reject('even')|list|join }} {{ ['a','']|select|join }} {{ "
       "['a','B']|map('upper')|join }} {{ ['a']|map('default','x')|join }} {{ "
       "[{'a':{'b':3}}]|map(attribute='a.b')|join }} {{ "
       "[{}]|map(attribute='q', default='z')|join }}",
       "13 13 a AB a 3 z"},
      {"{{ '12'|int + 1 }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ 3.9|int }} {{ "
       "'3.9'|int }} {{ ' 5 '|int }} {{ '1.5'|float }} {{ 'q'|float }} {{ "
       "true|int }} {{ none|int }} {{ 3|string + 'x' }} {{ 'a'|safe }} {{ "
       "2|float }}",
       "13 0 7 3 3 5 1.5 0.0 1 0 3x a 2.0"},
      {"{{ dict(a=1, b=2) | tojson }} {{ dict({'x': 1}, y=2)|tojson }} {{ "
       "{'a': 1} == {'a': 1.0} }} {{ [1] == [1] }} {{ messages[-1] == "
       "messages[3] }}",
       "{\"a\": 1, \"b\": 2} {\"x\": 1, \"y\": 2} True True True"},
      {"{{ 'ab' * 2 }}{{ 'ab' * 0 }}{{ 'x' * -1 }}|{{ ([1] + [2])|join }}",
       "abab|12"},
      {"{{ [1,2,]|join }}{{ {'a':1,}|length }}{{ {'a': {'b': 1}}['a']['b'] "
       "}}{{ {'a': {'b': {}}}|length}}",
       "12111"},
      {"{{ nope == nope2 }} {{ nope == none }} {{ nope != 1 }} {{ nope|trim "
       "}}|{{ nope|upper }}|{{ nope|list|length }}|{{ nope ~ 'x' }}",
       "True False True ||0|x"},
      {"{{ messages|map(attribute='content')|join('|') }} {{ "
       "messages|join(',', attribute='role') }}",
       " Be brief. |Hi <|im_end|> \n|Yes\n| more  system,user,assistant,user"},
  });
}

TEST(ChatTemplate, Tests) {
  expectRendered({
      {"{{ true }} {{ False }} {{ none }} {{ nope }}|{{ nope is defined }} {{ "
       "nope is undefined }}",
       "True False None |False True"},
      {"{{ 'a' is string }} {{ 1 is string }} {{ {} is mapping }} {{ [] is "
       "iterable }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ [] is "
       "sequence }} {{ {} is sequence }} {{ 1 is number }} {{ true is number "
       "}} {{ 1 is boolean }} {{ true is boolean }} {{ true is true }} {{ 1 is "
       "true }} {{ false is false }} {{ none is none }} {{ 1 is not none }} {{ "
       "3 is odd }} {{ 3 is even }} {{ 4 is divisibleby 2 }} {{ 4 is "
       "divisibleby(3) }} {{ 1 is integer }} {{ 1.0 is float }} {{ true is "
       "integer }}",
       "True False True True True False True True True True False True True "
       "False True True True True False True False True True False"},
      {"{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 'a' is in ['a'] }} {{ 'a' is "
       "ne 'b' }} {{ 1 is defined and 2 is not defined }} {{ nope is none }} "
       "{{ nope is string }} {{ nope is iterable }} {{ nope is mapping }}",
       "True False True True False False False True False"},
      {"{{ messages[0].content|trim + '!' }}{{ messages | length - 1 }}{{ "
       "-1|string }}{{ '%s' is string }}",
       "Be brief.!3-1True"},
      {"{{ 'x' is string and 'y' or 'z' }} {{ ('a', 'b')[1] }} {{ "
       "[[1,2],[3]][0][1] }} {{ {'a':[1,2]}.a[0] }} {{ [[1,2]].0.1 }}",
       "y b 2 1 2"},
      {"{{ 'abc'|join('-') }} {{ 5 is sequence }} {{ nope is sequence }} {{ "
       "range is defined }} {{ loop is defined }} {{ true|string|lower }}",
       "a-b-c False True True False true"},
      {"{{ (1 if true else 2) + 1 }}{{ [1 if false else 4][0] }}{{ 'a' if "
       "messages[0].role is equalto 'system' else 'b' }}{{ 'y' if nope is "
       "defined else 'n' }}",
       "24an"},
  });
}

TEST(ChatTemplate, Methods) {
  expectRendered({
      {"{{ {'a':1,'b':2}.keys()|list|join }} {{ "
       "{'a':1,'b':2}.values()|list|join }} {{ {'a':1}.get('a') }} {{ "
       "{'a':1}.get('z') }} {{ {'a':1}.get('z', 5) }}",
       "ab 12 1 None 5"},
      {"{{ '  a b  '.strip() }}|{{ 'xax'.lstrip('x') }}|{{ 'xax'.rstrip('x') "
       "}}|{{ 'a b'.title() }}|{{ \"they're 3rd bill\".title() }}|{{ "
       "'ab'.upper() }}{{ 'AB'.lower() }}{{ 'aB'.capitalize() }}",
       "a b|ax|xa|A B|They'Re 3Rd Bill|ABabAb"},
      {"{{ 'a b  c'.split()|join('|') }} {{ 'a,b,,c'.split(',')|join('|') }} "
       "{{ 'a,b,c'.split(',', 1)|join('|') }} {{ ' a  b c '.split(none, "
       "1)|join('|') }}| {{ ''.split(',')|length }} {{ ''.split()|length }} {{ "
       "' a b '.split(none, 0)|join('|') }}|",
       "a|b|c a|b||c a|b,c a|b c | 1 0 a b |"},
      {"{{ 'abc'.startswith('a') }} {{ 'abc'.endswith(('x','c')) }} {{ "
       "'abc'.startswith('abcd') }} {{ 'abc'.endswith('') }}",
       "True True False True"},
      {"{{ '\\n\\n a \\t'.strip() }}|{{ '\\u00a0a\\u3000'.strip() }}|{{ "
       "'\\x1ca'|trim }}|{{ '\303\244\303\266\303\244'.strip('\303\244') }}",
       "a|a|a|\303\266"},
  });
}

TEST(ChatTemplate, Statements) {
  expectRendered({
      {"{% set t %}  in {{ 1 + 1 }} {% endset %}[{{ t }}]{% set t2 %}{% set q "
       "= 1 %}{% endset %}{{ q is defined }}",
       "[  in 2 ]False"},
      {"{% if false %}a{% elif 0 %}b{% elif 1 %}c{% else %}d{% endif %}{% if "
       "nope %}x{% else %}y{% endif %}",
       "cy"},
      {"{{ \"}}\" }}{{ '%}' }}{% if '%}' == \"%}\" %}ok{% endif %}", "}}%}ok"},
      {"{% generation %}gen {{ 1 }}{% set z = 1 %}{% endgeneration %}{{ z is "
       "defined }}",
       "gen 1False"},
      {"{{ 1 }}  {% if true %}x{% endif %}", "1  x"},
  });
}

TEST(ChatTemplate, Loops) {
  expectRendered({
      {"{% for k, v in {'a':1,'b':2}.items() %}{{ k }}={{ v }};{% endfor %}{% "
       "for k, v in {'a':1}|items %}{{ k }}{{ v }}{% endfor %}",
       "a=1;b=2;a1"},
      {"{% set ns = namespace(a=1, b='x') %}{% for i in range(3) %}{% set ns.a "
       "= ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}",
       "4xFalse"},
      {"{% set x = 0 %}{% for i in range(3) %}{% set x = x + 1 %}{{ x }}{% "
       "endfor %}{{ x }}",
       "1110"},
      {"{% for i in [1,2] %}{% if loop.first %}{% set y = 1 %}{% endif %}[{{ y "
       "}}]{% endfor %}",
       "[1][]"},
      {"{% for i in [5,6,7] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first "
       "}}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 "
       "}}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
       "10TrueFalse3326;21FalseFalse32157;32FalseTrue3106;"},
      {"{% for i in [1,2,3,4] if i is even %}{{ i }}/{{ loop.length }}/{{ "
       "loop.last }} {% endfor %}",
       "2/2/False 4/2/True "},
      {"{% for i in [] %}x{% else %}empty{% endfor %}{% for i in [1] %}x{% "
       "else %}empty{% endfor %}{% for i in nope %}{% else %}none{% endfor %}",
       "emptyxnone"},
      {"{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if "
       "i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
       "0134"},
      {"{% for i in range(1, 10, 3) %}{{ i }}{% endfor %}{% for i in range(5, "
       "0, -2) %}{{ i }}{% endfor %}{{ range(0)|list|length }}",
       "1475310"},
      {"{% for c in 'h\303\251y' %}{{ c }}.{% endfor %}{% for k in {'a':1} "
       "%}{{ k }}{% endfor %}",
       "h.\303\251.y.a"},
      {"{% for a, b in [(1,2),(3,4)] %}{{ a }}{{ b }}{% endfor %}{% set a, b = "
       "1, 2 %}{{ a }}{{ b }}",
       "123412"},
      {"{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ "
       "m.content }}{% endfor %}",
       "1Hi <|im_end|> \n2 more "},
      {"{% for x in [1,2] %}{% for y in [3,4] %}{{ x }}{{ y }}{{ loop.index "
       "}}{% endfor %}{{ loop.index }}{% endfor %}",
       "13114212312422"},
      {"{% for x in [1,2,3] %}{% set found = false %}{% if x == 2 %}{% set "
       "found = true %}{% endif %}{{ found }}{% endfor %}",
       "FalseTrueFalse"},
  });
}

TEST(ChatTemplate, Macros) {
  expectRendered({
      {"{% macro m(a, b='d', c=a) %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ "
       "m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m() }}",
       "<1d1><121><1d3><d>"},
      {"{% macro fact(n) %}{% if n < 2 %}1{% else %}{{ n }}*{{ fact(n - 1) "
       "}}{% endif %}{% endmacro %}{{ fact(4) }}",
       "4*3*2*1"},
      {"{% set g = 5 %}{% macro m() %}{{ g }}{{ i is defined }}{% endmacro "
       "%}{% for i in [1] %}{{ m() }}{% endfor %}",
       "5False"},
  });
}

TEST(ChatTemplate, Whitespace) {
  expectRendered({
      {"{{- 1 -}}   {{- 2 }}  {{ 3 }}", "12  3"},
      {"a  {%- if true -%}  b  {%- endif -%}  c", "abc"},
      {"a  {%+ if true %}  b  {%+ endif +%}  c", "a    b    c"},
      {"{# comment #}x{#- c -#}  y", "xy"},
      {"a\n  {% if true %}\n  b\n  {% endif %}\n c\n", "a\n  b\n c"},
      {"  {% if true %}  \nx{% endif %}", "  \nx"},
      {"x  {% if true %}y{% endif %}\n\nz", "x  y\nz"},
      {"\r\na\r{{ 1 }}\n\n", "\na\n1\n"},
      {"{{ 1 }}\n{{ 2 }}\n", "1\n2"},
      {"  {# c #}\n x", " x"},
      {"{% if true -%}\n  \n  a\n  {%- endif %}\n", "a"},
      {"\n\n{%- if true %}\n\n{% endif -%}\n\n", "\n"},
      {"{% if true %}x{% endif %}  {% if true %}y{% endif %}\n  {% if true "
       "%}z{% endif %}\n",
       "x  yz"},
      {"   {{ 1 }}\n   {{- 2 }}", "   12"},
      {"{% set a = 1 %}\n\n  {% set b = 2 -%}\n\n  {{ a }}{{ b }}", "\n12"},
      {"{#- a -#}\n {#- b #}\n c", " c"},
      {"", ""},
      {"\n", ""},
      {"\n\n", "\n"},
      {"{", "{"},
      {"{ {", "{ {"},
      {"a{", "a{"},
      {"{%- set x = [\n 1,\n 2\n] %}\n{{ x|join }}", "12"},
      {"{% if true %}a\n{% else %}\nb{% endif %}", "a\n"},
      {"{{ 'a\r\nb' }}", "a\nb"},
      {"{#+ a +#}\n  x", "\n  x"},
      {"x {#- y #}  \n{#-#}z{##}", "xz"},
      {"\302\240{%- if true %}b{% endif -%}\302\240c", "bc"},
      {"{{+1}}{{-1}}{{ 1 -}} x", "111x"},
      {"a{# two\nlines #} z", "a z"},
      {"{{ 'a\\\nb' }}{{ 'line1\nline2' }}", "abline1\nline2"},
  });
}

TEST(ChatTemplate, OptionsThatAreNotGivenAreUndefined) {
  const char *source = "{{ bos_token is defined }} {{ eos_token is defined }} "
                       "{{ enable_thinking is defined }} {{ tools is none }} "
                       "{{ add_generation_prompt }}";
  std::vector<ChatPiece> pieces =
      ChatTemplate::parse(source, "t").render({}, ChatOptions());
  EXPECT_EQ(pieces,
            (std::vector<ChatPiece>{{"False False False True False", false}}));
}

TEST(ChatTemplate, ReadsTheClockUnlessTold) {
  std::vector<ChatPiece> pieces =
      ChatTemplate::parse("{{ strftime_now('%Y')|int > 2023 }}", "t")
          .render({}, ChatOptions());
  EXPECT_EQ(pieces, (std::vector<ChatPiece>{{"True", false}}));
}

} // namespace
