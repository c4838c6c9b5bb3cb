"""Scans of a grid of programs, and their reverse rules, lowered to the loop IR for any operator.

Rows are cut into chunks. A first kernel folds each chunk to its total; in a second one each program folds the totals of
the chunks before its own, goes through its chunk from there, and writes the results. So the rows are read twice and
written once, and there is neither a lock nor an atomic operation.

Lanes are rows of one column, which `ScanLine` folds, or they are columns, which go through the rows one by one. The
segmented scan is the scan of elements with a flag, of which the right one starts again where its flag is set. The
reverse rule is a scan of the linear functions of `algebra.recurrence`, in the other direction: between two kernels it
leaves totals alone, and no Jacobian goes to memory.

`starts` [row + 1] is 1 where a segment starts, and at the end. A kernel that goes through the rows backwards has its
lanes in the order of memory too, and scans them from the last to the first.

Source: Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back, 2016 (reduce-then-scan, which
they compare with); Bruun and others, thesis on derivatives of reduce-by-index and scan, chapter 7.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from derivable.algebra.expr.functions import (
    equal,
    less,
    less_equal,
    maximum,
    minimum,
    not_equal,
    truncate_divide,
    where,
)
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, arguments_of
from derivable.algebra.recurrence import recurrence_of
from derivable.algebra.typed import TypedMonoid
from derivable.kernel import nodes as n
from derivable.kernel.build import substitute
from derivable.kernel.schedule import Schedule
from derivable.parallel.fold_kernels import FoldBuilder, Registers, Values, commutes

# Bytes of a tile's elements, and the rows of a tile at least and at most.
TILE_BYTES, FEWEST_LANES, MOST_LANES = 8192, 256, 2048
# Columns that are lanes: where there are as many, and of a program at most.
MANY_COLUMNS, MOST_COLUMNS = 32, 128
# Programs for each multiprocessor; and tiles that one program goes through sooner than two kernels.
PROGRAMS, FEW_TILES = 8, 6
_TRUE = Constant(True, "bool")
# Rows that columns read at once, before they fold them.
_AT_ONCE = 4


@dataclass(frozen=True)
class Grid:
    """How a scan lies on a grid.

    lanes       of a program, a power of two
    by_columns  lanes are columns, and not rows
    single      there is one column
    segmented, exclusive, reverse  what is computed
    """

    lanes: int
    by_columns: bool = False
    single: bool = False
    segmented: bool = False
    exclusive: bool = False
    reverse: bool = False

    def __str__(self) -> str:
        what = "columns" if self.by_columns else "rows"
        return f"chunks of rows, {self.lanes} {what} a tile; totals of chunks, then prefixes"


@dataclass(frozen=True)
class Cut:
    """How a scan is cut: chunks of `size` tiles, or of rows where lanes are columns.

    programs  one for each chunk, and each column or tile of columns
    warps     of a program
    """

    grid: Grid
    chunks: int
    size: int
    programs: int
    warps: int


def cut(op: TypedMonoid, rows: int, width: int, multiprocessors: int, lanes: int = 0, **ways: bool) -> Cut:
    """A scan of at least one row and column by the operator `op`, for a GPU of that number of multiprocessors.

    lanes  rows of a tile, if lanes are rows whatever the number of columns
    ways   the other fields of the grid
    """
    by_columns = width >= MANY_COLUMNS and not lanes
    if by_columns:
        lanes = min(MOST_COLUMNS, 1 << (width - 1).bit_length())
        across = -(-width // lanes)
        # The totals before its own are read by each program one by one.
        most = min(2 * PROGRAMS * multiprocessors // across, math.isqrt(rows))
        size = -(-rows // max(1, most if rows > 64 else 1) // _AT_ONCE) * _AT_ONCE
        chunks = -(-rows // size)
    else:
        if not lanes:
            width_of = sum(size * np.dtype(dtype).itemsize for size, dtype in zip(op.leaf_sizes, op.leaf_dtypes))
            lanes = min(MOST_LANES, max(FEWEST_LANES, 1 << max(0, (TILE_BYTES // width_of).bit_length() - 1)))
        across, tiles = width, -(-rows // lanes)
        most = max(1, PROGRAMS * multiprocessors // width)
        size = tiles if tiles <= FEW_TILES else -(-tiles // most)
        chunks = -(-tiles // size)
    grid = Grid(lanes, by_columns, width == 1, **ways)
    return Cut(grid, chunks, size, chunks * across, max(1, min(4, lanes // 32)))


def totals_kernel(op: TypedMonoid, dtypes: Sequence[str], grid: Grid, back: bool) -> n.Kernel:
    """totals(rows, width, chunks, size, ...): the fold `t` of each chunk of values `v`, or of its linear functions.

    dtypes  [leaf] of the arrays; what is computed has the operator's types
    size    of a chunk: the number of rows, or where lanes are rows, of tiles
    v, y, g leaf arrays [row, column, size] of the values, and if `back`, of the results and of their adjoints
    t       [chunk, column, size] leaves of the operator that is scanned, with a leaf of int32 flags for segments

    The parameters after the first four are those arrays that are read or written, by name.
    """
    k = _GridScan("totals", op, dtypes, grid, back)
    with k.chunks():
        k.fold()
    return k.kernel()


def prefixes_kernel(op: TypedMonoid, dtypes: Sequence[str], grid: Grid, back: bool) -> n.Kernel:
    """prefixes(rows, width, chunks, size, ...): the results `o`, or if `back`, the adjoints of the values.

    The rest is as in `totals_kernel`.
    """
    k = _GridScan("prefixes", op, dtypes, grid, back)
    with k.chunks():
        k.carry()
        k.go_through()
    return k.kernel()


def buckets_kernel(op: TypedMonoid, dtypes: Sequence[str], grid: Grid, buckets: int) -> n.Kernel:
    """buckets(rows, width, chunks, size, ...): what each lane of each chunk folds for each bucket, of few buckets.

    indices  of the buckets of the rows; other numbers than those of buckets are ignored
    t        [chunk and lane, column and bucket, size] leaves

    Each lane goes through rows of its own, so the operator commutes. The rest is as in `totals_kernel`.
    """
    k = _GridScan("buckets", op, dtypes, grid, False)
    with k.chunks():
        k.fold_by_bucket(buckets)
    return k.kernel()


def sums_kernel(op: TypedMonoid, dtypes: Sequence[str], grid: Grid, _: int) -> n.Kernel:
    """sums(rows, width, chunks, size, buckets, copies, ...): adds rows to buckets, of an operator that only adds.

    t        [copy, bucket, column, size] leaves: a chunk adds to one of several copies, so that few programs wait for
             each other

    The rest is as in `buckets_kernel`.
    """
    k = _GridScan("sums", op, dtypes, grid, False)
    buckets, copies = k.scalar("buckets"), k.scalar("copies")
    with k.chunks():
        k.add_by_bucket(buckets, copies)
    return k.kernel()


def spread_kernel(op: TypedMonoid, dtypes: Sequence[str], grid: Grid, is_nothing: int) -> n.Kernel:
    """spread(rows, width, chunks, size, buckets, ...): results `o` of rows, which are `g` of their buckets.

    g, o        [float leaf] of the buckets, and of the rows
    is_nothing  whether rows without a bucket get what is no number, and not 0
    """
    k = _GridScan("spread", op, dtypes, grid, False)
    buckets = k.scalar("buckets")
    with k.chunks():
        k.spread_buckets(buckets, bool(is_nothing))
    return k.kernel()


def only_adds(op: TypedMonoid) -> bool:
    """Whether each component is the sum of the operands' components."""
    return op.own_adjoints is None and all(
        isinstance(value, Apply) and value.operation == "add" and set(value.operands) == {left, right}
        for value, left, right in zip(op.values, op.left, op.right)
    )


