"""The reference, 1.5: attributes; and function types."""

import pytest

import derivable as dv
from datalog.conformance.cases import holds, parametrized
from derivable.datalog.desugar import desugar
from derivable.datalog.syntax.parse import parse
from derivable.datalog.syntax.text import syntax_text
from derivable.datalog.types import infer

ACCEPTED = {
    "hidden type": ("@hidden type a(i32) rel a(1) rel b(x) = a(x)", {"b": {(1,)}}),
    "hidden rule": ("@hidden rel a(1) rel b(x) = a(x)", {"b": {(1,)}}),
    "attribute behind rel": ("rel @hidden a(1) rel b(x) = a(x)", {"b": {(1,)}}),
    "demand on a type": (
        '@demand("bf") type f(i32, i32) rel f = {(0, 0), (1, 1)} rel f(x, a + b) = f(x - 1, a), f(x - 2, b), x > 1'
        " query f(10, y)",
        {"f(10, y)": {(10, 55)}},
    ),
    "demand by bound": (
        "type f(bound x: i32, y: i32) rel f = {(0, 0), (1, 1)} rel f(x, a + b) = f(x - 1, a), f(x - 2, b), x > 1"
        " query f(10, y)",
        {"f(10, y)": {(10, 55)}},
    ),
    "goal": ("@goal rel found() = p(3) rel p = {1, 3}", {"found": {()}}),
    "goal on a query": ("rel found() = p(3) rel p = {1, 3} @goal query found", {"found": {()}}),
    "scheduler": ('@scheduler("lfp") rel p(1) @scheduler("beam", beam_size=3) rel q(x) = p(x)', {"q": {(1,)}}),
    "storage": ('@storage("sorted") type p(i32) @storage("indexed_vec") type q(i32) rel p(1) rel q(2)', {"p": {(1,)}}),
    "unknown storage": ('@storage("sorte") type p(i32)', "`@storage` does not know `sorte`"),
    "no_temp_relation": ("@no_temp_relation rel p(1)", {"p": {(1,)}}),
    "tagged": ("@tagged type p(i32) rel p(1)", {"p": {(1,)}}),
    "several": ("@hidden @no_temp_relation rel p(1) rel q(x) = p(x)", {"q": {(1,)}}),
    "on several relations": ("@hidden type a(i32), b(i32) rel c(1)", {"c": {(1,)}}),
}


REFUSED = {
    "unknown": ('@gpt("a", examples=[(["b"], [("c", 1)])], debug=true,) type p(i32)', "unknown attribute `@gpt`"),
    "storage": ('@storage("tree") rel p(1)', "does not know `tree`"),
}


@parametrized(REFUSED)
def test_refused(text, expected):
    holds(text, expected)


@parametrized(ACCEPTED)
def test_accepted(text, expected):
    holds(text, expected)


def test_declared_functions_are_known_where_they_are_used():
    text = "type $add_up(x: i32, y: i32) -> i32 rel p(1)"
    holds(text, {"p": {(1,)}})
    holds(text + " rel q($add_up(1, 2))", "`\\$add_up` is declared, but there is no such function")
    holds(text + " type $add_up(x: i32) -> i32", "`\\$add_up` is declared twice")


def test_hidden_relations_are_no_outputs():
    assert set(dv.Program("@hidden type a(i32), b(i32) rel c(1)").run()) == {"c"}


def core(text):
    return desugar(infer(parse(text)))


def test_demand_reaches_the_core_rules():
    for text in ('@demand("bff") type f(i32, i32, i32)', "type f(bound i32, free i32, i32)"):
        assert core(text).relations["f"].demand == "bff"
    assert core('rel e(1, 2) @demand("fb") rel f(x, y) = e(x, y)').relations["f"].demand == "fb"
    assert core("type f(free i32, i32)").relations["f"].demand is None
    twice = core('@demand("bf") type f(bound x: i32, y: i32) @demand("bf") rel f(1, 2)')
    assert twice.relations["f"].demand == "bf"


def test_lists_and_groups_are_printed_as_they_are_written():
    text = '@own([1, [2, "a"]], (1, ("b", [])), pair=(0.5, true)) type p(i32)'
    syntax = parse(text)
    assert syntax_text(syntax) == text
    assert parse(syntax_text(syntax)) == syntax


def test_files_and_goals_reach_the_core_rules():
    found = core(
        '@file("a.csv", header=true, keys=["x", "y"], delimiter="\\t") type p(i32)'
        ' @goal rel g() = p(_) @file("out.csv") query p'
    )
    (attribute,) = found.relations["p"].attributes
    assert dict(attribute.arguments) == {
        "path": "a.csv",
        "header": True,
        "keys": ("x", "y"),
        "deliminator": "\t",
    }
    assert found.relations["g"].is_goal
    assert dict(found.queries[0].attributes[0].arguments) == {"path": "out.csv"}


def test_queries_reach_the_core_rules():
    found = core("rel e(1, 2, 3) query e(1, x, x + 1) query e")
    assert [(q.output, q.relation, q.pattern) for q in found.queries] == [
        ("e(1, x, (x + 1))", "e", "bff"),
        ("e", "e", None),
    ]


@pytest.fixture
def shout():
    @dv.datalog.function
    def shout(text: str, times: int) -> str:
        return text.upper() + "!" * times

    yield
    dv.datalog.foreign.standard.FUNCTIONS.remove("shout")


@pytest.mark.usefixtures("shout")
def test_function_types():
    text = 'type $shout(text: String, times: u8) -> String rel p($shout("a", x)) = q(x) rel q(255) rel r(x + 1) = q(x)'
    db = dv.Program(text).run()
    assert set(db["p"]) == {("A" + "!" * 255,)}
    # The declared type of the parameter is that of the column.
    assert set(db["r"]) == {(255,)}
