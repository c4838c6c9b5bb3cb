"""Rows of torch columns that are not there yet: the pairs of a join, and sets of rows that grow.

The pairs of a join are known by where each probe's begin among all of them. A column of pairs is late: it is made when
an operation needs it, and a set takes pairs in pieces, so that no more than a piece of them is ever there.

A set has its rows one after the other, in the order in which they came, and knows them by keys: the bits of their
columns, side by side, from the least value of each on. Where a value is out of reach, keys are made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from derivable.core.diagnostics import LimitError
from derivable.device.cuda import row_sets
from derivable.parallel.program import nodes as n
from derivable.parallel.program.pieces import TooManyPairs

if TYPE_CHECKING:
    from derivable.bridge.torch_columns import Index, Torch
    from derivable.parallel.program.execute import Room

Column = torch.Tensor
# What torch sorts at once on a GPU.
MOST_ROWS = (1 << 31) - 1
# Rows that a set gets room for at least, more than those that it has, and at most, where it has fewer than a quarter
# of these: of what is inserted most may be there, a small table stays in cache, and an insertion ends where it is full.
FEW, MANY = 1 << 20, 1 << 22
# Bits of a key in 32 and in 64 bits; no key is negative.
SHORT, LONG = 31, 63


class Pairs:
    """Pairs of a probe and a row of an index that agree.

    first   [probe] the place of the first of its rows in the index
    counts  [probe] how many there are, `ends` where the pairs of each probe end
    index   the rows
    most    how many pairs may be whole columns
    """

    def __init__(self, first: Column, counts: Column, index: Index, arrays: Torch):
        self.first, self.counts, self.ends = first, counts, counts.cumsum(0)
        self.index, self.arrays, self.most = index, arrays, arrays.piece if arrays.may_cut else arrays.pairs_at_once
        self._number: int | None = None
        self._whole: tuple[Column, Column] | None = None

    def __len__(self) -> int:
        if self._number is None:
            self.arrays.count_pairs(self)
            assert self._number is not None
        return self._number

    @staticmethod
    def count(joins: Sequence[Pairs]) -> None:
        """Read how many pairs some joins have, all at once."""
        some = [pairs for pairs in joins if len(pairs.ends)]
        last = [pairs.ends[-1] for pairs in some]
        numbers = torch.stack(last).tolist() if len(last) > 1 else map(int, last)
        for pairs in joins:
            pairs._number = 0
        for pairs, number in zip(some, numbers):
            pairs._number = number

    def rows(self, start: int, stop: int) -> tuple[Column, Column]:
        """The probes and the rows of some pairs."""
        pair = torch.arange(start, stop, device=self.ends.device)
        left = torch.searchsorted(self.ends, pair, right=True)
        place = pair + (self.first - self.ends + self.counts).index_select(0, left)
        order = self.index.order
        return left, place if order is None else order.index_select(0, place)

    @property
    def places(self) -> tuple[Column, Column, Column, Column | None]:
        """What kernels find pairs by."""
        return self.ends, self.counts, self.first, self.index.order

    @property
    def whole(self) -> tuple[Column, Column]:
        if self._whole is None:
            self.arrays.most_pairs = max(self.arrays.most_pairs, len(self))
            if len(self) > self.most:
                raise TooManyPairs(len(self), self.most)
        if self._whole is None and self.arrays.has_kernels:
            left, right = (torch.empty(len(self), dtype=torch.int64, device=self.ends.device) for _ in range(2))
            if len(self):
                row_sets.expand(*self.places, len(self), left, right)
            self._whole = left, right
        if self._whole is None:
            self._whole = self.rows(0, len(self))
        return self._whole


@dataclass(frozen=True, eq=False)
class PairColumn:
    """A column of pairs: the probe or the row (`side` 0 or 1) of each, or a column that is read at these."""

    pairs: Pairs
    side: int
    of: Column | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def number_of_sources(self) -> int:
        """The number of probes, or of rows of the index."""
        return len(self.pairs.index.keys if self.side else self.pairs.ends)

    def at(self, rows: tuple[Column, Column]) -> Column:
        chosen = rows[self.side]
        return chosen if self.of is None else self.of.index_select(0, chosen)

    def whole(self) -> Column:
        return self.at(self.pairs.whole)


@dataclass(frozen=True, eq=False)
class Parts:
    """Columns, some of them of pairs, one after the other."""

    parts: Sequence[Column | PairColumn]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def whole(self) -> Column:
        return torch.cat([part if isinstance(part, torch.Tensor) else part.whole() for part in self.parts])


Late = PairColumn | Parts


def parts_of(column: Column | Late) -> list[Column | PairColumn]:
    return list(column.parts) if isinstance(column, Parts) else [column]


def number_of_sources(part: Column | PairColumn) -> int:
    """The number of rows, or of the probes that have pairs."""
    return len(part) if isinstance(part, torch.Tensor) else len(part.pairs.ends)


def aligned(columns: Sequence[Column | Late]) -> list[list[Any]]:
    """The columns of each part of a table [part][column]: of a join all are of pairs, of other parts none is."""
    parts = [parts_of(column) for column in columns]
    if len({len(of) for of in parts}) > 1:
        parts = [[column if isinstance(column, torch.Tensor) else column.whole()] for column in columns]
    found = []
    for part in zip(*parts):
        joins = {column.pairs if isinstance(column, PairColumn) else None for column in part}
        is_late = len(joins) == 1
        found.append([x if is_late or isinstance(x, torch.Tensor) else x.whole() for x in part])
    return found


def in_pieces(part: Sequence[Any]) -> Iterator[list[Column]]:
    """The rows of a part, at most `Torch.piece` pairs at once."""
    if not isinstance(part[0], PairColumn):
        yield list(part)
        return
    pairs = part[0].pairs
    piece = pairs.arrays.piece
    for start in range(0, len(pairs), piece):
        rows = pairs.rows(start, min(start + piece, len(pairs)))
        yield [column.at(rows) for column in part]


def packed(columns: Sequence[Column], types: Sequence[n.Type]) -> list[Column]:
    """Columns as fewer keys in the same order: the bits of neighbours, side by side, as far as 64 go."""
    keys: list[Column] = []
    groups: list[list[tuple[Column, n.Type]]] = []
    left = 0
    for column, of in zip(columns, types):
        if not groups or of.bits > left:
            groups.append([])
            left = 64
        groups[-1].append((column, of))
        left -= of.bits
    for (key, first), *others in groups:
        if first.is_natural and first.bits + sum(of.bits for _, of in others) == 64:
            # Numbers without a sign that take the bit of the sign.
            key = key - (1 << first.bits - 1)
        for column, of in others:
            key = (key << of.bits) + (column if of.is_natural else column + (1 << of.bits - 1))
        keys.append(key)
    return keys


@dataclass(frozen=True)
class Packing:
    """Keys of rows: (the least value, the bits) of each column."""

    lows: tuple[int, ...]
    bits: tuple[int, ...]

    @staticmethod
    def of(ends: Sequence[tuple[int, int]]) -> Packing | None:
        """For columns between these values, and further ones where there are bits left; None where 63 are too few."""
        least = [(high - low).bit_length() for low, high in ends]
        used = sum(least)
        if used > LONG or max(least) > 62:
            return None
        spare = ((SHORT if used + len(ends) <= SHORT else LONG) - used) // len(ends)
        # Below zero there is mostly nothing, and further values mostly lie above.
        lows = [
            min(low, 0) if high - min(low, 0) < 1 << bits + spare else low for (low, high), bits in zip(ends, least)
        ]
        return Packing(tuple(lows), tuple(bits + spare for bits in least))

    @property
    def dtype(self) -> torch.dtype:
        return torch.int32 if sum(self.bits) <= SHORT else torch.int64

    def keys(self, columns: Sequence[Column]) -> Column:
        found: Any = 0
        for column, low, bits in zip(columns, self.lows, self.bits):
            found = (found << bits) + (column - low)
        return found.to(self.dtype)

    def holds(self, ends: Sequence[tuple[int, int]]) -> bool:
        return all(
            low >= least and high - least < 1 << bits for (low, high), least, bits in zip(ends, self.lows, self.bits)
        )


def ends_of(columns: Sequence[Column]) -> list[tuple[int, int]]:
    """The smallest and the largest value of each column; there are rows."""
    ends = torch.stack([end for column in columns for end in torch.aminmax(column)]).tolist()
    return list(zip(ends[::2], ends[1::2]))


def roomier(columns: Sequence[Column], room: int) -> list[Column]:
    """Columns of that number of rows, of which the first ones are these."""
    found = [column.new_empty(room) for column in columns]
    for wide, column in zip(found, columns):
        wide[: len(column)] = column
    return found


class SortedRows:
    """A set by operations of torch: sorted runs of keys, each of them longer than the next; without keys of 63 bits the
    rows are compared column by column.

    columns  of the rows, as they came, and of room for more
    runs     keys, and the numbers of their rows
    known    the room of the last run
    """

    def __init__(self, arrays: Torch, types: Sequence[n.Type], known: Room):
        self.arrays, self.types, self.count, self.known = arrays, types, 0, known
        self.columns = [torch.empty(0, dtype=torch.int64, device=arrays.device) for _ in types]
        self.packing: Packing | None = None
        self.runs: list[tuple[Column, Column]] = []

    def insert(self, columns: Sequence[Column | Late]) -> list[Column]:
        before = self.count
        for part in aligned(columns):
            for piece in in_pieces(part):
                self._insert(piece)
        return [column[before:] for column in self.rows(self.count)]

    def rows(self, count: int) -> list[Column]:
        """The first rows."""
        return [column[:count] for column in self.columns]

    def _insert(self, columns: list[Column]) -> None:
        if not len(columns[0]):
            return
        ends = ends_of(columns)
        if not self.count:
            self.packing = Packing.of(ends)
        elif self.packing is not None and not self.packing.holds(ends):
            there = self.rows(self.count)
            self.packing = Packing.of([(min(a, c), max(b, d)) for (a, b), (c, d) in zip(ends, ends_of(there))])
            self.runs = [] if self.packing is None else [sorted_keys(self.packing.keys(there))]
        rows = self._by_columns(columns) if self.packing is None else self._by_keys(self.packing.keys(columns))
        if len(rows):
            start, self.count = self.count, self.count + len(rows)
            if self.count > len(self.columns[0]):
                self.known.rows = max(2 * self.count, 0 if start else self.known.wanted(self.count))
                self.columns = roomier(self.rows(start), self.known.rows)
            for there, column in zip(self.columns, columns):
                there[start : self.count] = column.index_select(0, rows)

    def _by_keys(self, keys: Column) -> Column:
        """The numbers of the rows that are new; their keys are a run from now on."""
        found = torch.sort(keys)
        is_new = torch.ones_like(keys, dtype=torch.bool)
        is_new[1:] = found.values[1:] != found.values[:-1]
        is_new &= self._find(found.values) < 0
        fresh = is_new.nonzero().squeeze(1)
        if len(fresh):
            numbers = torch.arange(self.count, self.count + len(fresh), device=keys.device)
            self.runs.append((found.values.index_select(0, fresh), numbers))
            while len(self.runs) > 1 and 2 * len(self.runs[-1][0]) > len(self.runs[-2][0]):
                whole, numbers = map(torch.cat, zip(*self.runs[-2:]))
                whole, order = torch.sort(whole)
                self.runs[-2:] = [(whole, numbers.index_select(0, order))]
        return found.indices.index_select(0, fresh)

    def _find(self, keys: Column) -> Column:
        """The numbers of the rows with these keys, -1 without one."""
        found = torch.full(keys.shape, -1, dtype=torch.int64, device=keys.device)
        for run, numbers in self.runs:
            place = torch.searchsorted(run, keys).clamp_(max=len(run) - 1)
            found = torch.where(run.index_select(0, place) == keys, numbers.index_select(0, place), found)
        return found

    def locate(self, columns: Sequence[Column]) -> Column:
        """Where each row is among those of the set, which has it."""
        if self.packing is not None:
            return self._find(self.packing.keys(columns))
        types = [n.Type("int64")] * len(columns)
        index = self.arrays.build(self.rows(self.count), types, self.count, False)
        return self.arrays.find(list(columns), index, len(columns[0]))

    def _by_columns(self, columns: list[Column]) -> Column:
        arrays, types = self.arrays, [n.Type("int64")] * len(columns)
        order = arrays.sort(columns, types, len(columns[0]))
        first, _ = arrays.unique([arrays.gather(column, order, None) for column in columns], len(order))
        rows = first if isinstance(order, range) else order.index_select(0, first)
        if self.count:
            index = arrays.build(self.rows(self.count), types, self.count, False)
            there = arrays.find([column.index_select(0, rows) for column in columns], index, len(rows))
            rows = rows.index_select(0, (there < 0).nonzero().squeeze(1))
        return rows


class HashRows:
    """A set by Triton's kernels, see `device.cuda.row_sets`; its rows lie in columns with room for more of them.

    numbers  [slot] the number of the row whose key is there, once somebody has looked up where rows are
    indexes  positions of columns -> the last two indexes by them: keys in order, and the numbers of their rows
    known    the room of the last run

    Rows are inserted without knowing how many are new. Where they are too many, or a value is out of reach of the keys,
    the rows before enter a larger set, and the insertion begins again.
    """

    def __init__(self, columns: Sequence[Column | Late], packing: Packing, known: Room):
        self.device, self.known = _device_of(columns[0]), known
        self.packing, self.count, self.latest, self.room = packing, 0, 0, 0
        self.columns = [torch.zeros(0, dtype=torch.int64, device=self.device) for _ in columns]
        self.state = torch.zeros(2, dtype=torch.int64, device=self.device)
        self.numbers: Column | None = None
        self.indexes: dict[tuple[int, ...], list[tuple[Column, Column]]] = {}

    @staticmethod
    def of(columns: Sequence[Column | Late], known: Room) -> HashRows | None:
        """A set without rows, for such rows; None where they have no keys."""
        packing = Packing.of(_ends_of_sources(columns))
        if packing is None:
            return None
        rows, begin = HashRows(columns, packing, known), sum(map(number_of_sources, parts_of(columns[0])))
        if room := known.wanted(begin):
            rows._grow(room)
        return rows

    def rows(self, count: int) -> list[Column]:
        """The first rows."""
        return [column[:count] for column in self.columns]

    def insert(self, columns: Sequence[Column | Late]) -> list[Column] | None:
        """The rows that are new; None if some have no keys, and nothing is inserted then."""
        before, parts = self.count, aligned(columns)
        least = sum(len(part[0]) for part in parts if isinstance(part[0], torch.Tensor))
        if not self.room or self.room < before + max(least, 4 * self.latest):
            # To read how many pairs there are takes less time than to insert them twice.
            least = max(FEW, min(sum(len(part[0]) for part in parts), max(MANY, 4 * before)))
        while True:
            if self.room < before + least:
                self._grow(max(2 * self.room, before + least))
            for part in parts:
                self._insert(part)
            found, is_outside = self.state.tolist()
            if not is_outside and found <= self.room:
                self.count, self.latest = found, found - before
                return [column[before:found] for column in self.columns]
            if is_outside:
                ends = _ends_of_sources(columns)
                if before:
                    ends = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(ends, ends_of(self.rows(before)))]
                packing = Packing.of(ends)
                if packing is None:
                    return None
                self.packing = packing
            # Nobody knows how many were left out.
            least = 4 * max(found - before, least) if found > self.room else self.room - before
            self.room = 0

    def index(self, positions: tuple[int, ...], types: Sequence[n.Type], count: int) -> tuple[Column, Column]:
        """The keys of the first rows by some columns, in order, and their numbers. An index of fewer rows goes on."""
        known = self.indexes.setdefault(positions, [])
        before = next((pair for pair in reversed(known) if len(pair[0]) <= count), None)
        start = 0 if before is None else len(before[0])
        if before is not None and start == count:
            return before
        rows = [self.columns[position][start:count] for position in positions]
        keys, order = sorted_keys(packed(rows, types)[0])
        if before is not None and start:
            news, places, (keys, order) = keys, order, torch.empty(2, count, dtype=torch.int64, device=self.device)
            row_sets.merge(*before, news, places, keys, order)
        known.append((keys, order))
        del known[:-2]
        return keys, order

    def _grow(self, room: int) -> None:
        """Have room for that number of rows, and keys of the first `count` ones."""
        there, slots = self.rows(self.count), row_sets.slots_for(room)
        self.columns = roomier(there, room)
        pairs = [x for pair in zip(self.packing.lows, self.packing.bits) for x in pair]
        form = [64 - (slots.bit_length() - 1), slots - 1, room, *pairs]
        self.form = torch.tensor(form, device=self.device)
        self.table = torch.full((slots + row_sets.TILE,), -1, dtype=self.packing.dtype, device=self.device)
        self.room = self.known.rows = room
        if self.numbers is not None:
            self.numbers = torch.empty(slots, dtype=torch.int64, device=self.device)
        self._enter(there)

    def _enter(self, there: Sequence[Column]) -> None:
        """Have the keys of the first rows in the table, and where these are, if somebody wants that."""
        self.state.zero_()
        row_sets.insert(there, None, self.form, self.table, self.state, self.count, numbers=self.numbers)

    def locate(self, columns: Sequence[Column]) -> Column:
        """Where each row is among those of the set, which has it."""
        if self.numbers is None:
            self.numbers = torch.empty(len(self.table) - row_sets.TILE, dtype=torch.int64, device=self.device)
            self.table.fill_(-1)
            self._enter(self.rows(self.count))
        found = torch.empty(len(columns[0]), dtype=torch.int64, device=self.device)
        row_sets.locate([column.contiguous() for column in columns], self.form, self.table, self.numbers, found)
        return found

    def _insert(self, part: Sequence[Any]) -> None:
        if not isinstance(part[0], PairColumn):
            sources = [column.contiguous() for column in part]
            row_sets.insert(
                sources, self.columns, self.form, self.table, self.state, len(part[0]), numbers=self.numbers
            )
            return
        pairs = part[0].pairs
        if not len(pairs.index.keys):
            return
        numbers: dict[int, Column] = {}
        for column in part:
            if column.of is None and column.side not in numbers:
                numbers[column.side] = torch.arange(column.number_of_sources, device=self.device)
        sources = [numbers[x.side] if x.of is None else x.of.contiguous() for x in part]
        row_sets.insert(
            sources,
            self.columns,
            self.form,
            self.table,
            self.state,
            len(pairs.ends),
            pairs.places,
            [column.side for column in part],
            self.numbers,
        )


def _device_of(column: Column | Late) -> torch.device:
    part = parts_of(column)[0]
    return part.device if isinstance(part, torch.Tensor) else part.pairs.ends.device


def _ends_of_sources(columns: Sequence[Column | Late]) -> list[tuple[int, int]]:
    """Between which values those of each column are: those of what a column of pairs is read from, which are more."""
    found = []
    for column in columns:
        ends = []
        for part in parts_of(column):
            source = part if isinstance(part, torch.Tensor) else part.of
            if isinstance(part, PairColumn) and source is None:
                ends.append((0, part.number_of_sources))
            elif source is not None and len(source):
                ends += ends_of([source])
        found.append((min((low for low, _ in ends), default=0), max((high for _, high in ends), default=0)))
    return found


def sorted_keys(keys: Column, most: int = MOST_ROWS) -> tuple[Column, Column]:
    """Keys in ascending order, equal ones as they stand, and the numbers of their rows; `most` are sorted at once."""
    if len(keys) > most:
        raise LimitError(
            f"{len(keys):,} rows are to be sorted, and torch sorts {most:,} at most",
            hint="have fewer rows at once in a relation, or run on the CPU",
        )
    found = torch.sort(keys, stable=True)
    return found.values, found.indices


@dataclass(frozen=True, eq=False)
class Known:
    """A set after an insertion: its first `count` rows, of which the first `before` were there before."""

    rows: Any
    before: int
    count: int

    def __len__(self) -> int:
        return self.count
