"""Facts: rows of constants with their tags."""

from __future__ import annotations

from typing import Any

from derivable.core.diagnostics import BindingError, DomainError, Span, UnsupportedError
from derivable.datalog.desugar.core import Core
from derivable.datalog.rules import nodes as r
from derivable.datalog.syntax import nodes as s
from derivable.datalog.types.constants import core_expression, value_of
from derivable.datalog.types.data_types import ground
from derivable.datalog.values import ValueType


class Constants(Core):
    """The values of constant expressions and the facts made of them."""

    def add_facts(self, name: str, rows: list, tags: list, exclusive: bool, span: Span) -> None:
        tagged = any(tag is not None for tag in tags)
        if exclusive and None in tags:
            missing = tags.index(None) + 1
            hint = "give every fact a probability, or none: then each of them is as likely"
            self.error(DomainError, f"exclusive fact {missing} of `{name}` has no probability", span, hint)
        self.facts.append(r.Facts(name, tuple(rows), tuple(tags) if tagged else None, exclusive, span))

    def constant(self, node: Any, t: ValueType) -> Any:
        """The value of a constant expression without operators, or None."""
        if isinstance(node, s.Variable) and node.name not in self.typed.constants:
            self.error(
                BindingError, f"variable `{node.name}` in a fact is not bound", node.span, "facts hold constants"
            )
        return ground(node, t, self.typed.constructors, self.typed.constants)

    def tag_value(self, node: Any) -> float:
        value = self.fold(node)
        if value is None:
            self.error(UnsupportedError, "the tag of a fact must be a constant", node.span)
        if not 0.0 <= value <= 1.0:
            self.error(DomainError, f"the tag {value:g} is not a probability", node.span, "tags are in [0, 1]")
        return value

    def fold(self, node: Any) -> float | None:
        """The value of a tag without variables, None if it has some or no value."""
        match node:
            case s.Constant(value=value, kind="integer" | "float" | "bool"):
                return float(value)
            case s.Variable(name=name):
                return float(self.typed.constants[name][0]) if name in self.typed.constants else None
        expression = core_expression(node, self.typed.types, self.typed.constants)
        value = None if expression is None else value_of(expression)
        return None if value is None else float(value)
