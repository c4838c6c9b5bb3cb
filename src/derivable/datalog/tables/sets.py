"""The set of rows of small non-negative integers of a table; see `kernels/row_sets`. The table owns the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from derivable.datalog.kernels import row_sets
from derivable.datalog.kernels.relations import rehash_rows
from derivable.datalog.policy.costs import policy
from derivable.device.cpu.memory import empty, longer, next_length, zeros

if TYPE_CHECKING:
    from derivable.datalog.tables.storage import Table

MAX_FIRST = 1 << 26


class PrefixSets:
    """One set of last values per prefix.

    arena  the memory of the sets
    state  [40] int64: the units of it that are used, and what else the kernels of `row_sets` keep there
    """

    def __init__(self, width: int, numbered: bool, domain: int):
        self.form = row_sets.SetForm(width, numbered)
        firsts = 1024 if width > 1 else 1
        self.base, self.slots, self.count = zeros(firsts, np.int64), zeros(firsts, np.int32), zeros(firsts, np.int32)
        self.table, self.words = zeros(4 * 1024, np.uint32), zeros((firsts, max(width - 1, 1)), np.int32)
        self._clear(domain)

    def _clear(self, domain: int) -> None:
        # Of so many values a dense set is a whole number of units.
        self.domain = -(-max(domain, 1) // 256) * 256
        self.arena = zeros(1 << 14, np.uint32)
        self.state = zeros(40, np.int64)
        self.state[1] = (self.domain if self.form.numbered else self.domain // 32) // row_sets.UNIT

    @property
    def units(self) -> int:
        """The units of the arena."""
        return len(self.arena) // row_sets.UNIT

    @staticmethod
    def of_bits(bits: np.ndarray, rows: np.ndarray, units: int, prefixes: np.ndarray | None = None) -> PrefixSets:
        """Sets that are all dense: that of prefix k is row rows[k] of `bits` [row * units * UNIT] uint32.

        prefixes  [prefix, column] int32 of relations of more than two columns; of pairs each number is one
        """
        made = PrefixSets(2 if prefixes is None else 1 + prefixes.shape[1], False, units * row_sets.UNIT * 32)
        made._grow_firsts(1 << max(0, len(rows) - 1).bit_length())
        made.arena = bits
        made.base[: len(rows)], made.slots[: len(rows)] = rows * units, -1
        made.state[0] = made.units
        if prefixes is not None:
            made.words[: len(rows)] = prefixes
            made.state[3] = len(rows)
            rehash_rows(made.words, len(rows), made.table)
        return made

    @property
    def num_prefixes(self) -> int:
        """Of longer prefixes, which have numbers."""
        return int(self.state[3])

    @staticmethod
    def can_hold(columns: Sequence[np.ndarray]) -> bool:
        """Whether values are in reach; there is at least one row."""
        return PrefixSets.holds([int(c.min()) for c in columns], [int(c.max()) for c in columns])

    @staticmethod
    def holds(lows: Sequence[int], highs: Sequence[int]) -> bool:
        """Whether values between these, for each column, are in reach."""
        tops = [row_sets.TOP] * len(highs)
        if len(highs) == 2:
            tops[0] = MAX_FIRST
        return min(lows) >= 0 and all(high < top for high, top in zip(highs, tops))

    @property
    def find_arguments(self) -> list:
        """Those of `row_sets.SetParameters`."""
        arguments = [len(self.base), self.domain, self.base, self.slots, self.arena]
        if self.form.has_table:
            arguments += [len(self.table) // 2, self.table, self.words.reshape(-1)]
        return arguments

    def find(self, columns: Sequence[np.ndarray], count: int, ids: np.ndarray) -> None:
        """ids [row] = number of the row, 0 where rows have none; -1 if it is absent."""
        words = [np.ascontiguousarray(c, np.int64) for c in columns]
        policy().kernels.function_of(row_sets.find_kernel, self.form)(count, *self.find_arguments, *words, ids)

    def insert(self, table: Table, columns: Sequence[np.ndarray], start: int, count: int, ids: np.ndarray) -> int:
        """Find or append rows `start` to `count` of word columns; returns how far it got: to a row out of reach."""
        i = start
        numbers = [ids] if self.form.numbered else []
        while True:
            result, i, table.size = self.insert_some(table.log, table.size, columns, i, count, numbers)
            if result == row_sets.DONE:
                return count
            if result == row_sets.LOG_FULL:
                table.grow_log(len(table.log) + 1)
            elif not self.make_room(table, result, [c[i:count] for c in columns]):
                return i

    def insert_some(
        self,
        log: np.ndarray,
        size: int,
        columns: Sequence[np.ndarray],
        start: int,
        count: int,
        numbers: Sequence[np.ndarray] = (),
    ) -> tuple[int, int, int]:
        """Insert rows `start` to `count` as far as there is room, and write new ones to the log, which has `size`.

        Returns what there is no room for, the next row and the size of the log.
        """
        return policy().kernels.function_of(row_sets.insert_kernel, self.form)(
            start,
            count,
            size,
            len(log),
            self.units,
            *self.find_arguments,
            self.count,
            self.state,
            log.reshape(-1),
            *columns,
            *numbers,
        )

    def make_room(self, table: Table, result: int, rest: Sequence[np.ndarray]) -> bool:
        """Make the room for rows that `insert_some` has not inserted; False if they are out of reach."""
        if result == row_sets.ARENA_FULL:
            used = self.units * row_sets.UNIT
            self.arena = longer(self.arena, next_length(len(self.arena)), used, cleared=True)
        elif result == row_sets.PREFIXES_FULL:
            if len(self.base) >= policy().chunk and table.size < 2 * len(self.base):
                return False
            self._grow_firsts(2 * len(self.base))
        else:
            if not self.can_hold(rest):
                return False
            if len(rest) == 2:
                self._grow_firsts(1 << int(rest[0].max()).bit_length())
            top = int(rest[-1].max())
            if top >= self.domain:
                self._widen(table, 1 << top.bit_length())
        return True

    # Room for sets

    def _grow_firsts(self, length: int) -> None:
        if length <= len(self.base):
            return
        for name in ("base", "slots", "count", "words"):
            old = getattr(self, name)
            setattr(self, name, longer(old, length, len(old), cleared=True))
        if self.form.has_table:
            self.table = zeros(4 * length, np.uint32)
            rehash_rows(self.words, self.num_prefixes, self.table)

    def _widen(self, table: Table, domain: int) -> None:
        """Build the sets again for a larger domain of last values: rows keep their numbers."""
        log = table.log
        prefixes, size = self.num_prefixes, table.size
        self._clear(domain)
        self.state[3] = prefixes
        self.slots[:], self.count[:] = 0, 0
        table.log, table.size = log, 0
        self.fill(table, size)

    def sizes(self) -> np.ndarray:
        """How many rows each prefix has."""
        number = self.num_prefixes if self.form.has_table else len(self.base)
        counts, units = self.count[:number].astype(np.int64), self.domain // (32 * row_sets.UNIT)
        dense = np.flatnonzero(self.slots[:number] < 0)
        words = self.arena[: self.units * row_sets.UNIT].view(np.uint64).reshape(-1, row_sets.UNIT // 2)
        step = max(1, (1 << 12) // units)
        for start in range(0, len(dense), step):
            some = dense[start : start + step]
            rows = words[self.base[some][:, None] + np.arange(units)]
            counts[some] = np.bitwise_count(rows).sum((1, 2))
        return counts

    def parts(self, room: int, start: int = 0, stop: int | None = None) -> Iterator[np.ndarray]:
        """The rows [row, column] int32, prefix after prefix, at most `room` at once but for large hashes.

        start, stop  the first prefix, and the one before which to stop

        A part lies where the one before it was.
        """
        log = empty((max(room, 64, int(self.slots.max())), self.form.width), np.int32)
        read = policy().kernels.function_of(row_sets.read_kernel, self.form)
        x, at = start, 0
        if stop is None:
            stop = self.num_prefixes if self.form.has_table else len(self.base)
        while x < stop:
            count, x, at = read(x, at, stop, len(log), *self.find_arguments, log.reshape(-1))
            yield log[:count]

    def fill(self, table: Table, size: int) -> bool:
        """Insert the first `size` rows of the log, which are in reach, into empty sets; False if these are too many."""
        step = min(size, 1 << 14) or 1
        ids, *columns = (empty(step, np.int64) for _ in range(self.form.width + 1))
        for start in range(0, size, step):
            count = min(step, size - start)
            for c, column in enumerate(columns):
                column[:count] = table.log[start : start + count, c]
            if self.insert(table, columns, 0, count, ids) < count:
                return False
        return True
