"""Facts: rows of constants with their tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from derivable.core.diagnostics import BindingError, DomainError, Span, UnsupportedError
from derivable.datalog.desugar.core import Core
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.literal_order import constant_meant
from derivable.datalog.scalars.arithmetic import value_of
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.text import expression_text
from derivable.datalog.types.conversion import core_tag, number_of_tag
from derivable.datalog.types.data_types import ground
from derivable.datalog.values.values import ValueType


class Constants(Core):
    """The values of constant expressions and the facts made of them."""

    def add_facts(
        self, name: str, rows: list, tags: list, exclusive: bool, span: Span, places: Mapping[int, Span] | None = None
    ) -> None:
        """Facts of a relation; `places` says where those tags are written that are no probabilities."""
        tagged = any(tag is not None for tag in tags)
        if exclusive and None in tags:
            missing = tags.index(None) + 1
            hint = "give every fact a probability, or none: then each of them is as likely"
            self.error(DomainError, f"exclusive fact {missing} of `{name}` has no probability", span, hint)
        self.facts.append(r.Facts(name, tuple(rows), tuple(tags) if tagged else None, exclusive, places or {}, span))

    def constant(self, node: Any, t: ValueType) -> Any:
        """The value of a constant expression without operators, or None."""
        if isinstance(node, s.Variable) and node.name not in self.typed.constants:
            self.error(
                BindingError,
                f"variable `{node.name}` in a fact is not bound",
                node.span,
                f"facts hold constants: {constant_meant(node.name)}",
            )
        return ground(node, t, self.typed.constructors, self.typed.constants)

    def place_of(self, tag: Any) -> Mapping[int, Span]:
        """Where the tag of a single fact is written, if there is one."""
        return {} if tag is None else {0: tag.span}

    def tag_value(self, node: Any) -> float | bool:
        value = self.fold(node)
        if value is None and core_tag(node, self.typed) is None:
            self.error(UnsupportedError, "the tag of a fact must be a constant", node.span)
        if value is None:
            hint = "an expression such as 0 / 0 is no number"
            self.error(DomainError, f"the tag `{expression_text(node)}` has no value", node.span, hint)
        return value

    def fold(self, node: Any) -> float | bool | None:
        """The value of a tag without variables, None if it has some or no value; a bool for truth values."""
        if isinstance(node, s.Constant) and node.kind in ("integer", "float", "bool"):
            return number_of_tag(node.value)
        expression = core_tag(node, self.typed)
        value = None if expression is None else value_of(expression)
        return None if value is None else number_of_tag(value)
