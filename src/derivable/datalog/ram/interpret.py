"""The reference interpreter of RAM: sets of Python tuples, every rule over all rows until nothing changes.

Slow and obvious; it says what a program means without tags. It reads the `full` rules only, so agreement with the
machine also shows that splitting recursive rules by the atom that changes loses nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.aggregates import AGGREGATES, Group
from derivable.datalog.aggregates.lattices import LATTICES
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.keyed import keyed_strata, row_of
from derivable.datalog.rules.nodes import Relation, variables
from derivable.datalog.rules.timed import LATE, NOW, TIMES, before
from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars.nodes import Apply, Const, Expr, Var
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.terms import Entity, subterms
from derivable.datalog.values.values import ValueType, show_column, word_of

_COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Row = dict[str, Any]
Database = dict[str, set[tuple[Any, ...]]]


class _NoValueError(Exception):
    """The expression has no value: the row is dropped."""


def interpret(ram: m.Ram, facts: Mapping[str, Any] | None = None) -> Database:
    """Relation -> set of tuples (all relations, auxiliary ones too) for certain facts as lists of tuples."""
    model: Database = {name: set() for name in ram.relations}
    for listed in ram.facts:
        model[listed.relation] |= set(listed.rows)
    passed = dict(facts or {})
    if ram.demand is not None:
        first = ram.demand
        asked = interpret(first, {name: rows for name, rows in passed.items() if name in first.relations})
        passed.update((name, asked[name]) for name in first.outputs)
    for name, rows in passed.items():
        model[name] |= {row if isinstance(row, tuple) else (row,) for row in rows}
        for term in subterms(v for row in model[name] for v in row if isinstance(v, Entity)):
            model[ram.constructors[term.functor].relation].add((term, *term.fields))
    for name, relation in ram.relations.items():
        model[name] = _joined(relation, model[name])
    for stratum in ram.strata:
        _run(stratum, model, ram)
    return model


def _run(stratum: m.Stratum, model: Database, ram: m.Ram) -> None:
    if stratum.timed is not None:
        _run_timed(stratum.timed, model)
        return
    changed = True
    while changed:
        changed = False
        for instruction in stratum.full:
            rows = list(_instruction(instruction, model, ram))
            before = model[instruction.relation]
            model[instruction.relation] = _joined(ram.relations[instruction.relation], before.union(rows))
            changed |= model[instruction.relation] != before


def _run_timed(timed: m.Timed, model: Database) -> None:
    """One time after the other: facts of that time, and what the rules of a step find from earlier rows."""
    facts = {name: model[name] for name in timed.columns}
    model_of_time = _over(timed.times, model)
    assert not model_of_time[LATE]
    times = {row[column] for name, column in timed.columns.items() for row in facts[name]}
    model.update((name, set()) for name in timed.columns)
    for time in sorted(times.union(*model_of_time[TIMES])):
        step = {before(name): model[name] for name in timed.columns} | {NOW: {(time,)}}
        step |= {name: {row for row in facts[name] if row[column] == time} for name, column in timed.columns.items()}
        model_of_time = _over(timed.step, {**model, **step})
        model.update((name, model[name] | model_of_time[name]) for name in timed.columns)


def _over(ram: m.Ram, model: Database) -> Database:
    model_after = {name: set(model.get(name, ())) for name in ram.relations}
    for stratum in ram.strata:
        _run(stratum, model_after, ram)
    return model_after


def _joined(relation: Relation, rows: set[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """The rows; of a relation with a lattice one for each combination of the other columns."""
    if relation.lattice is None:
        return rows
    lattice, t, symbols = LATTICES[relation.lattice], relation.types[-1], SymbolTable()
    joined: dict[tuple[Any, ...], Any] = {}
    for *keys, value in rows:
        key = tuple(keys)
        if key not in joined:
            joined[key] = value
        elif lattice.direction:
            joined[key] = (max if lattice.direction > 0 else min)(joined[key], value)
        else:
            a, b = (np.array([word_of(v, t, symbols)]) for v in (joined[key], value))
            joined[key] = show_column(lattice.joined(a, b, t, symbols), t, symbols).tolist()[0]
    return {(*key, value) for key, value in joined.items()}


def _instruction(instruction: m.Instruction, model: Database, ram: m.Ram) -> Iterator[tuple[Any, ...]]:
    if isinstance(instruction, AggregateRule):
        yield from _aggregate(instruction, model, ram.relations[instruction.relation].types)
    else:
        for row in query_rows(instruction.query, model, ram):
            try:
                yield tuple(evaluate(t, row) for t in instruction.query.terms)
            except _NoValueError:
                continue


def query_rows(query: m.Project, model: Database, ram: m.Ram) -> Iterable[Row]:
    """The rows of a query as dictionaries, repeats possible; the parts of a relation are not told apart."""
    rows: Iterable[Row] = [{}]
    for node in query.operators:
        rows = [made for row in rows for made in _made_of(node, row, model, ram)]
    return rows


def _made_of(node: m.Operator, row: Row, model: Database, ram: m.Ram) -> list[Row]:
    """The rows that an operator makes of one."""
    try:
        match node:
            case m.Scan() | m.Join():
                scan = m.scan_of(node)
                assert scan is not None
                return list(_matches(scan, row, model))
            case m.Difference(right=right):
                return [] if any(True for _ in _matches(right, row, model)) else [row]
            case m.Select(condition=condition):
                return [row] if evaluate(condition, row) else []
            case m.Extend(variable=v, expression=e):
                return [{**row, v.name: evaluate(e, row)}]
            case m.Generate(relation=str() as name):
                return list(_keyed(name, node, row, model, ram))
            case m.Generate():
                answers = list(_answers(node, [evaluate(e, row) for e in node.inputs], row))
                return answers if not node.negated else [] if answers else [row]
    except _NoValueError:
        return []
    return [row]


def _matches(scan: m.Scan, row: Row, model: Database) -> Iterator[Row]:
    for values in model[scan.relation]:
        extended = dict(row)
        for term, value in zip(scan.terms, values):
            if isinstance(term, Const):
                if term.value != value:
                    break
            elif isinstance(term, Var) and extended.setdefault(term.name, value) != value:
                break
        else:
            yield extended


def _keyed(relation: str, node: m.Generate, row: Row, model: Database, ram: m.Ram) -> Iterator[Row]:
    """The row with each row of a relation that there is for its key."""
    keys = ram.relations[relation].keys
    assert keys is not None
    inputs = tuple(Const(evaluate(e, row), e.type) for e in node.inputs)
    strata = [ram.strata[number] for number in keyed_strata(ram, relation)]
    queried = {**model, keys[0]: {tuple(value.value for value in inputs)}}
    queried.update((name, set()) for stratum in strata for name in stratum.relations)
    for stratum in strata:
        _run(stratum, queried, ram)
    terms = row_of(ram, replace(node, inputs=inputs))
    yield from _matches(m.Scan(relation, terms), row, queried)  # type: ignore[arg-type]


def _answers(query: m.Generate, inputs: list[Any], row: Row) -> Iterator[Row]:
    """The row with each row of outputs that agrees with it; one of probability 0 is none."""
    record = PREDICATES[query.predicate]
    for values in record.call(*inputs):
        if record.is_tagged and isinstance(values, tuple) and len(values) == 2 and isinstance(values[1], tuple):
            tag, values = values
            if tag == 0.0:
                continue
        extended = dict(row)
        for term, value in zip(query.outputs, values if isinstance(values, tuple) else (values,)):
            if isinstance(term, Const) and term.value != value:
                break
            if isinstance(term, Var) and extended.setdefault(term.name, value) != value:
                break
        else:
            yield extended


def _aggregate(rule: AggregateRule, model: Database, types: tuple[ValueType, ...]) -> Iterator[tuple[Any, ...]]:
    g, record = rule.num_group, AGGREGATES[rule.operator]
    settings = record.settings(rule.parameters)
    groups: dict[tuple, list[tuple]] = {}
    if rule.groups is not None:
        groups = {key: [] for key in model[rule.groups]}
    elif g == 0:
        groups = {(): []}
    for row in model[rule.body]:
        if rule.groups is None or row[:g] in groups:
            groups.setdefault(row[:g], []).append(row[g:])
    for key, rows in groups.items():
        if rows or rule.groups is not None or g == 0:
            for result in record.meaning(Group(key, rows, rule.num_arguments, types, settings, discrete=rule.discrete)):
                yield (*key, *(result if isinstance(result, tuple) else (result,)))


def evaluate(e: Expr, row: Row) -> Any:
    """The value of an expression for one row, in Python numbers, strings and terms."""
    symbols = SymbolTable()
    e, row = _without_terms(e, row)
    if isinstance(e, Var):
        return row[e.name]
    if isinstance(e, Const):
        return e.value
    row_variables = {v.name: v for v in variables(e)}
    columns = {name: np.array([word_of(row[name], v.type, symbols)]) for name, v in row_variables.items()}
    words, valid = arithmetic.evaluate(e, columns, 1, symbols)
    if valid is not None and not valid[0]:
        raise _NoValueError
    return show_column(words, e.type, symbols).tolist()[0]


def _without_terms(e: Expr, row: Row) -> tuple[Expr, Row]:
    """An equal expression over a row with more columns, in which no operator takes or gives a term."""
    if not isinstance(e, Apply):
        return e, row
    if e.operator == "if":
        # Only the branch that is taken must have a value.
        taken = e.operands[1 if evaluate(e.operands[0], row) else 2]
        return _without_terms(taken, row)
    if "entity" in (e.type.family, *(operand.type.family for operand in e.operands)) or e.operator.startswith("new "):
        name = f"'{len(row)}"
        return Var(name, e.type), {**row, name: _of_terms(e, [evaluate(operand, row) for operand in e.operands])}
    operands = []
    for operand in e.operands:
        operand, row = _without_terms(operand, row)
        operands.append(operand)
    return replace(e, operands=tuple(operands)), row


def _of_terms(e: Apply, values: list[Any]) -> Any:
    """The value of an operator that takes or gives terms."""
    kind, _, name = e.operator.partition(" ")
    if kind == "new":
        return Entity(name, *values)
    if kind == "is":
        return values[0].functor == name
    if e.operator in _COMPARISONS:
        return _COMPARISONS[e.operator](*values)
    if e.operator == "cast" and e.type.family == "text":
        return str(values[0])
    name, dot, position = e.operator.partition(".")
    if not dot:
        raise UnsupportedError(f"the interpreter has no `{e.operator}` on terms")
    if values[0].functor != name:
        raise _NoValueError
    return values[0].fields[int(position)]
