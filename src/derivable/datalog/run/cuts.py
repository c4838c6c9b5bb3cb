"""Clauses of a recursion that are cut in two before it begins, as `ram.project` says, where they are estimated to have
many rows."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram import project
from derivable.datalog.ram.estimate import Estimator
from derivable.datalog.ram.join_order import CUTS
from derivable.datalog.tables.storage import Table

if TYPE_CHECKING:
    from derivable.datalog.run.execute import Executor


class Cuts:
    """The clauses of the stratum that an executor runs.

    stratum  as it is cut so far, and `key`, which distinguishes it from others of the program
    names    the relations between the parts of clauses
    """

    def __init__(self, executor: Executor, number: int):
        self.executor, self.number = executor, number
        self.stratum = executor.ram.strata[number]
        self.key: tuple = (number,)
        self.names: list[str] = []

    def begin(self) -> bool:
        """Cut clauses until no other is worth it; nothing is propagated yet. Whether some were cut."""
        tables = self.executor.tables
        while (cut := self.next_cut()) is not None:
            tables[cut.name] = Table(cut.name, cut.types)
            self.names.append(cut.name)
            self.stratum, self.key = cut.stratum, (*self.key, cut.name)
        return bool(self.names)

    def end(self) -> None:
        """Forget the relations between the parts."""
        for name in self.names:
            del self.executor.tables[name]

    def next_cut(self) -> project.Cut | None:
        tables = self.executor.tables
        by_clause: dict[int, list[m.Store]] = {}
        for store in self.executor.instructions(self.number, "loop"):
            if m.joins_many(store) and not tables[store.relation].joins_values:
                by_clause.setdefault(id(store.origin.clause), []).append(store)
        return next(filter(None, map(self.cut_of, by_clause.values())), None)

    def cut_of(self, stores: list[m.Store]) -> project.Cut | None:
        """Where the clause of some stores is best cut, if that is estimated to pay."""
        executor = self.executor
        relations = {scan.relation for store in stores for n in store.query.operators if (scan := m.scan_of(n))}
        # Joins of fewer rows hardly find as many, and to estimate them takes what a small recursion does.
        if sum(executor.tables[name].size for name in relations) ** 1.5 < policy().most_at_once:
            return None
        middle = project.middle(stores, Estimator(executor.statistics, True), policy().most_at_once)
        if middle is None:
            return None
        # With the program, so that stores keep their kernels.
        cuts, numbers = executor.plans.setdefault(CUTS, ({}, count()))
        key = self.key, middle
        if key not in cuts:
            cuts.setdefault(key, middle.within(self.stratum, f"#middle_{self.number}_{next(numbers)}"))
        return cuts[key]
