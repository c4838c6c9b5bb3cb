"""Scans and their reverse rules, lowered to the loop IR for any operator.

Row by row a scan takes as long as its operator's answer takes to arrive. So a single column goes line by line where its
operator works on lines: the prefixes of a line of rows on their own, then all of them joined to what came before. The
reverse is the scan of the linear functions that `recurrence_of` the operator composes, in the same way.

Rows are counted in the direction of the scan: row i is at `begin + i`, or `begin - i` in reverse. The exclusive scan is
the inclusive one of all rows but the last, moved by one row: its results begin `shift` rows after the values.

Lines whose numbers might leave the range of normal numbers where row by row they would not, or the other way round, are
computed row by row (`guard`). Which those are follows from the operator's expressions:

    comparisons     operands that are compared are numbers, so that extrema need not look for what is none
    other results   finite; a product that no other component reads is normal, or 0 by a factor 0 (one that others read,
                    as in linear functions, vanishes in every long decay, and harms nothing)
    factors         what the left operand is multiplied by: 0 or between 2^-100 and 2^100, so that the factors of a line
                    multiply to a normal number
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import reduce
from types import SimpleNamespace

from derivable.algebra.expr.functions import cast, equal, less, less_equal, maximum, minimum, where
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, arguments_of, in_order
from derivable.algebra.recurrence import recurrence_of
from derivable.algebra.typed import TypedMonoid
from derivable.kernel import nodes as n
from derivable.kernel.build import substitute
from derivable.kernel.schedule import Schedule
from derivable.parallel.fold_kernels import (
    COMPARISONS,
    EXTREMA,
    Arrays,
    FoldBuilder,
    Registers,
    Values,
    factors,
    is_finite,
    operations_of,
    rounds,
    widened,
)

_SAFE_FACTOR = 2.0**100


def scan_kernel(
    op: TypedMonoid, schedule: Schedule, single: bool, reverse: bool, kind: type[Scan] | None = None
) -> n.Kernel:
    """scan(start, stop, first, last, width, shift, offsets, v.., o..): results `o` of values `v`, [leaf] arrays.

    start, stop  segments
    first, last  columns of `width`; a kernel for a single column does not look at them
    shift        0, or 1 for the exclusive scan

    kind  has another way by lines
    """
    k = (kind or Scan)("scan", op, schedule, single, reverse)
    start, stop, *_ = k.bounds()
    shift, offsets = k.scalar("shift"), k.array("offsets", "int64")
    values, out = k.leaf_arrays("v"), k.leaf_arrays("o")
    with k.loop("s", start, stop) as s:
        k.rows_of(offsets, s, shift)
        with k.when(k.is_shifted), k.columns(k.begin) as (p,):
            k.write(out, p, k.neutral())
        with k.when(less(k.count, 1)):
            k.continue_()
        if schedule.lanes > 1:
            k.by_lines(values, out)
        else:
            k.by_rows(values, out)
    return k.kernel()


def scan_back_kernel(
    op: TypedMonoid, schedule: Schedule, single: bool, reverse: bool, kind: type[Scan] | None = None
) -> n.Kernel:
    """scan_back(..., shift, offsets, g.., v.., y.., o.., x..): adjoints `o` of the values from those of results `y`.

    g, o  [float leaf]
    x     [float leaf] one row of scratch, for several columns
    """
    k = (kind or Scan)("scan_back", op, schedule, single, reverse)
    floats = op.float_leaves
    start, stop, *_ = k.bounds()
    shift, offsets = k.scalar("shift"), k.array("offsets", "int64")
    given, values, results = k.leaf_arrays("g", floats), k.leaf_arrays("v"), k.leaf_arrays("y")
    out = k.leaf_arrays("o", floats)
    running = {} if single else k.leaf_arrays("x", floats)
    with k.loop("s", start, stop) as s:
        k.rows_of(offsets, s, shift)
        with k.when(k.is_shifted), k.columns(k.at(k.begin, k.count)) as (p,):
            k.write(out, p, k.zeros())
        with k.when(less(k.count, 1)):
            k.continue_()
        if schedule.lanes > 1:
            k.by_lines_back(given, values, results, out)
        else:
            k.by_rows_back(given, values, results, out, running)
    return k.kernel()


class Scan(FoldBuilder):
    """begin, target, count  where a segment begins, where its first result goes, how many rows are folded"""

    def __init__(self, name: str, op: TypedMonoid, schedule: Schedule, single: bool, reverse: bool):
        super().__init__(name, op, schedule, single)
        self.reverse = reverse

    def at(self, begin: Expr, row: Expr | int) -> Expr:
        return begin - row if self.reverse else begin + row

    def rows_of(self, offsets: n.Array, segment: Expr, shift: Expr) -> None:
        head, tail = self.load(offsets, segment, "head"), self.load(offsets, segment + 1, "tail")
        self.begin = self.let("begin", tail - 1) if self.reverse else head
        self.target = self.let("target", self.at(self.begin, shift))
        self.count = self.let("count", tail - head - shift)
        self.is_shifted = less(self.count, tail - head) & less_equal(0, self.count)

    # Row by row

    def by_rows(self, values: Arrays, out: Arrays) -> None:
        with self.columns(self.begin, self.target) as (p, q):
            a = self.read(values, p, "a")
            self.write(out, q, a)
        with self.loop("i", 1, self.count) as i:
            rows = self.at(self.begin, i), self.at(self.target, i), self.at(self.target, i - 1)
            with self.columns(*rows, down=self.reverse) as (p, q, before):
                a = self.carried(a, out, before, "a")
                r = self.carry(a, self.folded(a, self.read(values, p, "b")))
                self.write(out, q, r)

    def by_rows_back(self, given: Arrays, values: Arrays, results: Arrays, out: Arrays, running: Arrays) -> None:
        zero = Constant(0, "int64")
        with self.columns(self.at(self.target, self.count - 1), zero) as (p, z):
            r = self.read(given, p, "r", self.floats)
            self.keep(running, z, r)
        with self.loop("i", 1, self.count, down=True) as i:
            rows = self.at(self.begin, i), self.at(self.target, i - 1), zero
            with self.columns(*rows, down=not self.reverse) as (p, before, z):
                r = self.carried(r, running, z, "r", self.floats)
                self.row_back(r, p, before, given, values, results, out)
                self.keep(running, z, r)
        with self.columns(self.begin, zero) as (p, z):
            self.write(out, p, self.carried(r, running, z, "r", self.floats))

    def row_back(
        self, r: Registers, p: Expr, before: Expr, given: Arrays, values: Arrays, results: Arrays, out: Arrays
    ) -> None:
        """The adjoint of the row at p, and from the adjoint `r` of its prefix that of the prefix before."""
        if self.single:
            p, before = self.let("p", p), self.let("q", before)
        a, b = self.read(results, before, "a", self.prefixes), self.read(values, p, "b", self.rights)
        u = self.read(given, before, "u", self.floats)
        self.write(out, p, self.stepped_back(a, b, u, r))

    # Line by line

    def lines(
        self,
        arrays: Arrays,
        begin: Expr,
        row: Expr,
        name: str,
        components: Iterable[int] | None = None,
        down: bool = False,
    ) -> Registers:
        """Rows row, row + 1, ..., or downward, of all components."""
        found = self.named(name, components)
        for c, register in found.items():
            array, at = arrays[self.leaf_of(c)], self.at(begin, row)
            self.load_line(register, array, at, self.reverse != down)
        return found

    def write_lines(self, arrays: Arrays, begin: Expr, row: Expr, values: Values, down: bool = False) -> None:
        for c, value in values.items():
            self.store_line(arrays[self.leaf_of(c)], self.at(begin, row), value, self.reverse != down)

    def spread_all(self, targets: Registers, values: Values) -> None:
        for c, value in values.items():
            dtype = targets[c].dtype
            self.spread(targets[c], value if value.dtype == dtype else cast(value, dtype))

    def by_lines(self, values: Arrays, out: Arrays) -> None:
        lanes, op = self.lanes, self.op
        first = self.read(values, self.begin, "first")
        self.write(out, self.target, first)
        # In all lanes: from lanes to a number and back takes longer than most operators.
        prefix = self.named("prefix")
        self.spread_all(prefix, first)
        row = self.let("row", 1)
        a = self.named("a")
        numbers = SimpleNamespace(left=op.left, right=op.right, values=_of_numbers(op.values), neutral=op.neutral)
        with self.while_(less(row, self.count)):
            with self.when(less_equal(row + lanes, self.count)):
                line = self.lines(values, self.begin, row, "line")
                within = self.named("within")
                self.scan_line(list(within.values()), numbers, list(line.values()))
                joined = self.with_operands(numbers.values, prefix, within)
                found = self.computed("found", dict(zip(self.all, joined)))
                with self._if_safe(self._guard(line, within, prefix, found)):
                    self.write_lines(out, self.target, row, found)
                    for c in self.all:
                        self.last_lane(prefix[c], found[c])
                    self.set(row, row + lanes)
                    self.continue_()
            for c in self.all:
                self.first_lane(a[c], prefix[c])
            end = self.let("end", minimum(row + lanes, self.count))
            with self.loop("i", row, end) as i:
                b = self.read(values, self.at(self.begin, i), "b")
                self.assign(a, self._in_range(self.folded(a, b)))
                self.write(out, self.at(self.target, i), a)
            self.spread_all(prefix, a)
            self.set(row, end)

    def by_lines_back(self, given: Arrays, values: Arrays, results: Arrays, out: Arrays) -> None:
        lanes = self.lanes
        row = self.let("row", self.count - 1)
        # The adjoint of the prefix that ends with `row`: a number, and in all lanes.
        r = self.read(given, self.at(self.target, row), "r", self.floats)
        with self._line_types():
            carry = self.named("carry", self.floats)
        self.spread_all(carry, r)
        with self.while_(less(0, row)):
            with self._line_types(), self.when(less_equal(lanes, row)):
                b = self.lines(values, self.begin, row, "b", self.rights, down=True)
                a = self.lines(results, self.target, row - 1, "a", self.prefixes, down=True)
                u = self.lines(given, self.target, row - 1, "u", self.floats, down=True)
                before, within, conditions = self._recurred(a, b, u, carry)
                with self._if_safe(conditions):
                    here = self.named("here", self.floats)
                    for c in self.floats:
                        self.move_up(here[c], before[c], carry[c])
                    _, right = self.pulled(a, b, here)
                    self.write_lines(out, self.begin, row, self.computed("t", right), down=True)
                    if self._lines_are_narrow:
                        self._carry_on(r, within)
                        self.spread_all(carry, r)
                    else:
                        for c in self.floats:
                            self.last_lane(carry[c], before[c])
                    self.set(row, row - lanes)
                    self.continue_()
            self._take_from_lanes(r, carry)
            end = self.let("end", maximum(row - lanes, 0))
            with self.loop("i", end + 1, row + 1, down=True) as i:
                self.row_back(r, self.at(self.begin, i), self.at(self.target, i - 1), given, values, results, out)
            self.spread_all(carry, r)
            self.set(row, end)
        self._take_from_lanes(r, carry)
        self.write(out, self.begin, r)

    @property
    def _lines_are_narrow(self) -> bool:
        """Whether lines hold the arrays' float32 and only what goes from line to line is summed in float64."""
        return self.schedule.widen and self.lanes > 8

    @contextmanager
    def _line_types(self) -> Iterator[None]:
        """Registers and expressions are those of lines."""
        numbers, self.op = self.op, self.stored if self._lines_are_narrow else self.op
        yield
        self.op = numbers

    def _take_from_lanes(self, r: Registers, carry: Registers) -> None:
        if not self._lines_are_narrow:
            for c in self.floats:
                self.first_lane(r[c], carry[c])

    def _carry_on(self, r: Registers, within: Sequence[n.Register]) -> None:
        """The adjoints `r` of a line's first prefix become those of the prefix before the line."""
        ends: list[Expr] = []
        for line in within:
            last, number = self.register("last", line.dtype), self.register("end", line.dtype)
            self.last_lane(last, line)
            self.first_lane(number, last)
            ends.append(cast(number, "float64"))
        inner = recurrence_of(widened(self.stored)).operator
        joined: dict[Argument, Expr] = {**dict(zip(inner.right, ends)), **dict(zip(inner.left, r.values()))}
        self.set(list(r.values()), substitute(inner.values[: len(r)], joined))

    def _recurred(
        self, a: Values, b: Values, u: Values, carry: Values
    ) -> tuple[Registers, list[n.Register], list[Expr]]:
        """(adjoints of the prefixes before a line of rows, those within it, what must hold for them to be right).

        a, b, u  lines: prefixes before the rows, the rows, adjoints of those prefixes
        carry    the adjoint of the prefix that ends with the line's first row
        """
        recurrence = recurrence_of(self.op)
        inner, floats = recurrence.operator, recurrence.components
        entries = self.with_operands(recurrence.entries, a, b)
        # A number in all lanes, or a line that the guard wants to keep, becomes a line of its own.
        factors = [self.register("factor", entry.dtype) for entry in entries]
        for factor, entry in zip(factors, entries):
            if arguments_of(entry):
                self.set(factor, entry)
            else:
                self.spread(factor, entry)
        sources = [*(u[c] for c in floats), *factors]
        within = [self.register("within", source.dtype) for source in sources]
        self.scan_line(within, inner, sources)
        joined: dict[Argument, Expr] = {**dict(zip(inner.right, within)), **dict(zip(inner.left, carry.values()))}
        values = substitute(inner.values[: len(floats)], joined)
        before = self.computed("before", dict(zip(floats, values)))
        conditions = [is_finite(before[c], self.op.dtypes[c]) for c in floats]
        conditions += [
            _is_safe(factor) for factor, entry in zip(factors, recurrence.entries) if not _is_choice_of_constants(entry)
        ]
        return before, within, conditions

    # Guards

    def _if_safe(self, conditions: Sequence[Expr]):
        if not (self.schedule.guard and conditions):
            return nullcontext()
        return self.when(self.all_lanes("ok", reduce(lambda a, b: a & b, conditions)))

    def _guard(self, line: Values, within: Values, prefix: Values, found: Values) -> list[Expr]:
        """What must hold for the results `found` of a line to be those of row by row; see the module."""
        conditions = []
        multipliers, compared, second = factors(self.op), _read_by(self.op, COMPARISONS), _read_by(self.op, EXTREMA)
        for c in self.floats:
            stored = self.stored.dtypes[c]
            if _is_product(self.op, c):
                # In float64 a product of so few float32 numbers is 0 by a factor only.
                by_factor = equal(within[c], 0) | equal(prefix[c], 0)
                nothing = equal(found[c], 0) if stored != found[c].dtype else by_factor
                conditions.append(is_finite(found[c], stored) & (_is_normal(found[c], stored) | nothing))
            elif rounds(self.op.values[c]):
                conditions.append(is_finite(found[c], stored))
            if c in multipliers:
                conditions.append(_is_safe(line[c]))
            elif c in compared or c in second:
                conditions.append(equal(line[c], line[c]))
            if c in compared:
                conditions.append(equal(prefix[c], prefix[c]))
        return conditions

    def _in_range(self, values: dict[int, Expr]) -> dict[int, Expr]:
        """The values, or those that are no normal numbers in their arrays what they become there."""
        made = self.computed("t", values)
        for c, register in made.items():
            if self.stored.dtypes[c] == "float32" and register.dtype == "float64" and rounds(self.op.values[c]):
                size = abs(register)
                normal = less(2.0**-126, size) & less(size, 2.0**127)
                self.set(register, where(normal, register, cast(cast(register, "float32"), "float64")))
        return dict(made)


