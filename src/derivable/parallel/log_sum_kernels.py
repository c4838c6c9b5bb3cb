"""Logarithms of sums of one column of floats, scanned and by segments, many rows at a time, in float64 in between.

What `scan_kernels` emits would take an exponential and a logarithm for each of its steps. Here a line takes one of
each: a prefix is reference + log(sums) where `sums` is the sum of exp(value - reference). The reference is an earlier
prefix, so sums are at least 1; a line with a value far above it is computed row by row and gives a new reference. In
reverse the weights of a prefix a and a value b are 1 / (1 + exp(b - a)) and the rest, and the recurrence is that of
`scan_kernels`.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

from derivable.algebra.expr.functions import equal, exp, less, less_equal, log, logical_and, maximum, minimum, where
from derivable.algebra.expr.nodes import Argument, Constant, Expr
from derivable.algebra.typed import TypedMonoid
from derivable.kernel import nodes as n
from derivable.kernel.exponentials import exp_and_complement, logarithm, smaller
from derivable.kernel.schedule import Schedule
from derivable.parallel.fold_kernels import Arrays, FoldBuilder
from derivable.parallel.scan_kernels import Scan

SCHEDULE = Schedule(lanes=8, widen=True)
# A value may be so much above the reference, in nats, and the sums so large, before there is a new one.
FAR_ABOVE = 4.0
LARGE_SUM = 1024.0

_a, _b, _c, _d = (Argument(k, "float64", name) for k, name in enumerate("abcd"))
_SUMS = SimpleNamespace(left=(_a,), right=(_b,), values=(_a + _b,), neutral=(0.0,))
# Of functions x -> b + d x, the first component of each being its constant.
_LINEAR = SimpleNamespace(left=(_a, _b), right=(_c, _d), values=(_d * _a + _c, _d * _b), neutral=(0.0, 1.0))


def is_log_sum(op: TypedMonoid, single: bool) -> bool:
    return single and op.special == "logaddexp"


class _LogSums(FoldBuilder):
    """reference, sums  a prefix, and the sum of exp(value - reference) of what came since, in all lanes"""

    def constant_line(self, name: str, value: float) -> n.Register:
        line = self.register(name, "float64")
        self.spread(line, Constant(value, "float64"))
        return line

    def first_of(self, line: n.Register) -> n.Register:
        number = self.register("number", "float64")
        self.first_lane(number, line)
        return number

    def summed(self, line: n.Register) -> n.Register:
        """The prefixes within a line."""
        within = self.register("within", "float64")
        self.scan_line([within], _SUMS, [line])
        return within

    def begin_sums(self, first: Expr) -> None:
        self.reference = self.let("reference", first)
        self.sums = self.constant_line("sums", 1.0)

    def renew(self, total: Expr) -> None:
        """A new reference, where the sums are `total`."""
        self.set(self.reference, self.reference + log(total))
        self.spread(self.sums, Constant(1.0, "float64"))

    def is_near(self, line: n.Register) -> tuple[n.Register, n.Register]:
        """(a line of values less the reference, whether none is far above it)"""
        above = self.let("above", line - self.reference)
        return above, self.all_lanes("near", less(above, FAR_ABOVE))

    def is_line(self, row: Expr, end: Expr) -> Expr:
        return logical_and(less_equal(row + self.lanes, end), less(abs(self.reference), math.inf))

    def take(self, array: n.Array, row: Expr) -> None:
        """The reference becomes the prefix that ends with a row."""
        value = self.load(array, row, "value", "float64")
        self.set(self.reference, self.folded({0: self.reference}, {0: value})[0])


class LogSumScan(_LogSums, Scan):
    """Scans of logarithms of sums by lines."""

    def by_lines(self, values: Arrays, out: Arrays) -> None:
        first = self.load(values[0], self.begin, "first", "float64")
        self.store(out[0], self.target, first)
        self.begin_sums(first)
        row = self.let("row", 1)
        with self.while_(less(row, self.count)):
            with self.when(self.is_line(row, self.count)):
                (line,) = self.lines(values, self.begin, row, "line").values()
                above, is_near = self.is_near(line)
                with self.when(is_near):
                    terms = self.let("terms", exp_and_complement(above)[0])
                    total = self.let("total", self.sums + self.summed(terms))
                    self.write_lines(out, self.target, row, {0: self.reference + logarithm(total)})
                    self.last_lane(self.sums, total)
                    last = self.first_of(self.sums)
                    with self.when(less(LARGE_SUM, last)):
                        # Not from the results: as a selection that would make each line wait for the logarithm before.
                        self.renew(last)
                    self.set(row, row + self.lanes)
                    self.continue_()
            self.renew(self.first_of(self.sums))
            end = self.let("end", minimum(row + self.lanes, self.count))
            with self.loop("i", row, end) as i:
                self.take(values[0], self.at(self.begin, i))
                self.store(out[0], self.at(self.target, i), self.reference)
            self.set(row, end)

    def by_lines_back(self, given: Arrays, values: Arrays, results: Arrays, out: Arrays) -> None:
        row = self.let("row", self.count - 1)
        # The adjoint of the prefix that ends with `row`.
        r = self.read(given, self.at(self.target, row), "r")
        adjoint = r[0]
        with self.while_(less(0, row)):
            with self.when(less_equal(self.lanes, row)):
                (prefix,) = self.lines(results, self.target, row - 1, "prefix", down=True).values()
                (value,) = self.lines(values, self.begin, row, "value", down=True).values()
                (own,) = self.lines(given, self.target, row - 1, "own", down=True).values()
                above = self.let("above", value - prefix)
                ratio = self.let("ratio", exp_and_complement(smaller(above, 700.0))[0])
                weight = self.let("weight", 1 / (1 + ratio))
                within, factors = self.register("within", "float64"), self.register("factors", "float64")
                self.scan_line([within, factors], _LINEAR, [own, weight])
                carry = self.register("carry", "float64")
                self.spread(carry, adjoint)
                before = self.let("before", factors * carry + within)
                inside = logical_and(less(abs(prefix), math.inf), less(above, math.inf))
                fine = self.all_lanes("fine", logical_and(inside, less(abs(before), math.inf)))
                with self.when(fine):
                    here = self.register("here", "float64")
                    self.move_up(here, before, carry)
                    self.write_lines(out, self.begin, row, {0: ratio * weight * here}, down=True)
                    self.last_lane(carry, before)
                    self.first_lane(adjoint, carry)
                    self.set(row, row - self.lanes)
                    self.continue_()
            end = self.let("end", maximum(row - self.lanes, 0))
            with self.loop("i", end + 1, row + 1, down=True) as i:
                self.row_back(r, self.at(self.begin, i), self.at(self.target, i - 1), given, values, results, out)
            self.set(row, end)
        self.write(out, self.begin, r)


class _Segments(_LogSums):
    """Segments of logarithms of sums by lines."""

    def rows(self, offsets: n.Array, s: Expr) -> None:
        self.head, self.tail = self.load(offsets, s, "head"), self.load(offsets, s + 1, "tail")

    def fold(self, values: n.Array) -> n.Register:
        """The sum of exp(value - reference) of a segment's rows, of which there is one."""
        self.begin_sums(self.load(values, self.head, "first", "float64"))
        total = self.let("total", Constant(1.0, "float64"))
        self.spread(self.sums, Constant(0.0, "float64"))
        row = self.let("row", self.head + 1)
        with self.while_(less(row, self.tail)):
            with self.when(self.is_line(row, self.tail)):
                line = self.register("line", "float64")
                self.load_line(line, values, row)
                above, is_near = self.is_near(line)
                with self.when(is_near):
                    self.set(self.sums, self.sums + exp_and_complement(above)[0])
                    self.set(row, row + self.lanes)
                    self.continue_()
            self.renew(total + self.sum_of_lanes())
            self.set(total, 1.0)
            self.spread(self.sums, Constant(0.0, "float64"))
            end = self.let("end", minimum(row + self.lanes, self.tail))
            with self.loop("i", row, end) as i:
                self.take(values, i)
            self.set(row, end)
        self.set(total, total + self.sum_of_lanes())
        return total

    def sum_of_lanes(self) -> n.Register:
        last = self.register("last", "float64")
        self.last_lane(last, self.summed(self.sums))
        return self.first_of(last)


