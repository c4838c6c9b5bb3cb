"""How the rows of a table are looked up: one hash of row numbers while rows are few or have values that are no small
integers, else one set of last values for each prefix. Rows that come in bulk are inserted when they are
first looked for."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.forks import renew_in_children
from derivable.datalog.kernels import relations as kernels
from derivable.datalog.policy.costs import policy
from derivable.datalog.tables.sets import PrefixSets
from derivable.device.cpu.memory import contiguous, empty, zeros

if TYPE_CHECKING:
    from derivable.datalog.kernels.row_sets import SetForm
    from derivable.datalog.tables.storage import Table
    from derivable.datalog.values.values import ValueType

_NO_SLOTS = empty(0, np.uint32)
updating = threading.RLock()
renew_in_children(globals(), updating=threading.RLock)


class RowSet:
    """The set of the rows of a table, which owns the log.

    prefix_sets  the sets by prefix, None for the hash
    slots        of the hash, see `relations.intern_rows`
    is_stale     whether the rows, which are distinct, are in neither yet
    may_have_prefixes  whether the values may be those of sets by prefix
    may_be_sorted  whether the first rows may be sorted, if they are many, and have no numbers
    ordered      how many rows, the first ones, are known to be in the order of their columns
    leading      the column by which first the rows ascend so far, all of them different; None if no order is known
    gathered     rows that the table will get, as `BulkLoad` knows already
    passes       how often few rows were looked for by a pass over all, see `scan`
    last_pass    the columns and the part of the rows of the last one, the keys, and what rows have which of them
    bounds       the least and the greatest words [column, block] of the first blocks of rows, see `scan`
    """

    __slots__ = (
        "bounds",
        "gathered",
        "is_stale",
        "last_pass",
        "leading",
        "may_be_sorted",
        "may_have_prefixes",
        "ordered",
        "passes",
        "prefix_sets",
        "slots",
    )

    def __init__(self, may_have_prefixes: bool, may_be_sorted: bool = False, is_stale: bool = False):
        self.prefix_sets: PrefixSets | None = None
        self.slots = _NO_SLOTS if is_stale else zeros(2 * 4 * policy().first_rows, np.uint32)
        self.may_have_prefixes, self.may_be_sorted, self.is_stale = may_have_prefixes, may_be_sorted, is_stale
        self.ordered = self.passes = self.gathered = 0
        self.leading: int | None = None
        self.last_pass: tuple | None = None
        self.bounds: tuple[np.ndarray, np.ndarray] | None = None

    @staticmethod
    def of(types: Sequence[ValueType], is_tagged: bool) -> RowSet:
        """That of a table without rows."""
        return RowSet(bool(types) and all(t.family != "float" for t in types), bool(types) and not is_tagged)

    def copy(self) -> RowSet:
        """The same for another table with the same rows."""
        made = copy.copy(self)
        made.prefix_sets, made.slots = copy.deepcopy(self.prefix_sets), self.slots.copy()
        made.leading = None
        return made

    @property
    def form(self) -> SetForm | None:
        """The form of the sets by prefix, None for the hash."""
        return None if self.prefix_sets is None else self.prefix_sets.form

    @property
    def has_numbers(self) -> bool:
        """Whether it tells the numbers of rows."""
        return not self.is_stale and (self.form is None or self.form.numbered)

    def find(self, table: Table, columns: Sequence[np.ndarray], count: int) -> np.ndarray:
        """As `Table.find`."""
        ids = empty(count, np.int64)
        self.update(table)
        if self.prefix_sets is not None:
            self.prefix_sets.find(columns, count, ids)
        else:
            kernels.intern_rows(table.log, table.size, self.slots, table.rows_of(columns, count), ids, False)
        return ids

    def insert(
        self, table: Table, columns: Sequence[np.ndarray], count: int, check_budget: Callable[[], Any] | None
    ) -> np.ndarray:
        """As `Table.insert`, row by row."""
        ids, done = empty(count, np.int64), 0
        self.update(table)
        if self.prefix_sets is not None or (self.may_have_prefixes and table.size + count >= policy().set_rows):
            columns = [contiguous(column, np.int64) for column in columns]
            self.use_prefixes(table, columns)
        if self.prefix_sets is not None:
            done = self.prefix_sets.insert(table, columns, 0, count, ids)
            if done == count:
                return ids
            self.use_hash(table)
        for start in range(done, count, policy().chunk):
            if check_budget is not None:
                check_budget()
            stop = min(start + policy().chunk, count)
            needed = table.size + stop - start
            if needed > len(table.log):
                table.grow_log(needed)
            self.grow(table, needed)
            rows = table.rows_of(columns if stop - start == count else [c[start:stop] for c in columns], stop - start)
            table.size = kernels.intern_rows(table.log, table.size, self.slots, rows, ids[start:stop], True)
        return ids

    def grow(self, table: Table, least: int) -> None:
        """Make room for at least so many rows, and for those of the log, in the hash."""
        if 4 * least > len(self.slots):
            self._rehash(table, 4 * max(least, len(table.log)))

    def _rehash(self, table: Table, slots: int) -> None:
        self.slots = zeros(2 << int(slots - 1).bit_length(), np.uint32)
        kernels.rehash_rows(table.log, table.size, self.slots)

    def update(self, table: Table) -> None:
        """Insert rows that came in bulk."""
        if not self.is_stale:
            return
        # Several threads may ask what a run has returned.
        with updating:
            if self.is_stale and self.may_have_prefixes:
                top = int(table.log[: table.size, -1].max())
                sets = PrefixSets(table.width, table.new_tags is not None, top + 1)
                # To insert rows is to count them again from the first; others may read this table meanwhile.
                counted = copy.copy(table)
                counted.size = 0
                if sets.fill(counted, table.size):
                    self.prefix_sets = sets
                else:
                    # Its prefixes are nearly all different.
                    self.use_hash(table)
            elif self.is_stale:
                table.log = table.log.astype(np.int64, copy=False)
                self._rehash(table, max(64, 2 * table.size))
            self.is_stale = False

    def use_prefixes(self, table: Table, columns: Sequence[np.ndarray] = ()) -> bool:
        """Go over to sets by prefix if the rows and these columns of others are in reach, else never; whether rows are
        there.
        """
        if self.prefix_sets is not None:
            return True
        if not self.may_have_prefixes:
            return False
        there = list(table.log[: table.size].T) if table.size else []
        parts = [part for part in (columns, there) if len(part)]
        if not all(map(PrefixSets.can_hold, parts)):
            self.may_have_prefixes = False
            return False
        top = max((int(part[-1].max()) for part in parts), default=0)
        self.prefix_sets = PrefixSets(table.width, table.new_tags is not None, top + 1)
        log = empty(table.log.shape, np.int32)
        log[: table.size] = table.log[: table.size]
        table.log, self.slots = log, _NO_SLOTS
        size, table.size = table.size, 0
        if not self.prefix_sets.fill(table, size):
            # Its prefixes are nearly all different.
            table.size = size
            self.use_hash(table)
            return False
        self.is_stale = False
        return True

    def use_hash(self, table: Table) -> None:
        """Go over, for good, to the hash, which numbers rows and holds any values."""
        self.may_have_prefixes = self.may_be_sorted = False
        if self.prefix_sets is not None or self.is_stale:
            table.log = table.log.astype(np.int64)
            self.prefix_sets, self.is_stale = None, False
            self._rehash(table, max(64, 2 * table.size))