def _is_product(op: TypedMonoid, component: int) -> bool:
    """A product of arguments and constants that no other component reads."""
    value = op.values[component]
    if not (
        isinstance(value, Apply) and value.operation == "multiply" and operations_of(value) <= {"multiply", "negate"}
    ):
        return False
    others = set(arguments_of([other for c, other in enumerate(op.values) if c != component]))
    return not others & set(arguments_of(value))


def _is_choice_of_constants(value: Expr) -> bool:
    if isinstance(value, Apply) and value.operation == "where":
        return all(_is_choice_of_constants(branch) for branch in value.operands[1:])
    return isinstance(value, Constant)


def _read_by(op: TypedMonoid, operations: set[str]) -> set[int]:
    """The components that some of these operations read; of extrema the second operand."""
    found: set[Argument] = set()
    for node in in_order(op.values):
        if isinstance(node, Apply) and node.operation in operations:
            found |= set(arguments_of(node.operands[1] if operations is EXTREMA else node))
    return {c for c in op.float_components if op.left[c] in found or op.right[c] in found}


def _of_numbers(exprs: Sequence[Expr]) -> tuple[Expr, ...]:
    """Expressions whose extrema take their second operand to be a number: one instruction instead of four."""
    done: dict[Expr, Expr] = {}
    for node in in_order(tuple(exprs)):
        done[node] = node
        if isinstance(node, Apply):
            operands = tuple(done[operand] for operand in node.operands)
            done[node] = Apply(node.operation, operands, node.dtype)
            if node.operation in EXTREMA:
                a, b = operands
                done[node] = where(less(b, a) if node.operation == "minimum" else less(a, b), b, a)
    return tuple(done[root] for root in exprs)


def _is_normal(x: Expr, stored: str) -> Expr:
    return less(2.0**-126 if stored == "float32" else 2.0**-1022, abs(x))


def _is_safe(x: Expr) -> Expr:
    size = abs(x)
    return (less(size, _SAFE_FACTOR) & less(1 / _SAFE_FACTOR, size)) | equal(x, 0)
