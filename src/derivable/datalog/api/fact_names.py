"""What the random facts of a run are called: a fact by its tuple, the coin of a rule by its instance of the rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.diagnostics import Span
from derivable.datalog.rules import nodes as r
from derivable.datalog.syntax.lexer import LineStarts, tokens
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.terms import atom_text, show_value
from derivable.datalog.values.values import ValueType, show_column

if TYPE_CHECKING:
    from derivable.datalog.api.evaluation import Evaluation


@dataclass(frozen=True)
class RandomFact:
    """One random fact.

    relation, row  of a fact; None and the values of the instance, of the coin of a rule
    text           the fact, or the instance of the rule that it decides on, as the language writes them
    written        what of the program it is an instance of: the fact, or the rule
    """

    relation: str | None
    row: tuple[Any, ...]
    text: str
    written: str


def named_facts(rules: r.Rules, evaluation: Evaluation, wanted: np.ndarray) -> dict[int, RandomFact]:
    """The random facts of a run by their variables.

    wanted  bool [variable] which ones; a variable that stands for what has no name (that a choice falls on nothing, a
            choice that an aggregate makes) is left out
    """
    facts: dict[int, RandomFact] = {}
    symbols = evaluation.facts.symbols
    for name, columns in evaluation.facts.relations.items():
        if name.startswith("#") or name not in rules.relations:
            continue
        types = rules.relations[name].types
        words, variables = columns.joined(len(types))
        rows = np.flatnonzero(variables >= 0)
        rows = rows[wanted[variables[rows]]]
        shown = rows_of([column[rows] for column in words], types, symbols, len(rows))
        for variable, row in zip(variables[rows].tolist(), shown):
            facts[variable] = fact_of(name, row)
    clauses = [rule for rule in rules.rules if isinstance(rule, r.Clause)]
    literals = [literal for clause in clauses for literal in clause.body if isinstance(literal, r.RuleProbability)]
    coins = {(literal.name, literal.option): literal for literal in literals}
    texts = with_lines({literal.span: literal.text for literal in literals})
    for literal in coins.values():
        if literal.name not in evaluation.coins.known:
            continue
        table, variables = evaluation.coins.known[literal.name]
        text, names = texts[literal.span], [_name_of(key) for key in literal.key]
        rows = np.flatnonzero(wanted[variables + literal.option])
        words = [table.column(c, rows) for c in range(len(table.types))]
        shown = rows_of(words, table.types, symbols, len(rows))
        for variable, row in zip((variables[rows] + literal.option).tolist(), shown):
            facts[variable] = RandomFact(None, row, _instance(text, dict(zip(names, row))), text)
    return facts


def fact_of(relation: str, row: tuple[Any, ...]) -> RandomFact:
    """A fact under its tuple."""
    text = atom_text(relation, row)
    return RandomFact(relation, row, text, text)


def _name_of(key: Any) -> str:
    return key.name if isinstance(key, r.Var) else ""


def rows_of(words: Sequence[np.ndarray], types: Sequence[ValueType], symbols: SymbolTable, count: int) -> list[tuple]:
    """The `count` rows of columns of words as Python values."""
    columns = [show_column(column, t, symbols).tolist() for column, t in zip(words, types)]
    return list(zip(*columns)) if columns else [()] * count


def with_lines(texts: Mapping[Span, str]) -> dict[Span, str]:
    """The texts, with the line of each one where several are the same."""

    def distinct(of_spans: Mapping[Span, str], line_of: Callable[[Span], str]) -> dict[Span, str]:
        counts = Counter(of_spans.values())
        return {span: f"{text} ({line_of(span)})" if counts[text] > 1 else text for span, text in of_spans.items()}

    by_line = distinct(texts, lambda span: span.location)
    return distinct(by_line, lambda span: f"column {span.column}")


def _instance(text: str, values: Mapping[str, Any]) -> str:
    """The text of a rule with values instead of its variables."""
    parts, position, used = [], 0, set()
    for token in tokens(LineStarts(text), len(text)):
        if token.kind == "name" and token.text in values and not text[token.end :].lstrip().startswith("("):
            parts += [text[position : token.start], show_value(values[token.text])]
            position = token.end
            used.add(token.text)
    rest = [f"{name} = {show_value(value)}" for name, value in values.items() if name and name not in used]
    shown = [line for line in rest if not line.startswith("'")]
    return "".join(parts) + text[position:] + (f" where {', '.join(shown)}" if shown else "")
