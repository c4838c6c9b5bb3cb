"""Tiles of a batch in the log semiring, computed in the linear domain where that is provably exact enough.

The literals are exponentiated once, sums and products run in float64, and only the roots' logarithms are taken;
the gradient of log f with respect to log weights w is exp(w) * df/dexp(w) / f. Whether a tile may be computed so
is decided from the largest and smallest weights of its rows and their roots (`docs/decisions/030-log-semiring.md` has
the proof); `log_rows` marks the tiles that may not, and `levels_scaled` computes those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from derivable.algebra import semirings
from derivable.algebra.expr.functions import equal, less, less_equal, logical_and, logical_not, logical_or, where
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.circuit.kernels.level_passes import Passes
from derivable.circuit.kernels.levels import level_kernels
from derivable.device.cpu.llvm_code import compile_kernel
from derivable.kernel import nodes as n
from derivable.kernel.exponentials import exp_and_complement, larger, logarithm

# Numbers of bits; see the proof.
ZERO_BITS = 800.0
LOG2_E = math.log2(math.e)
LARGEST_SEED = 2.0**100
# What `log_rows` returns beside the number of tiles left to the scaled kernel.
BAD_WEIGHT = -1


class LogCall(Passes):
    """Emits a kernel on rows start:stop of a batch, a tile of rows at a time.

    Its parameters:

    lanes             rows of a tile: 1 for buffers [slot], else the lanes of a line
    has_negative      whether there are negative weights; if not, they are the complement of the weights
    has_out, has_gradient, has_seeds  whether roots are written, and gradients, for the adjoints `seeds` and not ones
    by_weight         whether the gradients are by exp of the weights, where both are given
    positive, negative  [variable] int32: the slots of the literals
    roots             [root] int32: slots
    weights, negative_weights, seeds, out, gradient, negative_gradient  as in `LevelFold.fold_gradient`, of either width
    left_over         [tile] bool, of as many rows as there are lanes, counted from row 0
    values, adjoints, partial  float64, scratch as in `LevelFold.fold_gradient`
    """

    def __init__(self, name: str, dtype: str):
        super().__init__(name, level_kernels(semirings.real, "float64").fold)
        k = self.k
        self.start, self.stop, self.lanes = (k.scalar(word) for word in ("start", "stop", "lanes"))
        flags = ("has_negative", "has_out", "has_gradient", "has_seeds", "by_weight")
        self.has_negative, self.has_out, self.has_gradient, self.has_seeds, self.by_weight = (
            k.scalar(word, "bool") for word in flags
        )
        self.program()
        self.num_variables, self.num_roots, self.num_slots = (
            k.scalar(word) for word in ("num_variables", "num_roots", "num_slots")
        )
        self.positive, self.negative, self.roots = (
            k.array(word, "int32") for word in ("positive", "negative", "roots")
        )
        columns = ("weights", "negative_weights", "out", "seeds", "gradient", "negative_gradient")
        self.weights, self.negative_weights, self.out, self.seeds, self.gradient, self.negative_gradient = (
            k.array(word, dtype) for word in columns
        )
        self.left_over = k.array("left_over", "bool")
        self.values, self.adjoints, self.partial = (self.buffers(word) for word in ("values", "adjoints", "partial"))

    # Registers

    def line(self, name: str, value: float | bool) -> n.Register:
        """A new register with a constant in all lanes."""
        dtype = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float64"
        return self.constants(name, (value,), (dtype,))[0]

    def lets(self, **values: Expr) -> tuple[n.Register, ...]:
        """New registers with these values, which are computed together."""
        targets = tuple(self.k.register(name, value.dtype) for name, value in values.items())
        self.k.set(targets, tuple(values.values()))
        return targets

    # Tiles

    @contextmanager
    def each_tile(self) -> Iterator[None]:
        k = self.k
        self.num_left = k.let("num_left", 0)
        self.row = k.let("row", self.start)
        with k.while_(less(self.row, self.stop)):
            left = self.stop - self.row
            self.count = k.let("count", where(less(self.lanes, left), self.lanes, left))
            self.tile = k.let("tile", self.row // self.lanes)
            yield
            k.set(self.row, self.row + self.lanes)

    def leave(self) -> None:
        """This tile is for another kernel."""
        k = self.k
        k.store(self.left_over, self.tile, True)
        k.set(self.num_left, self.num_left + 1)
        k.set(self.row, self.row + self.lanes)
        k.continue_()

    # Columns of the batch

    def cell(self, column: Expr, columns: Expr) -> Expr:
        return self.row * columns + column

    def load_column(self, array: n.Array, column: Expr, columns: Expr) -> n.Register:
        target = self.k.register("x", "float64")
        self.k.load_rows(target, array, self.cell(column, columns), columns, self.count)
        return target

    def store_column(self, array: n.Array, column: Expr, columns: Expr, value: Expr) -> None:
        self.k.store_rows(array, self.cell(column, columns), columns, self.count, value)

    def weight(self, array: n.Array, variable: Expr) -> n.Register:
        return self.load_column(array, variable, self.num_variables)

    @contextmanager
    def each_variable(self) -> Iterator[tuple[n.Register, n.Register, n.Register]]:
        """(variable, slot of the positive literal, of the negative one)"""
        with self.k.loop("variable", 0, self.num_variables) as variable:
            yield variable, self.k.load(self.positive, variable, "slot"), self.k.load(self.negative, variable, "other")

    @contextmanager
    def each_root(self) -> Iterator[tuple[n.Register, n.Register]]:
        """(root, its slot)"""
        with self.k.loop("root", 0, self.num_roots) as root:
            yield root, self.k.load(self.roots, root, "slot")

    def stretch(self, x: Expr) -> None:
        """Have `highest` and `lowest` include a weight; -inf is none."""
        is_lowest = logical_and(less(x, self.lowest), less(-math.inf, x))
        self.k.set((self.highest, self.lowest), (larger(x, self.highest), where(is_lowest, x, self.lowest)))

    def begin_range(self) -> None:
        self.highest, self.lowest = self.line("highest", 0.0), self.line("lowest", 0.0)


class _LogRows(LogCall):
    """Emits `log_rows`. Its further parameters, which follow from the plan; see `proof`:

    budget, degree     bits by which a root may be below one if no weight is above one; literals in a product, at most
    threshold          2^-budget
    deep, improbable   a weight and a complement from which on a product of `degree` has more than `ZERO_BITS` bits
    """

    def __init__(self, dtype: str):
        super().__init__("log_rows", dtype)
        names = ("budget", "degree", "threshold", "deep", "improbable")
        self.budget, self.degree, self.threshold, self.deep, self.improbable = (
            self.k.scalar(word, "float64") for word in names
        )

    def emit(self) -> n.Kernel:
        k = self.k
        self.store(self.values, 0, (self.line("zero", 0.0),))
        self.store(self.values, 1, (self.line("one", 1.0),))
        self.most = k.let("most", where(self.has_negative, Constant(math.inf, "float64"), 2.0**-1022))
        with self.each_tile():
            self.read()
            fits = k.let("fits", self.holds("allowed", less_equal(self.degree * self.highest * LOG2_E, self.budget)))
            with k.when(fits):
                self.fold_and_look(fits)
            with k.when(logical_not(fits)):
                self.leave()
            with k.when(self.has_out):
                self.write_roots()
            with k.when(self.has_gradient):
                self.fold_back()
        k.return_(self.num_left)
        return k.kernel()

    def read(self) -> None:
        """Read a tile's weights; return from the kernel if some are none."""
        k = self.k
        valid, least = self.line("valid", True), self.line("least", 1.0)
        self.begin_range()
        with self.each_variable() as (variable, slot, other):
            x = self.weight(self.weights, variable)
            # What no node reads needs no complement.
            limit = where(equal(other, self.num_slots - 1), Constant(math.inf, "float64"), self.most)
            k.set(valid, logical_and(valid, less(x, limit)))
            self.stretch(x)
            value, complement = exp_and_complement(x)
            value, complement = self.lets(value=value, complement=complement)
            with k.when(self.has_negative):
                y = self.weight(self.negative_weights, variable)
                k.set(valid, logical_and(valid, less(y, self.most)))
                self.stretch(y)
                k.set(complement, exp_and_complement(y)[0])
            with k.otherwise():
                k.set(least, where(logical_and(less(0.0, complement), less(complement, least)), complement, least))
            self.store(self.values, slot, (value,))
            self.store(self.values, other, (complement,))
        with k.when(logical_not(self.holds("fine", valid))):
            k.return_(BAD_WEIGHT)
        is_deep = logical_or(less(self.lowest, self.deep), less(least, self.improbable))
        (self.is_deep,) = self.lets(is_deep=is_deep)

    def fold_and_look(self, fits: n.Register) -> None:
        k = self.k
        k.call(self.fold.forward, (*self.values, self.runs, self.terms, self.num_runs))
        # A root is 2^-(budget - bits that weights above one take) at least, or a zero that is one.
        (threshold,) = self.lets(threshold=exp_and_complement(self.degree * self.highest)[0] * self.threshold)
        with self.each_root() as (root, slot):
            (f,) = self.load(self.values, slot, "f")
            vanished = logical_and(equal(f, 0.0), logical_not(self.is_deep))
            with k.when(logical_not(self.holds("large", logical_or(logical_not(less(f, threshold)), vanished)))):
                k.set(fits, Constant(False, "bool"))
                k.break_()
            with k.when(self.has_seeds):
                seed = self.load_column(self.seeds, root, self.num_roots)
                is_large = self.k.let("steep", self.holds("flat", logical_not(less(LARGEST_SEED, abs(seed)))))
                k.set(fits, logical_and(fits, is_large))

    def write_roots(self) -> None:
        with self.each_root() as (root, slot):
            (f,) = self.load(self.values, slot, "f")
            value = where(less(0.0, f), logarithm(f), -math.inf)
            self.store_column(self.out, root, self.num_roots, *self.lets(log=value))

    def fold_back(self) -> None:
        k = self.k
        zero = self.line("nothing", 0.0)
        with k.loop("slot", 0, self.num_slots) as slot:
            self.store(self.adjoints, slot, (zero,))
        seed = self.line("seed", 1.0)
        with self.each_root() as (root, slot):
            (f,) = self.load(self.values, slot, "f")
            with k.when(self.has_seeds):
                k.set(seed, self.load_column(self.seeds, root, self.num_roots))
            self.push(slot, self.lets(share=where(equal(f, 0.0), 0.0, seed / f)))
        arguments = (*self.values, *self.adjoints, *self.partial, self.runs, self.terms, self.num_runs)
        k.call(self.fold.backward, arguments)
        # The last slot is written by what no node reads; its adjoint is zero.
        self.store(self.values, self.num_slots - 1, (zero,))
        with self.each_variable() as (variable, slot, other):
            (a,), (b,) = self.load(self.adjoints, slot, "a"), self.load(self.adjoints, other, "b")
            with k.when(logical_not(self.by_weight)):
                with k.when(logical_not(self.has_negative)):
                    # With u = exp(w), both du/dw = u and d(1 - u)/dw = -u.
                    k.set(a, a - b)
                (u,), (v,) = self.load(self.values, slot, "u"), self.load(self.values, other, "v")
                k.set((a, b), (u * a, v * b))
            with k.when(self.has_negative):
                self.store_column(self.negative_gradient, variable, self.num_variables, b)
            self.store_column(self.gradient, variable, self.num_variables, a)


def proof(budget: float, degree: float) -> tuple[float, ...]:
    """The further arguments of `log_rows` for a plan's budget and degree."""
    threshold = 2.0 ** -max(0.0, min(budget, 1000.0))
    if not degree:
        return budget, degree, threshold, -math.inf, 0.0
    bits = ZERO_BITS / degree
    return budget, degree, threshold, -bits / LOG2_E, 2.0**-bits


@cache
def compiled_log_rows(dtype: str, by_row: bool) -> Callable[..., int]:
    """`log_rows` for weights of a dtype: the number of tiles left over, or BAD_WEIGHT if a weight is NaN or +inf, or
    above zero and needs a complement. by_row  whether buffers are [slot], and not [slot, lane]
    """
    return compile_kernel(_LogRows(dtype).emit(), by_row)
