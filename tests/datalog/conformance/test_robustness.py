"""Whatever is written, a program is accepted or refused with an error of ours that has a place in the text."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.conformance import test_bodies, test_items, test_lexical
from derivable.datalog.syntax.parse import parse
from derivable.datalog.syntax.text import syntax_text

TABLES = [
    *(test_lexical.TOKENS, test_lexical.PRECEDENCE, test_lexical.FORMULAS),
    *(test_items.TYPES, test_items.FACTS, test_items.RULES, test_items.QUERIES),
    *(test_bodies.NEGATION, test_bodies.QUANTIFIERS, test_bodies.EXPRESSIONS, test_bodies.AGGREGATES, test_bodies.TAGS),
]
PROGRAMS = sorted({text for table in TABLES for text, _ in table.values()})
PIECES = re.compile(r"[a-zA-Z_0-9]+|\"[^\"]*\"|\s+|.", re.S)
WORDS = sorted({piece for text in PROGRAMS for piece in PIECES.findall(text)})


def check(text):
    try:
        dv.Program(text)
    except dv.DerivableError as error:
        for one in (error, *error.others):
            if one.span is not None:
                lines = text.split("\n")
                assert 1 <= one.span.line <= len(lines)
                assert 1 <= one.span.column <= len(lines[one.span.line - 1]) + 1
                assert one.span.length >= 1


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PROGRAMS), st.data())
def test_programs_with_a_mistake(text, data):
    """A piece is taken away, doubled, put elsewhere, or another is put in its place."""
    pieces = PIECES.findall(text) or [""]
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.integers(0, len(pieces) - 1))
        match data.draw(st.sampled_from(["remove", "double", "swap", "replace"])):
            case "remove" if len(pieces) > 1:
                del pieces[place]
            case "double":
                pieces.insert(place, pieces[place])
            case "swap":
                other = data.draw(st.integers(0, len(pieces) - 1))
                pieces[place], pieces[other] = pieces[other], pieces[place]
            case _:
                pieces[place] = data.draw(st.sampled_from(WORDS))
    check("".join(pieces))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=12), st.text(max_size=3))
def test_words_in_any_order(words, noise):
    check("rel p(x) = " + " ".join(words) + noise)


@pytest.mark.parametrize(
    "text",
    [
        "rel p(x) = " + "(" * 5000,
        "rel p(" + "-" * 5000 + "1)",
        "rel p(x) = " + "not " * 5000 + "q(x)",
        "rel p(" + "1 + " * 5000 + "1)",
        "rel p(x) = q(x) " + "or q(x) " * 5000,
        "rel p(x) = q(x) " + "and q(x) " * 3000,
        "rel p(" + "if true then " * 3000 + "1",
        "rel p(" + "9" * 5000 + ")",
        "rel p(" + "9" * 5000 + ".5)",
        "rel p = {" + "(1), " * 5000 + "x}",
        '"' * 5001,
        "/*" * 2000,
        "rel p(x) = q(x), " + "n := count(x: " * 500,
        "\\" * 100,
        "@" * 100,
        "rel p(x" + " as i32" * 5000 + ") = q(x)",
    ],
    ids=lambda text: text[:24],
)
def test_much_of_anything(text):
    check(text)


@pytest.mark.parametrize("text", PROGRAMS)
def test_the_printed_form_is_the_program(text):
    try:
        syntax = parse(text)
    except dv.DerivableError:
        return
    again = parse(syntax_text(syntax))
    assert again.items == syntax.items
    assert syntax_text(again) == syntax_text(syntax)
