"""Whatever is written, a program is accepted or refused with an error of ours that has a place in the text."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.conformance import test_attributes, test_bodies, test_items, test_lexical
from datalog.test_programs import PROGRAMS as WHOLE
from derivable.datalog.syntax.parse import parse
from derivable.datalog.syntax.text import syntax_text
from drawn import examples

TABLES = [
    *(test_lexical.TOKENS, test_lexical.PRECEDENCE, test_lexical.FORMULAS),
    *(test_items.TYPES, test_items.FACTS, test_items.RULES, test_items.QUERIES),
    test_attributes.ACCEPTED,
    *(test_bodies.NEGATION, test_bodies.QUANTIFIERS, test_bodies.EXPRESSIONS, test_bodies.AGGREGATES, test_bodies.TAGS),
]
PROGRAMS = sorted({text for table in TABLES for text, _ in table.values()})
MUTABLE = [text for text in (*PROGRAMS, *(text for text, _ in WHOLE)) if text.strip()]
TYPES = [
    *("i8", "i32", "u8", "usize", "u64", "i128", "f32", "f64", "bool", "char"),
    *("String", "Symbol", "DateTime", "Duration", "Tensor", "Entity"),
]
ARGUMENTS = ["x", "_", "1", '"a"', "-1", "0.5", "true", "x + 1", "new B(x)"]
NUMBERS = ["0", "255", "256", "-1", "2147483648", "99999999999999999999", "1.5", "1e400", '"t"']
PIECES = re.compile(r"[a-zA-Z_0-9]+|\"[^\"]*\"|\s+|.", re.S)
WORDS = sorted({piece for text in PROGRAMS for piece in PIECES.findall(text)})


def check(text, is_run=False):
    try:
        program = dv.Program(text)
        if is_run:
            program.run(round_limit=50, tuple_limit=2000, time_limit=5)
    except dv.DerivableError as error:
        for one in (error, *error.others):
            if one.span is not None:
                lines = text.split("\n")
                assert 1 <= one.span.line <= len(lines)
                assert 1 <= one.span.column <= len(lines[one.span.line - 1]) + 1
                assert one.span.length >= 1


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(MUTABLE), st.data())
def test_programs_with_a_mistake(text, data):
    """A piece is taken away, doubled, put elsewhere or replaced; types, arities and numbers change."""
    pieces = PIECES.findall(text)
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.integers(0, len(pieces) - 1))
        places = {
            "type": [i for i, piece in enumerate(pieces) if piece in TYPES],
            "number": [i for i, piece in enumerate(pieces) if piece.isdigit()],
            "more": [i for i, piece in enumerate(pieces) if piece == "("],
            "fewer": [i for i, piece in enumerate(pieces) if piece == ","],
        }
        possible = [kind for kind, found in places.items() if found]
        kind = data.draw(st.sampled_from(["remove", "double", "swap", "replace", *possible]))
        if kind in places:
            place = data.draw(st.sampled_from(places[kind]))
        match kind:
            case "type":
                pieces[place] = data.draw(st.sampled_from(TYPES))
            case "number":
                pieces[place] = data.draw(st.sampled_from(NUMBERS))
            case "more":
                pieces[place] += data.draw(st.sampled_from(ARGUMENTS)) + ", "
            case "fewer":
                del pieces[place : place + 3]
            case "remove" if len(pieces) > 1:
                del pieces[place]
            case "double":
                pieces.insert(place, pieces[place])
            case "swap":
                other = data.draw(st.integers(0, len(pieces) - 1))
                pieces[place], pieces[other] = pieces[other], pieces[place]
            case _:
                pieces[place] = data.draw(st.sampled_from(WORDS))
    check("".join(pieces), is_run=True)


@examples(100, 200, st.lists(st.sampled_from(WORDS), max_size=12), st.text(max_size=3))
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
