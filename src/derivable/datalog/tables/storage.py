"""Tables: what a relation is while a program runs.

A table is an append-only log of rows of words, a set of its rows, and indexes that grow with the log; nothing is ever
sorted or merged. A row's life: pending (in the candidates of a round), recent (new or improved in the last round),
stable. Untagged recent rows are a slice of the log; tagged ones a list of row numbers, because a better tag makes an
old row recent again; a stamp, the round in which it last became recent, tells the parts apart.

A table is made of parts: its log, the set that finds rows (`RowSet`), tags in columns, and indexes. Rows without tags
that come in bulk are sorted, and are inserted into the set when they are first looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from derivable.datalog.policy.costs import policy
from derivable.datalog.tables import row_set, scan
from derivable.datalog.tables.index import NO_STAMPS, Index
from derivable.datalog.tables.packing import Packing, ascends, distinct
from derivable.datalog.tables.row_set import RowSet
from derivable.datalog.tables.sets import PrefixSets
from derivable.datalog.tables.tag_columns import longer_tags, parts_of
from derivable.datalog.values.values import ValueType
from derivable.device.cpu.memory import empty, expect, full, longer, look, next_length, zeros
from derivable.device.cpu.threads import get_num_threads, run_chunks
from derivable.parallel.order import is_in_order


class Table:
    """The rows of one relation; see the module's docstring.

    log     [capacity, max(arity, 1)] int64 (a nullary relation has one column of zeros); int32 with sets by prefix; of
            rows that came as sets it is written when somebody reads it
    row_set what finds rows
    tags    [capacity] made by `new_tags`, or None for untagged tables
    stamps  [capacity] int32, the round in which a row last became recent, or None where no rule asks what is stable
    recent  row numbers, or a slice of the log
    """

    def __init__(
        self,
        name: str,
        types: Sequence[ValueType],
        new_tags: Callable[[int], Any] | None = None,
        has_stamps: bool = False,
    ):
        self.name = name
        self.types = tuple(types)
        self.size = 0
        self.row_set = RowSet.of(self.types, new_tags is not None)
        self._log: np.ndarray | None = empty((policy().first_rows, self.width), np.int64)
        self.new_tags = new_tags
        self.tags: Any = None if new_tags is None else new_tags(policy().first_rows)
        self.stamps: np.ndarray | None = zeros(policy().first_rows, np.int32) if has_stamps else None
        self.recent: slice | np.ndarray = slice(0, 0)
        self.visible_size = 0
        self.round = 0
        self.indexes: dict[tuple[Any, ...], Index] = {}

    def __len__(self) -> int:
        return self.size

    @property
    def width(self) -> int:
        """The columns of the log."""
        return max(1, len(self.types))

    @property
    def stable_size(self) -> int:
        """The rows before the recent ones, which are a slice."""
        assert isinstance(self.recent, slice)
        return self.recent.start

    @property
    def elsewhere(self) -> tuple[Any, ...] | None:
        """The columns of words [row] on the device where a run has computed them, None if they are on the host."""
        return None

    @property
    def num_known(self) -> int:
        """How many rows it has, with those that are gathered."""
        return self.size + self.row_set.gathered

    @property
    def rows_worth_kernels(self) -> float:
        """Rows that a rule must go through here before it is worth a kernel."""
        return 0

    @property
    def joins_values(self) -> bool:
        """Whether rows that are inserted change others, so that no kernel inserts here."""
        return False

    @property
    def log(self) -> np.ndarray:
        if self._log is None:
            self._write_log()
        assert self._log is not None
        return self._log

    @log.setter
    def log(self, log: np.ndarray) -> None:
        self._log = log

    @property
    def has_log(self) -> bool:
        """Whether the log is written, as it is unless all rows came as sets."""
        return self._log is not None

    @property
    def word_type(self) -> np.dtype:
        """The type of the words of the log."""
        return np.dtype(np.int32) if self._log is None else self._log.dtype

    def column(self, position: int, rows: slice | np.ndarray | None = None, dtype: Any = np.int64) -> np.ndarray:
        """Words [row] of one column, of all rows or some; of another dtype if its values fit in it."""
        if rows is None and not self.has_log:
            return self._columns_of_sets({position: dtype})[0]
        if rows is None:
            rows = slice(0, self.size)
        log = self.log
        if isinstance(rows, slice):
            part = log[rows, position]
            if len(part) < policy().few:
                return part.astype(dtype)
            column = empty(len(part), dtype)
            np.copyto(column, part, casting="unsafe")
            return column
        if len(rows) <= policy().chunk and log.dtype == dtype:
            return log.reshape(-1).take(rows * self.width + position)
        column = empty(len(rows), dtype)
        for start in range(0, len(rows), policy().chunk):
            part = rows[start : start + policy().chunk]
            # Of a column with gaps NumPy would copy all before it takes some.
            column[start : start + policy().chunk] = log.reshape(-1).take(part * self.width + position)
        return column

    def view(self, position: int, rows: slice) -> np.ndarray:
        """Words [row] of one column of some rows where they lie in the log, in its type; nothing is copied."""
        return self.log[rows, position]

    def words(self) -> list[np.ndarray]:
        """Words [row] of all columns, of 32 or 64 bits, where they lie if they are written."""
        if not self.has_log:
            return self._columns_of_sets(dict.fromkeys(range(len(self.types)), self.word_type))
        return [self.view(c, slice(0, self.size)) for c in range(len(self.types))]

    def all_columns(self, dtypes: Sequence[Any]) -> list[np.ndarray]:
        """Words [row] of all columns, of these dtypes."""
        if not self.has_log:
            # The sets are gone through once.
            return self._columns_of_sets(dict(enumerate(dtypes)))
        return [self.column(c, dtype=dtype) for c, dtype in enumerate(dtypes)]

    def rows_of(self, columns: Sequence[np.ndarray], count: int) -> np.ndarray:
        """Rows [row, column] of word columns."""
        rows = empty((count, self.width), np.int64)
        if not columns:
            rows[:] = 0
        for i, column in enumerate(columns):
            rows[:, i] = column
        return rows

    def grow_log(self, least: int) -> None:
        """Make room for at least so many rows, and their tags."""
        capacity = next_length(len(self.log), least)
        self.log = longer(self.log, capacity, self.size)
        if self.stamps is not None:
            self.stamps = longer(self.stamps, capacity, self.size)
        if self.new_tags is not None:
            self.tags = longer_tags(self.tags, capacity, self.size)

    def take_news(self) -> int:
        """Make the rows that are not propagated yet the recent ones; returns how many there are."""
        stable, size = self.visible_size, self.size
        self.visible_size, self.recent = size, slice(stable, size)
        return size - stable

    def take_tagged_news(self, stamp: int) -> int:
        """The same of rows with tags, which the end of round `stamp` has made the recent ones."""
        self.visible_size, self.round = self.size, stamp
        return self.num_recent

    @property
    def num_recent(self) -> int:
        return self.recent.stop - self.recent.start if isinstance(self.recent, slice) else len(self.recent)

    def like(self) -> Table:
        """A table of the same relation without rows."""
        return Table(self.name, self.types, self.new_tags, self.stamps is not None)

    # Rows that came as sets

    def _write_log(self) -> None:
        """Write the rows of the sets to the log, prefix after prefix."""
        # Several threads may read what a run has returned.
        with row_set.updating:
            if self._log is not None:
                return
            assert self.row_set.prefix_sets is not None
            log = empty((16, self.width), np.int32)
            expect(self.size * self.width * log.itemsize)
            log, filled = longer(log, self.size, 0), 0
            for rows in self.row_set.prefix_sets.parts(policy().cache_rows):
                log[filled : filled + len(rows)] = rows
                filled += len(rows)
                look()
            self._log = log

    def _columns_of_sets(self, dtypes: Mapping[int, Any]) -> list[np.ndarray]:
        """Columns of the log as `_write_log` makes it, by their positions."""
        sets = self.row_set.prefix_sets
        assert sets is not None
        columns = [empty(self.size, dtype) for dtype in dtypes.values()]
        # The first prefix of each thread, and the row of that.
        prefixes, rows, threads = [0, None], [0], get_num_threads()
        if threads > 1 and self.size >= policy().shared_rows and not sets.form.numbered:
            ends = np.cumsum(sets.sizes())
            cuts = np.unique(np.searchsorted(ends, [self.size * k // threads for k in range(1, threads)], "right"))
            prefixes, rows = [0, *cuts.tolist(), None], [0, *(ends[cuts - 1] * (cuts > 0)).tolist()]

        def read(start: int, stop: int, sets: PrefixSets) -> None:
            for k in range(start, stop):
                filled = rows[k]
                for part in sets.parts(policy().cache_rows, prefixes[k] or 0, prefixes[k + 1]):
                    for column, position in zip(columns, dtypes):
                        column[filled : filled + len(part)] = part[:, position]
                    filled += len(part)

        run_chunks(read, len(rows), 1, sets)
        return columns

    def to_prefix_sets(self, sets: PrefixSets, size: int) -> None:
        """Have the `size` rows of these sets, among them all that there are; nobody has news of them any more."""
        self.size, self._log, self.row_set = size, None, RowSet(True, is_stale=True)
        self.row_set.prefix_sets, self.row_set.is_stale = sets, False
        self.visible_size = size
        self.recent = slice(size, size)
        self.indexes.clear()

    def become_recent(self, rows: np.ndarray | slice, stamp: int) -> None:
        """Rows say something new in round `stamp`."""
        if self.stamps is not None:
            self.stamps[rows] = stamp

    def leave_set_behind(self) -> None:
        """Make the set of the rows, which others add to the log, when somebody asks it."""
        if not self.has_log:
            self._write_log()
        self.row_set = RowSet(self.row_set.may_have_prefixes, is_stale=True)

    def _build(self, columns: Sequence[np.ndarray], check_budget: Callable[[], Any] | None = None) -> bool:
        """Make these rows those of the table, which has none, in order; False if they do not fit in words."""
        packing = Packing.of(columns)
        if packing is None:
            return False
        packed = packing.pack(columns)
        if check_budget is not None:
            check_budget()
        if ascends(packed):
            self.build(packing, packed, packing.lows, packing.highs, columns)
            return True
        rows = distinct(packed)
        if check_budget is not None:
            check_budget()
        self.build(packing, rows, packing.lows, packing.highs)
        return True

    def _append_in_order(
        self, columns: Sequence[np.ndarray], count: int, check_budget: Callable[[], Any] | None = None
    ) -> bool:
        """Append rows of which is seen without a set that all are different, as files and rules before have them: they
        ascend, or are the first ones and have a column of different values.

        False if they do not, or somebody has asked the set of the rows before them.
        """
        known = self.row_set.leading
        if self.size and not self.row_set.is_stale:
            self.row_set.leading = None
            return False
        if check_budget is not None:
            check_budget()
        width = len(columns)
        last = [self.log[self.size - 1 : self.size, c] for c in range(width)] if self.size else []
        for leading in range(width) if known is None else (known,):
            order = [leading, *(c for c in range(width) if c != leading)]
            is_next = not last or is_in_order([np.append(last[c], columns[c][:1]) for c in order], strictly=True)
            if is_next and is_in_order([columns[c] for c in order], strictly=True):
                break
        else:
            leading = None
        self.row_set.leading = leading
        if not self.size and (leading is not None or any(map(_is_key, columns))):
            self.assign_distinct(self.rows_of(columns, count), count)
            self.row_set.leading = leading
            return True
        if leading is None:
            return False
        if self.log.dtype == np.int32 and not PrefixSets.can_hold([np.asarray(c, np.int64) for c in columns]):
            self.row_set.leading = None
            return False
        if self.size + count > len(self.log):
            self.grow_log(self.size + count)
        for c, column in enumerate(columns):
            self.log[self.size : self.size + count, c] = column
        self.size += count
        return True

    def build(
        self,
        packing: Packing,
        rows: np.ndarray,
        lows: Sequence[int],
        highs: Sequence[int],
        columns: Sequence[np.ndarray] | None = None,
    ) -> None:
        """Make rows that were packed, in order and without repeats, those of the table, which has none.

        lows, highs  between which the values of each column are
        columns      the same rows as columns [row], where there are such
        """
        self.row_set = RowSet(self.row_set.may_have_prefixes and PrefixSets.holds(lows, highs), is_stale=True)
        dtype = np.int32 if self.row_set.may_have_prefixes else np.int64
        self.log = longer(empty((16, self.width), dtype), len(rows), 0)
        if columns is None:
            packing.unpack(rows, self.log)
        else:
            for c, column in enumerate(columns):
                self.log[: len(rows), c] = column
        self.size = self.row_set.ordered = len(rows)

    def assign_distinct(self, log: np.ndarray, size: int, tops: Sequence[int] | None = None) -> None:
        """Have the first `size` rows of a log [row, column], all different, as those of this table, which has none; a
        log without rows if only their number will be read. Words of 32 bits are not negative.

        tops  [column] the largest values; None where words of 32 bits are in reach but for the first column
        """
        if not size:
            return
        rows, is_short = log[:size], self.row_set.may_have_prefixes
        if is_short and log.dtype == np.int64 and len(rows) and PrefixSets.can_hold(list(rows.T)):
            log = longer(empty((16, self.width), np.int32), size, 0)
            np.copyto(log[:size], rows, casting="unsafe")
        tops = tops or [int(rows[:, 0].max(initial=0)), *([0] * (self.width - 1))]
        is_short = is_short and log.dtype == np.int32 and PrefixSets.holds([0], tops)
        self.row_set = RowSet(is_short, is_stale=True)
        self.log = log if is_short else log.astype(np.int64, copy=False)
        self.size = size

    def fork(self, size: int | None = None, with_set: bool = False) -> Table:
        """A table with the first `size` rows, all if it is None, on the same memory until one of the two gets more.

        with_set  whether to copy the set of all rows now; else it is made when somebody asks it
        Tags and stamps are those of this table: who is going to change them replaces them by copies first.
        """
        made = self.like()
        made.round = self.round
        count = self.size if size is None else size
        is_small = self.log.dtype == np.int64 and count < policy().set_rows
        if not count:
            made.row_set.may_have_prefixes = self.row_set.may_have_prefixes
            made.row_set.may_be_sorted = self.row_set.may_be_sorted
            return made
        # What lies on a buffer does not grow into the memory behind it.
        made.log, made.size, made.visible_size = np.asarray(self.log[:count].data), count, count
        made.tags, made.stamps = self.tags, self.stamps
        if with_set and not is_small:
            made.row_set = self.row_set.copy()
        else:
            made.row_set = RowSet(self.log.dtype == np.int32, is_stale=True)
        if is_small:
            made.row_set.may_have_prefixes = self.row_set.may_have_prefixes
            made.row_set.grow(made, count)
            made.row_set.is_stale = False
        return made

    def rows_in(self, other: Table) -> np.ndarray:
        """The numbers [row], in order, of the rows that another table, without tags, has too."""
        width = len(self.types)
        if not other.size or not self.size:
            return empty(0, np.int64)
        if width and self.size > policy().few and self.row_set.has_numbers:
            rows = self.find(other.all_columns([np.int64] * width), other.size)
            return np.sort(rows[rows >= 0])
        some = [slice(0, self.size)]
        if self.size > policy().few:
            # Sets that are made have no numbers of rows, but the indexes that rules have made do.
            keys = max((key for key in self.indexes if key and isinstance(key[-1], int)), key=len, default=(0,))
            first = other.column(keys[0])
            probes = scan.different(first).reshape(-1, 1)
            if len(keys) > 1:
                probes = np.unique(np.stack([first, *(other.column(c) for c in keys[1:])], 1), axis=0)
            some = (rows for _, rows in self.matches(keys, True, probes, self.size))
        parts = []
        for rows in some:
            columns = [self.column(c, rows) for c in range(width)]
            there = other.find(columns, rows.stop if isinstance(rows, slice) else len(rows)) >= 0
            parts.append(np.flatnonzero(there) if isinstance(rows, slice) else rows[there])
        return np.sort(np.concatenate(parts)) if parts else empty(0, np.int64)

    def without(self, rows: np.ndarray) -> Table:
        """A table on other memory that has all but these rows, whose numbers are in order; all are stable.

        The last rows have moved to where those were. The set is made when rows are first looked for.
        """
        holes, log = Holes(rows, self.size), self.log
        made, size = self.like(), holes.size
        made.round = self.round
        if not size:
            made.row_set.may_have_prefixes = self.row_set.may_have_prefixes
            return made
        made.log = longer(empty((16, self.width), log.dtype), size, 0)
        pairs = [(made.log, log)]
        if self.new_tags is not None:
            made.tags = self.new_tags(len(made.log))
            pairs += zip(parts_of(made.tags), parts_of(self.tags))
        if self.stamps is not None:
            made.stamps = zeros(len(made.log), np.int32)
        for new, old in pairs:
            new[:size] = old[:size]
            new[holes.filled] = old[holes.movers]
        made.size = made.visible_size = size
        made.recent = slice(size, size)
        made.row_set = RowSet(log.dtype == np.int32, is_stale=True)
        return made

    def first_rows(self, size: int) -> Table:
        """A table without tags that has the first `size` rows of this one's log, on other memory."""
        made = Table.__new__(Table)
        vars(made).update(vars(self))
        made.log, made.size, made.visible_size = self.log[:size].copy(), size, size
        made.row_set, made.indexes = RowSet(False, is_stale=True), {}
        return made

    def insert(
        self, columns: Sequence[np.ndarray], count: int, check_budget: Callable[[], Any] | None = None
    ) -> np.ndarray:
        """Find or append rows, passed as word columns [row] of int64 or smaller integers.

        Returns the rows' numbers [row] int64 (not of untagged sets).
        check_budget  checks the limits of the run while there are many
        """
        is_bulk = not self.size and self.row_set.may_be_sorted and count >= policy().set_rows
        if not count or (is_bulk and self._build(columns, check_budget)):
            return empty(count, np.int64)
        if (is_bulk or self.row_set.leading is not None) and self._append_in_order(columns, count, check_budget):
            return empty(count, np.int64)
        return self.row_set.insert(self, columns, count, check_budget)

    def insert_from(self, other: Table, rows: np.ndarray | None = None) -> np.ndarray:
        """`insert` of the rows of another table that have these numbers [row], None for all."""
        return self.insert(
            [other.column(c, rows) for c in range(len(self.types))], other.size if rows is None else len(rows)
        )

    def find(self, columns: Sequence[np.ndarray], count: int) -> np.ndarray:
        """Row numbers [row] int64 of rows, passed as word columns, -1 if absent (of untagged sets: any if present)."""
        if self.row_set.is_stale and scan.pays(self, range(self.width), count // policy().layer_times):
            ids, probes = full(count, -1, np.int64), self.rows_of(columns, count)
            for left, rows in scan.matches(
                self, self._of_probes(range(self.width)), range(self.width), probes, self.size
            ):
                ids[left] = rows
            return ids
        return self.row_set.find(self, columns, count)

    def matches(
        self,
        key_columns: tuple[int, ...],
        is_static: bool,
        probes: np.ndarray,
        limit: int,
        stamps: np.ndarray = NO_STAMPS,
        bound: int = 0,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """As `Index.matches` of the index over some columns, which is not made for few probes."""
        if key_columns and key_columns not in self.indexes and scan.pays(self, key_columns, len(probes)):
            if is_static:
                limit, stamps = self.size, NO_STAMPS
            return scan.matches(self, self._of_probes(key_columns), key_columns, probes, limit, stamps, bound)
        return self.index(key_columns, is_static).matches(probes, limit, stamps, bound)

    def _of_probes(self, columns: Sequence[int]) -> Table:
        """An empty table for words of some columns, whose set numbers its rows."""
        made = Table(self.name, [self.types[c] for c in columns])
        made.row_set.use_hash(made)
        return made

    def index(self, key_columns: tuple[int, ...], is_static: bool) -> Index:
        """The index over some columns; a static table has all its rows already."""
        index = self.indexes.get(key_columns)
        if index is None:
            index = self.indexes[key_columns] = Index(self, key_columns, is_static)
        return index


def _is_key(column: np.ndarray) -> bool:
    """Whether no value of a column, of at least one row, comes twice, if that is seen fast."""
    low, high = int(column.min()), int(column.max())
    # As many bytes as the words of the column at most.
    if not len(column) <= high - low + 1 <= 8 * len(column):
        return False
    marks = np.zeros(high - low + 1, bool)
    marks[np.subtract(column, low, dtype=np.int64)] = True
    return int(np.count_nonzero(marks)) == len(column)


class Holes:
    """How rows are numbered when some of them go: the last ones that stay replace those that went.

    rows    their old numbers, in order
    size    how many rows stay
    filled  [k] the numbers below `size` of rows that went, in order; movers: the old numbers of the rows there now
    """

    def __init__(self, rows: np.ndarray, count: int):
        self.rows, self.size = rows, count - len(rows)
        low = int(np.searchsorted(rows, self.size))
        self.filled = rows[:low]
        stays = np.ones(count - self.size, bool)
        stays[rows[low:] - self.size] = False
        self.movers = np.flatnonzero(stays) + self.size

    def old(self, rows: np.ndarray) -> np.ndarray:
        """The old numbers of rows."""
        return _replaced(rows, self.filled, self.movers)

    def new(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of rows that stay by their old ones."""
        return _replaced(rows, self.movers, self.filled)

    def has(self, rows: np.ndarray) -> np.ndarray:
        """Whether rows have gone, by their old numbers."""
        return _among(rows, self.rows)[0]


def _among(rows: np.ndarray, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(whether, where) rows are among others that are in order."""
    if not len(some):
        return np.zeros(len(rows), bool), np.zeros(len(rows), np.int64)
    positions = np.minimum(np.searchsorted(some, rows), len(some) - 1)
    return some[positions] == rows, positions


def _replaced(rows: np.ndarray, some: np.ndarray, others: np.ndarray) -> np.ndarray:
    there, positions = _among(rows, some)
    return np.where(there, others[positions], rows) if there.any() else rows
