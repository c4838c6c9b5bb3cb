"""Facts: rows of constants with their tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        self,
        name: str,
        columns: Sequence[Sequence],
        count: int,
        tags: Sequence,
        exclusive: bool,
        span: Span,
        tag_spans: Mapping[int, Span] | None = None,
        parameters: Mapping[int, int] | None = None,
    ) -> None:
        """Facts of a relation, [column][row]; `tag_spans` says where those tags are written that are no probabilities,
        `parameters` which of them are tunable."""
        is_tagged = any(tag is not None for tag in tags)
        if exclusive and None in tags:
            missing = tags.index(None) + 1
            hint = "give every fact a probability, or none: then each of them is as likely"
            self.error(DomainError, f"exclusive fact {missing} of `{name}` has no probability", span, hint)
        values = tuple(tags) if is_tagged else None
        made = r.Facts(name, tuple(columns), count, values, exclusive, tag_spans or {}, span, parameters or {})
        self.facts.append(made)

    def parameter(self, tag: Any, text: str) -> int | None:
        """The number of a tunable probability, None for another tag; `text` is what it is the probability of."""
        if not isinstance(tag, s.Tunable):
            return None
        number = self.parameter_numbers.setdefault(id(tag.span), len(self.parameters))
        if number == len(self.parameters):
            by = tuple(variable.name for variable in tag.by)
            self.parameters.append(r.Parameter(tag.span, tag.value if tag.has_start else None, text, by))
        return number

    def parameter_of_fact(self, tag: Any, text: str) -> int | None:
        """The same of a fact, which has no variables."""
        if isinstance(tag, s.Tunable) and tag.by:
            variable = tag.by[0]
            message = f"`{variable.name}` has no values: `{text}` is a fact"
            self.error(BindingError, message, variable.span, "leave the variables out: a fact has one probability")
        return self.parameter(tag, text)

    def shares(self, tags: Sequence[Any], span: Span) -> list[Any]:
        """The values of the tags of a choice: tunable ones that do not say where they start share what is left."""
        values = [None if tag is None else self.tag_value(tag) for tag in tags]
        are_open = [isinstance(tag, s.Tunable) and not tag.has_start for tag in tags]
        if any(are_open):
            left = 1.0 - sum(value for value, is_open in zip(values, are_open) if value is not None and not is_open)
            if left <= 1e-12:
                hint = "the probabilities of a choice add up to at most 1"
                self.error(DomainError, "the other probabilities leave nothing for those that are tunable", span, hint)
            values = [left / sum(are_open) if is_open else value for value, is_open in zip(values, are_open)]
        return values

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

    def tag_span_of(self, tag: Any) -> Mapping[int, Span]:
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
