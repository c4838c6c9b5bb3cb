"""Clauses of a recursion that are cut in two while it runs, as `ram.project` says.

A clause is cut before its recursion if it is estimated to find many rows, and else when it has found as many. How many
rows the relation between has, and of how many, is known soon: where it does not pay, the clause becomes one again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from derivable.datalog.ram import nodes as m
from derivable.datalog.ram import project
from derivable.datalog.ram.estimate import Estimator
from derivable.datalog.ram.join_order import CUTS
from derivable.datalog.tables.storage import Table

if TYPE_CHECKING:
    from derivable.datalog.run.execute import Executor

# Rows that a clause finds before it is worth a look, and how many times those of one look are worth another.
LEAST, AGAIN = 1 << 21, 8
# Rows of the relations of a clause, all together, that may find many.
FEW_ROWS = 1 << 15


class Cuts:
    """The clauses of the stratum that an executor runs.

    stratum  as it is cut so far, and `key`, which distinguishes it from others of the program
    least    clause, by its identity, -> rows that it has to find before it is looked at again
    open     cuts that were made by estimate alone, each with its middle
    """

    def __init__(self, executor: Executor, number: int):
        self.executor, self.number = executor, number
        self.stratum = executor.ram.strata[number]
        self.key: tuple = (number,)
        self.names: list[str] = []
        self.least: dict[int, int] = {}
        self.open: list[tuple[project.Middle, project.Cut]] = []
        self.watched: list[tuple[int, list[m.Store]]] = []
        # The clauses that stay as they are.
        self.whole: set[int] = set()

    def begin(self) -> bool:
        """Cut the clauses that are estimated to find many rows; nothing is propagated yet. Whether there are such."""
        self.watch()
        begun = False
        while found := next(filter(None, (self.found(stores, LEAST) for _, stores in self.watched)), None):
            self.make(found[1])
            self.open.append(found)
            begun = True
        return begun

    def end(self) -> None:
        """The relations between are of no use any more."""
        for name in self.names:
            del self.executor.tables[name]

    def watch(self) -> None:
        """Know the stores of each clause in the orders that they have now."""
        tables = self.executor.tables
        by_clause: dict[int, list[m.Store]] = {}
        for store in self.executor.instructions(self.number, "loop"):
            if m.joins_many(store) and not tables[store.relation].joins_values:
                by_clause.setdefault(id(store.origin.clause), []).append(store)
        self.watched = [(key, stores) for key, stores in by_clause.items() if key not in self.whole]

    def found_by(self, stores: Sequence[m.Store]) -> int:
        """Rows that stores have found, repeats included."""
        efforts = self.executor.efforts
        return sum(effort.candidates for store in stores if (effort := efforts.get(id(store))) is not None)

    def is_due(self) -> bool:
        """Whether there is something to look at."""
        if any(self.found_by(cut.inner) >= LEAST for _, cut in self.open):
            return True
        return any(self.found_by(stores) >= self.least.get(key, LEAST) for key, stores in self.watched)

    def change(self) -> bool:
        """Look at what is due, between two rounds; whether the recursion has other instructions now."""
        tables = self.executor.tables
        if not any(_has_waiting(tables[name]) for name in self.stratum.relations):
            return False
        for one in [one for one in self.open if self.found_by(one[1].inner) >= LEAST]:
            self.open.remove(one)
            middle, cut = one
            if not middle.pays(self.found_by(cut.inner), tables[cut.name].size):
                self.whole.add(id(middle.clause))
                self.stratum = cut.undone(self.stratum)
                self.key = *self.key, f"without {cut.name}"
                self.watch()
                return True
        for key, stores in self.watched:
            if (number := self.found_by(stores)) < self.least.get(key, LEAST):
                continue
            self.least[key] = AGAIN * number
            if (found := self.found(stores)) is not None and self.filled(*found):
                return True
        return False

    def found(self, stores: Sequence[m.Store], least: int = 0) -> tuple[project.Middle, project.Cut] | None:
        """Where a clause is best cut, if that is estimated to pay."""
        executor, tables = self.executor, self.executor.tables
        relations = {scan.relation for store in stores for n in store.query.operators if (scan := m.scan_of(n))}
        if sum(tables[name].size for name in relations) < FEW_ROWS:
            return None
        middle = project.middle(stores, Estimator(executor.statistics, True), least)
        if middle is None:
            return None
        # Kept with the program, so that stores keep their kernels.
        kept, numbers = executor.plans.setdefault(CUTS, ({}, count()))
        key = self.key, middle
        if key not in kept:
            kept.setdefault(key, middle.within(self.stratum, f"#middle_{self.number}_{next(numbers)}"))
        return None if kept[key] is None else (middle, kept[key])

    def make(self, cut: project.Cut) -> Table:
        """Have the recursion go on with a clause in two; the relation between has no rows yet."""
        types = tuple(term.type for term in cut.first.query.terms)
        table = self.executor.tables[cut.name] = Table(cut.name, types)
        self.names.append(cut.name)
        self.stratum, self.key = cut.stratum, (*self.key, cut.name)
        self.watch()
        return table

    def filled(self, middle: project.Middle, cut: project.Cut) -> bool:
        """Have what all rows give as news of the relation between; false, and all as before, if that does not pay."""
        executor, before, key = self.executor, self.stratum, self.key
        visible = {table: table.visible_size for table in map(executor.tables.__getitem__, before.relations)}
        table = self.make(cut)
        for one in visible:
            one.visible_size = one.size
        executor.insert(cut.first)
        for one, size in visible.items():
            one.visible_size = size
        if middle.pays(executor.effort(cut.first).candidates, table.size):
            return True
        self.names.pop()
        del executor.tables[cut.name]
        executor.running.pop(id(cut.first), None)
        executor.statistics.forget(cut.name)
        self.stratum, self.key = before, key
        self.watch()
        return False


def _has_waiting(table: Table) -> bool:
    """Whether a table has rows other than the recent ones that are not propagated."""
    assert isinstance(table.recent, slice)
    return table.size > table.recent.stop or table.visible_size < table.recent.start
