"""Joins that give far more rows than was estimated when their order was chosen.

An order rests on what was known before there were rows. A join that is many times as large as its estimate ends its
store, before it has gone through all of that, and what it has given is known when the order is chosen again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from derivable.datalog.fused.state import Batch
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.estimate import Estimate, Fan


class Surprised(Exception):
    """A join has given far more rows than was estimated."""


class Guard:
    """Counts the rows of the operators of a store while it runs.

    estimates  of its operators, made when some of them are many
    surprise   the look-up that gave far more rows than was estimated, and how many
    is_open    whether it may still end the store
    """

    def __init__(self, store: m.Store, estimates: Callable[[], Sequence[Estimate]]):
        self.store, self.steps, self.estimates = store, store.query.steps, estimates
        self.rows = [0] * len(self.steps)
        self.limits = [policy().guard_rows] * len(self.steps)
        self.surprise: tuple[Fan, float] | None = None
        self.is_open = True

    def watched(self, number: int, operator: Callable[..., Iterable[Batch]]) -> Callable[..., Iterator[Batch]]:
        """The operator of a step whose rows are counted. Raises Surprised."""

        def watching(given: object) -> Iterator[Batch]:
            for batch in operator(given):
                self.rows[number] += batch.count
                if number and self.is_open and self.rows[number] >= self.limits[number]:
                    self.compare(number)
                yield batch

        return watching

    def compare(self, number: int) -> None:
        self.limits[number] *= 2
        step = self.steps[number]
        fan = self.rows[number] / max(1, self.rows[number - 1])
        if fan < policy().far_off or not isinstance(step.node, m.Join) or step.node.range is not None:
            return
        estimates = self.estimates()
        expected = estimates[number].rows / max(estimates[number - 1].rows, 1e-9)
        if fan > policy().far_off * expected:
            assert step.bindings is not None
            look = step.node.right.relation, frozenset(column for column, _ in step.bindings.keys)
            self.surprise = look, fan
            raise Surprised
