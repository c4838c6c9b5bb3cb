"""Terms of Prolog, as they are written: each with its span."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from derivable.core.diagnostics import Span
from derivable.datalog.scalars.nodes import NOWHERE, Node
from derivable.datalog.syntax.fact_runs import FactRun
from derivable.datalog.syntax.lexer import LineStarts


@dataclass(frozen=True)
class Term(Node):
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Var(Term):
    """`X`; each `_` has another name, which begins with `_#`."""

    name: str

    @property
    def is_anonymous(self) -> bool:
        return self.name.startswith("_#")


@dataclass(frozen=True)
class Number(Term):
    """`3`, `0.25`; `text` is the decimal number as it is written."""

    value: int | float
    text: str = field(default="", compare=False)


@dataclass(frozen=True)
class Text(Term):
    """`"a text"`"""

    value: str


@dataclass(frozen=True)
class Facts(Term):
    """The facts behind one that they are like, of a text with these lines."""

    run: FactRun
    line_starts: LineStarts = field(compare=False, repr=False)


@dataclass(frozen=True)
class Compound(Term):
    """`f(X, a)`; an atom has no arguments. `[a|T]` has the functor `.`, the empty list is the atom `[]`."""

    functor: str
    arguments: tuple[Term, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        return self.functor, len(self.arguments)

    @property
    def indicator(self) -> str:
        """`f/2`"""
        return f"{self.functor}/{len(self.arguments)}"


def variables(*terms: Term) -> dict[str, Var]:
    """The variables of terms by their names, in order of writing."""
    names: dict[str, Var] = {}
    waiting = list(reversed(terms))
    while waiting:
        term = waiting.pop()
        if isinstance(term, Var):
            names.setdefault(term.name, term)
        elif isinstance(term, Compound):
            waiting.extend(reversed(term.arguments))
    return names


def is_ground(term: Term) -> bool:
    return not variables(term)


def operands(term: Term, functor: str) -> Iterator[Term]:
    """The operands of a chain such as `a, b, c`, from the left."""
    waiting = [term]
    while waiting:
        here = waiting.pop()
        if isinstance(here, Compound) and here.key == (functor, 2):
            waiting.extend(reversed(here.arguments))
        else:
            yield here


def canonical(term: Term) -> str:
    """A term as text, whose variables are numbered in order of writing."""
    numbers = {name: i for i, name in enumerate(variables(term))}

    def text(part: Term) -> str:
        if isinstance(part, Var):
            return f"_{numbers[part.name]}"
        if isinstance(part, Compound):
            return f"{part.functor!r}({','.join(map(text, part.arguments))})"
        return repr(part)

    return text(term)
