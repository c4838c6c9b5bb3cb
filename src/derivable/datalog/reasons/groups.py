"""Aggregates: the rows of their groups, and what those of a recursion come to for demanded keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from derivable.datalog.aggregates import AGGREGATES, Group
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.reasons.bodies import Body, Instance
from derivable.datalog.reasons.model import Model
from derivable.datalog.reasons.rows import Row
from derivable.datalog.reasons.scalar import value_of
from derivable.datalog.rules import nodes as r
from derivable.datalog.values.values import word_of


def rows_of_group(model: Model, rule: AggregateRule, key: Row) -> list[Row]:
    """The rows of the body of an aggregate that are in the group of a key."""
    rows = model.rows(rule.body)
    return [rows.row(number) for number in rows.numbers(tuple(range(rule.num_group)), key)]


def keyed_instances(model: Model, relation: str, inputs: Sequence[int]) -> Iterator[tuple[Row, Instance]]:
    """The rows of the body of an aggregate of a recursion for demanded keys, and what derives them."""
    keys = model.rules.relations[relation].keys
    assert keys is not None
    for clause in model.clauses.get(model.aggregates[relation].body, ()):
        literals = tuple(
            literal for literal in clause.body if not (isinstance(literal, r.Atom) and literal.relation in model.keys)
        )
        body = Body(replace(clause, body=literals), model, keys[1])
        terms = [body.evaluator(term) for term in clause.terms]
        for instance in body.instances(tuple(inputs)):
            row = [word for term in terms if (word := term(instance.words)) is not None]
            if len(row) == len(terms):
                yield tuple(row), instance


def keyed_rows(model: Model, relation: str, inputs: Sequence[int]) -> Iterator[Row]:
    """The rows of an aggregate of a recursion for demanded keys, without the columns of these."""
    rule, keys = model.aggregates[relation], model.rules.relations[relation].keys
    assert keys is not None
    types, width = model.rules.relations[relation].types, rule.num_group
    body_types = model.rules.relations[rule.body].types
    groups: dict[Row, set[Row]] = {}
    if keys[1] == tuple(range(width)) and (rule.groups is not None or not width):
        groups[tuple(inputs)] = set()
    for row, _ in keyed_instances(model, relation, inputs):
        groups.setdefault(row[:width], set()).add(row[width:])
    record = AGGREGATES[rule.operator]
    for key, rows in groups.items():
        shown = [tuple(value_of(w, t, model.symbols) for w, t in zip(row, body_types[width:])) for row in sorted(rows)]
        named = tuple(value_of(w, t, model.symbols) for w, t in zip(key, types))
        group = Group(named, shown, rule.num_arguments, types, record.settings(rule.parameters), discrete=rule.discrete)
        for result in record.meaning(group):
            values = result if isinstance(result, tuple) else (result,)
            whole = (*key, *(word_of(v, t, model.symbols) for v, t in zip(values, types[width:])))
            yield tuple(word for column, word in enumerate(whole) if column not in keys[1])
