"""Bayesian networks in BIF, the interchange format of 1998, in the dialects that are about.

network rain { }
variable rain { type discrete [ 2 ] { yes, no }; }
variable wet { type discrete [ 2 ] { yes, no }; }
probability ( rain ) { table 0.2, 0.8; }
probability ( wet | rain ) { (yes) 0.9, 0.1; default 0.1, 0.9; }
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from derivable.circuit.files.network import ROUNDING, NetworkTables, cyclic_variable
from derivable.core.diagnostics import DomainError, ParseError, Span, UnsupportedError, Written
from derivable.core.numbers import number_of
from derivable.core.registry import suggestion

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\ufeff)
    | (?P<text>"(?:[^"\\\n]|\\.)*")
    | (?P<mark>[{}()\[\],;|])
    | (?P<bad>/\*.*|"[^\n]*)
    | (?P<word>(?:(?!//|/\*)[^\s{}()\[\],;|"])+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class Token:
    kind: str
    text: str
    line: int
    column: int

    @property
    def span(self) -> Span:
        return Span(self.line, self.column, max(1, len(self.text.split("\n", 1)[0])))

    @property
    def name(self) -> str:
        return re.sub(r"\\(.)", r"\1", self.text[1:-1]) if self.kind == "text" else self.text


def parse_bif(text: str, source: str = "<bif>") -> NetworkTables:
    """The network of a text. Raises ParseError, DomainError and UnsupportedError with line, column and caret.

    Understood: comments, quotes round names, names of any characters but blanks and `{}()[],;|"`, numbers with commas
    or blanks between them, properties, `table` with the child's values slowest, entries in any order, `default`.
    """
    return _Reader(text, source).read()


class _Reader(Written):
    def __init__(self, text: str, source: str):
        self.text, self.source = text, source
        self.tokens: list[Token] = []
        self.position = 0
        self.names: dict[str, int] = {}
        self.places: list[Span] = []
        self.states: list[tuple[str, ...]] = []
        self.tables: dict[int, tuple[tuple[int, ...], np.ndarray]] = {}
        self.definitions: list[int] = []

    # Tokens

    def scan(self) -> None:
        line, begin = 1, 0
        for match in _TOKEN.finditer(self.text):
            kind, body = match.lastgroup, match.group()
            assert kind is not None
            if kind != "skip":
                self.tokens.append(Token(kind, body, line, match.start() - begin + 1))
            if "\n" in body:
                line += body.count("\n")
                begin = match.start() + body.rindex("\n") + 1
        self.tokens.append(Token("end", "", line, len(self.text) - begin + 1))

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def wrong(self, token: Token, message: str, hint: str | None = None) -> NoReturn:
        if token.kind == "bad":
            what = "comment" if token.text.startswith("/*") else "text"
            message, hint = f"this {what} does not end", "close it"
        self.error(ParseError, message, token.span, hint)

    def expect(self, text: str) -> Token:
        token = self.token
        if token.text != text or token.kind == "text":
            shown = "the end of the file" if token.kind == "end" else f"`{token.text}`"
            self.wrong(token, f"expected `{text}`, not {shown}")
        self.position += 1
        return token

    def word(self, what: str) -> Token:
        token = self.token
        if token.kind not in ("word", "text"):
            shown = "the end of the file" if token.kind == "end" else f"`{token.text}`"
            self.wrong(token, f"expected {what}, not {shown}")
        self.position += 1
        return token

    def is_next(self, text: str) -> bool:
        return self.token.text == text and self.token.kind in ("mark", "word")

    def accept(self, text: str) -> bool:
        if self.is_next(text):
            self.position += 1
            return True
        return False

    def skip_to_semicolon(self) -> None:
        while not self.accept(";"):
            if self.token.kind in ("end", "bad"):
                self.wrong(self.token, "expected `;`, but the file ends")
            self.position += 1

    # Items

    def read(self) -> NetworkTables:
        self.scan()
        while self.token.kind != "end":
            token = self.token
            self.position += 1
            match token.text:
                case "network":
                    self.network()
                case "variable" | "node":
                    self.variable()
                case "probability":
                    # The variables may come later.
                    self.definitions.append(self.position)
                    self.skip_block()
                case "property":
                    self.skip_to_semicolon()
                case _:
                    hint = "a file has a `network`, then a `variable` and a `probability` for each variable"
                    self.wrong(token, f"expected `variable` or `probability`, not `{token.text}`", hint)
        for position in self.definitions:
            self.position = position
            self.probability()
        for name, variable in self.names.items():
            if variable not in self.tables:
                hint = f"write `probability ( {name} ) {{ ... }}`"
                self.error(DomainError, f"there is no probability of `{name}`", self.places[variable], hint)
        if not self.names:
            hint = "the file may have been cut off"
            self.error(ParseError, "the file has no `variable`", self.token.span, hint)
        factors = tuple(self.tables[variable] for variable in range(len(self.names)))
        cyclic = cyclic_variable([scope for scope, _ in factors])
        if cyclic is not None:
            message = f"`{list(self.names)[cyclic]}` is in a cycle of parents"
            self.error(DomainError, message, self.places[cyclic], "a Bayesian network has no cycles")
        return NetworkTables(tuple(self.names), tuple(self.states), factors, source=self.source)

    def skip_block(self) -> None:
        opening = self.tokens[self.position - 1]
        while not self.is_next("{"):
            if self.token.kind in ("end", "bad"):
                self.wrong(opening if self.token.kind == "end" else self.token, "this block has no `{`")
            self.position += 1
        while not self.accept("}"):
            if self.token.kind in ("end", "bad"):
                self.wrong(opening if self.token.kind == "end" else self.token, "this block does not end", "add `}`")
            self.position += 1

    def network(self) -> None:
        while not self.is_next("{"):
            self.word("the name of the network")
        self.expect("{")
        while not self.accept("}"):
            if self.token.kind in ("end", "bad"):
                self.wrong(self.token, "expected `}`, but the file ends")
            self.skip_to_semicolon()

    def variable(self) -> None:
        name = self.word("the name of a variable")
        if name.name in self.names:
            first = self.places[self.names[name.name]]
            self.wrong(name, f"the variable `{name.name}` is declared twice", f"the first one is on {first.location}")
        self.expect("{")
        states: tuple[str, ...] | None = None
        while not self.accept("}"):
            token = self.word("`type` or `property`")
            if token.text == "type":
                states = self.type_of(name)
            elif token.text in ("property", "position", "weka"):
                self.skip_to_semicolon()
            else:
                self.wrong(token, f"expected `type` or `property`, not `{token.text}`")
        if states is None:
            self.wrong(name, f"the variable `{name.name}` has no type", "write `type discrete [ 2 ] { yes, no };`")
        self.names[name.name] = len(self.names)
        self.places.append(name.span)
        self.states.append(states)

    def type_of(self, name: Token) -> tuple[str, ...]:
        kind = self.word("`discrete`")
        if kind.text != "discrete":
            hint = "only variables with finitely many values are read"
            self.error(UnsupportedError, f"`{name.name}` is `{kind.text}`", kind.span, hint)
        self.expect("[")
        number = self.word("the number of values")
        self.expect("]")
        self.expect("{")
        found: list[str] = []
        while not self.accept("}"):
            token = self.word("the name of a value")
            if token.name in found:
                self.wrong(token, f"`{name.name}` has the value `{token.name}` twice")
            found.append(token.name)
            self.accept(",")
        self.accept(";")
        if number.text != str(len(found)) or not found:
            self.wrong(number, f"`{name.name}` is said to have {number.text} values, and {len(found)} are listed")
        return tuple(found)

    def known(self, token: Token) -> int:
        if token.name not in self.names:
            hint = suggestion(token.name, self.names, "declare it: `variable ... { type discrete ... }`")
            self.wrong(token, f"unknown variable `{token.name}`", hint)
        return self.names[token.name]

    def probability(self) -> None:
        self.expect("(")
        child_token = self.word("the name of a variable")
        child, parents = self.known(child_token), []
        while not self.accept(")"):
            if self.accept("|") or self.accept(","):
                continue
            token = self.word("the name of a variable or `)`")
            parent = self.known(token)
            if parent == child or parent in parents:
                self.wrong(token, f"`{token.name}` stands here twice")
            parents.append(parent)
        if child in self.tables:
            self.wrong(child_token, f"the probability of `{child_token.name}` is given twice")
        shape = tuple(len(self.states[parent]) for parent in parents)
        size = len(self.states[child])
        table = np.full((*shape, size), np.nan)
        default: list[float] | None = None
        self.expect("{")
        while not self.accept("}"):
            token = self.token
            if self.accept("table"):
                # The child's values are the slowest.
                numbers = self.numbers(token, math.prod(shape) * size)
                rows = np.moveaxis(np.array(numbers).reshape(size, *shape), 0, -1)
                self.check_sums(rows, token, child)
                self.fill(table, ..., rows, token)
            elif self.accept("default"):
                default = self.numbers(token, size)
                self.check_sums(np.array(default), token, child)
            elif self.accept("property"):
                self.skip_to_semicolon()
            elif self.accept("("):
                states = self.values(token, parents)
                row = np.array(self.numbers(token, size))
                self.check_sums(row, token, child)
                self.fill(table, states, row, token)
            else:
                self.wrong(token, f"expected `table`, `default` or `(`, not `{token.text}`")
        if default is not None:
            table[np.isnan(table).all(axis=-1)] = default
        missing = np.argwhere(np.isnan(table))
        if len(missing):
            states = ", ".join(self.states[p][int(i)] for p, i in zip(parents, missing[0]))
            message = f"there is no probability of `{child_token.name}` for ({states})"
            self.error(DomainError, message, child_token.span, "add the entry, or a `default`")
        self.tables[child] = ((*parents, child), table)

    def fill(self, table: np.ndarray, where: object, row: np.ndarray, token: Token) -> None:
        if not np.isnan(table[where]).all():  # type: ignore[index]
            self.wrong(token, "this entry is given twice")
        table[where] = row  # type: ignore[index]

    def values(self, opening: Token, parents: list[int]) -> tuple[int, ...]:
        found: list[int] = []
        while not self.accept(")"):
            token = self.word("the value of a parent")
            if len(found) == len(parents):
                self.wrong(token, f"this entry has more values than there are parents, {len(parents)}")
            states = self.states[parents[len(found)]]
            if token.name not in states:
                name = list(self.names)[parents[len(found)]]
                hint = suggestion(token.name, states, f"its values are {', '.join(states)}")
                self.wrong(token, f"`{name}` has no value `{token.name}`", hint)
            found.append(states.index(token.name))
            self.accept(",")
        if len(found) != len(parents):
            self.wrong(opening, f"this entry has {len(found)} values, and there are {len(parents)} parents")
        return tuple(found)

    def numbers(self, opening: Token, count: int) -> list[float]:
        found: list[float] = []
        while not self.accept(";"):
            token = self.word("a number or `;`")
            try:
                number = number_of(token.text)
            except ValueError:
                self.wrong(token, f"`{token.text}` is no number", "numbers are separated by commas or blanks")
            if not 0 <= number < math.inf:
                self.error(DomainError, f"the probability {token.text} is not in [0, 1]", token.span)
            found.append(number)
            self.accept(",")
        if len(found) != count:
            self.wrong(opening, f"this entry has {len(found)} numbers, and should have {count}")
        return found

    def check_sums(self, rows: np.ndarray, token: Token, child: int) -> None:
        sums = rows.sum(axis=-1)
        if (np.abs(sums - 1) > ROUNDING).any():
            worst = float(np.ravel(sums)[np.argmax(np.abs(np.ravel(sums) - 1))])
            message = f"probabilities of `{list(self.names)[child]}` add up to {worst:g}, not to 1"
            hint = "in a `table` with parents the child's values are the slowest" if token.text == "table" else None
            self.error(DomainError, message, token.span, hint)
