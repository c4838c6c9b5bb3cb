"""Kernels that add up the tags of candidates, emitted from a semiring's expressions, after the candidates were inserted
or where they are derived.

A row that is new in a round takes the sum of its candidates at once, as no rule reads it before the next round. Those
of older rows are added up in another column, since rules read the tags of the round before; at the end of the
round they are added to the tags, and rows whose tags say something new become recent.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from derivable.algebra.expr.functions import equal
from derivable.algebra.expr.nodes import Argument, Expr
from derivable.algebra.semiring import TypedSemiring
from derivable.algebra.typed import TypedMonoid
from derivable.datalog.fused import kernel_steps
from derivable.datalog.fused.emit_insert import InsertEmitter
from derivable.datalog.kernels.row_sets import DONE, SetForm
from derivable.datalog.policy.costs import policy
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder, substitute


def accumulate_kernel(plus: TypedMonoid, is_idempotent: bool, at_once: bool) -> n.Kernel:
    """Add candidates to the tags of new rows, and to the pending tags of older ones.

    ids      [candidate] rows; those from `old` on are new in this round, and those from `known` on new here
    touched  [row] the round in which an older row was touched last; listed [k] those touched in the round `stamp`
    at_once  whether older rows get their tags at once, of which any order leads to the same end; nothing is pending
    Returns (length of `listed`, number of rows known).
    """
    k = Builder("improve" if at_once else "accumulate")
    count, old, known, stamp, number = (k.scalar(name) for name in ("count", "old", "known", "stamp", "number"))
    ids, touched, listed = k.array("ids", "int64"), k.array("touched", "int32"), k.array("listed", "int64")
    candidate_tags, tags = (_arrays(k, name, plus) for name in ("candidate_tags", "tags"))
    pending = [] if at_once else _arrays(k, "pending", plus)
    with k.loop("i", 0, count) as i:
        row, tag = _add_to_new(k, plus, i, ids, candidate_tags, tags, old, known, is_idempotent or at_once, at_once)
        _wait(k, plus, row, tag, touched, stamp, pending, listed, number)
    k.return_(number, known)
    return k.kernel()


def _add_to_new(
    k: Builder, plus: TypedMonoid, i: Expr, ids: n.Array, candidate_tags: Sequence[n.Array], tags: Sequence[n.Array],
    old: Expr, known: Any, looks_for_news: bool, at_once: bool = False
) -> tuple[n.Register, tuple[n.Register, ...]]:  # fmt: skip
    """Add a candidate to the tag of a row that is new, and go on with the next one; (row, tag) of an older row.

    looks_for_news  whether a candidate that changes nothing is no news; of a sum that is not idempotent each one is
    at_once         whether older rows get their tags here too
    """
    row, tag = k.load(ids, i, "row"), _load(k, candidate_tags, i, plus)
    with k.when(known <= row):
        _store(k, tags, row, tag)
        k.set(known, row + 1)
        k.continue_()
    there, total = _load(k, tags, row, plus), k.registers("total", plus.dtypes)
    k.set(total, _plus(plus, there, tag))
    if looks_for_news:
        with k.when(_same(there, total)):
            k.continue_()
    if at_once:
        _store(k, tags, row, total)
    with k.when(old <= row):
        if not at_once:
            _store(k, tags, row, total)
        k.continue_()
    return row, tag


def _wait(
    k: Builder, plus: TypedMonoid, row: Expr, tag: Sequence[Expr], touched: n.Array, stamp: Expr,
    pending: Sequence[n.Array], listed: n.Array, number: n.Register
) -> None:  # fmt: skip
    """Add a tag to those of an older row that wait for the end of the round, and list the row if it is the first."""
    with k.when(equal(k.load(touched, row, "last"), stamp)):
        if pending:
            _store(k, pending, row, _plus(plus, _load(k, pending, row, plus), tag))
    with k.otherwise():
        k.store(touched, row, stamp)
        _store(k, pending, row, tag)
        k.store(listed, number, row)
        k.set(number, number + 1)


def merge_kernel(typed: TypedSemiring) -> n.Kernel:
    """Add the pending tags of the first `number` rows of `listed` to their tags; returns how many become recent.

    Those come first in `listed` then.
    """
    k = Builder("merge_tags")
    number, listed = k.scalar("number"), k.array("listed", "int64")
    tags, pending = (_arrays(k, name, typed.plus) for name in ("tags", "pending"))
    k.return_(_merge(k, typed, number, listed, tags, pending))
    return k.kernel()


def _merge(
    k: Builder, typed: TypedSemiring, number: Expr, listed: n.Array, tags: list[n.Array], pending: list[n.Array]
) -> n.Register:
    count = k.let("count", 0)
    with k.loop("j", 0, number) as j:
        row = k.load(listed, j, "row")
        with k.when(~_add_pending(k, typed, tags, pending, row)):
            k.store(listed, count, row)
            k.set(count, count + 1)
    return count


def end_round_kernel(typed: TypedSemiring, has_stamps: bool, is_ordered: bool) -> n.Kernel:
    """The end of a round of a table that `SumEmitter` has written to: (memory, block) -> 0, with packed arguments.

    What is recent next, changed rows and then those from `visible` on, comes first in `listed`, and its length in the
    first word of the block; its stamps are `stamp`.

    is_ordered  whether changed rows are listed in their order, not in that in which they were touched
    """
    k = Builder("end_round")
    memory, block = k.array("memory", "int64"), k.array("block", "int64")
    number, listed = k.scalar("number"), k.array("listed", "int64")
    visible, size, stamp = (k.scalar(name) for name in ("visible", "size", "stamp"))
    tags, pending = (_arrays(k, name, typed.plus) for name in ("tags", "pending"))
    touched = k.array("touched", "int32")
    stamps = k.array("stamps", "int32") if has_stamps else None
    if is_ordered:
        with k.when(number > 0):
            k.set(number, 0)
            with k.loop("row", 0, visible) as row, k.when(equal(k.load(touched, row, "last"), stamp)):
                k.store(listed, number, row)
                k.set(number, number + 1)
    count = _merge(k, typed, number, listed, tags, pending)
    with k.loop("new", visible, size) as new:
        k.store(listed, count, new)
        k.set(count, count + 1)
    if stamps is not None:
        with k.loop("index", 0, count) as index:
            k.store(stamps, k.load(listed, index, "row"), stamp)
    k.store(memory, k.load(block, 0, "index"), count)
    k.return_(DONE)
    return k.kernel()


def _add_pending(
    k: Builder, typed: TypedSemiring, tags: Sequence[n.Array], pending: Sequence[n.Array], row: Expr
) -> Expr:
    """Add the pending tag of a row to its tag; whether that says nothing new."""
    before = _load(k, tags, row, typed.plus)
    after = k.registers("after", typed.dtypes)
    k.set(after, _plus(typed.plus, before, _load(k, pending, row, typed.plus)))
    _store(k, tags, row, after)
    first, second = typed.saturated.operands
    operands: dict[Argument, Expr] = dict(zip((*first, *second), (*before, *after)))
    return substitute(typed.saturated.values, operands)[0]


class SumEmitter(InsertEmitter):
    """Candidates to the set of their table, and their tags to its columns, as `accumulate_kernel` adds them.

    It goes through the words and the tags of candidates as other stores go through the log of their driver. Besides
    what `InsertEmitter` has, the memory has of the target its "tags", "pending" and "touched" [row], the rows that are
    "visible" in this round, and the "next_list", of which the first "listed" rows are those touched; and "next_round",
    the number of the next round.

    form        the sets of the table; None for one hash of row numbers
    is_certain  whether all rows are certain, whatever the tags of what they follow from
    """

    def __init__(self, typed: TypedSemiring, num_columns: int, form: SetForm | None, is_certain: bool):
        registers = tuple(Argument(c, "int64", f"r{c}") for c in range(num_columns))
        layout = kernel_steps.Layout(max(1, num_columns), "int64", None)
        step = kernel_steps.Rows(layout, False, (), (), tuple(enumerate(registers)))
        super().__init__(kernel_steps.Plan((step,), registers, (), typed), form)
        self.typed, self.is_certain = typed, is_certain

    def target(self) -> int:
        # These come first: what sets have takes more than one position in the block.
        dtypes = list(enumerate(self.typed.dtypes))
        self.target_tags = [self.array("target tags", dtype, 0, c) for c, dtype in dtypes]
        if not self.is_certain:
            self.listed = self.scalar("target listed")
            self.changing.append((len(self.parameters) - 1, self.listed))
            self.visible, self.stamp = self.scalar("target visible"), self.scalar("next_round")
            self.next_list = self.array("target next_list", "int64", 0)
            self.touched = self.array("target touched", "int32", 0)
            self.pending = [self.array("target pending", dtype, 0, c) for c, dtype in dtypes]
        return super().target()

    def write(self, tags: tuple | None) -> None:
        k, plus = self.k, self.typed.plus
        assert tags is not None
        is_new, number = self.insert()
        assert number is not None
        with k.when(is_new):
            first: Sequence[Expr] = tags
            if self.is_certain:
                first = [k.let("one", one.item(), dtype) for one, dtype in zip(self.typed.one, self.typed.dtypes)]
            _store(k, self.target_tags, self.size - 1, first)
        if self.is_certain:
            return
        with k.otherwise():
            there, total = _load(k, self.target_tags, number, plus), k.registers("total", plus.dtypes)
            k.set(total, _plus(plus, there, tags))
            # What changes nothing is no news; of a sum that is not idempotent everything is.
            with k.when(~_same(there, total)) if self.typed.semiring.idempotent_plus else nullcontext():
                self.add(number, tags, total)

    def add(self, number: Expr, tags: tuple, total: tuple[n.Register, ...]) -> None:
        """Add the tags of a row that was there before."""
        k, plus = self.k, self.typed.plus
        with k.when(self.visible <= number):
            _store(k, self.target_tags, number, total)
        with k.otherwise():
            _wait(k, plus, number, tags, self.touched, self.stamp, self.pending, self.next_list, self.listed)


def accumulating(typed: TypedSemiring, at_once: bool) -> tuple:
    """What makes the kernel that adds up these tags, and its arguments."""
    return accumulate_kernel, typed.plus, typed.semiring.idempotent_plus, at_once


def is_compiled(typed: TypedSemiring) -> bool:
    """Whether this process has kernels for these tags already."""
    return any(accumulating(typed, at_once) in policy().kernels.made for at_once in (False, True))


def _same(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
    same = equal(a[0], b[0])
    for x, y in zip(a[1:], b[1:]):
        same = same & equal(x, y)
    return same


def _arrays(k: Builder, name: str, plus: TypedMonoid) -> list[n.Array]:
    return [k.array(name, dtype) for dtype in plus.dtypes]


def _load(k: Builder, arrays: Sequence[n.Array], row: Expr, plus: TypedMonoid) -> tuple[n.Register, ...]:
    return tuple(k.load(array, row, array.name, dtype) for array, dtype in zip(arrays, plus.dtypes))


def _store(k: Builder, arrays: Sequence[n.Array], row: Expr, values: Sequence[Expr]) -> None:
    made = [value if isinstance(value, n.Register) else k.let("sum", value) for value in values]
    for array, value in zip(arrays, made):
        k.store(array, row, value)


def _plus(plus: TypedMonoid, a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
    return substitute(plus.values, dict(zip((*plus.left, *plus.right), (*a, *b))))
