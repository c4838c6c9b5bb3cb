"""Constructors of algebraic data types, and the operators of the core rules on terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from derivable.core.diagnostics import Span, TypeMismatchError
from derivable.core.registry import suggestion
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.terms import Entity, show_value
from derivable.datalog.values.values import ValueType, fits

NOWHERE = Span(1, 1)


@dataclass(frozen=True)
class Constructor:
    """`Node(i32, Tree): Tree`

    type    of the terms that it builds
    fields  the types of its fields
    """

    name: str
    type: ValueType
    fields: tuple[ValueType, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.fields))}): {self.type}"

    @property
    def relation(self) -> str:
        """The relation of its terms: a row is a term and its fields."""
        return f"#is_{self.name}"


def check_term(term: Entity, constructors: Mapping[str, Constructor]) -> None:
    """Raise TypeMismatchError unless a term fits its constructor; the terms in it are not looked into."""
    constructor = constructors.get(term.functor)
    if constructor is None:
        hint = suggestion(term.functor, constructors, f"the constructors are {', '.join(constructors)}")
        raise TypeMismatchError(f"unknown constructor `{term.functor}` in `{_short(term)}`", hint=hint)
    if len(term.fields) != len(constructor.fields):
        raise TypeMismatchError(
            f"`{_short(term)}` has {len(term.fields)} fields for {len(constructor.fields)}",
            hint=f"it is `{constructor}`",
        )
    for i, (value, t) in enumerate(zip(term.fields, constructor.fields)):
        if t.family == "entity":
            fine = isinstance(value, Entity)
            if fine and value.functor in constructors:
                check_type(value, t, constructors)
        else:
            fine = fits(value, t)
        if not fine:
            raise TypeMismatchError(
                f"field {i + 1} of `{_short(term)}`: expected {t}, found {show_value(value)}",
                hint=f"it is `{constructor}`",
            )


def check_type(term: Entity, t: ValueType, constructors: Mapping[str, Constructor]) -> None:
    """Raise TypeMismatchError unless a term, whose constructor is known, is of a data type."""
    term_type = constructors[term.functor].type
    if t.name not in ("Entity", term_type.name):
        names = [c.name for c in constructors.values() if c.type.name == t.name]
        raise TypeMismatchError(
            f"`{_short(term)}` is {term_type}, expected {t}", hint=f"the constructors of {t} are {', '.join(names)}"
        )


def _short(term: Entity) -> str:
    text = str(term)
    return text if len(text) <= 60 else f"{text[:57]}..."


def function_of_terms(operator: str) -> Callable[..., tuple[np.ndarray, np.ndarray | None]] | None:
    """What an operator of the core rules on terms is as a function (symbols, *columns) -> (words, valid), if it is one:
    `new Node`, `is Node`, `Node.1`."""
    kind, _, name = operator.partition(" ")
    if kind == "new" and name:
        return partial(_create, name)
    if kind == "is" and name:
        return partial(_has_functor, name)
    name, dot, position = operator.partition(".")
    return partial(_field, name, int(position)) if dot else None


def _create(name: str, symbols: SymbolTable, *fields: np.ndarray) -> tuple[np.ndarray, None]:
    count = len(fields[0]) if fields else 1
    terms = symbols.terms.create(name, fields, count)
    return terms if fields else terms[0], None


def _has_functor(name: str, symbols: SymbolTable, terms: np.ndarray) -> tuple[np.ndarray, None]:
    return symbols.terms.has_functor(name, terms).astype(np.int64), None


def _field(name: str, position: int, symbols: SymbolTable, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return symbols.terms.field(name, position, terms)
