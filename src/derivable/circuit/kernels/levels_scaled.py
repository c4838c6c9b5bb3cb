"""Tiles of a batch in the log semiring for any range of weights: floats with an exponent of 64 bits.

A number is a mantissa m and an exponent e, m * 2^e: m is 0 (then e is `NOTHING`) or 1 <= |m| < 2. Sums and products
of such numbers take a few integer operations and no exp or log, and lose no precision. So zero is zero, and a root
of -inf is known to be one. Exponents stay within 64 bits because log weights are taken between bounds; a tile whose
values could depend on weights beyond them is left to `levels_unbounded`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from derivable.algebra.expr.functions import (
    bitcast,
    bitwise_and,
    cast,
    equal,
    left_shift,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    right_shift,
    where,
)
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.circuit.kernels.levels_log import LogCall
from derivable.device.cpu.llvm_code import compile_kernel
from derivable.kernel import nodes as n
from derivable.kernel.exponentials import (
    LN2_HIGH,
    LN2_LOW,
    exp_and_complement,
    larger,
    logarithm,
    power_of_two,
    reduced_exp,
    smaller,
)

NOTHING = -(2**61)
# A lower bound of this many nats outweighs any sum of terms that float64 can hold.
LEAST_BOUND = 2.0**14
# A mantissa and an exponent, float64 and int64.
Scaled = tuple[Expr, Expr]
_INT64_NOTHING = Constant(NOTHING, "int64")


def normalised(number: Scaled) -> Scaled:
    """The same number with 1 <= |m| < 2, or (0, NOTHING)."""
    m, e = number
    bits = bitcast(m, "int64")
    shift = bitwise_and(right_shift(bits, 52), 2047) - 1023
    vanished = equal(m, 0.0)
    mantissa = bitcast(bits - left_shift(shift, 52), "float64")
    return where(vanished, m, mantissa), where(vanished, _INT64_NOTHING, larger(e + shift, _INT64_NOTHING))


def total(first: Scaled, second: Scaled) -> Scaled:
    """Their sum, not normalised: its mantissa is at most the sum of theirs, at the larger exponent."""
    top = larger(first[1], second[1])
    low = Constant(-1022, "int64")
    a, b = (m * power_of_two(larger(e - top, low)) for m, e in (first, second))
    return a + b, top


def product(first: Scaled, second: Scaled) -> Scaled:
    """Their product, not normalised."""
    return first[0] * second[0], first[1] + second[1]


def scaled_exp(x: Expr, bound: Expr) -> Scaled:
    """exp of log weights; finite weights are taken between -bound and bound."""
    vanished = equal(x, -math.inf)
    k, q = reduced_exp(smaller(larger(x, -bound), bound))
    m, e = normalised((q + 1.0, cast(k, "int64")))
    return where(vanished, 0.0, m), where(vanished, _INT64_NOTHING, e)


def log_of(number: Scaled) -> Expr:
    """The natural logarithm of a normalised number; -inf if it is not above zero."""
    m, e = number
    power = cast(e, "float64")
    return where(less(0.0, m), logarithm(m) + (power * LN2_HIGH + power * LN2_LOW), -math.inf)


def collapsed(number: Scaled) -> Expr:
    """A normalised number as a float64, which may be zero or infinite."""
    m, e = number
    low, high = Constant(-1022, "int64"), Constant(1023, "int64")
    # In two steps, of which the second one alone rounds.
    first = smaller(larger(e, low), high)
    rest = smaller(larger(e - first, low), high)
    return m * power_of_two(first) * power_of_two(rest)


class _ScaledRows(LogCall):
    """Emits the kernel: the tiles marked in `left_over` among rows start:stop, whose weights are in order.

    Its further parameters:

    exponents, powers, partial_powers  int64: the exponents of `values`, `adjoints` and `partial`
    bound      nats; finite log weights from -bound to bound are taken as they are
    left_over  stays set for tiles whose values could depend on weights beyond the bound
    """

    def __init__(self, dtype: str):
        super().__init__("scaled_rows", dtype)
        k = self.k
        names = ("exponents", "powers", "partial_powers")
        exponents, powers, partial_powers = (k.array(word, "int64", is_lines=True) for word in names)
        self.bound = k.scalar("bound", "float64")
        self.numbers = *self.values, exponents
        self.slopes = *self.adjoints, powers
        self.prefixes = *self.partial, partial_powers

    # Numbers

    def get(self, of: Sequence[n.Array], slot: Expr) -> Scaled:
        return self.k.load(of[0], slot, "m"), self.k.load(of[1], slot, "e")

    def put(self, of: tuple[n.Array, ...], slot: Expr | int, number: Scaled) -> None:
        self.store(of, slot, number)

    def number(self, value: Scaled) -> tuple[n.Register, n.Register]:
        """New registers with a number."""
        m, e = self.lets(m=value[0], e=value[1])
        return m, e

    def add_to(self, slot: Expr, number: Scaled) -> None:
        """Add to the adjoint of a slot."""
        self.put(self.slopes, slot, self.number(total(self.get(self.slopes, slot), number)))

    # The kernel

    def emit(self) -> n.Kernel:
        k = self.k
        self.zero = self.line("zero", 0.0), self.line("nothing", NOTHING)
        self.one = self.line("one", 1.0), self.line("unit", 0)
        self.last = k.let("last", self.num_slots - 1)
        self.put(self.numbers, 0, self.zero)
        self.put(self.numbers, 1, self.one)
        with self.each_tile():
            marked = k.load(self.left_over, self.tile, "marked", "bool")
            with k.when(logical_not(marked)):
                k.set(self.row, self.row + self.lanes)
                k.continue_()
            fits = k.let("fits", Constant(True, "bool"))
            self.read_and_fold(fits)
            with k.when(logical_not(fits)):
                self.leave()
            k.store(self.left_over, self.tile, False)
            with k.when(self.has_out), self.each_root() as (root, slot):
                self.store_column(self.out, root, self.num_roots, *self.lets(log=log_of(self.get(self.numbers, slot))))
            with k.when(self.has_gradient):
                self.fold_back()
        k.return_(self.num_left)
        return k.kernel()

    def read_and_fold(self, fits: n.Register) -> None:
        """Compute all slots, and once more for twice the bound if there are weights below it."""
        k = self.k
        self.begin_range()
        with k.loop("attempt", 0, 2) as attempt:
            reach = k.let("reach", self.bound * cast(attempt + 1, "float64"))
            self.read(reach)
            is_high = k.let("is_high", logical_not(self.holds("below", less_equal(self.highest, self.bound))))
            is_low = k.let("is_low", logical_not(self.holds("above", less_equal(-self.bound, self.lowest))))
            with k.when(logical_or(is_high, logical_and(is_low, less(self.bound, LEAST_BOUND)))):
                k.set(fits, Constant(False, "bool"))
                k.break_()
            self.forward()
            with k.when(logical_not(is_low)):
                k.break_()
            # A root that stays where it is when the lowest weights sink does not depend on them.
            with self.each_root() as (_, slot):
                e = k.load(self.numbers[1], slot, "e")
                with k.when(equal(attempt, 0)):
                    k.store(self.slopes[1], slot, e)
                with k.otherwise():
                    (moved,) = self.lets(moved=k.load(self.slopes[1], slot, "before") - e)
                    stays = logical_and(less_equal(-1, moved), less_equal(moved, 1))
                    k.set(fits, logical_and(fits, k.let("stays", self.holds("near", stays))))

    def read(self, reach: Expr) -> None:
        k = self.k
        with self.each_variable() as (variable, slot, other):
            x = self.weight(self.weights, variable)
            self.stretch(x)
            complement = self.number(normalised((exp_and_complement(x)[1], self.one[1])))
            with k.when(self.has_negative):
                y = self.weight(self.negative_weights, variable)
                self.stretch(y)
                k.set(complement, scaled_exp(y, reach))
            self.put(self.numbers, other, complement)
            self.put(self.numbers, slot, self.number(scaled_exp(x, reach)))

    def terms_of(self, pairs: Expr, singles: Expr, at: Expr) -> Iterator[tuple[Expr, bool]]:
        """The position of each term of a sum, and whether it is a product of two."""
        k = self.k
        with k.loop("pair", 0, pairs) as pair:
            yield at + 2 * pair, True
        first = k.let("single", at + 2 * pairs)
        with k.loop("term", 0, singles) as term:
            yield first + term, False

    def factor(self, at: Expr) -> tuple[n.Register, Scaled]:
        """(slot, its number)"""
        slot = self.slot(at)
        return slot, self.get(self.numbers, slot)

    @contextmanager
    def each_computed_slot(self, down: bool = False) -> Iterator[tuple]:
        """(slot, pairs, singles, factors, position of its terms)"""
        k = self.k
        with self.each_run(down) as run:
            width = k.let("width", where(less(0, run.factors), run.factors, 2 * run.pairs + run.singles))
            with k.loop("slot", 0, run.count) as row:
                yield run.first + row, run.pairs, run.singles, run.factors, k.let("first_term", run.at + row * width)

    def forward(self) -> None:
        k = self.k
        with self.each_computed_slot() as (slot, pairs, singles, factors, at):
            m, e = found = self.number(self.zero)
            with k.when(less(0, factors)):
                k.set(found, self.factor(at)[1])
                with k.loop("factor", 1, factors) as factor:
                    k.set(found, normalised(product(found, self.factor(at + factor)[1])))
            with k.otherwise():
                for place, is_pair in self.terms_of(pairs, singles, at):
                    term = self.factor(place)[1]
                    k.set(found, total(found, product(term, self.factor(place + 1)[1]) if is_pair else term))
            self.put(self.numbers, slot, self.number(normalised((m, e))))

    def backward(self) -> None:
        k = self.k
        with self.each_computed_slot(down=True) as (slot, pairs, singles, factors, at):
            adjoint = self.number(normalised(self.get(self.slopes, slot)))
            with k.when(less(0, factors)):
                with k.loop("factor", 0, factors) as factor:
                    self.put(self.prefixes, factor, adjoint)
                    k.set(adjoint, normalised(product(adjoint, self.factor(at + factor)[1])))
                k.set(adjoint, self.one)
                with k.loop("factor", 0, factors, down=True) as factor:
                    operand, value = self.factor(at + factor)
                    self.add_to(operand, product(self.get(self.prefixes, factor), adjoint))
                    k.set(adjoint, normalised(product(adjoint, value)))
            with k.otherwise():
                for place, is_pair in self.terms_of(pairs, singles, at):
                    first, x = self.factor(place)
                    if is_pair:
                        second, y = self.factor(place + 1)
                        self.add_to(first, product(adjoint, y))
                        self.add_to(second, product(adjoint, x))
                    else:
                        self.add_to(first, adjoint)

    def fold_back(self) -> None:
        k = self.k
        with k.loop("slot", 0, self.num_slots) as slot:
            self.put(self.slopes, slot, self.zero)
        seed = self.line("seed", 1.0)
        with self.each_root() as (root, slot):
            m, e = self.get(self.numbers, slot)
            vanished = equal(m, 0.0)
            with k.when(self.has_seeds):
                k.set(seed, self.load_column(self.seeds, root, self.num_roots))
            share = where(vanished, 0.0, seed / where(vanished, 1.0, m))
            m, power = normalised((share, self.one[1]))
            self.add_to(slot, (m, power - where(vanished, Constant(0, "int64"), e)))
        self.backward()
        self.put(self.slopes, self.last, self.zero)
        self.put(self.numbers, self.last, self.zero)
        with self.each_variable() as (variable, slot, other):
            a, b = self.number(self.get(self.slopes, slot)), self.number(self.get(self.slopes, other))
            with k.when(self.has_negative):
                with k.when(logical_not(self.by_weight)):
                    k.set(b, product(b, self.get(self.numbers, other)))
                self.write(self.negative_gradient, variable, b)
            with k.otherwise():
                k.set(a, normalised(total(a, (-b[0], b[1]))))
            with k.when(logical_not(self.by_weight)):
                k.set(a, product(a, self.get(self.numbers, slot)))
            self.write(self.gradient, variable, a)

    def write(self, array: n.Array, variable: Expr, number: Scaled) -> None:
        self.store_column(array, variable, self.num_variables, *self.lets(slope=collapsed(normalised(number))))


@cache
def compiled_scaled_rows(dtype: str, by_row: bool) -> Callable[..., int]:
    """The kernel for weights of a dtype: the number of tiles left over. by_row  as for `compiled_log_rows`"""
    return compile_kernel(_ScaledRows(dtype).emit(), by_row)
