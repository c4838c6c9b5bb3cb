"""Drawn kernels: nested loops and branches over numbers of all types, what wraps, rounds or is NaN, and lines."""

import math
from types import SimpleNamespace

import numpy as np

from derivable.algebra.expr.functions import apply, cast
from derivable.algebra.expr.nodes import Argument, Constant
from derivable.algebra.expr.types import LIMITS
from derivable.kernel.build import Builder

SIZE = 24
DTYPES = ("int64", "int64", "float64", "float32", "int32", "uint8", "uint64", "bool")
# Operations that every route rounds in one way.
OF_FLOATS = ("add", "subtract", "multiply", "divide", "minimum", "maximum", "floor_divide", "remainder")
OF_INTEGERS = ("add", "subtract", "multiply", "minimum", "maximum", "floor_divide", "remainder", "truncate_divide")
OF_INTEGERS += ("truncate_remainder", "saturating_add", "saturating_subtract", "bitwise_and", "bitwise_or")
OF_INTEGERS += ("bitwise_xor", "left_shift", "right_shift")
COMPARISONS = ("less", "less_equal", "equal", "not_equal")


def edges(dtype):
    if dtype == "bool":
        return [True, False]
    if dtype in LIMITS:
        low, high = LIMITS[dtype]
        return [x for x in (0, 1, 2, 3, -1, -7, 100, low, high, high // 3) if low <= x <= high]
    return [0.0, -0.0, 1.0, -2.5, 3.75, 1e30, math.inf, -math.inf, math.nan]


class Drawn:
    """One kernel and its arguments."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.k = k = Builder("drawn", 8)
        self.arrays, self.registers, self.arguments = {}, [], []
        for dtype in dict.fromkeys(DTYPES):
            self.arrays[dtype] = k.array(f"of_{dtype}", dtype)
            values = self.rng.choice(np.array(edges(dtype), dtype), SIZE)
            self.arguments.append(values)
            self.registers.append(k.scalar(f"given_{dtype}", dtype))
            self.arguments.append(values[0].item())
        self.bits = k.array("bits", "uint32")
        self.arguments.append(self.rng.integers(0, 2**32, 2).astype(np.uint32))
        self.block(3, 6, in_loop=False)
        if self.rng.random() < 0.7:
            self.lines()
        k.return_(*(self.value(dtype, 2) for dtype in dict.fromkeys(DTYPES) if dtype != "float32"))

    def one_of(self, values):
        return values[self.rng.integers(len(values))]

    # Expressions

    def value(self, dtype, depth):
        known = [register for register in self.registers if register.dtype == dtype]
        draw = self.rng.random()
        if depth == 0 or draw < 0.2:
            if known and self.rng.random() < 0.8:
                return self.one_of(known)
            return Constant(self.one_of(edges(dtype)), dtype)
        if draw < 0.3:
            return apply("where", self.value("bool", depth - 1), *(self.value(dtype, depth - 1) for _ in range(2)))
        if dtype == "bool":
            if draw < 0.5:
                return apply("logical_not", self.value("bool", depth - 1))
            if draw < 0.6:
                name, of = self.one_of(("logical_and", "logical_or", "logical_xor")), "bool"
            else:
                name, of = self.one_of(COMPARISONS), self.one_of(DTYPES)
            return apply(name, *(self.value(of, depth - 1) for _ in range(2)))
        if draw < 0.4:
            # What does not fit an integer is not said anything of.
            sources = [of for of in DTYPES if of in LIMITS or of == "bool"]
            return cast(self.value(self.one_of(sources), depth - 1), dtype)
        if draw < 0.5:
            name = self.one_of(("negate", "abs", "sign") + (() if dtype in LIMITS else ("floor", "ceil", "sqrt")))
            return apply(name, self.value(dtype, depth - 1))
        name = self.one_of(OF_INTEGERS if dtype in LIMITS else OF_FLOATS)
        operands = [self.value(dtype, depth - 1) for _ in range(2)]
        if dtype not in LIMITS and name in ("minimum", "maximum"):
            # NumPy leaves it to the processor which of two zeros is the smaller one.
            operands = [operand + 0.0 for operand in operands]
        return apply(name, *operands)

    def place(self, size=SIZE):
        return apply("remainder", self.value("int64", 2), size)

    # Statements

    def block(self, depth, count, in_loop):
        """Registers that it makes are not known behind it."""
        known = len(self.registers)
        for _ in range(count):
            self.statement(depth, in_loop)
        del self.registers[known:]

    def statement(self, depth, in_loop):
        k, dtype = self.k, self.one_of(DTYPES)
        match self.rng.integers(13 if depth else 8):
            case 0 | 1:
                self.registers.append(k.let("x", self.value(dtype, 3)))
            case 2:
                self.registers.append(k.load(self.arrays[dtype], self.place(), "loaded", dtype))
            case 3 | 4:
                k.store(self.arrays[dtype], self.place(), self.value(dtype, 3))
            case 5:
                targets = list({self.one_of(self.registers) for _ in range(2)})
                k.set(targets, [self.value(target.dtype, 2) for target in targets])
            case 6:
                bit = apply("remainder", self.value("int64", 2), 64)
                self.registers.append(k.load_bit(self.bits, bit, "bit"))
                k.set_bit(self.bits, apply("remainder", self.value("int64", 1), 64))
            case 7:
                self.registers += k.hash([self.value("int64", 2) for _ in range(self.rng.integers(1, 4))], 64)
                two = [k.let("either", self.value(dtype, 1)) for _ in range(2)]
                self.registers.append(k.choose("chosen", self.value("bool", 2), *two))
            case 8 | 9:
                with k.when(self.value("bool", 2)):
                    self.block(depth - 1, 3, in_loop)
                    if in_loop and self.rng.random() < 0.3:
                        (k.break_ if self.rng.random() < 0.5 else k.continue_)()
                if self.rng.random() < 0.6:
                    with k.otherwise():
                        self.block(depth - 1, 2, in_loop)
            case 10 | 11:
                start, stop = apply("remainder", self.value("int64", 1), 7), apply("remainder", self.place(), 9)
                down, step = bool(self.rng.random() < 0.4), int(self.rng.integers(1, 4))
                with k.loop("i", start, stop, down=down, step=step) as i:
                    self.registers.append(i)
                    self.block(depth - 1, 3, True)
                    self.registers.remove(i)
            case 12:
                left = k.let("left", int(self.rng.integers(0, 5)))
                with k.while_(apply("logical_and", apply("less", 0, left), self.value("bool", 1))):
                    k.set(left, left - 1)
                    self.block(depth - 1, 3, True)

    def lines(self):
        """Sums have no products in them, which lines round once."""
        k = self.k
        x, y, z = k.registers("line", ("float64",) * 3)
        whole, truth = k.register("whole", "int64"), k.register("truth", "bool")
        k.load_line(x, self.arrays["float32"], self.place(SIZE - 7))
        k.load_line(y, self.arrays["float64"], 7 + self.place(SIZE - 7), backwards=True)
        k.load_line(whole, self.arrays[self.one_of(("int32", "uint8"))], self.place(SIZE - 7))
        k.load_line(truth, self.arrays["bool"], self.place(SIZE - 7))
        k.spread(z, self.value("float64", 1))
        for _ in range(6):
            lines = (x, y, z)
            target, a, b = (self.one_of(lines) for _ in range(3))
            match self.rng.integers(6):
                case 0:
                    names = ("add", "subtract", "multiply", "divide", "minimum", "maximum")
                    name, other = self.one_of(names), self.one_of([b, self.value("float64", 1)])
                    k.set(
                        target, apply(name, *((a + 0.0, other + 0.0) if name in ("minimum", "maximum") else (a, other)))
                    )
                case 1:
                    k.set(truth, apply(self.one_of(("logical_and", "logical_xor")), truth, apply("less", a, b)))
                case 2:
                    k.set(target, apply("where", truth, a, b))
                case 3:
                    operation = self.one_of(("minimum", "maximum"))
                    left, right = Argument(0, "float64", "l"), Argument(1, "float64", "r")
                    neutral = (math.inf if operation == "minimum" else -math.inf,)
                    values = (apply(operation, left, right),)
                    scan = SimpleNamespace(left=(left,), right=(right,), values=values, neutral=neutral)
                    k.set(target, abs(target))
                    k.scan_line((target,), scan)
                case 4:
                    k.move_up(target, a, b)
                case 5:
                    k.last_lane(target, a)
        k.set(whole, apply("where", truth, whole, -whole))
        k.store_line(self.arrays["float64"], self.place(SIZE - 7), x)
        k.store_line(self.arrays["float32"], 7 + self.place(SIZE - 7), y, backwards=True)
        k.store_line(self.arrays["int32"], self.place(SIZE - 7), whole)
        k.store_line(self.arrays["bool"], self.place(SIZE - 7), truth)
        first = k.register("first", "float64")
        k.first_lane(first, z)
        self.registers += [first, k.all_lanes("all", truth)]
