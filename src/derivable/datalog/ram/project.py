"""Columns that nothing needs any more are projected away on the way, and what is left is kept once.

    r(w) :- s(x), e(x, y), e(y, z), e(z, w)
goes through every path, where only its last point matters. It becomes
    #part_r_0_1(y) :- s(x), e(x, y)
    #part_r_0_2(z) :- #part_r_0_1(y), e(y, z)
    r(w) :- #part_r_0_2(z), e(z, w)
if that is estimated to pay. A tuple may then have fewer derivations, so this is for runs without tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from math import prod

from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.estimate import STORE, Estimate, Estimator
from derivable.datalog.ram.lower import store
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.literal_order import Define, Ordering, Step
from derivable.datalog.values.values import BOOL

# The nanoseconds from which a store is worth a look, which takes two tenths of a millisecond, and a look at all its
# orders, which takes two and a half; and the part of them that may be left, as parts cost kernels too.
LEAST, LEAST_ORDERED, LEFT = 1e6, 10e6, 0.5
# How much dearer than estimated it may be to keep a row once.
DEAR = 3.0
# Atoms up to which all orders are compared: another one may leave fewer rows between.
FEW_ATOMS = 4


def parted(instruction: m.Instruction, name: str, estimator: Estimator) -> tuple[m.Instruction, ...]:
    """The stores that do what an instruction does, whose parts are relations `name_1`, `name_2`, ...; itself alone if
    nothing is worth projecting away."""
    if not isinstance(instruction, m.Store) or instruction.origin is None or instruction.origin.parts:
        return (instruction,)
    as_planned = estimator.cost(instruction)
    if as_planned < LEAST:
        return (instruction,)
    others = _orders(instruction.origin) if as_planned >= LEAST_ORDERED else ()
    found = [_Cut(one, estimator) for one in (instruction, *others)]
    best = min(found, key=lambda cut: cut.cost)
    if not best.places or best.cost > LEFT * as_planned:
        return (instruction,)
    return best.stores(name)


def _orders(origin: m.Origin) -> Iterator[m.Store]:
    """The stores of a clause with its atoms in every order, if they are few."""
    atoms = [i for i, literal in enumerate(origin.clause.body) if isinstance(literal, r.Atom)]
    if len(atoms) > FEW_ATOMS:
        return
    for order in permutations(atoms):
        ordering = Ordering(origin.clause.body)
        for position in order:
            ordering.take_atom(position)
        ordering.finish()
        if not ordering.remaining:
            yield store(origin, ordering.steps)


class _Cut:
    """Where a store is best cut in parts, `places`, and what they are estimated to cost together."""

    def __init__(self, instruction: m.Store, estimator: Estimator):
        assert instruction.origin is not None
        self.clause = instruction.origin.clause
        # What begins with no relation begins with the unit, which is no step.
        nodes = [node for node in instruction.query.operators if not isinstance(node, m.Unit)]
        self.steps = [_step(node) for node in nodes]
        self.places: dict[int, tuple[r.Var, ...]] = {}
        estimates = estimator.store(instruction)
        end, estimates = estimator.stored(estimates[-1]), estimates[len(estimates) - len(nodes) :]
        later = instruction.query.later[-len(nodes) :]
        scale, before, self.cost = 1.0, 0.0, 0.0
        there: dict[str, r.Var] = {}
        for i, estimate in enumerate(estimates[:-1]):
            there |= {v.name: v for v in _binds(self.steps[i])}
            needed = tuple(v for key, v in there.items() if key in later[i])
            if not isinstance(nodes[i + 1], m.Join) or not 0 < len(needed) < len(there):
                continue
            rows = estimate.rows * scale
            kept = _distinct(estimate, needed, rows)
            part, price = kept / rows if rows > 0 else 1.0, DEAR * STORE * rows
            if (end - estimate.cost) * scale * (1 - part) > price:
                self.places[i] = needed
                self.cost += (estimate.cost - before) * scale + price
                scale, before = scale * part, estimate.cost
                there = {v.name: v for v in needed}
        self.cost += (end - before) * scale

    def stores(self, name: str) -> tuple[m.Store, ...]:
        found: list[m.Store] = []
        begun: list[Step] = []
        for i, step in enumerate(self.steps):
            begun.append(step)
            if i in self.places:
                needed, title = self.places[i], f"{name}_{len(found) + 1}"
                found.append(_store(self.clause, title, needed, begun))
                begun = [r.Atom(title, needed, self.clause.span)]
        return (*found, _store(self.clause, self.clause.relation, self.clause.terms, begun))


def _distinct(estimate: Estimate, needed: Sequence[r.Var], rows: float) -> float:
    """How many different rows these columns have at most."""
    return min(rows, prod(estimate.values.get(v.name, (rows, None))[0] for v in needed))


def _store(clause: r.Clause, relation: str, terms: tuple[r.Expr, ...], steps: Sequence[Step]) -> m.Store:
    body = tuple(
        r.Filter(r.Apply("==", (step.variable, step.expression), BOOL)) if isinstance(step, Define) else step
        for step in steps
    )
    return store(m.Origin(r.Clause(relation, terms, body, clause.span)), steps)


def _binds(step: Step) -> Iterable[r.Var]:
    if isinstance(step, Define):
        return [step.variable]
    return [] if isinstance(step, r.Filter) else r.variables(step)


def _step(node: m.Operator) -> Step:
    """The step of a body that an operator does."""
    scan = m.scan_of(node)
    if scan is None:
        assert not isinstance(node, (m.Unit, m.Scan, m.Join, m.Difference))
        return node
    if isinstance(node, m.Difference):
        return r.Negated(scan.relation, tuple(term for term in scan.terms if term is not None))
    return r.Atom(scan.relation, scan.terms)
