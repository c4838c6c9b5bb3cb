"""A level fold as one kernel for a GPU: a program folds a tile of rows, its lanes are slots of a step by rows.

`fold.tile_plan` says which steps there are and what their parts, the chunks, read and write. Steps follow each other
within a program, with a barrier between them; or a launch is one step, whose chunks are shared by several programs. All
that changes between launches stands in a record in memory, so that a kernel is compiled once.

Within a tile places have 32 bits, which take half of the registers and of the operations: a tile has no more scalars.
Buffers are [tile, slot, row of the tile] and [tile, place, row of the tile]. Nothing is added in memory that another
lane adds to, so results are the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from derivable.algebra.expr.functions import cast, equal, less, less_equal, lift, logical_and, truncate_divide, where
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.algebra.typed import TypedMonoid
from derivable.circuit.kernels.level_fold import LevelFold
from derivable.circuit.kernels.level_passes import Arrays, Passes, Registers, applied
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder, register_dtype

CONSTANTS, LEAVES, SUM, NEGATION, ROOTS, SEEDS, ONES, BACK, NEGATION_BACK, REDUCE, GRADIENTS = range(11)
# The place of what needs no adjoint.
NOWHERE = -1
# What the record holds.
RECORD = ("start", "stop", "tiles", "rows", "width", "num_slots", "num_places", "num_variables", "num_roots")
# Places that are read at once.
_AT_ONCE = 4
_COLUMNS = ("kind", "first", "count", "pairs", "at", "uses")
_TABLES = ("steps", "chunks", "terms", "places", "uses", "tasks", "positive", "negative", "roots")


def tile_kernel(fold: LevelFold, lanes: int, has_negative: bool, has_gradient: bool) -> n.Kernel:
    """The kernel of steps start:stop.

    record                     int64, as `RECORD` says; `width` are the rows of a tile, a power of two up to `lanes`
    steps, chunks, terms, ...  int32 tables of the plan, as its `tables` are of this width
    weights, negative_weights  [row, variable], one array per component; negative ones if `has_negative`
    values                     scratch [tile, slot, row of the tile]
    out                        [row, root]
    edges                      scratch [tile, place, row of the tile], one array per float; with what follows if
                               `has_gradient`
    seeds                      [row, root]
    gradient, negative_gradient  [row, variable]
    """
    return _Tile(fold, lanes, has_negative, has_gradient).kernel()


class _Tile(Passes):
    def __init__(self, fold: LevelFold, lanes: int, has_negative: bool, has_gradient: bool):
        super().__init__("fold_tiles", fold)
        self.k, self.is_lines = Builder("fold_tiles", lanes), False
        self.has_negative, self.has_gradient = has_negative, has_gradient

    def kernel(self) -> n.Kernel:
        k, floats = self.k, self.fold.floats
        record = k.array("record", "int64")
        self.table = {name: k.array(name, "int32") for name in _TABLES}
        self.weights = self.columns("weights")
        self.negative_weights = self.columns("negative_weights") if self.has_negative else ()
        self.values, self.out = self.columns("values"), self.columns("out")
        if self.has_gradient:
            self.edges, self.seeds = self.columns("edges", floats), self.columns("seeds", floats)
            self.gradient = self.columns("gradient", floats)
            self.negative_gradient = self.columns("negative_gradient", floats) if self.has_negative else ()
        self.number = {name: k.load(record, place, name) for place, name in enumerate(RECORD)}
        number = self.number
        self.width = k.let("short_width", cast(number["width"], "int32"))
        lane = k.let("short_lane", cast(k.lane_numbers(), "int32"))
        node = k.let("node", truncate_divide(lane, self.width))
        self.tile_row = k.let("tile_row", lane - node * self.width)
        with k.loop("tile", 0, number["tiles"], parallel=True) as tile:
            self.base = k.let("base", tile * (number["num_slots"] * number["width"]))
            if self.has_gradient:
                self.edge_base = k.let("edge_base", tile * (number["num_places"] * number["width"]))
            own = k.let("own_row", tile * number["width"] + self.tile_row)
            self.is_row = k.let("is_row", less(own, number["rows"]))
            self.row = k.let("row", where(self.is_row, own, number["rows"] - 1))
            with k.loop("step", number["start"], number["stop"]) as step:
                first, last = k.load(self.table["steps"], step, "begin"), k.load(self.table["steps"], step + 1, "end")
                with k.loop("chunk", first, last, parallel=True) as chunk:
                    self.chunk(node, chunk)
                k.barrier()
        return k.kernel()

    def chunk(self, node: n.Register, chunk: Expr) -> None:
        k = self.k
        table = self.table["chunks"]
        fields = [k.load(table, chunk * len(_COLUMNS) + c, name) for c, name in enumerate(_COLUMNS)]
        kind, _, _, self.pairs, _, self.most = fields
        self.first, count, self.at = (k.let("short", cast(fields[c], "int32")) for c in (1, 2, 4))
        # Lanes that are left over do what the last one does, and write nothing.
        self.is_own = k.let("is_own", less(node, count))
        self.node = k.let("own_node", where(self.is_own, node, count - 1))
        self.item = k.let("item", self.first + self.node)
        parts: list[tuple[int, Callable[[], None]]] = [(SUM, self.sums)]
        if self.has_gradient:
            parts += [(BACK, self.sums_back), (REDUCE, self.reduce), (GRADIENTS, self.gradients)]
            parts += [(SEEDS, lambda: self.seed(True)), (ONES, lambda: self.seed(False))]
        if self.fold.has_negation:
            parts += [(NEGATION, self.negations)]
            parts += [(NEGATION_BACK, self.negations_back)] * self.has_gradient
        self.chosen(kind, [*parts, (LEAVES, self.leaves), (ROOTS, self.roots), (CONSTANTS, self.constant_slots)])

    def chosen(self, kind: Expr, parts: Sequence[tuple[int, Callable[[], Any]]]) -> None:
        (number, part), *others = parts
        if not others:
            part()
            return
        with self.k.when(equal(kind, number)):
            part()
        with self.k.otherwise():
            self.chosen(kind, others)

    # Memory

    def look(self, name: str, places: Expr) -> n.Register:
        return self.gathered(self.table[name], places, name)

    def gathered(self, array: n.Array, places: Expr, name: str = "x", mask: Any = True) -> n.Register:
        target = self.k.register(name, "int32" if array.dtype == "int32" else register_dtype(array.dtype))
        self.k.gather(target, array, places, mask)
        return target

    def at_row(self, arrays: Arrays, place: Expr, columns: str) -> Registers:
        """Of matrices [row, place]."""
        index = self.k.let("index", self.row * self.number[columns] + place)
        return tuple(self.gathered(array, index) for array in arrays)

    def store_row(self, arrays: Arrays, place: Expr, columns: str, values: Sequence[Expr]) -> None:
        index = self.k.let("index", self.row * self.number[columns] + place)
        for array, value in zip(arrays, values, strict=True):
            self.k.scatter(array, index, value, logical_and(self.is_own, self.is_row))

    def value(self, start: Expr) -> Registers:
        """Of the slot whose rows start there."""
        index = self.k.let("index", self.base + cast(self.tile_row + start, "int64"))
        return tuple(self.gathered(array, index) for array in self.values)

    def store_value(self, start: Expr, values: Sequence[Expr]) -> None:
        index = self.k.let("index", self.base + cast(self.tile_row + start, "int64"))
        for array, value in zip(self.values, values, strict=True):
            self.k.scatter(array, index, value, self.is_own)

    def write_edge(self, place: Expr, values: Sequence[Expr]) -> None:
        mask = self.k.let("mask", logical_and(self.is_own, less_equal(0, place)))
        index = self.k.let("index", self.edge_base + cast(self.tile_row + place, "int64"))
        for array, value in zip(self.edges, values, strict=True):
            self.k.scatter(array, index, value, mask)

    def summed(self, begin: Expr, count: Expr) -> Registers:
        """The sum of `count` places, the rows of whose first start at `begin`, of each lane its own."""
        k = self.k
        start = k.let("start", self.tile_row + begin)
        totals = tuple(k.register("total", dtype) for dtype in self.float_dtypes)
        for total in totals:
            k.spread(total, Constant(0, total.dtype))
        with k.loop("use", 0, self.most, step=_AT_ONCE) as use:
            found = []
            for turn in range(_AT_ONCE):
                number = k.let("number", cast(use, "int32") + turn)
                is_use = k.let("is_use", less(number, count))
                index = k.let("index", self.edge_base + cast(start + number * self.width, "int64"))
                found.append([self.gathered(array, index, "edge", is_use) for array in self.edges])
            # All of them are loaded before any is waited for.
            for edges in found:
                for total, edge in zip(totals, edges):
                    k.set(total, total + edge)
        return totals

    def uses(self, slot: Expr) -> tuple[n.Register, n.Register]:
        """Where the rows of the first of its places start, and their number."""
        return self.look("uses", slot * 2), self.look("uses", slot * 2 + 1)

    # Forward

    def constant_slots(self) -> None:
        is_zero = equal(self.node, 0)
        typed = (Constant(zero, dtype) for zero, dtype in zip(self.typed.zero, self.dtypes))
        others = (Constant(one, dtype) for one, dtype in zip(self.typed.one, self.dtypes))
        self.store_value(self.node * self.width, [where(is_zero, zero, one) for zero, one in zip(typed, others)])

    def leaves(self) -> None:
        x = self.at_row(self.weights, self.item, "num_variables")
        self.store_value(self.look("positive", self.item) * self.width, x)
        if self.has_negative:
            y: Sequence[Expr] = self.at_row(self.negative_weights, self.item, "num_variables")
        elif self.typed.complement is not None:
            y = self.let("y", applied(self.typed.complement, x))
        else:
            return
        self.store_value(self.look("negative", self.item) * self.width, y)

    def roots(self) -> None:
        self.store_row(self.out, self.item, "num_roots", self.value(self.look("roots", self.item) * self.width))

    def by_pairs(self, part: Callable[[int], None]) -> None:
        self.chosen(self.pairs, [(count, lambda count=count: part(count)) for count in (1, 2, 4)])

    def factors(self, term: Expr, pairs: range) -> list[tuple[Registers, Registers]]:
        """Both values of some pairs; all slots are loaded before any value is."""
        slots = [self.look("terms", term + place) for place in _places(pairs)]
        values = [self.value(slot) for slot in slots]
        return list(zip(values[::2], values[1::2]))

    def sums(self) -> None:
        term = self.k.let("term", self.at + self.node * cast(2 * self.pairs, "int32"))

        def part(pairs: int) -> None:
            products = [self.let("product", self.times(x, y)) for x, y in self.factors(term, range(pairs))]
            total = reduce(lambda left, right: self.let("sum", self.plus(left, right)), products)
            self.store_value(self.item * self.width, total)

        self.by_pairs(part)

    def negations(self) -> None:
        x = self.value(self.look("terms", self.at + self.node * 2))
        self.store_value(self.item * self.width, self.let("negated", applied(self.typed.negation, x)))

    # Backward

    def seed(self, is_given: bool) -> None:
        # The chunk's start goes on with its items.
        place = self.look("places", self.at + self.node)
        ones = [lift(1.0)] * len(self.float_dtypes)
        self.write_edge(place, self.at_row(self.seeds, self.item, "num_roots") if is_given else ones)

    def reduce(self) -> None:
        begin, count, place = (self.look("tasks", self.item * 3 + column) for column in range(3))
        self.write_edge(place, self.summed(begin, count))

    def sums_back(self) -> None:
        plus, times = self.typed.plus, self.typed.times
        begin, count = self.uses(self.item)
        term = self.k.let("term", self.at + self.node * cast(2 * self.pairs, "int32"))
        # What does not wait for adjoints is loaded before them.
        first, first_places = self.factors(term, range(1)), [self.look("places", term + place) for place in (0, 1)]
        adjoint = self.summed(begin, count)

        def part(pairs: int) -> None:
            factors = first + self.factors(term, range(1, pairs))
            places = first_places + [self.look("places", term + place) for place in _places(range(1, pairs))]
            products, totals = [], []
            if pairs > 1 and not self.fold.hands_on:
                products = [self.let("product", self.times(x, y)) for x, y in factors]
                totals = [products[0]]
                for product in products[1:-1]:
                    totals.append(self.let("sum", self.plus(totals[-1], product)))
            rest: tuple[Expr, ...] = adjoint
            for pair in range(pairs - 1, -1, -1):
                own = rest
                if pair and not self.fold.hands_on:
                    rest, own = self.both(plus, totals[pair - 1], products[pair], rest)
                for place, value in zip(places[2 * pair :], self.both(times, *factors[pair], own)):
                    self.write_edge(place, value)

        self.by_pairs(part)

    def negations_back(self) -> None:
        term = self.k.let("term", self.at + self.node * 2)
        adjoint = self.summed(*self.uses(self.item))
        found = self.pulled_once(self.typed.negation, self.value(self.look("terms", term)), adjoint)
        self.write_edge(self.look("places", term), self.let("adjoint", found))

    def both(
        self, monoid: TypedMonoid, left: Sequence[Expr], right: Sequence[Expr], adjoint: Sequence[Expr]
    ) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        found = self.pulled(monoid, left, right, adjoint)
        half = len(found[0])
        values = self.let("adjoint", (*found[0], *found[1]))
        return values[:half], values[half:]

    def gradients(self) -> None:
        slot, other = self.look("positive", self.item), self.look("negative", self.item)
        a, b = self.summed(*self.uses(slot)), self.summed(*self.uses(other))
        if self.has_negative:
            self.store_row(self.negative_gradient, self.item, "num_variables", b)
        elif self.typed.complement is not None:
            more = self.pulled_once(self.typed.complement, self.value(slot * self.width), b)
            a = self.let("sum", tuple(x + y for x, y in zip(a, more, strict=True)))
        self.store_row(self.gradient, self.item, "num_variables", a)


def _places(pairs: range) -> range:
    """Those of both terms of some pairs."""
    return range(2 * pairs.start, 2 * pairs.stop)
