"""Recursions that say what an equivalence is, solved by union-find: in about the time that its pairs take to read.

`ram.equivalence` reads the rules; here the pairs before the recursion say whether these reach the whole equivalence.
The pairs of a class are rows of bits, all of them equal, or are inserted as they are where bits would be too many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from derivable.circuit.kernels.and_or import grouped
from derivable.datalog.kernels.trees import number_trees, unite
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.equivalence import Equivalence, equivalence_of
from derivable.datalog.shortcuts.condensed import Condensed, compiled, include, units_of, words_for
from derivable.datalog.shortcuts.shortcut import Run, Shortcut, count_round
from derivable.datalog.tables.sets import PrefixSets
from derivable.datalog.tables.storage import Table
from derivable.device.cpu.memory import empty, zeros


class UnionFind(Shortcut):
    """The recursion of a stratum that may be an equivalence."""

    name = "union-find"

    def __init__(self, run: Run, number: int, rules: Equivalence):
        self.run, self.number, self.rules, self.table = run, number, rules, run.tables[rules.relation]
        # A symmetric relation has the same values in both columns, as few others do.
        self.symmetric = rules.relation if rules.is_transitive else min(rules.steps)
        self.classes: Classes | None = None
        self.is_decided = False

    @classmethod
    def matches(cls, run: Run, number: int, loop: tuple[m.Store, ...]) -> Self | None:
        # What goes on with other rules is no recursion of these.
        rules = _rules_of(run.ram, number) if len(loop) == len(run.ram.strata[number].loop) else None
        if rules is None:
            return None
        table = run.tables[rules.relation]
        has_floats = any(t.family == "float" for t in table.types)
        return None if table.new_tags is not None or has_floats else cls(run, number, rules)

    def pays(self) -> bool:
        # The pairs before the recursion decide.
        if self.is_decided or not self.table.size:
            return False
        self.is_decided, self.classes = True, self.classes_of_rows()
        return self.classes is not None and self.is_within_limits(self.classes)

    def classes_of_rows(self) -> Classes | None:
        """The classes that the rules make of the pairs there are; None if they may make something else of them."""
        if not self.always_pays(self.run.ram, self.number):
            deciding = self.run.tables[self.symmetric]
            if deciding.column(0).sum() != deciding.column(1).sum():
                return None
        tables = [self.run.tables[name] for name in (self.rules.relation, *sorted(self.rules.steps))]
        columns = [table.column(c) for table in tables for c in (0, 1)]
        values, numbers = _numbered(columns)
        pairs = list(zip(numbers[::2], numbers[1::2]))
        return _Graph(values, pairs).classes(self.rules)

    def is_within_limits(self, classes: Classes) -> bool:
        """Whether no limit will be passed; the error of rounds says which rule grew, and how fast."""
        watch, pairs = self.run.watch, classes.pairs
        limits, tuples = watch.limits, watch.num_tuples + pairs - self.table.size
        is_few = limits.tuple_limit is None or tuples <= limits.tuple_limit
        return is_few and (limits.memory_limit is None or 2 * policy().bytes_a_pair * pairs <= limits.memory_limit)

    def solve(self) -> bool:
        run, table, classes = self.run, self.table, self.classes
        assert classes is not None
        total = count_round(run, self.number)
        run.watch.begin_instruction(table)
        first, *others = (run.effort(store) for store in run.ram.strata[self.number].loop)
        with first:
            classes.insert_into(table, run.watch.remaining)
        added = run.watch.end_instruction()
        for effort in (first, *others):
            effort.by(self.route())
        first.candidates += classes.pairs
        first.rows += added
        first.grew(run.watch.round, added)
        total.rows += added
        number = len(classes.bounds) - 1
        ending = "class" if number == 1 else "classes"
        total.note = f"union-find: {self.rules.relation} {len(classes.values):,} values in {number:,} {ending}"
        run.watch.remaining()
        return True

    @classmethod
    def always_pays(cls, ram: m.Ram, number: int) -> bool:
        rules = _rules_of(ram, number) if ram.strata[number].loop else None
        return rules is not None and rules.is_transitive and bool(rules.is_symmetric or rules.meeting)

    @classmethod
    def starts_over(cls, run: Run, number: int) -> str | None:
        # Rules join all pairs of a class that grows.
        rules = _rules_of(run.ram, number)
        is_large = rules is not None and _has_large_classes(run.tables[rules.relation])
        return "its classes are computed again" if is_large else None


def _rules_of(ram: m.Ram, number: int) -> Equivalence | None:
    """What the recursion of a stratum says, looked for once a program."""
    key = "equivalence", number
    rules = ram.plans.get(key, key)
    if rules is key:
        rules = ram.plans[key] = equivalence_of(ram.strata[number])
    return rules


def _has_large_classes(table: Table) -> bool:
    """Whether a table is an equivalence whose classes are large."""
    if not table.size:
        return False
    are_bits = not table.has_log
    if are_bits:
        assert table.row_set.prefix_sets is not None
        first, second = next(table.row_set.prefix_sets.parts(policy().first_rows)).T
    else:
        rows = np.arange(0, table.size, max(1, table.size // policy().first_rows))
        first, second = table.column(0, rows), table.column(1, rows)
    # Of rules that could make an equivalence, but did not, there is a pair in one direction alone.
    if (table.find([np.ascontiguousarray(column) for column in (second, first)], len(first)) < 0).any():
        return False
    sample = np.unique(first)
    return are_bits or int(np.isin(table.column(0), sample).sum()) >= policy().far_off * len(sample)


@dataclass(frozen=True)
class Classes:
    """The classes of an equivalence.

    values  [value] int64 words, class after class
    bounds  class c has values bounds[c] .. bounds[c + 1]
    """

    values: np.ndarray
    bounds: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.bounds)

    @property
    def pairs(self) -> int:
        return int((self.sizes**2).sum())

    def insert_into(self, table: Table, look: Callable[[], Any]) -> None:
        """Have a table hold all pairs."""
        low, high = int(self.values.min()), int(self.values.max())
        width = words_for(high + 1)
        if (
            self.pairs >= policy().set_rows
            and table.row_set.may_have_prefixes
            and PrefixSets.holds([low, low], [high, high])
            and 8 * (high + 1) * width <= policy().bytes_a_pair * self.pairs
        ):
            table.to_prefix_sets(self.bits(high + 1, width, look), self.pairs)
        else:
            self.insert_pairs(table, look)

    def insert_pairs(self, table: Table, look: Callable[[], Any]) -> None:
        sizes, starts = (np.repeat(column, self.sizes) for column in (self.sizes, self.bounds[:-1]))
        ends = np.cumsum(sizes)
        begin = 0
        while begin < len(ends):
            before = int(ends[begin] - sizes[begin])
            end = max(begin + 1, int(np.searchsorted(ends, before + policy().chunk, "right")))
            # Value after value, each with all of its class.
            each, count = sizes[begin:end], int(ends[end - 1]) - before
            positions = np.arange(count) + np.repeat(starts[begin:end] + each - ends[begin:end] + before, each)
            columns = [np.repeat(self.values[begin:end], each), self.values[positions]]
            table.insert(columns, count, look)
            look()
            begin = end

    def bits(self, rows: int, width: int, look: Callable[[], Any]) -> PrefixSets:
        """Sets of rows of bits [row, `width`]: that of the first value of a class is filled, the others are copies."""
        words = zeros(rows * width, np.uint64)
        order = self.values.astype(np.int32)
        filled = np.stack([np.repeat(order[self.bounds[:-1]], self.sizes), order], 1)
        compiled("fill_kernel")(0, len(filled), 0, 1, width, filled.reshape(-1), words.view(np.uint32))
        count = len(self.bounds) - 1
        condensed = Condensed({}, rows, count, order, self.bounds, empty(0, np.int64), zeros(count + 1, np.int64))
        include(condensed, words, width, look)
        return PrefixSets.of_bits(words.view(np.uint32), np.arange(rows), units_of(width))


@dataclass(frozen=True)
class _Graph:
    """Pairs of numbers of `values`: of the relation before its recursion, then of each relation of steps."""

    values: np.ndarray
    pairs: Sequence[tuple[np.ndarray, np.ndarray]]

    def classes(self, rules: Equivalence) -> Classes | None:
        base, *steps = self.pairs
        if rules.is_transitive:
            has_all = [self.has_all(base[1 - c], base[c]) for c in rules.meeting]
            is_whole, joined = rules.is_symmetric or any(has_all) or self.is_symmetric(*base), base
        else:
            ((*joined,),) = steps
            starts = np.concatenate([base[c] for c in sorted(rules.extended)])
            is_whole = self.has_all(starts, joined[0]) and self.is_symmetric(*joined)
        if not is_whole:
            return None
        component, count = self.components(*joined)
        others = steps if rules.is_transitive else [base]
        if any((component[left] != component[right]).any() for left, right in others):
            return None
        if rules.is_transitive and steps and not self.has_all(np.concatenate(base), np.arange(len(self.values))):
            return None
        bounds, order = grouped(component, count)
        return Classes(self.values[order], bounds)

    def has_all(self, numbers: np.ndarray, wanted: np.ndarray) -> bool:
        is_there = np.zeros(len(self.values), bool)
        is_there[numbers] = True
        return bool(is_there[wanted].all())

    def is_symmetric(self, left: np.ndarray, right: np.ndarray) -> bool:
        number = len(self.values)
        ins, outs = (np.bincount(column, minlength=number) for column in (left, right))
        if not np.array_equal(ins, outs):
            return False
        return np.array_equal(np.sort(left * number + right), np.sort(right * number + left))

    def components(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, int]:
        """(component [value], number of them) of the graph with these edges."""
        parent, component = np.arange(len(self.values)), empty(len(self.values), np.int64)
        unite(left, right, parent)
        return component, int(number_trees(parent, component))


def _numbered(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, Sequence[np.ndarray]]:
    """The values of columns, each once, in order, and each column with the number of its value."""
    some = [column for column in columns if len(column)]
    low, high = min(int(column.min()) for column in some), max(int(column.max()) for column in some)
    if high - low > sum(map(len, columns)) + policy().few:
        values, numbers = np.unique(np.concatenate(columns), return_inverse=True)
        return values, np.split(numbers.reshape(-1), np.cumsum([len(column) for column in columns])[:-1])
    is_there = np.zeros(high - low + 1, bool)
    for column in columns:
        is_there[column - low] = True
    number = np.cumsum(is_there) - 1
    return np.flatnonzero(is_there) + low, [number[column - low] for column in columns]
