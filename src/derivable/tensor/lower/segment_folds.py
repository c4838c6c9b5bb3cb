"""Folds of a column program with all that they fold, each as one loop: for devices of many lanes.

    c3 = gather c1 at i2
    c4 = times c0 c3            for each segment s: y[s] = plus over the items p of s of c0[p] * c1[i2[p]]
    c6 = fold plus c4 by i5

The derivative by an operand is such a fold again, over the same items in the segments of those that read the same row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra import expr
from derivable.algebra.expr.functions import less
from derivable.algebra.expr.nodes import Argument, Expr, arguments_of
from derivable.algebra.expr.nodes import Constant as Literal
from derivable.algebra.expr.types import Dtype
from derivable.algebra.semiring import Semiring, TypedSemiring
from derivable.algebra.typed import TypedMonoid
from derivable.kernel import nodes as k
from derivable.kernel.build import Builder, as_type, substitute
from derivable.parallel.program import nodes as n
from derivable.parallel.program.nodes import Column

# Segments of more items are folded in parts, and the parts again: a program of a device takes one.
MOST_ITEMS = 2048
# With lanes, or one lane a segment, the items of a segment come one after the other.
MOST_IN_TURN = 64


@dataclass(frozen=True, eq=False)
class Operand:
    """A column that items read.

    rows   [item] the row that each reads; None where it is that of its own number
    size   of rows; None for one number
    lanes  numbers in a row; None for one
    """

    rows: np.ndarray | None
    size: int | None
    lanes: int | None


@dataclass(frozen=True, eq=False)
class SegmentFold:
    """y[segment] or y[segment, lane]: the plus of a value of operands over the items of each segment.

    operands   [operand]
    value      of arguments numbered like the operands, which have the type of all
    offsets    [segment + 1] where the items of each begin
    lanes      of the value; None for none
    is_summed  whether lanes are folded too, so that the result has none
    plus       of the semiring, for one type of values
    """

    operands: tuple[Operand, ...]
    value: Expr
    offsets: np.ndarray
    lanes: int | None
    is_summed: bool
    plus: TypedMonoid

    @property
    def size(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def longest(self) -> int:
        return int(np.diff(self.offsets).max(initial=0))

    @cached_property
    def parts(self) -> tuple[SegmentFold, SegmentFold] | None:
        """A fold of parts of the segments, and one of these; None where segments are short enough."""
        most = MOST_ITEMS if self.form == "items" else MOST_IN_TURN
        if self.longest <= 2 * most:
            return None
        counts = -(-np.diff(self.offsets) // most)
        ends = np.concatenate([[0], np.cumsum(counts)])
        number = np.arange(ends[-1]) - np.repeat(ends[:-1], counts)
        starts = np.repeat(self.offsets[:-1], counts) + number * most
        first = SegmentFold(
            self.operands, self.value, np.append(starts, self.offsets[-1]), self.lanes, self.is_summed, self.plus
        )
        left = None if self.is_summed else self.lanes
        own = Argument(0, self.plus.left[0].dtype, "x0")
        return first, SegmentFold((Operand(None, int(ends[-1]), left),), own, ends, left, False, self.plus)

    @cached_property
    def form(self) -> str:
        """How programs of a device share the work: "items", a tile of the items of one segment; "segments", a tile of
        segments, each lane the items of one; "lanes", a tile of the lanes of one segment, item by item."""
        if self.lanes is not None:
            return "lanes"
        num_items = int(self.offsets[-1] - self.offsets[0])
        return "segments" if self.longest <= 16 or num_items <= 6 * self.size else "items"

    @cached_property
    def is_map(self) -> bool:
        """Whether each segment has one item."""
        return self.longest == 1 and self.size == int(self.offsets[-1])

    @cached_property
    def _segment_of(self) -> np.ndarray:
        return np.repeat(np.arange(self.size), np.diff(self.offsets))

    @property
    def is_differentiable(self) -> bool:
        return self.plus.special == "add"

    @cached_property
    def pulled(self) -> Mapping[int, SegmentFold]:
        """operand -> the fold, of the operands and the adjoint of the result, that gives its adjoint."""
        arguments = tuple(Argument(i, self.plus.left[0].dtype, f"x{i}") for i in range(len(self.operands)))
        derived, live = n.Function("value", (self.value,), arguments).vjp
        places = {argument: i for i, argument in enumerate(derived.arguments)}
        renamed = {a: Argument(i, a.dtype, f"x{i}") for a, i in places.items()}
        outer = None if self.is_summed else self.lanes
        adjoint = Operand(None if self.is_map else self._segment_of, self.size, outer)
        found = {}
        for number, value in zip(live, substitute(derived.values, renamed)):
            found[number] = self._by(self.operands[number], (*self.operands, adjoint), value)
        return found

    def _by(self, operand: Operand, operands: tuple[Operand, ...], value: Expr) -> SegmentFold:
        """The fold of a value over the items that read the same row of an operand."""
        num_items, order = int(self.offsets[-1]), None
        if operand.size is None:
            offsets = np.array([0, num_items])
        elif operand.rows is None:
            offsets = np.arange(num_items + 1)
        else:
            order = np.argsort(operand.rows, kind="stable")
            offsets = np.searchsorted(operand.rows[order], np.arange(operand.size + 1))
        if order is not None:
            operands = tuple(_reordered(one, order) for one in operands)
        is_summed = self.lanes is not None and operand.lanes is None
        return pruned(SegmentFold(operands, value, offsets, self.lanes, is_summed, self.plus))

    # Kernels

    def kernel(self, lanes: int) -> k.Kernel:
        """The kernel of the arguments (numbers of programs along the first and the second axis, segments, items of the
        longest one, numbers in a row, offsets, [rows and] values of each operand, results)."""
        flags = tuple((one.rows is not None, one.size is not None, one.lanes is not None) for one in self.operands)
        return _Loops(self.value, flags, self.plus, lanes).kernel(self.form, self.is_map, self.is_summed)


def _reordered(operand: Operand, order: np.ndarray) -> Operand:
    if operand.size is None:
        return operand
    return Operand(order if operand.rows is None else operand.rows[order], operand.size, operand.lanes)


def pruned(fold: SegmentFold) -> SegmentFold:
    """The same fold, in which operands that the value does not read have no rows."""
    read = {argument.index for argument in arguments_of(fold.value)}
    operands = tuple(one if i in read else Operand(None, None, None) for i, one in enumerate(fold.operands))
    return SegmentFold(operands, fold.value, fold.offsets, fold.lanes, fold.is_summed, fold.plus)


@dataclass(frozen=True, eq=False)
class Step:
    """A fold of a program, and the columns that its operands are.

    name  under which later columns read its result
    """

    name: str
    fold: SegmentFold
    operands: tuple[Column, ...]


def folds_of(column: Column, semiring: Semiring, dtype: Dtype) -> tuple[list[Step], Column]:
    """The folds of a program in their order, and its result, which reads theirs as it reads what is given.

    dtype  of values

    Folds with an operator of their own, or of what is no value, stay in the program.
    """
    typed, steps, made = semiring.typed(dtype), [], {}

    def renewed(part: Any) -> Any:
        if isinstance(part, Column):
            return Column(made[part.node], part.number)
        return tuple(map(renewed, part)) if isinstance(part, tuple) else part

    for node in n.nodes_of([column]):
        changed = {f.name: renewed(getattr(node, f.name)) for f in fields(node)}
        new = type(node)(**changed) if any(changed[name] is not getattr(node, name) for name in changed) else node
        found = None
        if isinstance(new, n.Fold) and new.monoid is None and isinstance(new.size, int):
            found = _fold_of(new.of[0], new.rows.node, new.size, typed)
        elif isinstance(new, n.FoldLanes) and isinstance(new.of.size, int):
            found = _fold_of(new.of, None, new.of.size, typed)
        if found is not None:
            name = f"fold {len(steps)}"
            steps.append(Step(name, *found))
            new = n.Given(name, new.types, False)
        made[node] = new
    return steps, renewed(column)


def _fold_of(
    of: Column, rows: n.Node | None, size: int, typed: TypedSemiring
) -> tuple[SegmentFold, tuple[Column, ...]] | None:
    """The fold of a column by rows, or of its lanes without rows; None if it is no value of operands."""
    order = None
    offsets = np.arange(size + 1)
    if rows is not None:
        if not isinstance(rows, n.Constant) or not isinstance(rows.values, np.ndarray):
            return None
        places = rows.values
        if (places[1:] < places[:-1]).any():
            order = np.argsort(places, kind="stable")
            places = places[order]
        offsets = np.searchsorted(places, np.arange(size + 1))
    finder = _Operands(typed)
    value = finder.value(of, order)
    if value is None or value.dtype != finder.dtype or not finder.columns:
        return None
    lanes = of.lanes
    return SegmentFold(tuple(finder.operands), value, offsets, lanes, rows is None, typed.plus), tuple(finder.columns)


class _Operands:
    """Finds what a column is of: an expression of operands, each item reading rows of them."""

    def __init__(self, typed: TypedSemiring):
        self.typed = typed
        self.dtype: Dtype = typed.plus.left[0].dtype
        self.operands: list[Operand] = []
        self.columns: list[Column] = []
        self._known: dict[tuple[Column, int | None], Argument] = {}

    def value(self, column: Column, rows: np.ndarray | None) -> Expr | None:
        node = column.node
        if isinstance(node, n.Apply):
            inputs = [self.value(x, rows) for x in node.inputs]
            if any(x is None for x in inputs):
                return None
            function = node.function
            if isinstance(function, str):
                function = n.Function.named(function, tuple(x.dtype for x in inputs), self.typed.semiring)  # type: ignore[union-attr]
            given = {a: as_type(x, a.dtype) for a, x in zip(function.arguments, inputs)}
            return substitute(function.values, given)[column.number]
        if isinstance(node, n.Gather):
            places = node.rows.node
            if node.otherwise is not None or not isinstance(places, n.Constant):
                return None
            return self.value(node.of, places.values if rows is None else places.values[rows])
        if isinstance(node, n.Constant) and not isinstance(node.values, np.ndarray):
            return None if isinstance(node.values, (bool, np.bool_)) else Literal(float(node.values), self.dtype)
        return self.operand(column, rows)

    def operand(self, column: Column, rows: np.ndarray | None) -> Expr | None:
        size = column.size
        if column.type.dtype != n.VALUE or not (size is None or isinstance(size, int)):
            return None
        if size is None:
            rows = None
        key = column, None if rows is None else id(rows)
        if key not in self._known:
            number = len(self.operands)
            self._known[key] = Argument(number, self.dtype, f"x{number}")
            self.operands.append(Operand(rows, size, column.lanes))
            self.columns.append(column)
        return self._known[key]


class _Loops:
    """Makes the kernel of a fold.

    flags  of each operand: whether it has rows of its own, whether it is more than one number, whether it has lanes
    lanes  of a tile
    """

    def __init__(self, value: Expr, flags: tuple[tuple[bool, bool, bool], ...], plus: TypedMonoid, lanes: int):
        self.value, self.flags, self.plus, self.lanes = value, flags, plus, lanes
        self.dtype = plus.left[0].dtype
        self.neutral = Literal(plus.neutral[0].item(), self.dtype)

    def kernel(self, form: str, is_map: bool, is_summed: bool) -> k.Kernel:
        b = self.b = Builder(f"fold_{form}", self.lanes)
        self.blocks, self.tiles = b.scalar("blocks"), b.scalar("tiles")
        self.size, self.longest, self.width = b.scalar("size"), b.scalar("longest"), b.scalar("width")
        self.offsets = b.array("offsets", "int64")
        self.arrays = [
            (b.array(f"rows{i}", "int32") if has_rows else None, b.array(f"values{i}", self.dtype))
            for i, (has_rows, _, _) in enumerate(self.flags)
        ]
        self.out = b.array("out", self.dtype)
        if form == "segments":
            self.segments_in_lanes(is_map)
        elif form == "items":
            self.items_in_lanes()
        elif is_summed:
            self.sums_of_lanes()
        else:
            self.lanes_of_rows()
        return b.kernel()

    def segments_in_lanes(self, is_map: bool) -> None:
        b = self.b
        lane = b.lane_numbers()
        with b.loop("block", 0, self.blocks, parallel=True) as block:
            segment = b.let("segment", block * self.lanes + lane)
            inside, total = b.let("inside", less(segment, self.size)), self.nothing()
            if is_map:
                self.add(total, segment, inside, None)
            else:
                start, stop = b.register("start"), b.register("stop")
                b.gather(start, self.offsets, segment, inside, 0)
                b.gather(stop, self.offsets, b.let("after", segment + 1), inside, 0)
                with b.loop("j", 0, self.longest) as j:
                    item = b.let("item", start + j)
                    self.add(total, item, b.let("is_there", less(item, stop)), None)
            b.scatter(self.out, segment, total, inside)

    def items_in_lanes(self) -> None:
        b = self.b
        lane = b.lane_numbers()
        with b.loop("segment", 0, self.blocks, parallel=True) as segment:
            row, stop = self.ends(segment)
            total = self.nothing()
            with b.while_(less(row, stop)):
                item = b.let("item", row + lane)
                self.add(total, item, b.let("is_there", less(item, stop)), None)
                b.set(row, row + self.lanes)
            self.store_whole(segment, total, lane)

    def sums_of_lanes(self) -> None:
        b = self.b
        lane = b.lane_numbers()
        with b.loop("segment", 0, self.blocks, parallel=True) as segment:
            row, stop = self.ends(segment)
            total = self.nothing()
            with b.while_(less(row, stop)):
                with b.loop("first", 0, self.width, step=self.lanes) as first:
                    place = b.let("place", first + lane)
                    self.add(total, row, b.let("is_there", less(place, self.width)), place)
                b.set(row, row + 1)
            self.store_whole(segment, total, lane)

    def lanes_of_rows(self) -> None:
        b = self.b
        lane = b.lane_numbers()
        with (
            b.loop("segment", 0, self.blocks, parallel=True) as segment,
            b.loop("tile", 0, self.tiles, parallel=True) as tile,
        ):
            row, stop = self.ends(segment)
            place, total = b.let("place", tile * self.lanes + lane), self.nothing()
            is_there = b.let("is_there", less(place, self.width))
            with b.while_(less(row, stop)):
                self.add(total, row, is_there, place)
                b.set(row, row + 1)
            b.scatter(self.out, b.let("at", segment * self.width + place), total, is_there)

    def ends(self, segment: Expr) -> tuple[k.Register, k.Register]:
        return self.b.load(self.offsets, segment, "row"), self.b.load(self.offsets, segment + 1, "stop")

    def nothing(self) -> k.Register:
        total = self.b.register("total", self.dtype)
        self.b.spread(total, self.neutral)
        return total

    def add(self, total: k.Register, item: Expr, is_there: Expr, place: Expr | None) -> None:
        """Add the value of items, a line, or of one item's numbers at a line of places."""
        b, values = self.b, {}
        for argument in arguments_of(self.value):
            _, has_size, has_lanes = self.flags[argument.index]
            rows, array = self.arrays[argument.index]
            register = b.register(f"x{argument.index}", self.dtype)
            values[argument] = register
            row = item
            if rows is not None and place is None:
                row = b.register("row")
                b.gather(row, rows, item, is_there, 0)
            elif rows is not None:
                row = b.load(rows, item, "row")
            if not has_size:
                b.load_into(register, array, 0)
            elif place is None:
                b.gather(register, array, row, is_there, 0)
            elif has_lanes:
                b.gather(register, array, b.let("at", row * self.width + place), is_there, 0)
            else:
                b.load_into(register, array, row)
        (found,) = substitute((self.value,), values)
        x = b.let("x", expr.where(is_there, found, self.neutral))
        given = dict(zip((*self.plus.left, *self.plus.right), (total, x)))
        b.set(total, substitute(self.plus.values, given)[0])

    def store_whole(self, segment: Expr, total: k.Register, lane: Expr) -> None:
        """Store the plus of all lanes, once."""
        b = self.b
        b.scan_line([total], self.plus)
        b.scatter(self.out, b.let("out_at", segment + lane * 0), total, b.let("is_last", less(self.lanes - 2, lane)))
