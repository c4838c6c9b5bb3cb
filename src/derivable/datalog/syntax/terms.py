"""Parsing the text of one term, `Node(3, Leaf())`, however deep."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from derivable.core.diagnostics import BindingError
from derivable.core.registry import suggestion
from derivable.datalog.syntax.expressions import Expressions
from derivable.datalog.syntax.lexer import LineStarts, tokens
from derivable.datalog.values.constructors import Constructor
from derivable.datalog.values.terms import Entity
from derivable.datalog.values.values import ValueType


def parse_term(text: str, constructors: Mapping[str, Constructor], t: ValueType) -> Entity:
    """The term of type `t` that a text is. Raises ParseError, or BindingError for an unknown constructor.

    Its fields are literals and terms; whether they have the types of the constructor's is not looked at.
    """
    line_starts = LineStarts(text)
    reader = Expressions(line_starts, f"a term of type {t}", tokens(line_starts, sys.maxsize))
    # Constructors whose parenthesis is open, with the fields so far.
    open_terms: list[tuple[Constructor, list[Any]]] = []
    while True:
        token = reader.token
        value: Any = None
        if token.kind == "name":
            reader.advance()
            hint = f"a constructor has parentheses: `{token.text}()`"
            reader.expect("(", f"after `{token.text}`", hint)
            if token.text not in constructors:
                known = f"the constructors are {', '.join(constructors)}" if constructors else "the program has none"
                raise BindingError(
                    f"unknown constructor `{token.text}`",
                    hint=suggestion(token.text, constructors, known),
                    source=reader.source,
                    text=text,
                    span=token.span,
                )
            open_terms.append((constructors[token.text], []))
            if not reader.at(")"):
                continue
        elif open_terms:
            constructor, fields = open_terms[-1]
            value = reader.literal()
            is_float = len(fields) < len(constructor.fields) and constructor.fields[len(fields)].family == "float"
            fields.append(float(value) if is_float and isinstance(value, int) else value)
        else:
            reader.fail(f"expected a term, found {token.shown()}", "a term is written `Node(3, Leaf())`")
        # A field is read; close what ends here.
        while open_terms and reader.accept(")"):
            constructor, fields = open_terms.pop()
            term = Entity(constructor.name, *fields)
            if not open_terms:
                if reader.token.kind != "end":
                    reader.fail(f"expected the end of the term, found {reader.token.shown()}")
                return term
            open_terms[-1][1].append(term)
        reader.expect(",", f"between the fields of `{open_terms[-1][0].name}`")
        if reader.at(")"):
            reader.fail("expected a field after `,`")
