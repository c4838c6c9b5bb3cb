"""The orders of the joins of a run, which change as it gets to know its relations."""

from __future__ import annotations

from math import prod
from typing import Any, Literal

from derivable.core.diagnostics import warn
from derivable.datalog.facts.store import FactStore
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.assumed import Assumed
from derivable.datalog.ram.estimate import Estimator
from derivable.datalog.ram.join_order import planned
from derivable.datalog.ram.statistics import Statistics
from derivable.datalog.run import cuts
from derivable.datalog.run.limits import Watch
from derivable.datalog.run.queries import Queries
from derivable.datalog.scalars.nodes import NOWHERE, Var
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import Algebra, Untagged
from derivable.device.cpu.available import shown_bytes

# Bytes of a word in the smallest table.
LEAST_WORD = 4


class Orders(Queries):
    """The stores of a RAM program in the orders that are best for what is known.

    number      the stratum that runs
    plan_again  rows at which the orders of its joins are chosen again
    looked_at   the stores, by their identity, whose products have been estimated
    """

    def __init__(self, ram: m.Ram, facts: FactStore, algebra: Algebra, watch: Watch, tables: dict[str, Table]):
        super().__init__(tables, algebra, facts.symbols, facts.random, watch)
        self.ram, self.plans = ram, ram.plans
        # The clauses of the recursion that runs, if some are cut in two.
        self.cuts: cuts.Cuts | None = None
        self.number = 0
        self.plan_again: float = 0
        self.statistics = Statistics(tables, facts.symbols)
        self.looked_at: set[int] = set()

    def stratum(self, number: int) -> m.Stratum:
        """A stratum as it runs: some of its clauses may be cut in two."""
        return self.ram.strata[number] if self.cuts is None else self.cuts.stratum

    def instructions(
        self, number: int, part: Literal["once", "loop", "full"], may_part: bool = False
    ) -> tuple[Any, ...]:
        """The instructions of a stratum that are to run now."""
        instructions, is_plain = getattr(self.stratum(number), part), isinstance(self.mode, Untagged)
        key = (number, part) if self.cuts is None else (*self.cuts.key, part)
        return planned(self.ram, key, instructions, self.known(number), is_plain, may_part and is_plain)

    def known(self, number: int) -> Assumed:
        """What is known of relations while a stratum runs."""
        return Assumed(self.statistics, self.stratum(number))

    def estimator(self) -> Estimator:
        """What estimates the rows of the stores of the stratum that runs."""
        return Estimator(self.known(self.number), isinstance(self.mode, Untagged))

    def warn_of_product(self, store: m.Store) -> None:
        """Warn of a store whose rows are expected to take more memory than is left, since a join has no condition."""
        if id(store) in self.looked_at:
            return
        self.looked_at.add(id(store))
        joins = [step for step in store.query.steps if isinstance(step.node, m.Join)]
        if all(step.bindings and step.bindings.keys for step in joins):
            return
        known = self.known(self.number)
        if not all(known.is_complete(name) for name in m.relations_read((store,))):
            # Of a recursion nobody knows how many rows it will have.
            return
        last = self.estimator().store(store)[-1]
        values = [
            last.values[term.name][0]
            for term in store.query.terms
            if isinstance(term, Var) and term.name in last.values
        ]
        rows = min(last.rows, prod(values)) if len(values) == len(store.query.terms) else last.rows
        size, left = int(rows * LEAST_WORD * max(1, len(store.query.terms))), policy().memory.available_bytes()
        if left is None or size <= left or store.origin is None:
            return
        span, about = store.origin.clause.span, float(f"{rows:.2g}")
        what = "a part of a rule" if store.relation.startswith("#") else f"the rule of `{store.relation}`"
        warn(
            f"{what} joins relations without a shared variable: about {about:,.0f} rows are "
            f"expected, which take {shown_bytes(size)}, and {shown_bytes(left)} are left",
            hint="restrict the rule by a condition or a shared variable, or stop it by tuple_limit or memory_limit",
            source=self.ram.source,
            text=self.ram.text,
            span=None if span is NOWHERE else span,
        )
