"""Join orders by the sizes at hand.

The atoms of a clause are ordered by dynamic programming over sets of them, as long as these are few, else greedily;
whatever only filters or computes follows the first atom that makes it possible. Integers of a range take part as an
atom does: they filter the rows of one atom, or bind the keys of the next one. The atom whose recent rows are read
stays first: each of them has to be looked at in any order.

An order that knows no sizes stays where another one is not clearly better, so that programs keep their kernels. Plans
are saved with the program, by size class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.estimate import STORE, Estimate, Estimator, Known, integers_of
from derivable.datalog.ram.lower import operator, store
from derivable.datalog.ram.project import parted
from derivable.datalog.ram.ranges import has_ranges, ranges
from derivable.datalog.rules.literal_order import Ordering
from derivable.datalog.rules.nodes import Atom, Clause, Generate, Literal, inputs, names
from derivable.datalog.scalars.nodes import Var

# Where the program keeps how clauses of its recursions were cut, see `ram.project`.
CUTS = "cuts"


def choices(origin: m.Origin | None) -> list[int]:
    """The positions of what may come in another order, atoms and integers of ranges whose lengths are known; none if
    there is no choice."""
    if origin is None:
        return []
    body = origin.clause.body
    positions = [
        i for i, literal in enumerate(body) if i != origin.driver and (isinstance(literal, Atom) or _counts(literal))
    ]
    return positions if len(positions) > 1 else []


def _counts(literal: Literal) -> bool:
    """Whether a literal is a generator that may come before the atoms that bind what it gives."""
    match literal:
        case Generate(negated=False, outputs=(Var(), *_)):
            return integers_of(literal, math.inf) < math.inf
    return False


def sized_relations(instructions: Sequence[m.Instruction]) -> tuple[str, ...]:
    """The relations whose sizes decide on the orders of these instructions."""
    relations: dict[str, None] = {}
    for instruction in instructions:
        if isinstance(instruction, m.Store) and (choices(instruction.origin) or has_ranges(instruction)):
            assert instruction.origin is not None
            relations |= dict.fromkeys(a.relation for a in instruction.origin.clause.body if isinstance(a, Atom))
    return tuple(relations)


def size_class(rows: int) -> int:
    """Relations of one class have one plan: the binary logarithm."""
    return rows.bit_length()


def planned(
    ram: m.Ram,
    key: tuple,
    instructions: tuple[Any, ...],
    known: Known,
    stops_at_first: bool,
    may_part: bool = False,
) -> tuple:
    """The instructions in the orders that are best for what is known.

    key       what tells these instructions from others of the program
    may_part  whether some may become several, that store auxiliary relations first (`ram.project`)
    """
    relations = ram.plans.get(key)
    if relations is None:
        relations = ram.plans[key] = sized_relations(instructions)
    if not relations:
        return instructions
    sizes = [known.rows(name) for name in relations]
    if sum(sizes) < policy().small_round:
        return instructions
    classes = (*key, stops_at_first, may_part, *map(size_class, sizes))
    ordered = ram.plans.get(classes)
    if ordered is None:
        if len(ram.plans) >= policy().most_plans:
            # Others distinguish strata that are cut by the names in them.
            cuts = ram.plans.get(CUTS)
            ram.plans.clear()
            if cuts is not None:
                ram.plans[CUTS] = cuts
        estimator = Estimator(known, stops_at_first)
        ordered = in_best_orders(instructions, estimator)
        if may_part:
            parts = (parted(one, f"#part_{one.relation}_{k}", estimator) for k, one in enumerate(ordered))
            ordered = tuple(one for several in parts for one in several)
        ram.plans[classes] = ordered
    return ordered


def in_best_orders(instructions: tuple[Any, ...], estimator: Estimator) -> tuple:
    """The instructions in the orders, and by the indexes, that are estimated to be best."""
    return tuple(_ranged(_planned(instruction, estimator), estimator) for instruction in instructions)


def _planned(instruction: m.Instruction, estimator: Estimator) -> m.Instruction:
    if not isinstance(instruction, m.Store):
        return instruction
    origin = instruction.origin
    atoms = choices(origin)
    if origin is None or not atoms:
        return instruction
    clause, known = origin.clause, estimator.known
    rows = sum(known.rows(literal.relation) for literal in clause.body if isinstance(literal, Atom))
    if rows < policy().small_round:
        return instruction
    as_written = estimator.cost(instruction)
    if as_written < policy().plan_ns * len(atoms):
        return instruction
    best = _Search(origin, estimator).best(atoms, as_written)
    if best is None or best.estimate is None:
        return instruction
    # In all orders the same rows are stored, which takes longer than to intersect for them.
    storing = STORE * min(best.estimate.rows, estimator.store(instruction)[-1].rows)
    if best.cost - storing > policy().clearly * (as_written - storing):
        return instruction
    return store(origin, best.ordering.steps)


def _ranged(instruction: m.Instruction, estimator: Estimator) -> m.Instruction:
    """A store with its joins read by the indexes that are estimated to be best."""
    if not isinstance(instruction, m.Store) or not has_ranges(instruction):
        return instruction
    query = instruction.query
    nodes, _ = _indexed(query.operators, query.later, estimator, None, ())
    return replace(instruction, query=m.Project(tuple(nodes), query.terms))


def _indexed(
    nodes: Sequence[m.Operator],
    later: Sequence[frozenset[str]],
    estimator: Estimator,
    before: Estimate | None,
    bound: Iterable[str],
) -> tuple[list[m.Operator], Estimate | None]:
    """Operators behind an estimate with the cheapest index for each join, and the estimate of the last one."""
    operators, names_before = [], set(bound)
    for i, (node, needed) in enumerate(zip(nodes, later)):
        if isinstance(node, m.Join):
            ways = [replace(node, range=way) for way in (None, *ranges(nodes, i, names_before))]
            node = min(ways, key=lambda way: estimator.step(before, way, needed).cost)
        before = estimator.step(before, node, needed)
        names_before |= set(m.binds(node))
        operators.append(node)
    return operators, before


# What nothing is joined with.
ONE_ROW = Estimate(1.0, 0.0, {})


class _Partial:
    """An order of some atoms: its steps, and the estimate of their query."""

    __slots__ = ("estimate", "ordering")

    def __init__(self, ordering: Ordering, estimate: Estimate | None):
        self.ordering, self.estimate = ordering, estimate

    @property
    def cost(self) -> float:
        return 0.0 if self.estimate is None else self.estimate.cost

    @property
    def intersected(self) -> str | None:
        """The variable whose values the next atom may be intersected with."""
        common = None if self.estimate is None else self.estimate.common
        return None if common is None else common.variable


class _Search:
    def __init__(self, origin: m.Origin, estimator: Estimator):
        self.origin, self.clause, self.estimator = origin, origin.clause, estimator
        self.head = _names_of_terms(origin.clause)

    def best(self, atoms: list[int], worth: float) -> _Partial | None:
        """The cheapest order; None if there is none. Looking at all orders may cost so many nanoseconds."""
        first = _Partial(Ordering(self.clause.body), None)
        if self.origin.driver is not None:
            first = self.with_atom(first, self.origin.driver)
        looks = len(atoms) << (len(atoms) - 1)
        is_small = math.factorial(len(atoms)) <= policy().most_plans and looks * policy().plan_ns <= worth
        order = self.of_all(first, atoms) if is_small else self.greedy(first, atoms)
        return order and self.finished(order)

    def of_all(self, first: _Partial, atoms: list[int]) -> _Partial:
        """By sets of atoms, and by what the next atom may be intersected with: that makes what is behind it cheaper."""
        layer: dict[tuple[frozenset[int], str | None], _Partial] = {(frozenset(), None): first}
        for _ in atoms:
            following: dict[tuple[frozenset[int], str | None], _Partial] = {}
            for (taken, _), partial in layer.items():
                for atom in self.ready(partial, [atom for atom in atoms if atom not in taken]):
                    made = self.with_atom(partial, atom)
                    key = taken | {atom}, made.intersected
                    if key not in following or made.cost < following[key].cost:
                        following[key] = made
            layer = following
        return min(layer.values(), key=lambda partial: partial.cost)

    def greedy(self, first: _Partial, atoms: list[int]) -> _Partial:
        """The atom that leaves the fewest rows comes next, of those that cost equally much the first."""
        partial, left = first, list(atoms)
        while left:
            ready = self.ready(partial, left)
            made = {atom: self.with_atom(partial, atom) for atom in ready}
            chosen = min(ready, key=lambda atom: made[atom].cost + _rows(made[atom]))
            partial = made[chosen]
            left.remove(chosen)
        return partial

    def ready(self, partial: _Partial, left: list[int]) -> list[int]:
        """Those of the literals left that may be next. No product with rows of which nobody knows how many there will
        be is made while there is a literal with something bound: estimates of what is behind it are of no worth."""
        ready = [one for one in left if self.may_come(partial, one)] or left
        bound = partial.ordering.bound
        return [one for one in ready if not bound or self.has_few(one, bound)] or ready

    def has_few(self, position: int, bound: set[str]) -> bool:
        """Whether a literal has something bound, or few rows for certain."""
        literal, known = self.clause.body[position], self.estimator.known
        if not isinstance(literal, Atom) or names(literal) & bound:
            return True
        if not known.is_complete(literal.relation):
            return False
        rows = self.estimator.joined(ONE_ROW, m.Scan(literal.relation, literal.terms), frozenset(names(literal)), False)
        return rows.rows <= policy().far_off

    def may_come(self, partial: _Partial, position: int) -> bool:
        """Whether this literal can be next: a generator comes behind an atom and what it needs, if it has not yet."""
        ordering = partial.ordering
        literal = ordering.remaining.get(position)
        if isinstance(literal, Generate):
            return bool(ordering.steps) and inputs(literal) <= ordering.bound
        return literal is not None

    def with_atom(self, partial: _Partial, atom: int) -> _Partial:
        if not self.may_come(partial, atom):
            return partial
        ordering = partial.ordering.copy()
        ordering.take_atom(atom)
        return self.grown(partial, ordering)

    def finished(self, partial: _Partial) -> _Partial | None:
        ordering = partial.ordering.copy()
        ordering.finish()
        if ordering.remaining:
            return None
        made = self.grown(partial, ordering)
        assert made.estimate is not None
        last = made.estimate
        made.estimate = replace(last, cost=self.estimator.stored(last))
        return made

    def grown(self, partial: _Partial, ordering: Ordering) -> _Partial:
        """The estimate for the steps that an ordering has more."""
        begun = len(partial.ordering.steps)
        nodes = [operator(step, self.origin, index == 0) for index, step in enumerate(ordering.steps)][begun:]
        needed = set(self.head)
        for literal in ordering.remaining.values():
            needed |= names(literal)
        later = m.read_behind(nodes, needed)
        _, estimate = _indexed(nodes, later, self.estimator, partial.estimate, partial.ordering.bound)
        return _Partial(ordering, estimate)


def _rows(partial: _Partial) -> float:
    return 0.0 if partial.estimate is None else partial.estimate.rows


def _names_of_terms(clause: Clause) -> set[str]:
    return {name for term in clause.terms for name in names(term)}
