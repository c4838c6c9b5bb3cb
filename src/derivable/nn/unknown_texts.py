"""Texts of a layer that nothing can match: misspelt constants of rules, and misspelt facts among the outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from derivable.core.diagnostics import Span, warn
from derivable.core.registry import similar
from derivable.datalog.api.program import Program
from derivable.datalog.facts.inputs import InputMapping, as_tuple
from derivable.datalog.rules.nodes import Atom, Clause, Filter, Generate, Negated, Rules
from derivable.datalog.scalars.nodes import Apply, Const, Var, walk
from derivable.datalog.values.terms import show_value

# Aggregates that make no texts of their own.
_CHOOSING = (
    *("count", "sum", "prod", "avg", "min", "max", "argmin", "argmax", "exists", "forall", "top", "unique", "rank"),
    *("normalize", "softmax", "categorical", "uniform"),
)
# Facts whose texts are looked at.
MOST_FACTS = 1 << 16


def warn_of_unknown_texts(
    program: Program, inputs: Mapping[str, Any], outputs: Mapping[str, Sequence[tuple] | None], facts: Mapping[str, Any]
) -> None:
    """Warn of each constant in a rule that no fact of its relation has, but a similar one, and of each output with a
    text that is nowhere in the program and its facts.

    What comes from elsewhere, such as files and facts that each sample has of its own, is not judged.
    """
    given = {**facts, **inputs}
    if sum(len(rows) for rows in given.values() if isinstance(rows, (InputMapping, list))) > MOST_FACTS:
        return
    rules = program.desugared({name: rows for name, rows in given.items() if isinstance(rows, (InputMapping, list))})
    columns = _columns(rules, given)
    for clause in rules.rules:
        for relation, column, text, span in _constants(clause) if isinstance(clause, Clause) else ():
            found = columns[relation][column] if relation in columns else {text}
            close = None if text in found else similar(text, found)
            if close is not None:
                warn(
                    f"no fact of `{relation}` has {show_value(text)}",
                    hint=f"did you mean {show_value(close)}?",
                    source=rules.source,
                    text=rules.text,
                    span=span,
                )
    known = _texts(rules, given)
    if known is None:
        return
    for name, tuples in outputs.items():
        for text in {text: None for row in tuples or () for text in row if isinstance(text, str) and text not in known}:
            close = similar(text, known)
            warn(
                f"nothing derives {show_value(text)}, an output of {name!r}: no fact and no rule has that text",
                hint=f"did you mean {show_value(close)}?" if close else "its probability is 0 in every call",
            )


def _constants(clause: Clause) -> Iterator[tuple[str, int, str, Span]]:
    """(relation, column, text, place) of the texts with which columns are compared in a body."""
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for atom in clause.body:
        if not isinstance(atom, (Atom, Negated)):
            continue
        for column, term in enumerate(atom.terms):
            if isinstance(term, Var) and isinstance(atom, Atom):
                places[term.name].append((atom.relation, column))
            if isinstance(term, Const) and isinstance(term.value, str):
                yield atom.relation, column, term.value, atom.span
    for literal in clause.body:
        condition = literal.condition if isinstance(literal, Filter) else None
        if not isinstance(condition, Apply) or condition.operator not in ("==", "!="):
            continue
        for variable, constant in (condition.operands, condition.operands[::-1]):
            if isinstance(variable, Var) and isinstance(constant, Const) and isinstance(constant.value, str):
                for relation, column in places[variable.name]:
                    yield relation, column, constant.value, literal.span


def _columns(rules: Rules, given: Mapping[str, Any]) -> dict[str, list[set[str]]]:
    """The texts in each column of the relations of which all facts are known."""
    derived = {clause.relation for clause in rules.rules}
    found: dict[str, list[set[str]]] = {}
    rows: dict[str, list[tuple]] = defaultdict(list)
    for name, tuples in _rows(rules, given):
        rows[name] += tuples
    for name, tuples in rows.items():
        is_open = name in derived or name not in rules.relations or _is_elsewhere(given.get(name))
        if not is_open and not rules.relations[name].attributes:
            width = len(rules.relations[name].types)
            found[name] = [
                {row[c] for row in tuples if len(row) == width and isinstance(row[c], str)} for c in range(width)
            ]
    return found


def _texts(rules: Rules, given: Mapping[str, Any]) -> set[str] | None:
    """All texts of a program and its facts; None where there may be others."""
    if any(map(_is_elsewhere, given.values())) or any(relation.attributes for relation in rules.relations.values()):
        return None
    found = {text for _, tuples in _rows(rules, given) for row in tuples for text in row if isinstance(text, str)}
    rule: Any
    for rule in rules.rules:
        if getattr(rule, "operator", "count") not in _CHOOSING:
            return None
        parts = (*rule.terms, *rule.body) if isinstance(rule, Clause) else ()
        for node in chain.from_iterable(map(walk, parts)):
            if isinstance(node, Generate) or (isinstance(node, Apply) and node.type.family == "text"):
                return None
            if isinstance(node, Const) and isinstance(node.value, str):
                found.add(node.value)
    return found


def _is_elsewhere(given: Any) -> bool:
    return given is not None and not isinstance(given, (InputMapping, list))


def _rows(rules: Rules, given: Mapping[str, Any]) -> Iterator[tuple[Any, list[tuple]]]:
    for part in rules.facts:
        yield part.relation, [tuple(row) for row in part.rows]
    for name, facts in given.items():
        if isinstance(facts, InputMapping):
            yield name, list(facts.tuples)
        elif isinstance(facts, list):
            # Of a pair of a tag and a tuple, the tuple.
            pairs = (as_tuple(row) for row in facts)
            yield name, [row[1] if len(row) == 2 and isinstance(row[1], tuple) else row for row in pairs]
