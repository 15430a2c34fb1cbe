"""Chat templates, each about one thing that published ones use: name -> template, and what else it is given.

tools/record_tokenizers.py records what transformers makes of them.
"""

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  2+2?\n"},
    {
        "role": "assistant",
        "content": "<think>sum</think>\n\n4",
        "tool_calls": [
            {
                "type": "function",
                "function": {"name": "add", "arguments": {"b": 2, "a": [1, 2.5, None, True], "s": "Grö\"ße <&'>"}},
            }
        ],
    },
    {"role": "tool", "content": "4"},
    {"role": "user", "content": "Thanks, 漢字 😀"},
]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "add", "description": "Größe <b>", "parameters": {"type": "object", "properties": {}}},
    },
    {"type": "function", "function": {"name": "now", "parameters": {"z": 1, "a": [], "m": {"k": 1.0}}}},
]
NULL = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None}]
PARTS = [
    {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]}
]
DEVELOPER = [{"role": "developer", "content": "dev"}, {"role": "user", "content": "x"}]

VISIBLE_TEXT = """\
{%- macro visible_text(content) -%}
    {%- if content is string -%}
        {{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}
            {%- if item is mapping and item.type == 'text' -%}
                {{- item.text }}
            {%- elif item is string -%}
                {{- item }}
            {%- endif -%}
        {%- endfor -%}
    {%- elif content is none -%}
        {{- '' }}
    {%- else -%}
        {{- content }}
    {%- endif -%}
{%- endmacro -%}
"""