def segment_log_sums(op: TypedMonoid) -> n.Kernel:
    """segment(start, stop, first, last, width, offsets, v, o), as `segment_kernels.segment_kernel` has it."""
    k = _Segments("segment", op, SCHEDULE, True)
    start, stop, *_ = k.bounds()
    offsets, (values,), (out,) = k.array("offsets", "int64"), k.leaf_arrays("v").values(), k.leaf_arrays("o").values()
    with k.loop("s", start, stop) as s:
        k.rows(offsets, s)
        with k.when(equal(k.head, k.tail)):
            k.store(out, s, k.neutral()[0])
        with k.otherwise():
            total = k.fold(values)
            k.store(out, s, k.reference + log(total))
    return k.kernel()


def segment_log_sums_back(op: TypedMonoid) -> n.Kernel:
    """segment_back(start, stop, first, last, width, offsets, g, v, o): adjoint times share.

    Values of +inf share alike; several of -inf with nothing else have no share.
    """
    k = _Segments("segment_back", op, SCHEDULE, True)
    start, stop, *_ = k.bounds()
    offsets = k.array("offsets", "int64")
    (given,), (values,), (out,) = (k.leaf_arrays(role).values() for role in "gvo")
    with k.loop("s", start, stop) as s:
        k.rows(offsets, s)
        with k.when(equal(k.head, k.tail)):
            k.continue_()
        adjoint = k.load(given, s, "adjoint", "float64")
        with k.when(equal(adjoint, 0) | equal(k.tail - k.head, 1)):
            with k.loop("i", k.head, k.tail) as i:
                k.store(out, i, adjoint)
            k.continue_()
        total = k.fold(values)
        with k.when(equal(abs(k.reference), math.inf)):
            many = k.let("many", 0)
            for counts in (True, False):
                with k.loop("i", k.head, k.tail) as i:
                    is_infinite = equal(k.load(values, i, "value", "float64"), math.inf)
                    if counts:
                        k.set(many, many + where(is_infinite, 1, 0))
                    else:
                        k.store(out, i, where(is_infinite, adjoint / many, 0.0))
            k.continue_()
        # Of a segment that has a NaN all adjoints are NaN.
        scale = k.let("scale", where(equal(k.reference, k.reference), adjoint / total, math.nan))
        row = k.let("row", k.head)
        with k.while_(less_equal(row + k.lanes, k.tail)):
            line = k.register("line", "float64")
            k.load_line(line, values, row)
            share = k.let("share", exp_and_complement(k.let("above", line - k.reference))[0])
            k.store_line(out, row, scale * share)
            k.set(row, row + k.lanes)
        with k.loop("i", row, k.tail) as i:
            k.store(out, i, scale * exp(k.load(values, i, "value", "float64") - k.reference))
    return k.kernel()
