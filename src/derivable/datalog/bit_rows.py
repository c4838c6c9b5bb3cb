"""Relations of pairs as rows of bits: a recursion that only puts rows into rows is solved 64 pairs at a time.

A recursion begins pair by pair. When it has told many, and its rules are inclusions (`ram.inclusions`), a sample of the
columns is solved, which says how many pairs there will be. If to tell them one by one would cost more than rows of bits
do, all rows become such, and each inclusion is followed once. What comes out is a table whose sets are all dense, so
whoever asks for a pair, its columns or its log gets them as from any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.lazy import later
from derivable.datalog.gather import Gathered
from derivable.datalog.ram import inclusions
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.inclusions import EDGES, Inclusion, System
from derivable.datalog.ram.plan import planned
from derivable.datalog.sets import MAX_FIRST, RowSets
from derivable.datalog.storage import CHUNK, PART, Table
from derivable.device.cpu.memory import empty, zeros
from derivable.device.cpu.threads import get_num_threads, run_chunks

if TYPE_CHECKING:
    from derivable.datalog.execute import Executor
    from derivable.datalog.kernels import bit_rows as kernels
    from derivable.kernel import emit_numba
else:
    kernels, emit_numba = later("derivable.datalog.kernels.bit_rows"), later("derivable.kernel.emit_numba")

# Pairs from which on rows of bits are worth a look, and words of them for each pair that there is.
FEW_PAIRS, WORDS_A_PAIR = 1 << 16, 8
# Nanoseconds, about: a pair that is told, a word of a row that is made and read, and one that goes into another.
PAIR, WORD, INCLUDED = 15.0, 12.0, 0.5
# Bytes of rows of bits that are always allowed, and those for each pair to come.
SMALL, BYTES_A_PAIR = 1 << 26, 16
# Columns of a sample; words of rows that go into others at once, which stay in cache; those between looks at the clock.
SAMPLE, STRIPE, LOOK = 256, 32, 1 << 25
# Bits are a whole number of units of the sets.
_UNIT_BITS = 256


@cache
def _compiled(name: str) -> Callable:
    return emit_numba.compile_kernel(getattr(kernels, name)())


def bit_rows(executor: Executor, number: int, loop: tuple[m.Store, ...]) -> BitRows | None:
    """What turns the recursion of a stratum, whose loop is this, to rows of bits; None if its rules say more."""
    key = "inclusions", number, len(loop)
    systems = executor.ram.plans.get(key)
    if systems is None:
        systems = executor.ram.plans[key] = inclusions.systems_of(executor.ram.strata[number], loop)
    return BitRows(executor, systems, loop) if systems else None


@dataclass
class Condensed:
    """The strongly connected components of a system's inclusions, in the order to follow them in; see `condense`.

    first_rows  relation -> the number of its row 0
    """

    first_rows: dict[str, int]
    rows: int
    count: int
    order: np.ndarray
    bounds: np.ndarray
    links: np.ndarray
    ends: np.ndarray


class BitRows:
    """A recursion that may go on with rows of bits.

    reach  (relation, column) -> a bound that all its values are below
    """

    def __init__(self, executor: Executor, systems: tuple[System, ...], loop: tuple[m.Store, ...]):
        self.executor, self.systems, self.loop = executor, systems, loop
        self.tables = {name: executor.tables[name] for system in systems for name in system.passing}
        self.look = executor.watch.remaining
        self.least: float = FEW_PAIRS
        self.reach: dict[tuple[str, int], int] = {}
        self.edges: dict[int, np.ndarray] = {}
        self.condensed: list[Condensed] = []

    @property
    def pairs(self) -> int:
        return sum(table.size for table in self.tables.values())

    # Whether it pays

    @property
    def is_open(self) -> bool:
        """Whether it is still to be decided."""
        return self.least < np.inf

    def pays(self) -> bool:
        """Whether to go on with rows of bits. Looks closely once, when there are enough pairs."""
        if self.pairs < self.least:
            return False
        if not all(map(_is_in_reach, self.tables.values())):
            self.least = np.inf
            return False
        # To go through all pairs for this would cost what a small recursion does.
        self.reach = self.spread({k: v for name, table in self.tables.items() for k, v in _about(name, table).items()})
        self.least = max(self.least, self.words() / WORDS_A_PAIR)
        if self.pairs < self.least:
            return False
        self.least = np.inf
        self.reach = self.reach_of_tables()
        if not self.read_edges():
            return False
        self.condensed = [self.condense(system) for system in self.systems]
        return self.is_cheaper(self.expected())

    def is_cheaper(self, expected: float) -> bool:
        """Whether rows of bits cost less than to tell the pairs to come, and neither takes what limits forbid."""
        words, limits = self.words(), self.executor.watch.limits
        # To turn a system to its other side takes both at once.
        needed = 8 * words * (1 if self.is_upright else 2)
        if needed > max(SMALL, BYTES_A_PAIR * expected):
            return False
        if (
            limits.tuple_limit is not None
            and self.executor.watch.num_tuples + expected - self.pairs > limits.tuple_limit
        ):
            # The error says then which rule grew, and how fast.
            return False
        if limits.memory_limit is not None and 2 * needed > limits.memory_limit:
            return False
        included = sum((len(c.links) + c.rows) * self.width_of(s) for c, s in zip(self.condensed, self.systems))
        return PAIR * (expected - self.pairs) > WORD * words + INCLUDED * included

    @property
    def is_upright(self) -> bool:
        """Whether the rows are those of the tables."""
        return len(self.systems) == 1 and set(self.systems[0].passing.values()) == {1}

    def reach_of_tables(self) -> dict[tuple[str, int], int]:
        """The bounds of what is in the tables, and in rows that these go into."""
        found = {(name, column): 1 for name in self.tables for column in range(2)}
        for name, table in self.tables.items():
            for part in pairs_of(table):
                for column in range(2):
                    found[name, column] = max(found[name, column], int(part[:, column].max()) + 1)
        return self.spread(found)

    def spread(self, found: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Values that pass through are values of the targets too."""
        before = None
        while before != found:
            before = dict(found)
            for one in (one for system in self.systems for one in system.inclusions):
                (source, a), (target, b) = zip((one.source, one.target), one.passing)
                columns = [(a, b)] if one.edges is not None else [(a, b), (1 - a, 1 - b)]
                for of_source, of_target in columns:
                    there = found[target, of_target]
                    found[target, of_target] = max(there, found[source, of_source])
        return found

    def width_of(self, system: System) -> int:
        """Words of 64 bits of the rows of a system."""
        bits = max(self.reach[name, column] for name, column in system.passing.items())
        return -(-bits // _UNIT_BITS) * (_UNIT_BITS // 64)

    def words(self) -> int:
        """Words of the largest system."""
        return max(
            self.width_of(system) * sum(self.reach[name, 1 - column] for name, column in system.passing.items())
            for system in self.systems
        )

    def read_edges(self) -> bool:
        """Find which rows go into which; false if these are too many, or not in reach."""
        most = max(8 * self.words(), FEW_PAIRS)
        for system in self.systems:
            for one in system.inclusions:
                if one.edges is None:
                    continue
                found = self.edges_of(one.edges, most)
                if found is None or found.min(initial=0) < 0 or found.max(initial=0) >= MAX_FIRST:
                    return False
                self.edges[id(one)] = found
                for name, passing, keys in zip((one.target, one.source), one.passing[::-1], found):
                    key = name, 1 - passing
                    self.reach[key] = max(self.reach[key], int(keys.max(initial=0)) + 1)
        self.spread(self.reach)
        return True

    def edges_of(self, store: m.Store, most: float) -> np.ndarray | None:
        """[2, pair] keys of targets and of sources; None if there are more than `most`."""
        executor = self.executor
        copied = m.copied_relation(store.query)
        if copied is not None:
            table = executor.tables[copied]
            return np.stack([table.column(0), table.column(1)]) if table.size <= most else None
        (store,) = planned(executor.ram, (EDGES, id(store)), (store,), executor.statistics, True)
        assert isinstance(store, m.Store)
        table = executor.part(store)
        assert table is not None
        counts, executor.counts = executor.counts, None
        try:
            gathered, count = Gathered(table, self.look), 0
            for columns, number, _ in executor.stored(store, keep=False):
                gathered.add(columns, number)
                count += number
                if count > most:
                    return None
            gathered.flush()
            return np.stack([table.column(0), table.column(1)])
        finally:
            executor.counts = counts
            del executor.tables[EDGES]
            executor.running.pop(id(store), None)

    def condense(self, system: System) -> Condensed:
        """The components of a system's inclusions."""
        first_rows, rows = {}, 0
        for name, column in system.passing.items():
            first_rows[name] = rows
            rows += self.reach[name, 1 - column]
        keys, given = [], []
        for one in system.inclusions:
            if one.edges is None:
                edges = np.tile(np.arange(self.number_of(one)), (2, 1))
            else:
                edges = self.edges[id(one)]
            keys.append(edges[0] + first_rows[one.target])
            given.append(edges[1] + first_rows[one.source])
        targets, sources = np.concatenate(keys), np.concatenate(given)
        places = np.argsort(targets, kind="stable")
        offsets = np.zeros(rows + 1, np.int64)
        np.cumsum(np.bincount(targets, minlength=rows), out=offsets[1:])
        order, bounds, ends = empty(rows, np.int64), empty(rows + 1, np.int64), empty(rows + 1, np.int64)
        links = empty(len(sources), np.int64)
        scratch = [zeros(rows, np.int64) for _ in range(3)] + [empty(rows, np.int64) for _ in range(3)]
        self.look()
        arrays = (offsets, sources[places], order, bounds, links, ends)
        count, number = _compiled("condense_kernel")(rows, *arrays, *scratch)
        self.look()
        return Condensed(first_rows, rows, count, order, bounds[: count + 1], links[:number], ends[: count + 1])

    def expected(self) -> float:
        """About how many pairs there will be: those of some columns of the first system."""
        system, condensed = self.systems[0], self.condensed[0]
        bits = max(self.reach[name, column] for name, column in system.passing.items())
        number = min(bits, SAMPLE)
        place = np.full(bits, -1, np.int32)
        place[np.random.default_rng(0).choice(bits, number, replace=False)] = np.arange(number)
        width = SAMPLE // 64
        words = zeros(condensed.rows * width, np.uint64)
        for name, column in system.passing.items():
            for part in pairs_of(self.tables[name]):
                places = place[part[:, column]]
                there = np.flatnonzero(places >= 0)
                chosen = empty((len(there), 2), np.int32)
                chosen[:, 0], chosen[:, 1] = part[there, 1 - column], places[there]
                fill(chosen, (0, 1), width, words[condensed.first_rows[name] * width :])
        self.include(condensed, words, width)
        others = sum(table.size for name, table in self.tables.items() if name not in system.passing)
        return max(self.pairs, others + float(np.bitwise_count(words).sum()) * bits / number)

    # Rows of bits

    def include(self, condensed: Condensed, words: np.ndarray, width: int) -> None:
        """Follow all inclusions; threads have words of their own of all rows."""
        each = max(1, condensed.rows + len(condensed.links))
        step = max(STRIPE * get_num_threads(), LOOK // each // STRIPE * STRIPE)

        def part(start: int, stop: int) -> None:
            for begin in range(low + start * STRIPE, min(low + stop * STRIPE, high), STRIPE):
                end = min(begin + STRIPE, high)
                arrays = (condensed.order, condensed.bounds, condensed.links, condensed.ends)
                _compiled("include_kernel")(begin, end, condensed.count, width, *arrays, words)

        for low in range(0, width, step):
            high = min(low + step, width)
            run_chunks(part, -(-(high - low) // STRIPE), 1)
            self.look()

    def solve(self) -> Iterator[tuple[Table, RowSets, int]]:
        """All pairs of each table, as sets, and how many they are."""
        rows: dict[str, _Rows] = {}
        size = -1
        while True:
            for system, condensed in zip(self.systems, self.condensed):
                self.solve_system(system, condensed, rows)
            # What one system finds may be news for the others.
            found = sum(part.count(self.look) for part in rows.values()) if len(self.systems) > 1 else size
            if found == size:
                break
            size = found
        for name, table in self.tables.items():
            part = rows.pop(name).upright(self.reach[name, 0], self.reach[name, 1], self.look)
            sets = RowSets.of_bits(part.words.view(np.uint32), len(part), part.width * 64 // _UNIT_BITS)
            yield table, sets, part.count(self.look)

    def __str__(self) -> str:
        """`rows of bits: path 9,877 x 9,877; 51,971 inclusions, 0 of them between 429 components`"""
        shown = [f"{name} {self.reach[name, 0]:,} x {self.reach[name, 1]:,}" for name in self.tables]
        given = sum(self.number_of(one) for system in self.systems for one in system.inclusions)
        links, count = sum(len(c.links) for c in self.condensed), sum(c.count for c in self.condensed)
        return f"rows of bits: {', '.join(shown)}; {given:,} inclusions, {links:,} of them between {count:,} components"

    def number_of(self, one: Inclusion) -> int:
        return self.reach[one.source, 1 - one.passing[0]] if one.edges is None else self.edges[id(one)].shape[1]

    def solve_system(self, system: System, condensed: Condensed, rows: dict[str, _Rows]) -> None:
        width = self.width_of(system)
        words = zeros(condensed.rows * width, np.uint64)
        for name, column in system.passing.items():
            first, number = condensed.first_rows[name], self.reach[name, 1 - column]
            is_all = number == condensed.rows
            part = _Rows(words if is_all else words[first * width : (first + number) * width], width, column, is_all)
            if name in rows:
                rows[name].copy_to(part, self.look)
            else:
                for pairs in pairs_of(self.tables[name]):
                    fill(pairs, (1 - column, column), width, part.words)
                    self.look()
            rows[name] = part
        self.include(condensed, words, width)


@dataclass
class _Rows:
    """The rows of one relation: [key, `width`] words of bits, which are the values of the column `passing`.

    is_alone  whether nothing else lies on their memory
    """

    words: np.ndarray
    width: int
    passing: int
    is_alone: bool

    def __len__(self) -> int:
        return len(self.words) // self.width

    def count(self, look: Callable[[], Any]) -> int:
        found = 0
        for start in range(0, len(self.words), CHUNK):
            found += int(np.bitwise_count(self.words[start : start + CHUNK]).sum())
            look()
        return found

    def copy_to(self, other: _Rows, look: Callable[[], Any]) -> None:
        """Write all bits to other rows, which hold none and reach as far; those may be the columns of these."""
        if self.passing == other.passing:
            number, width = min(len(self), len(other)), min(self.width, other.width)
            other.words.reshape(-1, other.width)[:number, :width] = self.words.reshape(-1, self.width)[:number, :width]
            look()
            return
        bands = -(-len(self) // 64)
        step = max(get_num_threads(), LOOK // 64 // self.width // 8)

        def part(start: int, stop: int) -> None:
            sizes = (low + start, low + stop, len(self), self.width, len(other), other.width)
            _compiled("transpose_kernel")(*sizes, self.words, other.words, empty(64, np.uint64))

        for low in range(0, bands, step):
            run_chunks(part, min(step, bands - low), 1)
            look()

    def upright(self, keys: int, values: int, look: Callable[[], Any]) -> _Rows:
        """These rows as those of a table, on memory of their own."""
        if self.passing == 1 and self.is_alone:
            return self
        width = -(-values // _UNIT_BITS) * (_UNIT_BITS // 64)
        made = _Rows(zeros(keys * width, np.uint64), width, 1, True)
        self.copy_to(made, look)
        return made


def fill(pairs: np.ndarray, places: tuple[int, int], width: int, words: np.ndarray) -> None:
    """Set the bits of pairs [pair, 2] int32, whose key and value are at these places."""
    _compiled("fill_kernel")(0, len(pairs), *places, width, pairs.reshape(-1), words.view(np.uint32))


def _is_in_reach(table: Table) -> bool:
    """Whether the values of a table may be those of sets."""
    if not table.may_have_sets or table.new_tags is not None:
        return False
    return table.sets is not None or not table.size or RowSets.can_hold([table.column(c) for c in range(2)])


def _about(name: str, table: Table) -> dict[tuple[str, int], int]:
    """Bounds of the values of a table, in reach: that of its last column at most twice what it must be."""
    if table.sets is not None:
        firsts = np.flatnonzero(table.sets.slots)
        return {(name, 0): int(firsts[-1]) + 1 if len(firsts) else 1, (name, 1): table.sets.domain}
    return {(name, c): int(table.column(c).max(initial=0)) + 1 for c in range(2)}


def pairs_of(table: Table) -> Iterator[np.ndarray]:
    """The rows [pair, 2] int32 of a table whose values fit; a part lies where the one before it was."""
    if table.sets is not None:
        yield from table.sets.parts(PART)
        return
    for start in range(0, table.size, CHUNK):
        yield np.ascontiguousarray(table.log[start : min(start + CHUNK, table.size)], np.int32)
