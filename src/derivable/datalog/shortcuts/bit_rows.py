"""Relations as rows of bits: a recursion that only puts rows into rows is solved 64 tuples at a time.

A recursion begins pair by pair. When it has told many, and its rules are inclusions (`ram.inclusions`), a sample of the
columns is solved, which says how many pairs there will be. If to tell them one by one would cost more than rows of bits
do, all rows become such, and each inclusion is followed once. What comes out is a table whose sets are all dense, so
whoever asks for a pair, its columns or its log gets them as from any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from derivable.core.graph import from_edges
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import inclusions
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.inclusions import EDGES, Inclusion, System
from derivable.datalog.ram.join_order import planned
from derivable.datalog.shortcuts.condensed import UNIT_BITS, Condensed, compiled, include, units_of, words_for
from derivable.datalog.shortcuts.shortcut import Run, Shortcut, count_round
from derivable.datalog.tables.bulk_load import BulkLoad
from derivable.datalog.tables.sets import MAX_FIRST, PrefixSets
from derivable.datalog.tables.storage import Table
from derivable.device.cpu.memory import empty, zeros
from derivable.device.cpu.threads import get_num_threads, run_chunks

MOST_ROWS = 1 << 31
# Words that go into those of another row in the time in which one is made and read.
INCLUDED = 32


class Side:
    """A relation seen from one side: a row for each key, whose bits are the values of the column that passes.

    The number of a row has its keys as digits, the first one the highest.
    reach  for each column a bound that all its values are below
    keys   the other columns, in order
    """

    def __init__(self, reach: list[int], passing: int, keys: Sequence[int] | None = None):
        self.reach, self.passing = reach, passing
        self.keys: Sequence[int] = [c for c in range(len(reach)) if c != passing] if keys is None else keys

    @property
    def rows(self) -> int:
        return math.prod(self.reach[c] for c in self.keys)

    def numbers(self, columns: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
        """The numbers [row] of rows with these columns of keys."""
        rows = columns[0]
        for c, column in zip(self.keys[1:], columns[1:]):
            rows = rows * self.reach[c] + column
        return rows

    def fill(self, part: np.ndarray, words: np.ndarray, width: int) -> None:
        """Set the bits of tuples [tuple, column] int32."""
        columns = self.keys[0], self.passing
        if len(self.keys) > 1:
            pairs = empty((len(part), 2), np.int32)
            pairs[:, 0] = self.numbers([part[:, c].astype(np.int64) for c in self.keys])
            pairs[:, 1] = part[:, self.passing]
            part, columns = pairs, (0, 1)
        compiled("fill_kernel")(0, len(part), *columns, width, part.reshape(-1), words.view(np.uint32))


class BitRows(Shortcut):
    """A recursion that may go on with rows of bits.

    reach  relation -> for each column a bound that all its values are below
    """

    name = "rows of bits"

    def __init__(self, run: Run, number: int, systems: tuple[System, ...], loop: tuple[m.Store, ...]):
        self.run, self.number, self.systems, self.loop = run, number, systems, loop
        self.tables = {name: run.tables[name] for system in systems for name in system.passing}
        self.look = run.watch.remaining
        self.least: float = policy().few_pairs
        self.reach: dict[str, list[int]] = {}
        self.edges: dict[int, np.ndarray] = {}
        self.condensed: list[Condensed] = []

    @classmethod
    def matches(cls, run: Run, number: int, loop: tuple[m.Store, ...]) -> Self | None:
        key = "inclusions", number, len(loop), *(() if run.cuts is None else run.cuts.key)
        systems = run.ram.plans.get(key)
        if systems is None:
            systems = run.ram.plans[key] = inclusions.systems_of(run.stratum(number), loop)
        is_wide = any(len(run.tables[name].types) > 2 for system in systems for name in system.passing)
        # Systems that see a relation from different sides are there for pairs.
        return None if not systems or (is_wide and len(systems) > 1) else cls(run, number, systems, loop)

    @property
    def pairs(self) -> int:
        # It is looked at after each round, however small.
        count = 0
        for table in self.tables.values():
            count += table.size
        return count

    @property
    def recent(self) -> int:
        """The pairs that are not propagated yet."""
        count = 0
        for table in self.tables.values():
            count += table.size - table.visible_size
        return count

    @property
    def rows_left(self) -> float:
        return self.least - self.pairs

    @property
    def words_a_pair(self) -> float:
        """Words of 8 bytes for each pair that there is: those to come are four times as many, or more."""
        return 4 * policy().bytes_a_pair / 8

    # Whether it pays

    def pays(self) -> bool:
        """Whether to go on with rows of bits before a round, each of whose recent rows will find about one more.

        Looks closely once, when there are enough pairs.
        """
        if self.least == math.inf:
            return False
        recent = self.recent
        if not recent or self.pairs + recent < self.least:
            return False
        if not all(map(_is_in_reach, self.tables.values())):
            self.least = math.inf
            return False
        # To go through all pairs for this would cost what a small recursion does.
        self.reach = {name: _about(table) for name, table in self.tables.items()}
        self.spread()
        self.least = max(self.least, self.words() / self.words_a_pair)
        if self.pairs + recent < self.least:
            return False
        self.least = math.inf
        self.reach = {name: _exactly(table) for name, table in self.tables.items()}
        self.spread()
        if not self.read_edges() or self.has_too_many_rows():
            return False
        self.condensed = [self.condense(system) for system in self.systems]
        return self.is_cheaper(self.expected())

    def has_too_many_rows(self) -> bool:
        """Whether there are more rows than numbers of them reach, or more rules of rows than pairs are worth."""
        if any(side.rows >= MOST_ROWS for system in self.systems for side in self.sides(system).values()):
            return True
        included = sum(self.number_of(one) for system in self.systems for one in system.inclusions)
        return max(self.words(), included) > self.words_a_pair * self.pairs

    def is_cheaper(self, expected: float) -> bool:
        """Whether rows of bits cost less than to tell the pairs to come, and neither takes what limits forbid."""
        words, limits = self.words(), self.run.watch.limits
        # To turn a system to its other side takes both at once.
        needed = 8 * words * (1 if self.is_upright else 2)
        if needed > max(policy().small_bytes, policy().bytes_a_pair * expected):
            return False
        if limits.tuple_limit is not None and self.run.watch.num_tuples + expected - self.pairs > limits.tuple_limit:
            # The error says then which rule grew, and how fast.
            return False
        if limits.memory_limit is not None and 2 * needed > limits.memory_limit:
            return False
        included = sum((len(c.links) + c.rows) * self.width_of(s) for c, s in zip(self.condensed, self.systems))
        return expected - self.pairs > policy().pairs_a_word * (words + included / INCLUDED)

    @property
    def is_upright(self) -> bool:
        """Whether the rows are those of the tables."""
        (first, *others) = self.systems
        return not others and all(column + 1 == self.tables[name].width for name, column in first.passing.items())

    def spread(self) -> None:
        """Values that pass through, or keys that stay, are values of the targets too."""
        before = None
        while before != self.reach:
            before = {name: list(reach) for name, reach in self.reach.items()}
            for one in (one for system in self.systems for one in system.inclusions):
                source, target = self.side(one.source, one.passing[0]), self.side(one.target, one.passing[1])
                for of_source, of_target in (one.passing, *one.carried):
                    target.reach[of_target] = max(target.reach[of_target], source.reach[of_source])

    def side(self, name: str, passing: int) -> Side:
        return Side(self.reach[name], passing)

    def sides(self, system: System) -> dict[str, Side]:
        return {name: self.side(name, column) for name, column in system.passing.items()}

    def width_of(self, system: System) -> int:
        """Words of 64 bits of the rows of a system."""
        bits = max(self.reach[name][column] for name, column in system.passing.items())
        return words_for(bits)

    def words(self) -> int:
        """Words of the largest system."""
        return max(self.width_of(one) * sum(side.rows for side in self.sides(one).values()) for one in self.systems)

    def read_edges(self) -> bool:
        """Find which rows go into which; false if these are too many, or not in reach."""
        most = max(8 * self.words(), policy().few_pairs)
        for system in self.systems:
            for one in system.inclusions:
                if one.edges is None:
                    continue
                edges = self.edges_of(one.edges, most)
                if edges is None or edges.min(initial=0) < 0 or edges.max(initial=0) >= MAX_FIRST:
                    return False
                self.edges[id(one)] = edges
                for (name, c), words in zip(self.edge_columns(one), edges):
                    self.reach[name][c] = max(self.reach[name][c], int(words.max(initial=0)) + 1)
        self.spread()
        return True

    def edges_of(self, store: m.Store, most: float) -> np.ndarray | None:
        """[column, edge] keys of targets and of sources; None if there are more than `most`."""
        run, number = self.run, len(store.query.terms)
        copied = m.copied_relation(store.query)
        if copied is not None:
            table = run.tables[copied]
            return np.stack([table.column(c) for c in range(number)]) if table.size <= most else None
        (store,) = planned(run.ram, (EDGES, id(store)), (store,), run.statistics, True)
        assert isinstance(store, m.Store)
        table = run.part(store)
        assert table is not None
        counts, run.counts = run.counts, None
        try:
            gathered, count = BulkLoad(table, self.look), 0
            for columns, variables, _ in run.stored(store):
                gathered.add(columns, variables)
                count += variables
                if count > most:
                    return None
            gathered.flush()
            return np.stack([table.column(c) for c in range(number)])
        finally:
            run.counts = counts
            del run.tables[EDGES]
            run.store_states.pop(id(store), None)

    def condense(self, system: System) -> Condensed:
        """The components of a system's inclusions."""
        first_rows, rows, sides = {}, 0, self.sides(system)
        for name, side in sides.items():
            first_rows[name] = rows
            rows += side.rows

        edges = [
            (first_rows[one.target] + target_rows, first_rows[one.source] + source_rows)
            for one in system.inclusions
            for target_rows, source_rows in (self.numbers_of(one, sides[one.target], sides[one.source]),)
        ]
        targets, sources = map(np.concatenate, zip(*edges))
        self.look()
        condensed = Condensed.of(first_rows, *from_edges(rows, targets, sources))
        self.look()
        return condensed

    def edge_columns(self, one: Inclusion) -> list[tuple[str, int]]:
        """The columns of target and source that those of the edges of an inclusion are for."""
        of_source, of_target = zip(one.passing, *one.carried)
        ends = (one.target, of_target), (one.source, of_source)
        return [(name, c) for name, others in ends for c in range(self.tables[name].width) if c not in others]

    def numbers_of(self, one: Inclusion, target: Side, source: Side) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the target, and those of the source that they include: each edge, for all keys that are carried."""
        bounds = [source.reach[c] for c, _ in one.carried]
        carried = np.unravel_index(np.arange(math.prod(bounds)), bounds) if bounds else ()
        count = math.prod(bounds)
        edges = self.edges[id(one)] if one.edges is not None else empty((0, 1), np.int64)
        number = edges.shape[1]
        columns = {
            (end, of_end): np.tile(column, number)
            for pair, column in zip(one.carried, carried)
            for end, of_end in (("source", pair[0]), ("target", pair[1]))
        }
        split = len(target.keys) - len(bounds)
        for k, (_, c) in enumerate(self.edge_columns(one) if one.edges is not None else ()):
            columns["target" if k < split else "source", c] = np.repeat(edges[k], count) if count > 1 else edges[k]
        target_rows = target.numbers([columns["target", c] for c in target.keys])
        return target_rows, source.numbers([columns["source", c] for c in source.keys])

    def expected(self) -> float:
        """About how many pairs there will be: those of some columns of the first system."""
        system, condensed = self.systems[0], self.condensed[0]
        bits = max(self.reach[name][column] for name, column in system.passing.items())
        number = min(bits, UNIT_BITS)
        lane = np.full(bits, -1, np.int32)
        lane[np.random.default_rng(0).choice(bits, number, replace=False)] = np.arange(number)
        width = words_for(UNIT_BITS)
        words = zeros(condensed.rows * width, np.uint64)
        for name, side in self.sides(system).items():
            for part in tuples_of(self.tables[name]):
                lanes = lane[part[:, side.passing]]
                there = np.flatnonzero(lanes >= 0)
                chosen = part[there]
                chosen[:, side.passing] = lanes[there]
                side.fill(chosen, words[condensed.first_rows[name] * width :], width)
        include(condensed, words, width, self.look)
        others = sum(table.size for name, table in self.tables.items() if name not in system.passing)
        return max(self.pairs, others + float(np.bitwise_count(words).sum()) * bits / number)

    # Rows of bits

    def solve(self) -> bool:
        run, rules = self.run, {store.relation: store for store in reversed(self.loop)}
        total = count_round(run, self.number)
        with run.effort(self.loop[0]):
            for table, sets, size in self.solved():
                run.watch.begin_instruction(table)
                table.to_prefix_sets(sets, size)
                added = run.watch.end_instruction()
                effort = run.effort(rules[table.name])
                effort.by(self.route())
                effort.candidates += added
                run.credit(effort, added)
                effort.grew(run.watch.round, added)
        total.note = str(self)
        run.watch.remaining()
        return True

    def solved(self) -> Iterator[tuple[Table, PrefixSets, int]]:
        """All pairs of each table, as sets, and how many they are."""
        rows: dict[str, _Rows] = {}
        size = -1
        while True:
            for system, condensed in zip(self.systems, self.condensed):
                self.solve_system(system, condensed, rows)
            # What one system finds may be news for the others.
            pairs = sum(int(part.counts(self.look).sum()) for part in rows.values()) if len(self.systems) > 1 else size
            if pairs == size:
                break
            size = pairs
        for name, table in self.tables.items():
            part = rows.pop(name).upright(self.look)
            bits, units = part.words.view(np.uint32), units_of(part.width)
            counts = part.counts(self.look)
            there = None if len(part.side.keys) == 1 else np.flatnonzero(counts)
            if there is None:
                sets = PrefixSets.of_bits(bits, np.arange(part.side.rows), units)
            else:
                digits = np.unravel_index(there, [part.side.reach[c] for c in part.side.keys])
                prefixes = np.empty((len(there), len(digits)), np.int32)
                for c, column in zip(part.side.keys, digits):
                    prefixes[:, c] = column
                sets = PrefixSets.of_bits(bits, there, units, prefixes)
            yield table, sets, int(counts.sum())

    def __str__(self) -> str:
        """`rows of bits: path 9,877 x 9,877; 51,971 inclusions, 0 of them between 429 components`"""
        shown = [f"{name} {' x '.join(f'{bound:,}' for bound in self.reach[name])}" for name in self.tables]

        edges = sum(self.number_of(one) for system in self.systems for one in system.inclusions)
        links, count = sum(len(c.links) for c in self.condensed), sum(c.count for c in self.condensed)
        return f"rows of bits: {', '.join(shown)}; {edges:,} inclusions, {links:,} of them between {count:,} components"

    def number_of(self, one: Inclusion) -> int:
        """How many rows include one another by an inclusion."""
        edges = 1 if one.edges is None else self.edges[id(one)].shape[1]
        return edges * math.prod(self.reach[one.source][c] for c, _ in one.carried)

    def solve_system(self, system: System, condensed: Condensed, rows: dict[str, _Rows]) -> None:
        width = self.width_of(system)
        words = zeros(condensed.rows * width, np.uint64)
        for name, side in self.sides(system).items():
            first, number = condensed.first_rows[name], side.rows
            is_all = number == condensed.rows
            part = _Rows(words if is_all else words[first * width : (first + number) * width], width, side, is_all)
            if name in rows:
                rows[name].copy_to(part, self.look)
            else:
                for tuples in tuples_of(self.tables[name]):
                    side.fill(tuples, part.words, width)
                    self.look()
            rows[name] = part
        include(condensed, words, width, self.look)


@dataclass
class _Rows:
    """The rows of one relation: [row, `width`] words of bits.

    is_alone  whether nothing else lies on their memory
    """

    words: np.ndarray
    width: int
    side: Side
    is_alone: bool

    def counts(self, look: Callable[[], Any]) -> np.ndarray:
        """How many bits each row has."""
        words, step = self.words.reshape(-1, self.width), max(1, policy().chunk // self.width)
        sizes = empty(len(words), np.int64)
        for start in range(0, len(words), step):
            np.bitwise_count(words[start : start + step]).sum(1, out=sizes[start : start + step])
            look()
        return sizes

    def copy_to(self, other: _Rows, look: Callable[[], Any]) -> None:
        """Write all bits to other rows, which hold none and reach as far; those may be the columns of these."""
        ours, theirs = self.side, other.side
        if ours.passing == theirs.passing:
            width = min(self.width, other.width)
            other.words.reshape(-1, other.width)[:, :width] = self.words.reshape(-1, self.width)[:, :width]
            look()
            return
        # The columns that are swapped are the last of the keys, so each combination of the others is a matrix.
        number, turned = ours.reach[ours.keys[-1]], theirs.reach[theirs.keys[-1]]
        for k in range(ours.rows // number):
            low, into = k * number * self.width, k * turned * other.width
            words, columns = (
                self.words[low : low + number * self.width],
                other.words[into : into + turned * other.width],
            )
            self.turn((number, self.width, turned, other.width), words, columns, look)

    def turn(self, sizes: tuple[int, ...], words: np.ndarray, columns: np.ndarray, look: Callable[[], Any]) -> None:
        bands = -(-sizes[0] // 64)
        step = max(get_num_threads(), policy().look_rows // 8 // self.width)
        kernel = compiled("transpose_kernel")

        def part(start: int, stop: int) -> None:
            kernel(low + start, low + stop, *sizes, words, columns, empty(64, np.uint64))

        for low in range(0, bands, step):
            run_chunks(part, min(step, bands - low), max(1, policy().shared_rows // (64 * self.width)))
            look()

    def upright(self, look: Callable[[], Any]) -> _Rows:
        """These rows as those of a table, whose last column passes, in separate memory."""
        reach, passing = self.side.reach, self.side.passing
        last = len(reach) - 1
        if passing == last and self.is_alone:
            return self
        keys = [c for c in range(last) if c != passing]
        side = Side(reach, last, keys if passing == last else [*keys, passing])
        width = words_for(reach[last])
        made = _Rows(zeros(side.rows * width, np.uint64), width, side, True)
        self.copy_to(made, look)
        return made


def _is_in_reach(table: Table) -> bool:
    """Whether the values of a table may be those of sets."""
    if not table.row_set.may_have_prefixes or table.new_tags is not None:
        return False
    return (
        table.row_set.form is not None
        or not table.size
        or PrefixSets.can_hold([table.column(c) for c in range(table.width)])
    )


def _about(table: Table) -> list[int]:
    """Bounds of the values of a table, in reach: that of its last column at most twice what it must be."""
    sets = table.row_set.prefix_sets
    if sets is None:
        return [int(table.column(c).max(initial=0)) + 1 for c in range(table.width)]
    if sets.form.has_table:
        firsts = [int(column.max(initial=0)) + 1 for column in sets.words[: sets.num_prefixes].T]
    else:
        firsts = [int(np.flatnonzero(sets.slots).max(initial=0)) + 1]
    return [*firsts, sets.domain]


def _exactly(table: Table) -> list[int]:
    """For each column the least bound that all its values are below, at least one."""
    bounds = [1] * table.width
    for part in tuples_of(table):
        bounds = [max(bound, int(part[:, c].max(initial=0)) + 1) for c, bound in enumerate(bounds)]
    return bounds


def tuples_of(table: Table) -> Iterator[np.ndarray]:
    """The rows [row, column] int32 of a table whose values fit; a part lies where the one before it was."""
    if table.row_set.prefix_sets is not None:
        yield from table.row_set.prefix_sets.parts(policy().cache_rows)
        return
    for start in range(0, table.size, policy().chunk):
        yield np.ascontiguousarray(table.log[start : min(start + policy().chunk, table.size)], np.int32)
