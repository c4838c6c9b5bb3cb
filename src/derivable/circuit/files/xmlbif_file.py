"""Bayesian networks in XMLBIF, versions 0.2 and 0.3."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

import numpy as np

from derivable.circuit.files.network import ROUNDING, NetworkTables, cyclic_variable
from derivable.core.diagnostics import DerivableError, DomainError, ParseError, Span, UnsupportedError, Written
from derivable.core.numbers import number_of
from derivable.core.registry import suggestion


@dataclass
class _Element:
    tag: str
    kind: str
    span: Span
    parts: list[_Element] = field(default_factory=list)
    text: str = ""

    def all(self, *tags: str) -> list[_Element]:
        return [part for part in self.parts if part.tag in tags]

    @property
    def word(self) -> str:
        return self.text.strip()


def parse_xmlbif(text: str, source: str = "<xmlbif>") -> NetworkTables:
    """The network of a text; tables have the values of the variable itself fastest.

    Raises ParseError, DomainError and UnsupportedError with line and column.
    """
    return _Reader(text, source).read()


class _Reader(Written):
    def __init__(self, text: str, source: str):
        self.text, self.source = text, source
        self.names: dict[str, int] = {}
        self.states: list[tuple[str, ...]] = []

    def wrong(self, element: _Element, message: str, hint: str | None = None) -> NoReturn:
        self.error(ParseError, message, element.span, hint)

    def elements(self) -> _Element:
        root = _Element("", "", Span(1, 1))
        stack = [root]
        parser = expat.ParserCreate()

        def start(tag: str, attributes: dict[str, str]) -> None:
            span = Span(parser.CurrentLineNumber, parser.CurrentColumnNumber + 1, len(tag) + 1)
            kind = next((value for name, value in attributes.items() if name.upper() == "TYPE"), "")
            element = _Element(tag.upper(), kind.lower(), span)
            stack[-1].parts.append(element)
            stack.append(element)

        def end(tag: str) -> None:
            stack.pop()

        def data(text: str) -> None:
            stack[-1].text += text

        def entity(*declared: object) -> None:
            span = Span(parser.CurrentLineNumber, parser.CurrentColumnNumber + 1)
            self.error(UnsupportedError, "entities are not read", span, "write the text itself")

        parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, data
        parser.EntityDeclHandler = entity
        try:
            parser.Parse(self.text.lstrip("\ufeff").encode("utf-8"), True)
        except DerivableError:
            raise
        except (expat.ExpatError, ValueError) as error:
            place = Span(getattr(error, "lineno", 1), getattr(error, "offset", 0) + 1)
            hint = "close each element, and write `&amp;` and `&lt;` for these signs in a text"
            self.error(ParseError, f"this is no XML: {str(error).partition(':')[0]}", place, hint)
        return root

    def read(self) -> NetworkTables:
        root = self.elements()
        networks = [network for part in root.parts for network in part.all("NETWORK")] or root.all("NETWORK")
        if not networks:
            self.error(ParseError, "there is no element `NETWORK`", root.parts[0].span if root.parts else root.span)
        declared = networks[0].all("VARIABLE")
        for element in declared:
            self.variable(element)
        tables: dict[int, tuple[tuple[int, ...], np.ndarray]] = {}
        for element in networks[0].all("DEFINITION", "PROBABILITY"):
            scope, table = self.definition(element)
            if scope[-1] in tables:
                self.wrong(element, f"the probability of `{list(self.names)[scope[-1]]}` is given twice")
            tables[scope[-1]] = scope, table
        for name, variable in self.names.items():
            if variable not in tables:
                self.wrong(networks[0], f"there is no definition of `{name}`")
        if not declared:
            self.wrong(networks[0], "the network has no `VARIABLE`")
        factors = tuple(tables[variable] for variable in range(len(self.names)))
        cyclic = cyclic_variable([scope for scope, _ in factors])
        if cyclic is not None:
            message = f"`{list(self.names)[cyclic]}` is in a cycle of parents"
            self.error(DomainError, message, declared[cyclic].span, "a Bayesian network has no cycles")
        return NetworkTables(tuple(self.names), tuple(self.states), factors, source=self.source)

    def variable(self, element: _Element) -> None:
        if element.kind not in ("", "nature", "discrete"):
            self.error(UnsupportedError, f"variables of type `{element.kind}` are not read", element.span)
        names = element.all("NAME")
        outcomes = [part.word for part in element.all("OUTCOME", "VALUE")]
        if not names or not names[0].word:
            self.wrong(element, "this variable has no `NAME`")
        name = names[0].word
        if name in self.names:
            self.wrong(element, f"the variable `{name}` is declared twice")
        if not outcomes or len(set(outcomes)) < len(outcomes):
            self.wrong(element, f"`{name}` has no values, or one twice", "each has an element `OUTCOME`")
        self.names[name] = len(self.names)
        self.states.append(tuple(outcomes))

    def known(self, element: _Element) -> int:
        if element.word not in self.names:
            hint = suggestion(element.word, self.names, "declare it by an element `VARIABLE`")
            self.wrong(element, f"unknown variable `{element.word}`", hint)
        return self.names[element.word]

    def definition(self, element: _Element) -> tuple[tuple[int, ...], np.ndarray]:
        children, tables = element.all("FOR"), element.all("TABLE")
        if len(children) != 1 or len(tables) != 1:
            self.wrong(element, "a definition has one `FOR`, and one `TABLE`")
        child = self.known(children[0])
        parents = [self.known(part) for part in element.all("GIVEN")]
        if len({child, *parents}) <= len(parents):
            self.wrong(element, f"`{children[0].word}` is defined by one variable twice")
        shape = [len(self.states[variable]) for variable in (*parents, child)]
        words = tables[0].text.replace(",", " ").split()
        try:
            numbers = np.array([number_of(word) for word in words])
        except ValueError as error:
            self.wrong(tables[0], f"the table of `{children[0].word}` has what is no number: {error}")
        if len(numbers) != math.prod(shape):
            message = (
                f"the table of `{children[0].word}` has {len(numbers)} numbers, and should have {math.prod(shape)}"
            )
            self.wrong(tables[0], message)
        table = numbers.reshape(shape)
        sums = table.sum(axis=-1)
        if not ((table >= 0).all() and (np.abs(sums - 1) <= ROUNDING).all()):
            message = f"rows of the table of `{children[0].word}` are no distributions"
            hint = "numbers of at least 0, which add up to 1 over the values of the variable; these are the fastest"
            self.error(DomainError, message, tables[0].span, hint)
        return (*parents, child), table
