"""RAM to loops: a store whose rows are all different and need no set: they go to the log of a table, or are counted."""

from __future__ import annotations

from contextlib import ExitStack

from derivable.algebra.expr.nodes import Argument
from derivable.datalog.fused.emit import Emitter, Intersect, Plan, RuleKernel, bound_by, read_by
from derivable.kernel import nodes as n


class RowEmitter(Emitter):
    """Rows to a log [row, column]: (i, stop, room, *positions, *arguments, log) -> (written, i, *positions)."""

    def __init__(self, plan: Plan, dtype: str):
        super().__init__(plan)
        self.dtype = dtype

    def emit(self) -> RuleKernel:
        self.columns = [self.k.array("out", self.dtype)]
        del self.k.parameters[-1]
        return self.finished([self.dtype])

    def write(self, tags: tuple | None) -> None:
        k, outputs = self.k, self.plan.outputs
        self.leave_if_full()
        for c, term in enumerate(outputs):
            k.store(self.columns[0], self.written * len(outputs) + c, self.value(term))
        self.has_written()


class CountEmitter(Emitter):
    """The number of rows: (i, stop, room, *positions, *arguments) -> (written, i, *positions).

    Steps that have no register in common but those that are bound already are counted by themselves, and the numbers
    multiplied: of paths a, b, c the edges to b and those from b.

    wanted  the steps that are counted now
    """

    def __init__(self, plan: Plan):
        super().__init__(plan)
        self.wanted = frozenset(range(len(plan.steps)))

    def emit(self) -> RuleKernel:
        self.columns = []
        return self.finished([])

    def begin(self) -> None:
        super().begin()
        # All rows are different: nothing is over with the first one.
        self.first_free, self.found = len(self.plan.steps), None

    def counter_behind(self, number: int) -> n.Register | None:
        return None if any(step >= number for step in self.wanted) else self.written

    def rest(self, number: int, tags: tuple | None) -> None:
        ahead = [step for step in self.wanted if step >= number]
        if not ahead:
            self.k.set(self.written, self.written + 1)
            return
        parts = _independent(self.plan, sorted(ahead))
        if len(parts) == 1:
            super().rest(min(ahead), tags)
            return
        k, wanted, written = self.k, self.wanted, self.written
        product = k.let("product", 1)
        with ExitStack() as blocks:
            for part in parts:
                self.wanted, self.written = frozenset(part), k.let("part", 0)
                super().rest(part[0], tags)
                blocks.enter_context(k.when(self.written > 0))
                k.set(product, product * self.written)
            k.set(written, written + product)
        self.wanted, self.written = wanted, written


def _independent(plan: Plan, numbers: list[int]) -> list[list[int]]:
    """Steps in parts that read nothing that another one binds, each in the order of the plan."""
    # A part, and what its steps read and bind.
    parts: list[tuple[list[int], set[Argument]]] = []
    bound = {register for number in numbers for register in bound_by(plan.steps[number])}
    behind = 0
    for number in numbers:
        step = plan.steps[number]
        about = (read_by(step) | bound_by(step)) & bound
        others = [part for part in parts if part[1] & about or (number < behind and number - 1 in part[0])]
        joined = sorted(number for part in others for number in part[0])
        parts = [part for part in parts if part not in others]
        parts.append(([*joined, number], about.union(*(part[1] for part in others))))
        if isinstance(step, Intersect) and step.count:
            behind = number + step.count
    return sorted((part for part, _ in parts), key=lambda part: part[0])
