"""What inference gives: the type of every relation column and every expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from derivable.datalog.rules.nodes import Relation
from derivable.datalog.syntax import nodes as s
from derivable.datalog.values.constructors import Constructor
from derivable.datalog.values.values import ValueType


@dataclass(frozen=True)
class Typed:
    """A program with types: the syntax, the relations, the type of each expression node (by identity).

    constants  named constants and enum members: name -> (value, type)
    types      of the expression nodes, by `id`
    real       the expression nodes of tags, by `id`, whose values are real numbers
    """

    syntax: s.Syntax
    relations: Mapping[str, Relation]
    constants: Mapping[str, tuple[Any, ValueType]]
    types: Mapping[int, ValueType] = field(repr=False)
    _variables: Mapping[int, Mapping[str, ValueType]] = field(repr=False)
    aliases: Mapping[str, ValueType] = field(default_factory=dict)
    constructors: Mapping[str, Constructor] = field(default_factory=dict)
    real: frozenset[int] = field(default=frozenset(), repr=False)

    @cached_property
    def definitions(self) -> dict[str, Any]:
        """The definitions of the constants whose types are not declared."""
        items = (item for item in self.syntax.items if isinstance(item, s.ConstantItem))
        return {item.name: item.value for item in items if item.type_name is None}

    def of(self, node: Any) -> ValueType:
        """The type of an expression node of this program."""
        return self.types[id(node)]

    def variables(self, node: Any) -> Mapping[str, ValueType]:
        """The types of the variables of a rule or query, or of the local variables of an aggregate."""
        return self._variables.get(id(node), {})


def types_text(typed: Typed) -> str:
    """The printer: one signature a line."""
    rows = [f"constructor {constructor}" for constructor in typed.constructors.values()]
    for relation in typed.relations.values():
        columns = [f"{n}: {t}" if n else str(t) for n, t in zip(relation.column_names, relation.types)]
        if relation.lattice is not None:
            columns[-1] = f"{relation.lattice} {columns[-1]}"
        rows.append(f"type {relation.name}({', '.join(columns)})")
    rows += [f"const {name}: {t} = {value}" for name, (value, t) in typed.constants.items()]
    return "\n".join(rows)