CASES = {
    "break": "{% for m in messages %}{% if m.role == 'assistant' %}{% break %}{% endif %}[{{ m.role }}]{% endfor %}",
    "continue": "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}[{{ m.role }}]{% endfor %}",
    "break in a nested loop": (
        "{% for m in messages %}{% for t in tools %}{% if loop.index0 == 1 %}{%- break -%}{% endif %}{{ t.function.name }}{% endfor %}"
        "|{% endfor %}"
    ),
    "last user by reversed indices": (
        "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}{% if m.role == 'user' and ns.last == -1 %}"
        "{% set ns.last = messages | length - 1 - loop.index0 %}{% endif %}{% endfor %}{{ ns.last }}"
    ),
    "namespace": (
        "{%- set ns = namespace(n=0, seen=false, names=[]) -%}{%- for m in messages -%}{%- set ns.n = ns.n + 1 -%}"
        "{%- set ns.names = ns.names + [m.role] -%}{%- endfor -%}{{ ns.n }} {{ ns.seen }} {{ ns.names | join(',') }}"
    ),
    "set in a loop stays in it": "{% set x = 1 %}{% for m in messages %}{% set x = 2 %}{% endfor %}{{ x }}",
    "loop variables": (
        "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
        "{{ loop.previtem.role if not loop.first }}{{ loop.nextitem.role if loop.nextitem is defined }};{% endfor %}"
    ),
    "loop filter and else": "{% for m in messages if m.role == 'nobody' %}x{% else %}none{% endfor %}",
    "loop cycle and changed": "{% for m in messages %}{{ loop.cycle('a', 'b') }}{{ loop.changed(m.role) }}{% endfor %}",
    "macro": VISIBLE_TEXT + "{% for m in messages %}{{ visible_text(m.content) }}|{% endfor %}",
    "macro on parts": (
        VISIBLE_TEXT + "{% for m in messages %}{{ visible_text(m.content) }}|{% endfor %}",
        {"messages": PARTS},
    ),
    "macro on null": (
        VISIBLE_TEXT + "{% for m in messages %}{{ visible_text(m.content) }}|{% endfor %}",
        {"messages": NULL},
    ),
    "macro defaults and keywords": "{% macro f(a, b='x', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=2) }} {{ f(b=3, a=4) }}",
    "macro caller": "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}in{% endcall %}",
    "content that is looped over in one branch only": (
        "{% for m in messages %}{% if m.content is string %}{{ m.content.strip() }}{% else %}{% for p in m.content or [] %}({{ p.type }})"
        "{% endfor %}{% endif %}|{% endfor %}"
    ),
    "content parts first": (
        "{% for m in messages %}{% if m.content is not string %}{% for p in m.content %}[{{ p['text'] }}]{% endfor %}{% else %}"
        "{{ m['content'] | trim }}{% endif %}|{% endfor %}"
    ),
    "is defined": "{{ absent is defined }}{{ messages is defined }}{{ messages[0].absent is defined }}{{ tools is defined }}{{ x is undefined }}",
    "is none": (
        "{{ messages[1].content is none }}{{ messages[0].content is none }}{{ tools is none }}",
        {"messages": NULL, "tools": None},
    ),
    "is string, mapping, sequence, iterable": (
        "{% for v in ['a', {'a': 1}, [1], 1, 1.5, true, none] %}{{ v is string }}{{ v is mapping }}{{ v is sequence }}{{ v is iterable }}"
        "{{ v is number }}{{ v is boolean }}{{ v is integer }}{{ v is float }};{% endfor %}"
    ),
    "is in, eq, true, false, odd": "{{ 1 is in [1] }}{{ 1 is eq 1 }}{{ true is true }}{{ 0 is false }}{{ 3 is odd }}{{ 'a' is sameas 'a' }}",
    "null prints": (
        "{{ messages[1].content }}|{{ messages[1].content ~ 'x' }}|{{ messages[1].content or '' }}",
        {"messages": NULL},
    ),
    "null length guards": (
        "{% if messages[1].content and messages[1].content | length %}a{% else %}b{% endif %}",
        {"messages": NULL},
    ),
    "string methods": (
        "{% set s = messages[1].content %}[{{ s.strip() }}][{{ s.lstrip() }}][{{ s.rstrip() }}][{{ 'xxaxx'.strip('x') }}]"
        "[{{ '\\n\\na'.lstrip('\\n') }}][{{ 'a\\n'.rstrip('\\n') }}][{{ 'aBc'.upper() }}{{ 'aBc'.lower() }}{{ 'ab c'.title() }}"
        "{{ 'ab'.capitalize() }}][{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}][{{ 'a,b,c'.replace(',', '-') }}"
        "{{ 'a,b,c'.replace(',', '-', 1) }}][{{ 'abcb'.find('b') }}{{ 'abcb'.count('b') }}{{ 'abcb'.rfind('b') }}]"
        "[{{ 'a'.isdigit() }}{{ '1'.isdigit() }}{{ 'a'.isalpha() }}{{ ' '.isspace() }}]"
    ),
    "remove a prefix": "{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}",
    "split": (
        "{{ 'a b  c'.split() }}{{ 'a,b,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a\\nb'.splitlines() }}"
        "{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}{{ messages[2].content.split('</think>')[0].split('<think>')[-1] }}"
    ),
    "join": "{{ ', '.join(['a', 'b']) }}{{ ['a', 'b'] | join('-') }}{{ messages | map(attribute='role') | join(' ') }}",
    "partition": "{{ 'a=b=c'.partition('=')[2] }}{{ 'a=b=c'.rpartition('=')[0] }}",
    "format": "{{ '%.2f' | format(1.5) }}{{ '%s is %d' | format('a', 3) }}",
    "percent": "{{ '%s is %d' % ('a', 3) }}",
    "str.format": "{{ '{} and {}'.format('a', 2) }}{{ '{x:>4}|'.format(x=1) }}",
    "tojson": "{% for t in tools %}{{ t | tojson }}\n{% endfor %}",
    "tojson ensure_ascii": "{{ messages[4].content | tojson(ensure_ascii=False) }}{{ messages[4].content | tojson(ensure_ascii=True) }}",
    "tojson indent": "{{ tools[1] | tojson(indent=2) }}{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=4) }}",
    "tojson separators and sort": "{{ tools[1] | tojson(separators=(',', ':')) }}{{ tools[1] | tojson(sort_keys=True) }}",
    "tojson numbers": (
        "{{ [1, 1.0, 2.5, -0.0, 1e3, 1e16, 1e22, 1.5e-7, 0.1, 123456789012345678, 1e-5, 0.0001, 12345678901234567890123] | tojson }}"
    ),
    "tojson given numbers": (
        "{{ v | tojson }} {{ v }}",
        {"kwargs": {"v": [1e16, 1e-7, 1.0, 123456789.125, 18446744073709551615, -1, 1e300]}},
    ),
    "tojson characters": ("{{ v | tojson }}", {"kwargs": {"v": "\x00\x1f\x7f\u2028\u00ad\t\"\\/<>&'\U0001f600"}}),
    "values print as Python's": "{{ [1, 'a', none, true, 1.0, {'k': \"it's\"}] }}{{ {'a': [1, 2]} }}{{ true }}{{ none }}{{ 1.0 }}{{ 1e20 }}",
    "strings print as Python's in lists": "{{ ['a\\nb', 'it\\'s', '\"', 'é', '\\t\\\\'] }}",
    "dict": (
        "{% for k, v in messages[2].tool_calls[0].function.arguments.items() %}{{ k }}={{ v | tojson(ensure_ascii=False) if v is not string "
        "else v }};{% endfor %}{{ {'a': 1}.get('b', 2) }}{{ {'a': 1}.keys() | list }}{{ {'a': 1}.values() | list }}"
        "{{ 'a' in {'a': 1} }}{{ dict(x=1, y=2) }}"
    ),
    "dictsort and items filter": "{% for k, v in {'b': 1, 'a': 2} | dictsort %}{{ k }}{{ v }}{% endfor %}{% for k, v in {'b': 1} | items %}{{ k }}{{ v }}{% endfor %}",
    "dict update by do": "{% set d = {'a': 1} %}{% set _ = d.update({'b': 2}) %}{{ d | tojson }}",
    "list append": "{% set l = [] %}{% set _ = l.append(1) %}{% set _ = l.append(2) %}{{ l }}",
    "slices": (
        "{{ [0, 1, 2, 3, 4][1:] }}{{ [0, 1, 2, 3][:-1] }}{{ [0, 1, 2, 3][::2] }}{{ [0, 1, 2][::-1] }}{{ 'abcd'[1:3] }}{{ 'abcd'[-2:] }}"
        "{{ [1, 2][-1] }}{{ '漢字x'[0] }}{{ 'abc'[::-1] }}{{ [0, 1, 2, 3][1:][0] }}"
    ),
    "loop over a slice": "{% for m in messages[1:] %}{{ m.role }}{{ loop.index0 }} {% endfor %}{% set messages = messages[2:] %}{{ messages | length }}",
    "filters": (
        "{{ 'a' | upper }}{{ [3, 1, 2] | sort }}{{ [1, 2] | first }}{{ [1, 2] | last }}{{ [1, 2] | length }}{{ 'abc' | length }}"
        "{{ absent | default('d') }}{{ none | default('d', true) }}{{ ' a ' | trim }}{{ [1, 2, 3] | sum }}{{ 'a b' | replace(' ', '_') }}"
        "{{ '3' | int }}{{ 3 | string }}{{ [1, 2] | reverse | list }}{{ 'abc' | list }}{{ [1, 1, 2] | unique | list }}{{ 1.5 | round }}"
        "{{ -3 | abs }}{{ [2, 1] | min }}{{ '<' | escape }}{{ 'a' | safe }}"
    ),
    "selectattr": (
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', '==', 'user') | list | length }}"
        "{{ (messages | selectattr('tool_calls', 'defined') | first).role }}{{ [1, 2, 3] | select('odd') | list }}{{ ['a', ''] | select | list }}"
    ),
    "map": "{{ ['a', 'b'] | map('upper') | list }}{{ messages | map(attribute='content') | first }}",
    "groupby and batch": "{% for g in messages | groupby('role') %}{{ g.grouper }}{{ g.list | length }} {% endfor %}{{ [1, 2, 3] | batch(2) | list }}",
    "indent": "{{ 'a\\nb' | indent(2) }}|{{ 'a\\nb' | indent(2, true) }}",
    "operators": "{{ 7 // 2 }}{{ 7 / 2 }}{{ 7 % 3 }}{{ 2 ** 3 }}{{ 'a' ~ 1 }}{{ 'ab' * 2 }}{{ 1 < 2 < 3 }}{{ not 1 }}{{ 1 if 0 else 2 }}{{ 'a' + 'b' }}{{ 4 / 2 }}",
    "and, or give operands": "{{ '' or 'x' }}{{ 'a' and 'b' }}{{ none or [] }}{{ 0 or none }}",
    "in": "{{ 'a' in 'abc' }}{{ 'x' not in ['a'] }}{{ '</think>' in messages[2].content }}",
    "range": "{{ range(3) | list }}{{ range(1, 6, 2) | list }}{% for i in range(2, -1, -1) %}{{ i }}{% endfor %}",
    "set block": "{% set x %}a{{ 1 }}b{% endset %}[{{ x }}]{% set y | upper %}c{% endset %}{{ y }}",
    "tuple unpacking": "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}",
    "filter block": "{% filter upper %}abc{% endfilter %}",
    "raw and comments": "{% raw %}{{ x }}{% endraw %}{# no #}a{#- no -#} b",
    "with": "{% with x = 1 %}{{ x }}{% endwith %}",
    "whitespace": "  {% if true %}\n  a\n  {% endif %}\n{%- if true %} b {% endif -%}\n c\n{{ 'd' }}\n\n{% for x in [1, 2] %}\n {{ x }}\n{% endfor %}\nend\n",
    "whitespace kept by plus": "a\n   {%+ if true +%}\nb{% endif %}\n",
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}.{% endif %}{% endfor %}",
    "generation with whitespace control": "{% for m in messages %}\n  {%- generation -%}\n  {{ m.role }}\n  {%- endgeneration %}\n{% endfor %}",
    "developer by name": (
        "{% for m in messages %}{% if m.role in ['system', 'developer'] %}S:{{ m.content }}{% endif %}{% endfor %}",
        {"messages": DEVELOPER},
    ),
    "tools before system": (
        "{%- if tools -%}<|system|>\n# Tools\n{% for t in tools %}{{ t.function | tojson(ensure_ascii=False) }}\n{% endfor %}{%- endif -%}"
        "{%- for m in messages -%}{%- if m.role == 'system' -%}<|system|>{{ m.content }}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}<|assistant|>{{- '</think>' if (enable_thinking is defined and not enable_thinking) else '<think>' -}}"
        "{%- endif -%}"
    ),
    "thinking off": (
        "{% if add_generation_prompt %}{{ '</think>' if (enable_thinking is defined and not enable_thinking) else '<think>' }}{% endif %}",
        {"kwargs": {"enable_thinking": False}},
    ),
    "no generation prompt": (
        "{{ add_generation_prompt }}{{ 'x' if add_generation_prompt }}",
        {"add_generation_prompt": False},
    ),
    "raise": "{{ raise_exception('no such role') }}",
    "raise when": "{% if messages[0].role != 'user' %}{{ raise_exception('a user first') }}{% endif %}",
    "fromjson is absent": "\n{{ '{}' | fromjson }}",
    "an unknown method": "{{ 'a'.nonesuch() }}",
    "an unknown test": "{{ 'a' is nonesuch }}",
    "an undefined's attribute": "{{ absent.deeper }}",
    "an undefined prints nothing": "[{{ absent }}][{{ messages[0].absent }}]{{ 'x' if absent else 'y' }}",
    "an undefined is iterated": "{% for x in absent %}{{ x }}{% endfor %}ok",
    "an undefined is added": "{{ 'a' + absent }}",
    "text plus a number": "{{ 'a' + 1 }}",
    "null is iterated": ("{% for x in messages[1].content %}{% endfor %}", {"messages": NULL}),
    "a dict's method hidden by a key": (
        "{{ v['items'] }}{% for k, x in v.items() %}{{ k }}{% endfor %}",
        {"kwargs": {"v": {"items": 1}}},
    ),
    "attribute or item": "{{ {'a b': 1}['a b'] }}{{ messages[0]['role'] }}{{ messages[0].get('name') }}{{ messages[0].role }}",
    "bad syntax": "a\n{% if %}",
    "unclosed": "{% for m in messages %}",
    "recursive macro": "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "recursive loop": "{% for x in [[1, [2]], 3] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}",
    "namespace filled later": "{% set x = namespace() %}{% set x.a = 1 %}{{ x.a }}",
    "escapes in strings": "{{ 'a\\tb\\n\\'\\\"\\\\ \\u00e9 \\x41' }}",
    "carriage returns": "a\r\nb\rc",
    "trailing line break": "a\n",
    "two trailing line breaks": "a\n\n",
}
