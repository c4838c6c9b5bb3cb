"""Graphical models in the format of the UAI competitions, and their files of evidence."""

from __future__ import annotations

import math
import re
from typing import NoReturn

import numpy as np

from derivable.circuit.files.network import ROUNDING, NetworkTables, cyclic_variable
from derivable.core.diagnostics import DomainError, ParseError, Span, UnsupportedError, Written, warn
from derivable.core.numbers import number_of


def parse_uai(text: str, source: str = "<uai>") -> NetworkTables:
    """The model of a text: `MARKOV` or `BAYES`, numbers of values, scopes, tables with the last variable fastest.

    Variables and their values are called by their numbers from 0. Tables of a `BAYES` that are no distributions are a
    warning, and it is a product of tables like a `MARKOV` then. Raises ParseError and DomainError with the place.
    """
    return _Reader(text, source).model()


def parse_uai_evidence(text: str, network: NetworkTables, source: str = "<evid>") -> dict[int, int]:
    """Variable -> value: the number of observed variables, then pairs, perhaps after the number of samples, 1.

    Raises ParseError with the place for what is no evidence of this network.
    """
    return _Reader(text, source).evidence(network)


class _Reader(Written):
    def __init__(self, text: str, source: str):
        self.text, self.source = text, source
        self.words: list[tuple[str, Span]] = []
        for number, line in enumerate(text.lstrip("\ufeff").split("\n"), 1):
            for match in re.finditer(r"\S+", re.sub(r"(^c\s|#).*", "", line)):
                self.words.append((match.group(), Span(number, match.start() + 1, len(match.group()))))
        self.position = 0

    def wrong(self, message: str, hint: str | None = None, back: int = 1) -> NoReturn:
        last = self.words[-1][1] if self.words else Span(1, 1)
        place = self.position - back
        self.error(ParseError, message, self.words[place][1] if place < len(self.words) else last, hint)

    def word(self, what: str) -> str:
        self.position += 1
        if self.position > len(self.words):
            self.wrong(f"the file ends where {what} is expected", "the file may have been cut off")
        return self.words[self.position - 1][0]

    def integer(self, what: str, least: int = 0, most: int = 10**9) -> int:
        word = self.word(what)
        if not re.fullmatch(r"[0-9]{1,12}", word) or not least <= int(word) <= most:
            self.wrong(f"`{word}` is not {what}", f"an integer from {least} to {most}")
        return int(word)

    def model(self) -> NetworkTables:
        kind = self.word("MARKOV or BAYES").upper()
        if kind not in ("MARKOV", "BAYES"):
            hint = "the first word is MARKOV or BAYES"
            self.error(UnsupportedError, f"`{kind}` is no kind of model that is read", self.words[0][1], hint)
        count = self.integer("the number of variables")
        sizes = [self.integer("the number of values of a variable", 1) for _ in range(count)]
        scopes = []
        for _ in range(self.integer("the number of tables")):
            scope: list[int] = []
            for _ in range(self.integer("the number of variables of a table", 0, count)):
                variable = self.integer("the number of a variable", 0, count - 1)
                if variable in scope:
                    self.wrong(f"variable {variable} stands twice in one table")
                scope.append(variable)
            scopes.append(tuple(scope))
        factors, is_bayesian = [], kind == "BAYES"
        for number, scope in enumerate(scopes):
            factors.append((scope, self.table([sizes[v] for v in scope])))
            is_bayesian = is_bayesian and self.is_distribution(number, *factors[-1])
        if is_bayesian and sorted(scope[-1] for scope in scopes) != list(range(count)):
            self.warn("the last variables of the tables are not each variable once", self.words[0][1])
            is_bayesian = False
        if is_bayesian and (cyclic := cyclic_variable(scopes)) is not None:
            self.warn(f"variable {cyclic} depends on itself", self.words[0][1])
            is_bayesian = False
        if self.position < len(self.words):
            self.position += 1
            self.wrong("the file goes on behind the last table")
        names = tuple(map(str, range(count)))
        states = tuple(tuple(map(str, range(size))) for size in sizes)
        return NetworkTables(names, states, tuple(factors), is_bayesian, source=self.source)

    def is_distribution(self, number: int, scope: tuple[int, ...], table: np.ndarray) -> bool:
        """Whether a table, which was read last, has probabilities of its last variable; warns if it has not."""
        sums = np.ravel(table.sum(axis=-1)) if scope else np.zeros(1)
        worst = float(sums[np.argmax(np.abs(sums - 1))])
        if abs(worst - 1) <= ROUNDING:
            return True
        of = f", of variable {scope[-1]}," if scope else ""
        first = self.words[self.position - table.size][1]
        self.warn(f"table {number}{of} is no distribution: numbers of it add up to {worst:g}, not to 1", first)
        return False

    def warn(self, message: str, span: Span) -> None:
        hint = "the model is read as a product of its tables; write MARKOV, or divide each row by its sum"
        warn(message, hint=hint, source=self.source, text=self.text, span=span)

    def table(self, shape: list[int]) -> np.ndarray:
        size = math.prod(shape)
        if (count := self.integer("the number of entries of a table")) != size:
            self.wrong(f"the table is said to have {count} entries, and its variables have {size}")
        if self.position + size > len(self.words):
            self.position = len(self.words) + 1
            self.wrong("the file ends inside a table", "the file may have been cut off")
        numbers = np.empty(size)
        for i in range(size):
            word = self.word("an entry")
            try:
                numbers[i] = number_of(word)
            except ValueError:
                self.wrong(f"`{word}` is no number")
            if not 0 <= numbers[i] < math.inf:
                span = self.words[self.position - 1][1]
                self.error(DomainError, f"the entry {word} is not a number of at least 0", span)
        return numbers.reshape(shape)

    def evidence(self, network: NetworkTables) -> dict[int, int]:
        if not self.words:
            return {}
        first = self.integer("the number of observed variables")
        if len(self.words) != 1 + 2 * first and first == 1 and len(self.words) > 1:
            # The format of 2008 has the number of samples before.
            first = self.integer("the number of observed variables")
        if len(self.words) - self.position != 2 * first:
            self.wrong(
                f"{first} variables are said to be observed, and {len(self.words) - self.position} numbers follow",
                "each of them has its number and that of its value",
            )
        found = {}
        for _ in range(first):
            variable = self.integer("the number of a variable", 0, len(network.names) - 1)
            value = self.integer("the number of a value", 0, len(network.states[variable]) - 1)
            if found.setdefault(variable, value) != value:
                self.wrong(f"variable {variable} was observed twice, with different values")
        return found
