"""Rows of a join that are counted without being listed: one variable is fixed, the others are eliminated one by one.

Where the atoms without the fixed variable form trees, as they do in cycles, triangles and bowties, each value of a
variable gets the number of ways that lead to it, and hands it on to those of the next variable (variable elimination;
Yannakakis 1981, for each value of the variable that is fixed). Paths that meet in a value are one number then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.datalog.fused.state import State
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.estimate import MATCH, Estimator
from derivable.datalog.ram.join_order import size_class
from derivable.datalog.scalars.nodes import Var
from derivable.datalog.tables.index import most_apart
from derivable.datalog.tables.storage import Table
from derivable.device.cpu.memory import empty, zeros

# Nanoseconds, about: a number handed on, and a value of the fixed variable.
PUSH, FIXED = 1.5, 10.0


@dataclass(frozen=True)
class Hop:
    """An atom by which values come to a variable: from the one that is fixed, or from another one.

    read    which index it is read by, from its key column to its other one
    origin  the variable that it comes from; None for the one that is fixed
    """

    read: int
    origin: Variable | None


@dataclass(frozen=True)
class Variable:
    """A variable of a tree: the atoms by which numbers come to it, each with how many such there are."""

    hops: tuple[tuple[Hop, int], ...]


@dataclass(frozen=True)
class Elimination:
    """What a kernel does for each value of the fixed variable: the number of each tree is that of its root.

    roots      with how many trees have this form
    num_reads  indexes
    """

    roots: tuple[tuple[Variable, int], ...]
    num_reads: int


@dataclass(frozen=True)
class Plan:
    """An elimination, and what its kernel reads.

    fixed  the name of the fixed variable
    reads  (relation, key column, other column) of each index
    cost   nanoseconds, about
    """

    elimination: Elimination
    fixed: str
    reads: tuple[tuple[str, int, int], ...]
    cost: float


@dataclass(frozen=True)
class _Atom:
    scan: m.Scan
    names: tuple[str, str]

    def other(self, name: str) -> str:
        return self.names[1 - self.names.index(name)]


def best_plan(state: State, store: m.Store, fixed: str | None = None) -> Plan | None:
    """The cheapest elimination that counts the rows of a store, for tables of these sizes; None if loops are better.

    fixed  the variable for whose values rows are counted, None for all rows
    """
    scans = [scan for scan in map(m.scan_of, store.query.operators) if scan is not None]
    sizes = [size_class(state.tables[scan.relation].size) for scan in scans]
    key = "elimination", id(store), fixed, *sizes
    owner, plan = state.plans.get(key, (None, None))
    if owner is not store:
        plan = _searched(state, store, fixed)
        state.plans[key] = store, plan
    return plan


def _searched(state: State, store: m.Store, fixed: str | None) -> Plan | None:
    atoms, estimator = _atoms(state, store), state.estimator()
    if atoms is None or estimator is None:
        return None
    names = {name for atom in atoms for name in atom.names}
    # Without cycles loops are as good, as each number that comes again is remembered; rows of one relation are there.
    if len(atoms) < (2 if fixed is not None else len(names)):
        return None
    if {term.name for term in store.query.terms if isinstance(term, Var)} != names:
        return None
    plans = [
        plan for name in sorted(names) if fixed in (None, name) for plan in _Search(estimator, atoms, name).plans()
    ]
    best = min(plans, key=lambda plan: plan.cost, default=None)
    if best is None or any(
        estimator.known.column(name, other).reach > most_apart(estimator.known.rows(name))
        for name, _, other in best.reads
    ):
        return None
    # Loops need not go through what the last one gives.
    last = estimator.store(store)[-1]
    return best if fixed is not None or best.cost < policy().clearly * (last.cost - MATCH * last.rows) else None


def _atoms(state: State, store: m.Store) -> list[_Atom] | None:
    """The atoms of a query that has nothing but atoms of two variables, over complete relations."""
    atoms = []
    for node in store.query.operators:
        scan = m.scan_of(node)
        if scan is None or isinstance(node, m.Difference) or (isinstance(node, m.Join) and node.range is not None):
            return None
        names = tuple(term.name for term in scan.terms if isinstance(term, Var))
        is_all = scan.part == "all" and scan.relation in state.complete
        if not is_all or len(scan.terms) != 2 or len(set(names)) != 2:
            return None
        table = state.tables[scan.relation]
        if not isinstance(table, Table) or not table.size:
            return None
        atoms.append(_Atom(scan, (names[0], names[1])))
    return atoms


class _Search:
    """The eliminations with one variable fixed."""

    def __init__(self, estimator: Estimator, atoms: list[_Atom], fixed: str):
        self.estimator, self.fixed = estimator, fixed
        self.near = [atom for atom in atoms if fixed in atom.names]
        self.far = [atom for atom in atoms if fixed not in atom.names]
        self.reads: dict[tuple[str, int, int], int] = {}
        self.cost = 0.0

    def plans(self) -> Iterator[Plan]:
        if not self.near:
            return
        trees = self.trees()
        if trees is None:
            return
        roots, cost = [], FIXED * self.distinct(self.fixed)
        for tree in trees:
            ways = [made for name in sorted(tree) if (made := self.rooted(name)) is not None]
            if not ways:
                return
            least = min(ways, key=lambda way: way[1])
            roots.append(least[0])
            cost += least[1] if roots.count(least[0]) == 1 else 0.0
        reads = tuple(self.reads)
        yield Plan(Elimination(tuple(Counter(roots).items()), len(reads)), self.fixed, reads, cost)

    def trees(self) -> list[set[str]] | None:
        """The names of each tree that the atoms form without the fixed variable; None if they form cycles."""
        trees = [{name} for name in sorted({n for atom in (*self.near, *self.far) for n in atom.names} - {self.fixed})]
        for atom in self.far:
            first, second = (next(tree for tree in trees if name in tree) for name in atom.names)
            if first is second:
                return None
            trees.remove(second)
            first |= second
        return trees

    def rooted(self, name: str) -> tuple[Variable, float] | None:
        """A tree with this root, and its cost; None if no values come to one of its leaves."""
        self.cost = 0.0
        made = self.variable(name, None)
        return None if made is None else (made[0], self.cost)

    def variable(self, name: str, parent: _Atom | None) -> tuple[Variable, list[m.Operator]] | None:
        """A variable with all that comes to it, and a query whose rows are its values with those of the fixed one."""
        hops: list[Hop] = []
        paths: list[list[m.Operator]] = []
        for atom in self.near:
            if name in atom.names:
                hops.append(Hop(self.read(atom, self.fixed), None))
                paths.append([atom.scan])
                self.cost += PUSH * self.estimator.known.rows(atom.scan.relation)
        far = [atom for atom in self.far if atom is not parent and name in atom.names]
        for atom in far:
            made = self.variable(atom.other(name), atom)
            if made is None:
                return None
            origin, path = made
            hop = Hop(self.read(atom, atom.other(name)), origin)
            path = [*path, m.Join(atom.scan)]
            if hop not in hops:
                # The number of ways along the one hop to a root is added up without going through them.
                is_last = parent is None and len(far) == 1 and not hops
                self.cost += PUSH * self.pushed(path, atom.other(name), is_last)
            hops.append(hop)
            paths.append(path)
        if not hops:
            return None
        # One that comes from the fixed variable is gone through, the others are looked up.
        counted = tuple(sorted(Counter(hops).items(), key=lambda one: one[0].origin is not None))
        return Variable(counted), min(paths, key=len)

    def pushed(self, path: Sequence[m.Operator], origin: str, is_last: bool) -> float:
        """How many numbers the last atom of a path hands on: each value of `origin` comes once, and gives one number to
        a sum if it is the last."""
        names = [frozenset(name for node in path for name in m.binds(node))] * len(path)
        *_, before, last = self.estimator.chain(None, path, names)
        once = self.distinct(self.fixed) * self.distinct(origin)
        return (before if is_last else last).rows * min(1.0, once / max(1.0, before.rows))

    def distinct(self, name: str) -> float:
        known = self.estimator.known
        atoms = (atom for atom in (*self.near, *self.far) if name in atom.names)
        return min(known.column(atom.scan.relation, atom.names.index(name)).distinct for atom in atoms)

    def read(self, atom: _Atom, origin: str) -> int:
        column = atom.names.index(origin)
        return self.reads.setdefault((atom.scan.relation, column, 1 - column), len(self.reads))


@dataclass
class Arguments:
    """What the kernel of a plan is called with: values of the fixed variable from `first` to `stop`, and arrays."""

    first: int
    stop: int
    arrays: list[Any]


def arguments_of(state: State, plan: Plan, num_messages: int) -> Arguments | None:
    """None if the values of the relations are too far apart for arrays of them."""
    indexes: list[tuple[int, np.ndarray, np.ndarray]] = []
    for relation, key, other in plan.reads:
        index = state.tables[relation].index((key,), True)
        if index.offsets is None:
            return None
        indexes.append((index.low, index.offsets, index.values_of(other)))
    low = min(int(values.min()) for *_, values in indexes)
    reach = max(int(values.max()) for *_, values in indexes) - low + 1
    if reach > most_apart(max(len(values) for *_, values in indexes)):
        return None
    arrays: list[Any] = [low]
    for least, offsets, values in indexes:
        arrays += [least, len(offsets) - 1, offsets, values]
    for _ in range(num_messages):
        arrays += [zeros(reach, np.int64), empty(reach + 1, np.int64)]
    fixed = [indexes[number] for number in anchors(plan.elimination)]
    first = max(least for least, _, _ in fixed)
    return Arguments(first, max(first, min(least + len(offsets) - 1 for least, offsets, _ in fixed)), arrays)


def anchors(elimination: Elimination) -> set[int]:
    """The indexes that are read by values of the fixed variable."""
    indexes: set[int] = set()

    def visit(variable: Variable) -> None:
        for hop, _ in variable.hops:
            if hop.origin is None:
                indexes.add(hop.read)
            else:
                visit(hop.origin)

    for root, _ in elimination.roots:
        visit(root)
    return indexes
