"""Facts of constants that are read as one table mean what they mean one by one, and their errors have their places."""

import numpy as np
import pytest
from hypothesis import strategies as st

import derivable as dv
from derivable.datalog.desugar import desugar
from derivable.datalog.policy.costs import under
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax import parse as parser
from derivable.datalog.syntax.text import syntax_text
from derivable.datalog.types import infer
from drawn import examples
from work import lines_run

TEXTS = st.text(st.sampled_from("ab,(){}:;\"\\\n\t'/é "), max_size=4)


def written(value, draw_comment):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
            value = value.replace(character, escape)
        return f'"{value}"'
    return repr(value)


@st.composite
def fact_texts(draw):
    """The text of facts of one relation, as a set or one by one, in all layouts."""
    kinds = draw(st.lists(st.sampled_from(["int", "float", "text", "bool"]), min_size=1, max_size=3))
    value = {
        "int": st.integers(-9, 99),
        "float": st.floats(-9, 9, width=16),
        "text": TEXTS,
        "bool": st.booleans(),
    }
    rows = draw(st.lists(st.tuples(*(value[kind] for kind in kinds)), min_size=1, max_size=6))
    tagged = draw(st.booleans())
    space = st.sampled_from(["", " ", "\n", " // 1, (2)\n", "/* } , rel */ ", "\t"])
    gap = st.sampled_from(["", " ", "\n"])
    shown = []
    for row in rows:
        values = f",{draw(gap)}".join(written(v, None) for v in row)
        bare = len(kinds) == 1 and draw(st.booleans())
        tag = f"{draw(st.sampled_from(['0.5', '0.25', '1']))}{draw(space)}::{draw(space)}" if tagged else ""
        shown.append((tag, f"{draw(gap)}{values}{draw(gap)}", bare))
    if draw(st.booleans()):
        body = f",{draw(space)}".join(f"{t}{v}" if bare else f"{t}({v})" for t, v, bare in shown)
        return f"rel r = {{{draw(space)}{body}{draw(st.sampled_from(['', ',']))}{draw(space)}}}"
    return draw(st.sampled_from([" ", "\n", "\n// next\n"])).join(f"rel {t}r({v})" for t, v, _ in shown)


def rows_of(text, fewest):
    """Facts of constants are read as one table from `fewest` on."""
    with under(call_rows=fewest):
        syntax = parser.parse(text)
        core = desugar(infer(syntax))
        found = facts_of(core)
        assert facts_of(desugar(infer(parser.parse(syntax_text(syntax))))) == found
    return syntax, core.relations["r"].types, found


def facts_of(core):
    return [
        (facts.relation, row, tag)
        for facts in core.facts
        for row, tag in zip(facts.rows, facts.tags or [None] * len(facts.rows), strict=True)
    ]


@examples(150, 300, fact_texts())
def test_tables_agree_with_single_facts(text):
    _, types, slow = rows_of(text, 10**9)
    _, fast_types, fast = rows_of(text, 1)
    assert (types, slow) == (fast_types, fast)


@pytest.mark.parametrize(
    "text",
    [
        "rel edge = {(0, 1), (1, 2)}",
        'rel e = {("a", 1.5, true), ("b\\"", 2.0, false)}',
        "rel d = {0.5::1; 0.25::2}",
        "rel d = {0.5::(1), 1::(2),}",
        "rel p(1) rel p(2) rel q('a') rel 0.5::t(s\"x\")",
        "relation p(1) // one\nrelation p(2)\nquery p",
    ],
)
def test_what_is_read_as_tables(text):
    syntax, *_ = rows_of(text + " type r(bool)", 1)
    tables = [item for item in syntax.items if isinstance(item, s.FactTable)]
    assert tables
    assert not any(isinstance(item, (s.FactSet, s.Rule)) for item in syntax.items)


ERRORS = {
    "arity": ("rel e = {(0, 1), (2, 3)}\nrel p(x) = e(x)", None),
    "arity inside": ("type e(i32, i32) rel e = {\n(0, 1),\n(2, 3, 4)}", (3, 1)),
    "type": ('type e(i32, i32)\nrel e = {(0, 1),\n (1, "a")}', (3, 6)),
    "type of single facts": ("type e(String)\nrel e(1)\nrel e(2)", (2, 7)),
    "range": ("type e(u8, u8)\nrel e = {(0, 1),\n (1, 256)}", (3, 6)),
    "range of single facts": ("type e(u8)\nrel e(0) rel f(256)\nrel e(-1)", (3, 7)),
    "tag": ("rel e = {0.5::1,\n1.5::2}", (2, 1)),
    "tag of single facts": ("rel 0.5::e(1)\nrel 2.0::e(1)", (2, 5)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_the_same(name):
    text, place = ERRORS[name]
    reports = []
    for fewest in (1, 10**9):
        with under(call_rows=fewest), pytest.raises(dv.DerivableError) as caught:
            dv.Program(text).run()
        reports.append(caught.value.report())
        if place is not None:
            assert caught.value.span is not None
            assert (caught.value.span.line, caught.value.span.column) == place
    assert reports[0] == reports[1]


def test_attributes_of_facts(costs):
    costs(call_rows=1)
    db = dv.Program("@hidden rel p(1) rel p(2) @hidden rel q = {1, 2} rel r(x) = p(x), q(x)").run()
    assert set(db) == {"r"}
    assert set(db["r"]) == {(1,), (2,)}


@pytest.mark.parametrize("layout", ["rel edge = {%s}", "%s"])
def test_many_facts_take_linear_time(layout):
    def text(count):
        rows = np.random.default_rng(0).integers(0, 1000, (count, 2)).tolist()
        shown = [f"({a}, {b})" for a, b in rows]
        return layout % (", ".join(shown) if "{" in layout else "\n".join(f"rel edge{row}" for row in shown))

    def lines(count):
        shown = text(count)
        return lines_run(lambda: desugar(infer(parser.parse(shown))))

    lines(10)
    small, large = lines(1000), lines(10_000)
    assert large < 10.5 * small