def scanned(op: TypedMonoid, grid: Grid, back: bool) -> TypedMonoid:
    """The operator of the totals."""
    inner = recurrence_of(op).operator if back else op
    return flagged(inner) if grid.segmented else inner


_flagged: weakref.WeakKeyDictionary[TypedMonoid, TypedMonoid] = weakref.WeakKeyDictionary()


def flagged(op: TypedMonoid) -> TypedMonoid:
    """The operator on elements with one more leaf, an int32 flag: a right element with a flag forgets the left one."""
    found = _flagged.get(op)
    if found is None:
        first = 1 + max(argument.index for argument in (*op.left, *op.right))
        a, b = Argument(first, "int32", "a_flag"), Argument(first + 1, "int32", "b_flag")
        starts = not_equal(b, 0)
        found = _flagged[op] = TypedMonoid(
            name=f"flagged {op.name}",
            leaf_dtypes=(*op.leaf_dtypes, "int32"),
            leaf_sizes=(*op.leaf_sizes, 1),
            left=(*op.left, a),
            right=(*op.right, b),
            values=(*(where(starts, right, value) for right, value in zip(op.right, op.values)), maximum(a, b)),
            neutral=(*op.neutral, np.int32(0)),
        )
    return found


class _GridScan(FoldBuilder):
    """rows, width, chunks  of the whole scan; chunk, column  of a program"""

    def __init__(self, name: str, op: TypedMonoid, dtypes: Sequence[str], grid: Grid, back: bool):
        super().__init__(name, op, Schedule(lanes=grid.lanes), grid.single)
        self.lanes, self.dtypes, self.grid, self.back = grid.lanes, dtypes, grid, back
        self.whole = scanned(op, grid, back)
        # Whether the kernel goes through the rows backwards; where the next row of the scan is.
        self.down, self.ahead = back != grid.reverse, -1 if grid.reverse else 1
        self.named_arrays: dict[str, n.Array] = {}
        self.rows, self.width, self.num_chunks, self.chunk_size = (
            self.scalar(name) for name in ("rows", "width", "chunks", "size")
        )

    # Where things are

    @contextmanager
    def chunks(self) -> Iterator[None]:
        """For each chunk, and each column or tile of columns, a program of its own."""
        lanes, by_columns = self.lanes, self.grid.by_columns
        across = truncate_divide(self.width + (lanes - 1), Constant(lanes, "int64")) if by_columns else self.width
        across = Constant(1, "int64") if self.single else self.let("across", across)
        with self.loop("place", 0, self.num_chunks * across, parallel=True) as place:
            self.lane = self.lane_numbers()
            self.chunk = self.let("chunk", place if self.single else truncate_divide(place, across))
            self.column = self.let("column", 0 if self.single else place - self.chunk * across)
            if by_columns:
                self.column = self.let("columns", self.column * lanes + self.lane)
            yield

    @contextmanager
    def tiles(self) -> Iterator[list[tuple[Expr, Expr]]]:
        """A loop over a chunk: (rows, whether they are there) of all that is read at once, in the kernel's order."""
        lanes, by_columns = self.lanes, self.grid.by_columns
        length = self.chunk_size if by_columns else self.chunk_size * lanes
        first = self.let("first", self.chunk * length)
        stop = self.let("stop", minimum(first + length, self.rows))
        with self.loop("base", first, stop, step=_AT_ONCE if by_columns else lanes) as base:
            if by_columns:
                passed = [self.let("passed", base + k) for k in range(_AT_ONCE)]
                there = [self.let("there", less(row, stop)) for row in passed]
                rows = [self.let("row", self.rows - 1 - row if self.down else row) for row in passed]
                yield list(zip(rows, there))
            elif self.down:
                row = self.let("row", (self.rows - base - lanes) + self.lane)
                yield [(row, self.let("there", less_equal(0, row)))]
            else:
                row = self.let("row", base + self.lane)
                yield [(row, self.let("there", less(row, self.rows)))]

    def lanes_of(self, condition: Expr) -> Expr:
        """The lanes that are columns, where a condition on rows holds."""
        if not self.grid.by_columns:
            return condition
        # Not `&`: Triton's interpreter spreads a bool as a number.
        return less(self.column, where(condition, self.width, Constant(0, "int64")))

    def position_of(self, row: Expr, component: int, of: TypedMonoid | None = None) -> Expr:
        """Of a component of an element of `of`, in the array of its leaf."""
        of = of or self.op
        place = row if self.single else row * self.width + self.column
        leaf = _leaf(of, component)
        size = of.leaf_sizes[leaf]
        return place if size == 1 else place * size + (component - of.starts[leaf])

    def array_of(self, role: str, leaf: int, dtype: str) -> n.Array:
        name = f"{role}{leaf}"
        if name not in self.named_arrays:
            self.named_arrays[name] = self.array(name, dtype)
        return self.named_arrays[name]

    def loaded(self, role: str, row: Expr, mask: Expr, fill: Values) -> Registers:
        """Components in `fill` of the elements of a row."""
        arrays = {c: self.array_of(role, leaf, self.dtypes[leaf]) for c in fill for leaf in (self.leaf_of(c),)}
        found = self.named(role, fill)
        for c, number in fill.items():
            assert isinstance(number, Constant)
            self.gather(found[c], arrays[c], self.position_of(row, c), mask, number.value)
        return found

    def starts_at(self, row: Expr, there: Expr, is_end: bool) -> Expr:
        """Whether a segment starts with this row, or ends with it, in the direction of the scan."""
        behind = is_end != self.grid.reverse
        if not self.grid.segmented:
            return equal(row, self.rows - 1 if behind else 0)
        flag = self.register("ends" if is_end else "begins", "bool")
        if "starts" not in self.named_arrays:
            self.named_arrays["starts"] = self.array("starts", "int8")
        self.gather(flag, self.named_arrays["starts"], row + 1 if behind else row, there, True)
        return flag

    # Elements of what is scanned, in the order in which the kernel goes through the rows

    def elements(self, tile: Sequence[tuple[Expr, Expr]]) -> list[dict[int, Expr]]:
        return [(self.element_back if self.back else self.element)(*place) for place in tile]

    def element(self, row: Expr, there: Expr) -> dict[int, Expr]:
        needs_start = self.grid.segmented or self.grid.exclusive
        begins = self.starts_at(row, there, False) if needs_start else _TRUE
        reads = self.let("reads", self.lanes_of(there & ~begins if self.grid.exclusive else there))
        place = row - self.ahead if self.grid.exclusive else row
        found: dict[int, Expr] = dict(self.loaded("v", place, reads, self.neutral()))
        if self.grid.segmented:
            found[len(found)] = where(there & begins, Constant(1, "int32"), Constant(0, "int32"))
        return found

    def element_back(self, row: Expr, there: Expr) -> dict[int, Expr]:
        """The adjoint of a row's prefix from its result, and how that of the next row's prefix goes into it."""
        following, ends = row + self.ahead, self.starts_at(row, there, True)
        reads, goes_on = self.let("reads", self.lanes_of(there)), self.let("goes_on", self.lanes_of(there & ~ends))
        exclusive = self.grid.exclusive
        u = self.loaded("g", following if exclusive else row, goes_on if exclusive else reads, self.zeros())
        recurrence = recurrence_of(self.op)
        a, b = self._read(recurrence.entries, following if exclusive else row, following, goes_on, goes_on)
        entries = self.with_operands(recurrence.entries, a, b)
        identity = recurrence.operator.neutral[len(u) :]
        made = [
            where(goes_on, entry, Constant(one, entry.dtype)) if arguments_of(entry) or entry.value != one else entry  # type: ignore[attr-defined]
            for entry, one in zip(entries, identity)
        ]
        found = dict(enumerate([*u.values(), *made]))
        if self.grid.segmented:
            found[len(found)] = where(there & ends, Constant(1, "int32"), Constant(0, "int32"))
        return found

    def _read(
        self, exprs: Sequence[Expr], left: Expr, right: Expr, left_mask: Expr, right_mask: Expr
    ) -> tuple[Registers, Registers]:
        """The components that the expressions read of the results in the row `left` and of the values in `right`."""
        neutral, given = self.neutral(), set(arguments_of(exprs))
        lefts = {c: neutral[c] for c in self.all if self.op.left[c] in given}
        rights = {c: neutral[c] for c in self.all if self.op.right[c] in given}
        return self.loaded("y", left, left_mask, lefts), self.loaded("v", right, right_mask, rights)

    def write_results(self, row: Expr, there: Expr, found: Values) -> None:
        if self.back:
            self._write_adjoints(row, there, found)
            return
        reads = self.lanes_of(there)
        for c in self.all:
            self.store_component("o", row, c, found[c], reads)

    def store_component(self, role: str, row: Expr, component: int, value: Expr, mask: Expr) -> None:
        leaf = self.leaf_of(component)
        array = self.array_of(role, leaf, self.dtypes[leaf])
        self.scatter(array, self.position_of(row, component), value, mask)

    def _write_adjoints(self, row: Expr, there: Expr, found: Values) -> None:
        reads = self.let("writes", self.lanes_of(there))
        adjoints = {c: found[i] for i, c in enumerate(self.floats)}
        exprs = [self.op.adjoints.right[c] for c in self.floats]
        if all(expr is self.op.adjoints.arguments[c] for c, expr in zip(self.floats, exprs)):
            right = dict(adjoints)
        else:
            first = self.let("is_first", self.starts_at(row, there, False))
            before, inside = row, reads
            if not self.grid.exclusive:
                before, inside = row - self.ahead, self.let("inside", self.lanes_of(there & ~first))
            a, b = self._read(exprs, before, row, inside, reads)
            pulled = self.pulled(a, b, adjoints)[1]
            right = {c: x if x is adjoints[c] else where(first, adjoints[c], x) for c, x in pulled.items()}
        for c, value in self.computed("t", right).items():
            self.store_component("o", row, c, value, reads)

    # Folds

    def registers_of(self, name: str) -> list[n.Register]:
        return list(self.registers(name, self.whole.dtypes))

    def joined(self, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
        given = {**dict(zip(self.whole.left, left)), **dict(zip(self.whole.right, right))}
        return substitute(self.whole.values, given)

    def begun(self, name: str) -> list[n.Register]:
        """Registers with the neutral element: lines, but for flags where lanes are columns."""
        found = self.registers_of(name)
        for k, (register, neutral) in enumerate(zip(found, self.whole.neutral)):
            if self.grid.by_columns and self.grid.segmented and k == len(found) - 1:
                self.set(register, Constant(neutral, register.dtype))
            else:
                self.spread(register, Constant(neutral, register.dtype))
        return found

    def as_lines(self, name: str, values: Sequence[Expr]) -> list[n.Register]:
        """Registers with the values, in lines also where they are constants."""
        found = self.registers_of(name)
        for register, value in zip(found, values):
            if arguments_of(value):
                self.set(register, value)
            else:
                self.spread(register, value)
        return found

    def take_last(self, targets: Sequence[n.Register], sources: Sequence[n.Register], down: bool) -> None:
        """The lane to which a scan comes last, in all lanes."""
        for target, source in zip(targets, sources):
            if down:
                number = self.register("number", source.dtype)
                self.first_lane(number, source)
                self.spread(target, number)
            else:
                self.last_lane(target, source)

    def fold_line(self, prefix: Sequence[n.Register], line: Sequence[n.Register], down: bool = False) -> None:
        """The prefix, in all lanes, becomes its fold with the whole line."""
        within, last = self.registers_of("within"), self.registers_of("last")
        self.scan_line(within, self.whole, line, down)
        self.take_last(last, within, down)
        self.set(prefix, self.joined(prefix, last))

    def fold(self) -> None:
        """The total of a chunk."""
        total = self.begun("total")
        by_columns = self.grid.by_columns
        in_lanes = not by_columns and (self.whole.commutative is True or commutes(self.whole))
        with self.tiles() as tile:
            for found in self.elements(tile):
                if by_columns:
                    self.set(total, self.joined(total, [found[k] for k in range(len(total))]))
                    continue
                line = self.as_lines("line", [found[k] for k in range(len(total))])
                if in_lanes:
                    self.set(total, self.joined(total, line))
                else:
                    self.fold_line(total, line, self.down)
        if in_lanes:
            line, total = total, self.begun("whole")
            self.fold_line(total, line)
        for k, register in enumerate(total):
            self.store_total(k, register)

    def fold_by_bucket(self, buckets: int) -> None:
        indices = self.named_arrays["indices"] = self.array("indices", "int64")
        totals = [self.begun("total") for _ in range(buckets)]
        with self.tiles() as ((row, there),):
            index = self.register("index")
            self.gather(index, indices, row, there, -1)
            value = self.loaded("v", row, there, self.neutral())
            for bucket, total in enumerate(totals):
                is_here = self.let("is_here", equal(index, bucket))
                joined = self.joined(total, list(value.values()))
                self.set(total, [where(is_here, both, before) for both, before in zip(joined, total)])
        row = self.let("lane_of_all", self.chunk * self.lanes + self.lane)
        for bucket, total in enumerate(totals):
            for c, register in enumerate(total):
                leaf = _leaf(self.whole, c)
                place = ((row * self.width + self.column) * buckets + bucket) * self.whole.leaf_sizes[leaf]
                self.scatter(self.total_array(c), place + (c - self.whole.starts[leaf]), register)

    def add_by_bucket(self, buckets: Expr, copies: Expr) -> None:
        indices = self.named_arrays["indices"] = self.array("indices", "int64")
        copy = self.let("copy", self.chunk - truncate_divide(self.chunk, copies) * copies)
        with self.tiles() as tile:
            for row, there in tile:
                index = self.register("index")
                self.gather(index, indices, row, there, -1)
                inside = self.let("inside", self.lanes_of(there & less_equal(0, index) & less(index, buckets)))
                place = copy * buckets + index
                for c, register in self.loaded("v", row, inside, self.neutral()).items():
                    self.scatter(self.total_array(c), self.position_of(place, c), register, inside, adds=True)

    def spread_buckets(self, buckets: Expr, is_nothing: bool) -> None:
        indices = self.named_arrays["indices"] = self.array("indices", "int64")
        fill = {c: Constant(np.nan if is_nothing else 0.0, self.op.dtypes[c]) for c in self.floats}
        with self.tiles() as tile:
            for row, there in tile:
                index = self.register("index")
                self.gather(index, indices, row, there, -1)
                inside = self.let("inside", self.lanes_of(there & less_equal(0, index) & less(index, buckets)))
                writes = self.let("writes", self.lanes_of(there))
                for c, register in self.loaded("g", index, inside, fill).items():
                    self.store_component("o", row, c, register, writes)

    def total_array(self, component: int) -> n.Array:
        leaf = _leaf(self.whole, component)
        return self.array_of("t", leaf, self.whole.leaf_dtypes[leaf])

    def store_total(self, component: int, register: n.Register) -> None:
        array, is_flag = self.total_array(component), self.grid.segmented and component == len(self.whole.values) - 1
        if self.grid.by_columns and not is_flag:
            place = self.position_of(self.chunk, component, self.whole)
            self.scatter(array, place, register, less(self.column, self.width))
        elif self.grid.by_columns:
            # The same for all columns, so one is enough.
            self.store(array, self.chunk, register)
        else:
            number = self.register("number", register.dtype)
            self.first_lane(number, register)
            self.store(array, self.position_of(self.chunk, component, self.whole), number)

    def load_total(self, chunk: Expr, mask: Expr) -> list[n.Register]:
        found = self.registers_of("total")
        for k, register in enumerate(found):
            array, neutral = self.total_array(k), self.whole.neutral[k]
            if self.grid.by_columns and self.grid.segmented and k == len(found) - 1:
                self.gather(register, array, chunk)
            else:
                self.gather(register, array, self.position_of(chunk, k, self.whole), mask, neutral)
        return found

    def carry(self) -> None:
        """The fold of the chunks before."""
        self.prefix = self.begun("prefix")
        if self.grid.by_columns:
            with self.loop("other", 0, self.chunk) as other:
                total = self.load_total(other, less(self.column, self.width))
                self.set(self.prefix, self.joined(self.prefix, total))
            return
        with self.loop("other", 0, self.chunk, step=self.lanes) as other:
            lane = self.let("others", other + self.lane)
            self.fold_line(self.prefix, self.load_total(lane, less(lane, self.chunk)))

    def go_through(self) -> None:
        prefix = self.prefix
        with self.tiles() as tile:
            # All of a tile is read before any of it is written.
            elements = [[found[k] for k in range(len(prefix))] for found in self.elements(tile)]
            for (row, there), element in zip(tile, elements):
                if self.grid.by_columns:
                    self.set(prefix, self.joined(prefix, element))
                    self.write_results(row, there, dict(enumerate(prefix)))
                    continue
                within = self.registers_of("within")
                self.scan_line(within, self.whole, self.as_lines("line", element), self.down)
                found = self.registers_of("found")
                self.set(found, self.joined(prefix, within))
                self.write_results(row, there, dict(enumerate(found)))
                self.take_last(prefix, found, self.down)


def _leaf(op: TypedMonoid, component: int) -> int:
    return next(leaf for leaf, stop in enumerate(op.starts[1:]) if component < stop)
