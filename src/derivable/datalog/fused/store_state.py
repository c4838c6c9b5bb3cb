"""Stores that run as kernels: when a store has one, the arrays that it reads, and the rows that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.lazy import later
from derivable.datalog.fused import elimination, kernel_steps
from derivable.datalog.fused.kernel_plan import BoundPlan, plan
from derivable.datalog.fused.state import State
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.join_order import size_class
from derivable.datalog.scalars.nodes import Var
from derivable.datalog.tables.tag_columns import column_of, parts_of
from derivable.datalog.tags.tags import SemiringTags, Untagged
from derivable.device.cpu.memory import empty, longer, next_length, zeros

if TYPE_CHECKING:
    from derivable.datalog.fused import emit, emit_distinct, emit_elimination
    from derivable.datalog.tables.storage import Table
else:
    emit = later("derivable.datalog.fused.emit")
    emit_distinct = later("derivable.datalog.fused.emit_distinct")
    emit_elimination = later("derivable.datalog.fused.emit_elimination")


class StoreState:
    """What a run knows of a store: how many rows it has seen, and its kernel."""

    def __init__(self, state: State, store: m.Store):
        self.state, self.store = state, store
        nodes = store.query.operators
        self.driver = nodes[0]
        self.scans = [scan for scan in map(m.scan_of, nodes) if scan is not None]
        self.tables = [state.tables[scan.relation] for scan in self.scans]
        self.is_recursive = isinstance(self.driver, m.Scan) and self.driver.part == "recent"
        # Rows that it has gone through over columns, and those of them that its kernel's worth counts already.
        self.seen = self.counted = 0
        # Of its kernel.
        self.candidates = 0
        self.signature: Any = None
        self.bound_plan: BoundPlan | None = None
        self.why_none = ""
        self.kernel: emit.RuleKernel | None = None
        # Columns that nobody keeps are written again: many small rounds would spend their time on new ones.
        self.kinds: tuple[str, ...] = ()
        self.columns: list[np.ndarray] = []

    def is_ready(self) -> bool:
        """Whether the store runs as a kernel now."""
        if not isinstance(self.driver, m.Scan):
            return False
        if self.kernel is not None:
            self.plan()
            if self.kernel is not None:
                return True
        if (seen := self.seen_now()) is None:
            return False
        self.plan()
        if self.bound_plan is None:
            return False
        if not self.bound_plan.store_plan.is_worth_columns:
            return False
        if self.kernel is None:
            self.kernel = _worthy(seen, emit.Emitter, self.bound_plan.plan)
        return self.kernel is not None

    def distinct_kernel(self, counted: int | None) -> emit.RuleKernel | None:
        """The kernel of a store that writes rows which are all different, if it is worth it.

        counted  of how many columns each group of rows is counted, and nothing but these numbers written; None to write
                 the rows
        """
        if not isinstance(self.driver, m.Scan) or (seen := self.seen_now()) is None:
            return None
        self.plan()
        if not self.is_distinct:
            return None
        assert self.bound_plan is not None
        plan = self.bound_plan.plan
        if counted is None:
            return _worthy(seen, emit_distinct.RowEmitter, plan, "int32" if self.has_small_words() else "int64")
        if not counted:
            return _worthy(seen, emit_distinct.CountEmitter, plan)
        if emit_distinct.first_counted(plan, counted) == len(plan.steps):
            return None
        return _worthy(seen, emit_distinct.GroupEmitter, plan, counted)

    def elimination(self, counted: int) -> tuple[emit_elimination.EliminationKernel, elimination.Arguments] | None:
        """The kernel that counts the rows of a store by eliminating variables, and its arguments, if that is best.

        counted  of how many columns each group is counted
        """
        query = self.store.query
        is_plain = isinstance(self.state.mode, Untagged) and self.state.counts is None
        if not is_plain or not isinstance(self.driver, m.Scan) or not query.has_distinct_rows or counted > 1:
            return None
        fixed = query.terms[0] if counted else None
        if (seen := self.seen_now()) is None or not (fixed is None or isinstance(fixed, Var)):
            return None
        plan = elimination.best_plan(self.state, self.store, None if fixed is None else fixed.name)
        if plan is None:
            return None
        kernel = _worthy(seen, emit_elimination.EliminationEmitter, plan.elimination, counted > 0)
        if kernel is None:
            return None
        arguments = elimination.arguments_of(self.state, plan, kernel.num_messages)
        return None if arguments is None else (kernel, arguments)

    def seen_now(self) -> int | None:
        """How many rows it has seen with those that are due, once these are worth a plan of its kernel."""
        start, stop = self.driven()
        seen = self.seen + max(stop - start, self.expected_rows if stop - start >= policy().few else 0)
        if seen < policy().few_rows or any(seen < table.rows_worth_kernels for table in self.tables):
            return None
        return seen

    @cached_property
    def expected_rows(self) -> int:
        """The most rows that an operator is estimated to give, in a store that runs once, without tags."""
        if self.is_recursive or not isinstance(self.state.mode, Untagged):
            return 0
        if not any(isinstance(node, m.Join) for node in self.store.query.operators[1:]):
            return 0
        # To estimate takes as long as to go through some thousand rows: once for tables of these sizes.
        key = "expected", id(self.store), *(size_class(table.size) for table in self.tables)
        owner, rows = self.state.plans.get(key, (None, 0))
        if owner is not self.store:
            estimator = self.state.estimator()
            rows = 0 if estimator is None else int(max(one.rows for one in estimator.store(self.store)))
            self.state.plans[key] = self.store, rows
        return rows

    @property
    def is_distinct(self) -> bool:
        """Whether its kernel joins some relations, and writes rows that are all different."""
        is_plain = isinstance(self.state.mode, Untagged) and self.state.counts is None
        if self.bound_plan is None or not (is_plain and self.store.query.has_distinct_rows):
            return False
        return self.bound_plan.store_plan.is_worth_columns

    def why_columns(self) -> tuple[str, str]:
        """Why the store ran over columns, and what it would need to run as a kernel, "" if nothing."""
        if not isinstance(self.driver, m.Scan):
            return "it begins with no relation", ""
        if self.why_none:
            return self.why_none, "a separate rule for what is before that"
        if (
            self.bound_plan is not None
            and not self.bound_plan.store_plan.is_worth_columns
            and self.driver.part != "recent"
        ):
            return "columns of one relation are as fast", ""
        return "too few rows", "thousands"

    def plan(self) -> None:
        """Plan again if a table has changed its layout since."""
        # To plan is to make sets of rows that are to be asked, which may change a layout.
        while (signature := self._layouts()) != self.signature:
            self.signature, self.kernel = signature, None
            planned = plan(self.state, self.store, self.state.has_candidates)
            self.bound_plan, self.why_none = (None, planned) if isinstance(planned, str) else (planned, "")

    def _layouts(self) -> tuple:
        return (type(self.state.mode), *(table.word_type.char for table in self.tables))

    def driven(self) -> tuple[int, int]:
        """From which row of the driver to which the store goes."""
        assert isinstance(self.driver, m.Scan)
        rows = self.state.rows_of(self.driver)
        return (rows.start, rows.stop) if isinstance(rows, slice) else (0, len(rows))

    def rebind(self) -> None:
        """Have the kernel for the layouts that tables have now; row numbers and positions of loops are the same."""
        self.plan()
        if self.kernel is None:
            assert self.bound_plan is not None
            self.kernel = emit.compiled(emit.Emitter, self.bound_plan.plan)

    def run(self, keep: bool) -> Iterator[tuple[list, int, Any]]:
        """Columns, count and tags of the rows that the kernel writes, some thousands at a time.

        keep  whether the caller keeps the columns: else they are written again
        """
        assert self.kernel is not None
        assert self.bound_plan is not None
        columns = [] if keep or self.kernel.columns != self.kinds else self.columns
        self.bound_plan.update_indexes()
        for part in self._parts(columns, keep):
            self.state.deadline.remaining()
            self.candidates += part[1]
            if part[1]:
                yield part
        if not keep:
            self.kinds, self.columns = self.kernel.columns, columns

    def _parts(self, columns: list[np.ndarray], keep: bool) -> Iterator[tuple[list, int, Any]]:
        """The same once indexes are up to date, also without rows.

        columns  to write to, or an empty list that gets some
        """
        state, bound_plan, kernel = self.state, self.bound_plan, self.kernel
        assert bound_plan is not None
        assert kernel is not None
        assert isinstance(self.driver, m.Scan)
        rows = state.rows_of(self.driver)
        i, end = self.driven()
        positions = [-1] * kernel.num_positions
        # Kernels of tagged rows read their numbers from a list, also where they are a slice; it is made in parts.
        first_step = bound_plan.plan.steps[0]
        is_listed = isinstance(first_step, kernel_steps.Rows) and first_step.is_listed
        listed, first = np.empty(0, np.int64) if isinstance(rows, slice) else rows, 0
        while i < end:
            if self.bound_plan is not bound_plan:
                # What was inserted since has changed a layout; row numbers and positions are the same.
                bound_plan, kernel = self.bound_plan, self.kernel
                assert bound_plan is not None
                assert kernel is not None
            if keep or not columns:
                columns[:] = [empty(policy().cache_rows, dtype) for dtype in kernel.columns]
            stop = min(end, i + policy().look_rows)
            if is_listed and isinstance(rows, slice):
                if not first <= i < first + len(listed):
                    first, listed = i, np.arange(i, stop)
                stop = first + len(listed)
            arguments = arguments_of(state, bound_plan, kernel, listed)
            written, i, *after = kernel.function(
                i - first, stop - first, policy().cache_rows, *positions, *arguments, *columns
            )
            i += first
            positions, counts = after[: kernel.num_positions], after[kernel.num_positions :]
            for nodes, count in zip(bound_plan.store_plan.counted, counts):
                for node in nodes:
                    state.count(node, count)
            # Else a log that grows now would stay as long as its successor.
            del arguments
            filled = [column[:written] for column in columns]
            number = len(bound_plan.plan.outputs)
            yield filled[:number], written, _tags(state.mode, bound_plan, filled[number:])
            self.rebind()

    def written(self, table: Table, kernel: emit.RuleKernel) -> Iterator[int]:
        """Write rows that are all different to a table that has none; how many there are so far, again and again.

        kernel  `distinct_kernel`, which counts them if it has no columns
        """
        bound_plan = self.bound_plan
        assert bound_plan is not None
        bound_plan.update_indexes()
        counts_only = not kernel.columns
        i, end = self.driven()
        arguments = arguments_of(self.state, bound_plan, kernel)
        positions, count = [-1] * kernel.num_positions, 0
        log = (
            empty((0, table.width), np.int64)
            if counts_only
            else empty((policy().cache_rows, table.width), kernel.columns[0])
        )
        driven = policy().small_round
        while i < end:
            if not counts_only and count == len(log):
                log = longer(log, next_length(len(log), count + policy().cache_rows), count)
            stop, room, left = min(end, i + driven), min(len(log) - count, policy().look_rows), self.state.deadline.room
            if left is not None:
                room = min(room, max(left + 1, policy().few))
            rows = [] if counts_only else [log[count : count + room].reshape(-1)]
            began = perf_counter()
            written, i, *positions = kernel.function(i, stop, room, *positions, *arguments, *rows)
            driven = 2 * driven if perf_counter() - began < policy().look_seconds else max(1, driven // 2)
            count += written
            table.row_set.gathered = count
            self.candidates += written
            yield count
        table.row_set.gathered = 0
        table.assign_distinct(log, count)

    def eliminated(
        self, table: Table, kernel: emit_elimination.EliminationKernel, arguments: elimination.Arguments
    ) -> Iterator[int]:
        """Count the rows of a table that has none yet, as `written` does; it gets the numbers of groups if the kernel
        writes these."""
        i, step, count = arguments.first, policy().small_round, 0
        pairs, number = empty((max(0, arguments.stop - i) if kernel.is_grouped else 0, 2), np.int64), 0
        while i < arguments.stop:
            began = perf_counter()
            out = [pairs[number:].reshape(-1)] if kernel.is_grouped else []
            more, i, written = kernel.function(i, min(arguments.stop, i + step), *arguments.arrays, *out)
            step = 2 * step if perf_counter() - began < policy().look_seconds else max(1, step // 2)
            number += written
            table.row_set.gathered = count = count + more
            yield count
        table.row_set.gathered = 0
        if kernel.is_grouped:
            table.assign_distinct(pairs, number)
        else:
            table.assign_distinct(empty((0, table.width), np.int64), count)

    def has_small_words(self) -> bool:
        """Whether all columns that the store writes are those of tables with words of 32 bits."""
        small = [s for s, table in zip(self.scans, self.tables) if table.word_type == np.int32]
        known = {term.name for scan in small for term in scan.terms if isinstance(term, Var)}
        names = self.store.query.names
        return names is not None and known.issuperset(names)


def _worthy(seen: int, *emitter: Any) -> Any:
    """The kernel by an emitter and its arguments, if it is compiled already, or worth it for the rows seen."""
    return emit.compiled(*emitter) if seen >= policy().many_rows or emit.is_compiled(*emitter) else None


def arguments_of(state: State, bound_plan: BoundPlan, kernel: emit.RuleKernel, rows: Any = None) -> list[Any]:
    """What a kernel is called with for its parameters; `rows` are those of a driver that is a list."""
    bounds = {step: state.bounds_of(scan) for step, scan in bound_plan.store_plan.scans.items()}
    return [value for key in kernel.parameters for value in argument_of(bound_plan, bounds, rows, *key)]


def argument_of(
    bound_plan: BoundPlan, bounds: dict[int, tuple[int, int]], rows: Any, what: str, step: int, part: int
) -> Any:
    if what == "word":
        return (bound_plan.words[part],)
    if what == "known":
        return (zeros(emit_distinct.REMEMBERED * (part + 1), np.int64),)
    table, index = bound_plan.reads[step]
    match what:
        case "log":
            return (table.log.reshape(-1),)
        case "list":
            return (rows,)
        case "tags":
            return (parts_of(table.tags)[part],)
        case "stamps":
            return (table.stamps,)
        case "limit" | "bound":
            return (bounds[step][what == "bound"],)
        case "table":
            return (table.row_set.slots,)
        case "table_size":
            return (len(table.row_set.slots) // 2,)
        case "sets":
            assert table.row_set.prefix_sets is not None
            return table.row_set.prefix_sets.find_arguments
    assert index is not None
    return (index.argument(what, part),)


def _tags(mode: Any, bound_plan: BoundPlan, columns: list[np.ndarray]) -> Any:
    if isinstance(mode, Untagged):
        return None
    if isinstance(mode, SemiringTags):
        return column_of(columns)
    # Row numbers of the driver and of each join, in order.
    steps = [0] + [
        number
        for number, step in enumerate(bound_plan.plan.steps)
        if isinstance(step, (kernel_steps.Match, kernel_steps.Intersect))
        or (isinstance(step, kernel_steps.Probe) and not step.negated)
    ]
    tags: Any = None
    for step, rows in zip(steps, columns, strict=True):
        # The driver comes first.
        is_recent = not step and bound_plan.store_plan.scans[0].part == "recent"
        loaded = (mode.load_recent if is_recent else mode.load)(bound_plan.reads[step][0], rows)
        tags = loaded if tags is None else mode.combine(tags, loaded)
    return tags
