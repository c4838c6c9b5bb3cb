"""Columns that nothing needs any more are projected away on the way, and each distinct remainder is stored once.

    r(w) :- s(x), e(x, y), e(y, z), e(z, w)
goes through every path, where only its last point matters. It becomes
    #part_r_0_1(y) :- s(x), e(x, y)
    #part_r_0_2(z) :- #part_r_0_1(y), e(y, z)
    r(w) :- #part_r_0_2(z), e(z, w)
if that is estimated to pay. A tuple may then have fewer derivations, so this is for runs without tags.

A clause of a recursion is cut before that begins: `sg(x, y) :- e(p, x), sg(p, q), e(q, y)` becomes
    #middle_1_0(x, q) :- e(p, x), sg(p, q)
    sg(x, y) :- #middle_1_0(x, q), e(q, y)
where the middle is one relation of the recursion more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import factorial, prod

from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.estimate import STORE, Estimate, Estimator
from derivable.datalog.ram.lower import recursive_stores, store
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.literal_order import Define, Ordering, Step
from derivable.datalog.values.values import BOOL, ValueType


def parted(instruction: m.Instruction, name: str, estimator: Estimator) -> tuple[m.Instruction, ...]:
    """The stores that do what an instruction does, whose parts are relations `name_1`, `name_2`, ...; itself alone if
    nothing is worth projecting away."""
    if not isinstance(instruction, m.Store) or instruction.origin is None or instruction.origin.parts:
        return (instruction,)
    as_planned = estimator.cost(instruction)
    if as_planned < _least(instruction.origin):
        return (instruction,)
    cuts = [_Cut(one, estimator).in_parts() for one in (instruction, *_orders(instruction.origin, as_planned))]
    best = min(cuts, key=lambda cut: cut.cost)
    if not best.cuts or best.cost > policy().clearly * as_planned:
        return (instruction,)
    return best.stores(name)


@dataclass(frozen=True)
class Middle:
    """A clause of a recursion in two: the literals `inner`, of which `needed` is stored once, and those behind them."""

    clause: r.Clause
    inner: tuple[r.Literal, ...]
    needed: tuple[r.Var, ...]
    outer: tuple[r.Literal, ...]

    def within(self, stratum: m.Stratum, name: str) -> Cut | None:
        """The stratum with two clauses instead of the one, `name` being what the first one gives; None if they have no
        order."""
        clause, relations = self.clause, (*stratum.relations, name)
        inner = r.Clause(name, self.needed, self.inner, clause.span)
        body = r.Atom(name, self.needed, clause.span), *self.outer
        outer = r.Clause(clause.relation, clause.terms, body, clause.span)
        ins, outs = (recursive_stores(part, relations) for part in (inner, outer))
        if ins is None or outs is None:
            return None
        others = (one for one in stratum.loop if one.origin is None or one.origin.clause is not clause)
        made = m.Stratum(relations, True, stratum.once, (*others, *ins, *outs), stratum.full)
        return Cut(name, tuple(variable.type for variable in self.needed), made)


@dataclass(frozen=True)
class Cut:
    """What becomes of a stratum when a clause is cut in two: the relation between them, the types of its columns, and
    the stratum with both clauses."""

    name: str
    types: tuple[ValueType, ...]
    stratum: m.Stratum


def middle(stores: Sequence[m.Store], estimator: Estimator, least: float = 0) -> Middle | None:
    """Where the clause of some stores of a recursion is best cut in two; None if that is not estimated to pay.

    What is known of the relations of the recursion is what they have so far. `least` is what a store has to find.
    """
    best: tuple[float, Middle] | None = None
    for instruction in stores:
        assert instruction.origin is not None
        estimates = estimator.store(instruction)
        as_planned = estimator.stored(estimates[-1])
        if as_planned < _least(instruction.origin) or max(estimate.rows for estimate in estimates) < least:
            continue
        for one in (instruction, *filter(_drives, _orders(instruction.origin, as_planned))):
            cut = _Cut(one, estimator)
            for index, (needed, rows, rows_left) in cut.may_be_cut():
                before, rows = cut.estimates[index].cost, max(rows, 1.0)
                cost = before + STORE * rows + (cut.end - before) * rows_left / rows
                if cost <= policy().clearly * as_planned and (best is None or cost - as_planned < best[0]):
                    inner, outer = _body(cut.steps[: index + 1]), _body(cut.steps[index + 1 :])
                    best = cost - as_planned, Middle(instruction.origin.clause, inner, needed, outer)
    return None if best is None else best[1]


def _drives(store: m.Store) -> bool:
    """Whether a store begins with the recent rows that it is for."""
    first = store.query.operators[0]
    return isinstance(first, m.Scan) and first.part == "recent"


def _atoms(origin: m.Origin) -> list[int]:
    return [i for i, literal in enumerate(origin.clause.body) if isinstance(literal, r.Atom)]


def _least(origin: m.Origin) -> float:
    """Nanoseconds of a store for which it is worth to look where it may be cut: behind each atom, in some orders."""
    return len(_atoms(origin)) ** 2 * policy().plan_ns


def _orders(origin: m.Origin, worth: float) -> Iterator[m.Store]:
    """The stores of a clause with its atoms in every order, if to estimate them costs less than so many nanoseconds."""
    atoms = _atoms(origin)
    orders = factorial(len(atoms))
    if orders > policy().most_plans or orders * len(atoms) * policy().plan_ns > worth:
        return
    for order in permutations(atoms):
        ordering = Ordering(origin.clause.body)
        for position in order:
            ordering.take_atom(position)
        ordering.finish()
        if not ordering.remaining:
            yield store(origin, ordering.steps)


class _Cut:
    """Where a store is cut in parts: `cuts` maps a step to the columns that are needed behind it."""

    def __init__(self, instruction: m.Store, estimator: Estimator):
        assert instruction.origin is not None
        self.clause = instruction.origin.clause
        # What begins with no relation begins with the unit, which is no step.
        self.nodes = [node for node in instruction.query.operators if not isinstance(node, m.Unit)]
        self.steps = [_step(node) for node in self.nodes]
        self.later = instruction.query.later[-len(self.nodes) :]
        estimates = estimator.store(instruction)
        self.end, self.estimates = estimator.stored(estimates[-1]), estimates[len(estimates) - len(self.nodes) :]
        self.cuts: dict[int, tuple[r.Var, ...]] = {}
        self.cost = self.end

    def in_parts(self) -> _Cut:
        """Cut wherever that pays."""
        scale, before, self.cost = 1.0, 0.0, 0.0
        for i, (needed, rows, rows_left) in self.may_be_cut(of_columns=True):
            estimate, rows = self.estimates[i], rows * scale
            part, price = min(rows_left, rows) / rows if rows > 0 else 1.0, STORE * rows
            left = (self.end - estimate.cost) * scale
            if price + left * part <= policy().clearly * left:
                self.cuts[i] = needed
                self.cost += (estimate.cost - before) * scale + price
                scale, before = scale * part, estimate.cost
        self.cost += (self.end - before) * scale
        return self

    def may_be_cut(self, of_columns: bool = False) -> Iterator[tuple[int, tuple[tuple[r.Var, ...], float, float]]]:
        """The steps behind which there are variables that nothing needs: those that are needed, with the rows of all
        and the most of them that are different.

        of_columns  whether columns without a variable, which repeat the others, are among what nothing needs; in
                    recursions `rules.projection` has projected them away
        """
        there: dict[str, r.Var] = {}
        repeats = False
        for i, estimate in enumerate(self.estimates[:-1]):
            step = self.steps[i]
            there |= {v.name: v for v in _binds(step)}
            repeats = repeats or (of_columns and isinstance(step, r.Atom) and None in step.terms)
            needed = tuple(v for key, v in there.items() if key in self.later[i])
            is_less = len(needed) < len(there) or repeats
            if not isinstance(self.nodes[i + 1], m.Join) or not needed or not is_less:
                continue
            yield i, (needed, estimate.rows, _distinct(estimate, needed, estimate.rows))
            if i in self.cuts:
                there, repeats = {v.name: v for v in needed}, False

    def stores(self, name: str) -> tuple[m.Store, ...]:
        stores: list[m.Store] = []
        begun: list[Step] = []
        for i, step in enumerate(self.steps):
            begun.append(step)
            if i in self.cuts:
                needed, title = self.cuts[i], f"{name}_{len(stores) + 1}"
                stores.append(_store(self.clause, title, needed, begun))
                begun = [r.Atom(title, needed, self.clause.span)]
        return (*stores, _store(self.clause, self.clause.relation, self.clause.terms, begun))


def _distinct(estimate: Estimate, needed: Sequence[r.Var], rows: float) -> float:
    """How many different rows these columns have at most."""
    return min(rows, prod(estimate.values.get(v.name, (rows, None))[0] for v in needed))


def _store(clause: r.Clause, relation: str, terms: tuple[r.Expr, ...], steps: Sequence[Step]) -> m.Store:
    return store(m.Origin(r.Clause(relation, terms, _body(steps), clause.span)), steps)


def _body(steps: Sequence[Step]) -> tuple[r.Literal, ...]:
    """The literals of these steps."""
    return tuple(
        r.Filter(r.Apply("==", (step.variable, step.expression), BOOL)) if isinstance(step, Define) else step
        for step in steps
    )


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
