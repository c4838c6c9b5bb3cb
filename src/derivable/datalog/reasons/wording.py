"""What rules and their literals are called: as the program writes them, with values for variables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from derivable.core.diagnostics import Span
from derivable.datalog.reasons.model import Model
from derivable.datalog.reasons.scalar import value_of
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.text import RANGES, expr_text, literal_text, rule_text
from derivable.datalog.scalars.nodes import NOWHERE, Apply, Node, Var, mapped
from derivable.datalog.values.terms import show_character, show_value
from derivable.datalog.values.values import ValueType

# Names of variables that the program does not write.
_HIDDEN = "'"


class Wording:
    """The texts of one program."""

    def __init__(self, model: Model):
        self.model, self.rules = model, model.rules
        # What was said before: values, and rules by their clauses.
        self._values: dict[tuple[int, int], tuple[Any, str]] = {}
        self._rules: dict[int, str] = {}
        self._origins: dict[str, dict[tuple[Any, ...], Span]] = {}

    def _value(self, word: int, t: ValueType) -> tuple[Any, str]:
        # The types are those of rules, which stay; to hash one takes longer than all the rest.
        key = word, id(t)
        pair = self._values.get(key)
        if pair is None:
            shown = value_of(word, t, self.model.symbols)
            pair = shown, show_character(shown) if t.family == "char" else show_value(shown)
            self._values[key] = pair
        return pair

    def value(self, word: int, t: ValueType) -> str:
        """A value as the language writes it."""
        return self._value(word, t)[1]

    def plain(self, word: int, t: ValueType) -> Any:
        """A value as Python has it."""
        return self._value(word, t)[0]

    def values(self, relation: str, row: Sequence[int]) -> tuple[Any, ...]:
        """A row as Python values."""
        return tuple([self._value(word, t)[0] for word, t in zip(row, self.rules.relations[relation].types)])

    def atom(self, relation: str, row: Sequence[int]) -> str:
        types = self.rules.relations[relation].types
        return f"{relation}({', '.join(self.value(word, t) for word, t in zip(row, types))})"

    def line_of(self, span: Span) -> tuple[int | None, str | None]:
        """(line, source) of a span."""
        if span is NOWHERE:
            return None, None
        return span.line, self.rules.source if span.origin is None else span.origin.source

    def written(self, span: Span) -> str:
        """What the program has at a span, on one line."""
        text = self.rules.text if span.origin is None else span.origin.text
        lines = text.split("\n")
        if span is NOWHERE or not 1 <= span.line <= len(lines):
            return ""
        start = sum(len(line) + 1 for line in lines[: span.line - 1]) + span.column - 1
        return re.sub(r"\s+", " ", re.sub(r"//[^\n]*|/\*.*?\*/", " ", text[start : start + span.length], flags=re.S))

    def rule(self, clause: r.Clause) -> str:
        text_of_rule = self._rules.get(id(clause))
        if text_of_rule is None:
            text = re.sub(r"^(rel|relation)\s+", "", self.written(clause.span).strip())
            # Of a rule of several lines some languages have the line of its head alone.
            is_whole = bool(text) and (not clause.body or "=" in text or ":-" in text)
            text_of_rule = self._rules[id(clause)] = text if is_whole else rule_text(clause)
        return text_of_rule

    def origin(self, relation: str, row: tuple[Any, ...]) -> tuple[int | None, str | None, str]:
        """(line, source, words) of where a fact comes from: the program, a file that it names, or what a run was
        given."""
        origins = self._origins.get(relation)
        if origins is None:
            origins = self._origins[relation] = {}
            for facts in self.rules.facts:
                if facts.relation == relation:
                    origins.update(dict.fromkeys(facts.rows, facts.span))
        span = origins.get(row)
        if span is not None:
            return *self.line_of(span), "a fact of the program"
        for attribute in self.rules.relations[relation].attributes:
            if attribute.name == "file":
                return *self.line_of(attribute.span), f"a fact of {self.written(attribute.span).strip()}"
        return None, None, "a fact that the run was given"

    def aggregate(self, rule: r.AggregateRule) -> str:
        """An aggregate without what it is assigned to."""
        written = self.written(rule.span).strip()
        return written[max(written.find(rule.operator), 0) :] or rule.operator

    def names(self, slots: Mapping[str, int], types: Mapping[str, ValueType], words: Sequence[int]) -> dict[str, str]:
        """Variable -> the text of its value."""
        return {name: self.value(words[slot], types[name]) for name, slot in slots.items()}

    def literal(self, literal: r.Literal, values: Mapping[str, str]) -> str:
        """A literal with values for variables, without parentheses around all of it."""
        match literal:
            case r.Negated(relation=name):
                return f"not {self._positive(name, literal.terms, values)}"
            case r.Atom(relation=name):
                return self._positive(name, literal.terms, values)
            case r.Generate(relation=str()):
                return self.written(literal.span) or literal_text(literal)
            case r.Generate(predicate=name) if name not in RANGES:
                shown = [self._term(t, values) for t in (*literal.inputs, *literal.outputs)]
                return f"{'not ' if literal.negated else ''}{name}({', '.join(shown)})"
            case r.Filter(condition=Apply(operator="!", operands=(inner,))):
                return f"not {self._term(inner, values)}"
            case r.Filter(condition=condition):
                text = self._term(condition, values)
                return text[1:-1] if isinstance(condition, Apply) and _is_enclosed(text) else text
        return literal_text(_replaced(literal, values))

    def _term(self, term: r.Expr | None, values: Mapping[str, str]) -> str:
        return "_" if term is None else expr_text(_replaced(term, values))

    def _positive(self, relation: str, terms: Sequence[r.Expr | None], values: Mapping[str, str]) -> str:
        shown = [self._term(term, values) for term in terms]
        if not relation.startswith("#"):
            return f"{relation}({', '.join(shown)})"
        if relation in self.model.aggregates:
            rule = self.model.aggregates[relation]
            return self.written(rule.span) or rule.operator
        options = []
        for clause in self.model.clauses.get(relation, ()):
            inner = {t.name: text for t, text in zip(clause.terms, shown) if isinstance(t, Var)}
            literals = [node for node in clause.body if not isinstance(node, r.RuleProbability)]
            options.append(" and ".join(self.literal(node, inner) for node in literals if not is_hidden(node)))
        return options[0] if len(options) == 1 and " and " not in options[0] else f"({' or '.join(options)})"


def is_hidden(literal: r.Literal) -> bool:
    """Whether a literal is one that the program does not write, as equations of arguments are."""
    return isinstance(literal, r.Filter) and any(name.startswith(_HIDDEN) for name in r.names(literal))


def is_shown_name(name: str) -> bool:
    return _HIDDEN not in name


def _replaced(node: Any, values: Mapping[str, str]) -> Any:
    def change(part: Node) -> Any:
        if isinstance(part, Var):
            text = values.get(part.name, part.name)
            return replace(part, name="_" if _HIDDEN in text and part.name not in values else text)
        return mapped(part, change)

    return change(node)


def _is_enclosed(text: str) -> bool:
    """Whether the first parenthesis of a text is closed by its last character."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return index == len(text) - 1 and text.startswith("(")
    return False
