"""Lowering: strata of core rules to RAM."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from copy import copy

from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.ranges import with_ranges
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.literal_order import Ordering, Step, order
from derivable.datalog.rules.strata import Strata, stratify
from derivable.datalog.rules.timed import Timed


def lower(strata: Strata) -> m.Ram:
    """RAM of a stratified program; recursive rules are split by the atom that changes.

    Join orders know no sizes here: `ram.join_order` chooses again when they are known.
    """
    program = strata.program
    lowered = []
    for stratum in strata.strata:
        once: list[m.Instruction] = []
        loop: list[m.Store] = []
        full: list[m.Instruction] = []
        stratum_relations = set(stratum.relations)
        for rule in stratum.rules:
            if not isinstance(rule, r.Clause):
                full.append(rule)
                if stratum.timed is None:
                    once.append(rule)
                continue
            recursive = _recursive(rule, stratum_relations)
            plain = store(m.Origin(rule), order(rule, program))
            full.append(plain)
            if stratum.timed is not None:
                continue
            if not recursive:
                once.append(plain)
            for position, origin in _origins(rule, recursive):
                loop.append(store(origin, order(rule, program, (position,))))
        parts = tuple(once), tuple(loop), tuple(full)
        timed = None if stratum.timed is None else _timed(stratum.timed)
        lowered.append(m.Stratum(stratum.relations, stratum.is_recursive, *parts, timed))
    return m.Ram(
        program.relations,
        program.facts,
        tuple(lowered),
        program.outputs,
        program.text,
        program.source,
        program.constructors,
        functions=program.functions,
    )


def _timed(timed: Timed) -> m.Timed:
    times, step = lower(stratify(timed.times)), lower(stratify(timed.step))
    return m.Timed(timed.columns, times, step, timed.readings)


def recursive_stores(clause: r.Clause, relations: Container[str]) -> list[m.Store] | None:
    """The stores of a clause for the recent rows of each atom of these relations; None if its body has no order."""
    stores = []
    for position, origin in _origins(clause, _recursive(clause, relations)):
        ordering = Ordering(clause.body)
        ordering.take_atom(position)
        ordering.finish()
        if ordering.remaining:
            return None
        stores.append(store(origin, ordering.steps))
    return stores


def _recursive(clause: r.Clause, relations: Container[str]) -> list[int]:
    """The positions of the atoms of these relations."""
    return [i for i, literal in enumerate(clause.body) if isinstance(literal, r.Atom) and literal.relation in relations]


def _origins(clause: r.Clause, recursive: list[int]) -> Iterator[tuple[int, m.Origin]]:
    """Each of these positions with what the atoms there read for the recent rows of its atom."""
    for k, position in enumerate(recursive):
        # Earlier recursive atoms read what is stable, so that no combination is derived twice.
        parts: dict[int, m.Part] = dict.fromkeys(recursive[:k], "stable")
        parts[position] = "recent"
        yield position, m.Origin(clause, parts)


def store(origin: m.Origin, steps: Iterable[Step]) -> m.Store:
    """The store of a clause whose body is evaluated in these steps."""
    operators = tuple(operator(step, origin, index == 0) for index, step in enumerate(steps))
    if not operators or not isinstance(operators[0], m.Scan):
        operators = (m.Unit(), *operators)
    if policy().narrows_joins:
        operators = with_ranges(operators)
    return m.Store(origin.clause.relation, m.Project(operators, origin.clause.terms), origin)


def operator(step: Step, origin: m.Origin, is_first: bool) -> m.Operator:
    """The operator of a step of the body. Queries share no operators, so that a profile counts rows by them."""
    match step:
        case r.Atom(relation=name, terms=terms):
            scan = m.Scan(name, terms, origin.part_of(step))
            return scan if is_first else m.Join(scan)
        case r.Negated(relation=name, terms=terms):
            return m.Difference(m.Scan(name, terms))
    return copy(step)
