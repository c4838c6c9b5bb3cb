"""RAM to loops: a store whose rows are all different and need no set: they go to the log of a table, or are counted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from derivable.algebra.expr.functions import equal
from derivable.algebra.expr.nodes import Argument, in_order
from derivable.datalog.fused.emit import Emitter
from derivable.datalog.fused.kernel_steps import Intersect, Plan, bound_by, num_loops, read_by
from derivable.datalog.policy.kernels import Built
from derivable.kernel import nodes as n

# Numbers that are remembered, a power of two, and registers on which they depend at most.
REMEMBERED, MOST_KEYS = 1 << 14, 2


class RowEmitter(Emitter):
    """Rows to a log [row, column]: (i, stop, room, *positions, *arguments, log) -> (written, i, *positions)."""

    def __init__(self, plan: Plan, dtype: str):
        super().__init__(plan)
        self.dtype = dtype

    def emit(self) -> Built:
        self.out = self.column("out", self.dtype)
        return super().emit()

    def write(self, tags: tuple | None) -> None:
        k, outputs = self.k, self.plan.outputs
        self.leave_if_full()
        for c, term in enumerate(outputs):
            k.store(self.out, self.written * len(outputs) + c, self.value(term))
        self.has_written()


class CountEmitter(Emitter):
    """The number of rows: (i, stop, room, *positions, *arguments) -> (written, i, *positions).

    Steps that have no register in common but those that are bound already are counted by themselves, and the numbers
    multiplied: of paths a, b, c the edges to b and those from b. A number that depends on few of the registers that are
    bound comes again, and is remembered (Kalinsky, Etsion and Kimelfeld 2017).

    wanted  the steps that are counted now, and done: those before them
    """

    def __init__(self, plan: Plan):
        super().__init__(plan)
        self.wanted, self.done = frozenset(range(len(plan.steps))), frozenset[int]()

    def begin(self) -> None:
        super().begin()
        # All rows are different: nothing is over with the first one.
        self.first_free, self.has_row = len(self.plan.steps), None

    def counter_behind(self, number: int) -> n.Register | None:
        return None if any(step >= number for step in self.wanted) else self.written

    def rest(self, number: int, tags: tuple | None) -> None:
        ahead = sorted(step for step in self.wanted if step >= number)
        if not ahead:
            self.k.set(self.written, self.written + 1)
            return
        k, before = self.k, (self.wanted, self.done, self.written)
        self.done |= {step for step in self.wanted if step < number}
        parts = _independent(self.plan, ahead)
        product = k.let("product", 1)
        with ExitStack() as blocks:
            for part in parts:
                self.wanted = frozenset(part)
                if len(parts) == 1 and not self.repeats(part):
                    super().rest(part[0], tags)
                    break
                self.written = k.let("part", 0)
                self.remembered(part, tags)
                blocks.enter_context(k.when(self.written > 0))
                k.set(product, product * self.written)
            else:
                k.set(before[2], before[2] + product)
        self.wanted, self.done, self.written = before

    def repeats(self, part: Sequence[int]) -> list[Argument]:
        """The registers on which the number of a part depends, if they have the same values again; none if not, or if
        it is not worth to remember it."""
        steps = [self.plan.steps[number] for number in part]
        if num_loops(steps) < 2 and not any(isinstance(step, Intersect) for step in steps):
            return []
        bound = set().union(*(bound_by(self.plan.steps[number]) for number in self.done))
        read = set().union(*(read_by(step) for step in steps)) & bound
        return sorted(read, key=lambda one: one.index) if read < bound and len(read) <= MOST_KEYS else []

    def remembered(self, part: Sequence[int], tags: tuple | None) -> None:
        """Have `written` be the number of a part."""
        k, count = self.k, self.written
        keys = [self.value(register) for register in self.repeats(part)]
        if not keys:
            super().rest(part[0], tags)
            return
        # Of each slot the keys, and the number plus one.
        known = self.array("known", "int64", part[0], len(keys))
        slot, _ = k.hash(keys, REMEMBERED)
        start = k.let("start", slot * (len(keys) + 1))
        k.set(count, k.load(known, start + len(keys), "number") - 1)
        is_there = count >= 0
        for c, key in enumerate(keys):
            is_there = is_there & equal(k.load(known, start + c, "key"), key)
        with k.when(~is_there):
            k.set(count, 0)
            super().rest(part[0], tags)
            for c, key in enumerate(keys):
                k.store(known, start + c, key)
            k.store(known, start + len(keys), count + 1)


class GroupEmitter(CountEmitter):
    """Rows (group..., number) to a log: (i, stop, room, *positions, *arguments, log) -> (written, i, *positions).

    The number is that of the rows behind the loops that bind the group; a group may come several times.

    width  outputs that are the group
    """

    def __init__(self, plan: Plan, width: int):
        super().__init__(plan)
        self.width = width
        self.first_counted = first_counted(plan, width)

    def emit(self) -> Built:
        self.out = self.column("out", "int64")
        return super().emit()

    def counter_behind(self, number: int) -> n.Register | None:
        return None if number <= self.first_counted else super().counter_behind(number)

    def rest(self, number: int, tags: tuple | None) -> None:
        if number < self.first_counted:
            Emitter.rest(self, number, tags)
            return
        if number > self.first_counted:
            super().rest(number, tags)
            return
        k, written = self.k, self.written
        self.leave_if_full()
        count = self.written = k.let("count", 0)
        super().rest(number, tags)
        self.written = written
        with k.when(count > 0):
            for c, term in enumerate((*self.plan.outputs[: self.width], count)):
                k.store(self.out, written * (self.width + 1) + c, self.value(term) if c < self.width else term)
            k.set(written, written + 1)


def first_counted(plan: Plan, width: int) -> int:
    """The first step behind those that bind the group, the number of steps if there is none."""
    group = {node for node in in_order(plan.outputs[:width]) if isinstance(node, Argument)}
    bound: set[Argument] = set()
    for number, step in enumerate(plan.steps):
        bound |= bound_by(step)
        if group <= bound:
            return number + 1
    return len(plan.steps)


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
