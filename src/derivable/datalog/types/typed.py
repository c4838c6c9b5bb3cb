"""What inference gives: the type of every relation column and every expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from derivable.core.diagnostics import Span
from derivable.datalog.syntax import nodes as s
from derivable.datalog.values.constructors import Constructor
from derivable.datalog.values.values import ValueType


@dataclass(frozen=True)
class RelationSignature:
    """`edge(src: usize, dst: usize)`: resolved types; `is_declared` by `type`, `is_defined` by facts or rules,
    `is_emptied` by a set without facts."""

    name: str
    types: tuple[ValueType, ...]
    column_names: tuple[str | None, ...]
    is_declared: bool
    is_defined: bool
    span: Span
    is_emptied: bool = False

    def __str__(self) -> str:
        shown = [f"{n}: {t}" if n else str(t) for n, t in zip(self.column_names, self.types)]
        return f"{self.name}({', '.join(shown)})"


@dataclass(frozen=True)
class Typed:
    """A program with types: the syntax, the signatures, the type of each expression node (by identity).

    constants  named constants and enum members: name -> (value, type)
    types      of the expression nodes, by `id`
    real       the expression nodes of tags, by `id`, whose values are real numbers
    """

    syntax: s.Syntax
    relations: Mapping[str, RelationSignature]
    constants: Mapping[str, tuple[Any, ValueType]]
    types: Mapping[int, ValueType] = field(repr=False)
    _variables: Mapping[int, Mapping[str, ValueType]] = field(repr=False)
    aliases: Mapping[str, ValueType] = field(default_factory=dict)
    constructors: Mapping[str, Constructor] = field(default_factory=dict)
    real: frozenset[int] = field(default=frozenset(), repr=False)

    def of(self, node: Any) -> ValueType:
        """The type of an expression node of this program."""
        return self.types[id(node)]

    def variables(self, node: Any) -> Mapping[str, ValueType]:
        """The types of the variables of a rule or query, or of the local variables of an aggregate."""
        return self._variables.get(id(node), {})


def types_text(typed: Typed) -> str:
    """The printer: one signature a line."""
    rows = [f"constructor {constructor}" for constructor in typed.constructors.values()]
    rows += [f"type {typed.relations[name]}" for name in typed.relations]
    rows += [f"const {name}: {t} = {value}" for name, (value, t) in typed.constants.items()]
    return "\n".join(rows)
