"""What is known when a layer is made to be impossible: constants that no fact has, outputs that nothing derives."""

from __future__ import annotations

import numbers
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.core.and_or import FALSE
from derivable.core.diagnostics import Span, warn
from derivable.core.registry import similar
from derivable.datalog.api.program import Program
from derivable.datalog.facts.inputs import InputMapping, as_tuple
from derivable.datalog.rules.nodes import Atom, Clause, Filter, Negated, Rules
from derivable.datalog.scalars.nodes import Apply, Const, Var, walk
from derivable.datalog.values.terms import show_value

# Facts whose values are looked at, and outputs that a warning names.
MOST_FACTS, MOST_NAMED = 1 << 16, 3


def warn_of_unknown_constants(program: Program, inputs: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Warn of each constant in a rule that no fact of its relation has: of each number, and of each text that is like
    one that is there.

    What comes from elsewhere, such as files and facts that each sample has of its own, is not judged.
    """
    given = {**facts, **inputs}
    if _number_of_facts(given) > MOST_FACTS:
        return
    rules = _desugared(program, given)
    columns = _columns(rules, given)
    for clause in rules.rules:
        for relation, column, value, span in _constants(clause) if isinstance(clause, Clause) else ():
            there = columns[relation][column] if relation in columns else {}
            if not there or _value(value) in there:
                continue
            close = similar(value, filter(_is_text, there)) if _is_text(value) else None
            if _is_text(value) and close is None:
                continue
            warn(
                f"no fact of `{relation}` has {show_value(value)}",
                hint=f"did you mean {show_value(close)}?" if close else _reach(there.values()),
                source=rules.source,
                text=rules.text,
                span=span,
            )


def warn_of_underivable(
    program: Program,
    inputs: Mapping[str, Any],
    facts: Mapping[str, Any],
    outputs: Mapping[str, Sequence[tuple]],
    never: np.ndarray,
    has_probabilities: bool,
) -> None:
    """Warn of the outputs that nothing derives, `never` [output], if one of their values is in none that is derived."""
    start = 0
    for name, tuples in outputs.items():
        rows, start = never[start : start + len(tuples)], start + len(tuples)
        there = {value for row, is_never in zip(tuples, rows.tolist()) if not is_never for value in row}
        gone = dict.fromkeys(
            row
            for row, is_never in zip(tuples, rows.tolist())
            if is_never and (not row or any(value not in there for value in row))
        )
        if not gone:
            continue
        shown = [show_value(row[0]) if len(row) == 1 else f"({', '.join(map(show_value, row))})" for row in gone]
        names = ", ".join(shown[:MOST_NAMED]) + (
            f" and {len(shown) - MOST_NAMED} more" if len(shown) > MOST_NAMED else ""
        )
        misspelt = next((value for row in gone for value in row if isinstance(value, str) and value not in there), None)
        close = None if misspelt is None else similar(misspelt, _texts(program, {**facts, **inputs}) - {misspelt})
        its = "its probability is 0" if has_probabilities else "it is the zero of the provenance"
        if len(gone) > 1:
            its = "their probabilities are 0" if has_probabilities else "they are the zero of the provenance"
        warn(
            f"nothing derives {names}, {'an output' if len(gone) == 1 else 'outputs'} of {name!r}",
            hint=f"did you mean {show_value(close)}?" if close else f"{its} in every call",
        )


def underivable(graph: AndOrGraph) -> np.ndarray:
    """[root] bool: which of them are false, whatever holds."""
    return graph.kind[graph.roots] == FALSE


def _number_of_facts(given: Mapping[str, Any]) -> int:
    return sum(len(rows) for rows in given.values() if not _is_elsewhere(rows))


def _desugared(program: Program, given: Mapping[str, Any]) -> Rules:
    return program.desugared({name: rows for name, rows in given.items() if not _is_elsewhere(rows)})


def _reach(there: Iterable[Any]) -> str:
    """What numbers a column has."""
    values = sorted(there)
    if len(values) <= MOST_NAMED:
        return f"its {'values are' if len(values) > 1 else 'only value is'} {', '.join(map(show_value, values))}"
    return f"its values are {show_value(values[0])} to {show_value(values[-1])}"


def _constants(clause: Clause) -> Iterator[tuple[str, int, Any, Span]]:
    """(relation, column, value, place) of the texts with which columns are compared in a body, and of the numbers that
    they have to be equal to."""
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for atom in clause.body:
        if not isinstance(atom, (Atom, Negated)):
            continue
        for column, term in enumerate(atom.terms):
            if isinstance(term, Var) and isinstance(atom, Atom):
                places[term.name].append((atom.relation, column))
            if isinstance(term, Const) and _is_judged(term.value, isinstance(atom, Atom)):
                yield atom.relation, column, term.value, atom.span
    for literal in clause.body:
        condition = literal.condition if isinstance(literal, Filter) else None
        if not isinstance(condition, Apply) or condition.operator not in ("==", "!="):
            continue
        for variable, constant in (condition.operands, condition.operands[::-1]):
            if not (isinstance(variable, Var) and isinstance(constant, Const)):
                continue
            if _is_judged(constant.value, condition.operator == "=="):
                for relation, column in places[variable.name]:
                    yield relation, column, constant.value, literal.span


def _is_judged(value: Any, has_to_be: bool) -> bool:
    return isinstance(value, str) or (has_to_be and _is_number(value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))


def _value(value: Any) -> Any:
    """A value as it is compared: floats of 32 bits are rounded."""
    if _is_number(value) and not isinstance(value, numbers.Integral):
        return float(np.float32(value))
    return value


def _columns(rules: Rules, given: Mapping[str, Any]) -> dict[str, list[dict[Any, Any]]]:
    """The texts and numbers in each column of the relations of which all facts are known, by what is compared."""
    derived = {clause.relation for clause in rules.rules}
    found: dict[str, list[dict[Any, Any]]] = {}
    rows: dict[str, list[tuple]] = defaultdict(list)
    for name, tuples in _rows(rules, given):
        rows[name] += tuples
    for name, tuples in rows.items():
        is_open = name in derived or name not in rules.relations or _is_elsewhere(given.get(name))
        if not is_open and not rules.relations[name].attributes:
            width = len(rules.relations[name].types)
            found[name] = [
                {
                    _value(row[c]): row[c]
                    for row in tuples
                    if len(row) == width and (_is_text(row[c]) or _is_number(row[c]))
                }
                for c in range(width)
            ]
    return found


def _texts(program: Program, given: Mapping[str, Any]) -> set[str]:
    """The texts of a program and its facts."""
    rules = _desugared(program, given)
    found = {text for _, tuples in _rows(rules, given) for row in tuples for text in row if isinstance(text, str)}
    for clause in rules.rules:
        for part in (*clause.terms, *clause.body) if isinstance(clause, Clause) else ():
            found |= {one.value for one in walk(part) if isinstance(one, Const) and isinstance(one.value, str)}
    return found


def _is_elsewhere(given: Any) -> bool:
    return given is not None and not isinstance(given, (InputMapping, list))


def _rows(rules: Rules, given: Mapping[str, Any]) -> Iterator[tuple[Any, list[tuple]]]:
    for part in rules.facts:
        yield part.relation, list(part.rows)
    for name, facts in given.items():
        if isinstance(facts, InputMapping):
            yield name, list(facts.tuples)
        elif isinstance(facts, list):
            # Of a pair of a tag and a tuple, the tuple.
            pairs = (as_tuple(row) for row in facts)
            yield name, [row[1] if len(row) == 2 and isinstance(row[1], tuple) else row for row in pairs]
