"""Where a kernel puts its results: dense arrays, or the entries of sparse ones."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from derivable.algebra.expr.functions import apply, lift
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.core.diagnostics import LayoutError, ShapeError
from derivable.device.cpu.memory import empty, full, zeros
from derivable.kernel import nodes as n
from derivable.tensor.analysis.bound import Destination, Scalar, Values
from derivable.tensor.lower.lower import Lowering
from derivable.tensor.lower.workspace import is_cleared
from derivable.tensor.values.values import not_fitting

# What `outside` holds while no index was outside.
INSIDE = -(1 << 63)
# What kernels return for it if they looked for NaN and wrote one.
WITH_NAN = INSIDE + 1


def filled(out: np.ndarray | None, shape: tuple[int, ...], zero: Any, dtype: Any) -> np.ndarray:
    """An array for values that zeros stand in, `out` if it is given; with whatever stands in it if zero is None.

    Raises ShapeError, LayoutError for an array that is none for them, and OutOfMemory.
    """
    if out is not None:
        _check_out(out, shape, np.dtype(dtype))
        if zero is not None:
            out.fill(zero)
        return out
    try:
        if zero is None:
            return empty(shape, dtype)
        return zeros(shape, dtype) if is_cleared(zero) else full(shape, zero, dtype)
    except MemoryError:
        raise not_fitting(shape) from None


def has_nan(found: Any) -> bool:
    """Whether there is a NaN in a result, a number or an array."""
    if isinstance(found, float):
        return found != found
    if not isinstance(found, np.ndarray) or found.dtype.kind != "f":
        return False
    return found.size > 0 and math.isnan(np.maximum.reduce(found.reshape(-1)))


def _check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if not isinstance(out, np.ndarray):
        raise LayoutError(f"`out` is a {type(out).__name__}, and the result is written to an array of NumPy")
    if out.shape != shape:
        raise ShapeError(f"`out` has the shape {list(out.shape)}, and what is written to it {list(shape)}")
    if out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
        kind = "" if out.flags.c_contiguous else ", not in C order"
        raise LayoutError(
            f"`out` is of {out.dtype}{kind}{'' if out.flags.writeable else ', read-only'}, and the result of {dtype}",
            hint=f"np.empty({list(shape)}, np.{dtype}) makes one",
        )


class Into(Destination):
    """A part of a result, at the keys so far; those that may be outside the shape are compared with it."""

    def __init__(self, output: Output, keys: tuple[Expr, ...] = (), compared: tuple[tuple[Expr, Expr], ...] = ()):
        self.output, self.keys, self.compared = output, keys, compared

    @property
    def holds_all(self) -> bool:
        return isinstance(self.output, Dense) and not self.compared

    def at(self, key: Scalar, then: Any) -> None:
        output, (x,) = self.output, key.values
        axis, size = output.axes[len(self.keys)], output.sizes[len(self.keys)]
        root = output.lowering.axes.root
        is_known = key.axis is not None and axis is not None and root(key.axis) == root(axis)
        if not is_known and x.operands:
            x = output.lowering.build.let("key", x)
        compared = self.compared if is_known else (*self.compared, (x, size))
        then(Into(output, (*self.keys, x), compared))

    def add(self, values: Values) -> None:
        self._checked(self.compared, values)

    def _checked(self, compared: tuple[tuple[Expr, Expr], ...], values: Values) -> None:
        if not compared:
            self.output.rows.add(self.keys[0])
            self.output.put(list(self.keys), values)
            return
        build, (x, size) = self.output.lowering.build, compared[0]
        with build.when(lift(apply("logical_and", x >= 0, x < size))):
            self._checked(compared[1:], values)
        with build.otherwise():
            build.set(self.output.outside, x)


class OneOf(Destination):
    """Several results, of which a first key says one; further keys of 0 come before those of lower orders.

    parts  (the result, its order) by number
    """

    def __init__(self, parts: Sequence[tuple[Destination, int]]):
        self.parts = parts

    @property
    def holds_all(self) -> bool:
        return all(part.holds_all for part, _ in self.parts)

    def at(self, key: Scalar, then: Any) -> None:
        (number,) = key.values
        assert isinstance(number, Constant)
        part, order = self.parts[int(number.value)]
        then(_Below(part, max(order for _, order in self.parts) - order))

    def add(self, values: Values) -> None:
        raise AssertionError("a result without its number")


class _Below(Destination):
    """A result below so many keys."""

    def __init__(self, part: Destination, keys: int):
        self.part, self.keys = part, keys

    @property
    def holds_all(self) -> bool:
        return self.part.holds_all

    def at(self, key: Scalar, then: Any) -> None:
        if self.keys:
            then(_Below(self.part, self.keys - 1))
        else:
            self.part.at(key, then)

    def add(self, values: Values) -> None:
        self.part.add(values)


class Output(ABC):
    """Where the kernel puts a result.

    axes     of the result
    sizes    registers with their sizes
    outside  a register for an index that is outside the shape, else `INSIDE`
    nans     a register that is not 0 if a NaN was put there; None if nobody looks
    rows     the first keys of all that is put there

    along  another result of the kernel, which has the same registers
    """

    def __init__(
        self,
        lowering: Lowering,
        axes: Sequence[Any],
        sizes: Sequence[Expr],
        looks: bool = False,
        along: Output | None = None,
    ):
        self.lowering, self.axes, self.sizes = lowering, tuple(axes), tuple(sizes)
        self.outside = lowering.build.let("outside", INSIDE) if along is None else along.outside
        self.nans = along.nans if along is not None else lowering.build.let("nans", 0) if looks else None
        self.rows: set[Expr] = set()

    @abstractmethod
    def put(self, keys: list[Expr], values: Values) -> None:
        """Add the value of a scalar to the entry at some keys."""

    @property
    def returned(self) -> Expr:
        """Whether all was well: `outside`, or `WITH_NAN`."""
        if self.nans is None:
            return self.outside
        is_found = apply("logical_and", apply("not_equal", self.nans, 0), apply("equal", self.outside, INSIDE))
        return lift(apply("where", is_found, WITH_NAN, self.outside))

    @property
    def registers(self) -> tuple[n.Register, ...]:
        """What of it may change in loops."""
        return (self.outside,) if self.nans is None else (self.outside, self.nans)

    def store(self, array: n.Array, place: Expr, value: Expr) -> None:
        build = self.lowering.build
        if self.nans is not None:
            value = build.let("new", value)
            # A sum is vector code, where a branch may be none.
            build.set(self.nans, self.nans + apply("where", apply("not_equal", value, value), 1, 0))
        build.store(array, place, value)

    def place(self, keys: list[Expr]) -> Expr:
        place = keys[0]
        for key, size in zip(keys[1:], self.sizes[1:]):
            place = place * size + key
        return place


class Dense(Output):
    """All values, in arrays with a place for each.

    puts  (keys, values, registers with what they are added to) of each put
    """

    def __init__(
        self,
        lowering: Lowering,
        axes: Sequence[Any],
        sizes: Sequence[Expr],
        arrays: Sequence[n.Array],
        looks: bool,
        along: Output | None = None,
    ):
        super().__init__(lowering, axes, sizes, looks, along)
        self.arrays = arrays
        self.puts: list[tuple[list[Expr], Values, Sequence[n.Register]]] = []

    def put(self, keys: list[Expr], values: Values) -> None:
        build = self.lowering.build
        place = build.let("place", self.place(keys))
        old = tuple(build.load(a, place, "old", d) for a, d in zip(self.arrays, self.lowering.semiring.dtypes))
        for a, x in zip(self.arrays, self.lowering.plus(old, values)):
            self.store(a, place, x)
        self.puts.append((keys, values, old))

    def written(self, kernel: n.Kernel, lengths: Mapping[Expr, Any]) -> n.Kernel | None:
        """A kernel that writes each entry and reads none, where what was emitted adds to each of them once.

        lengths  by register, which axis it is the size of

        So it is where the loops around are those over whole axes of the result. None elsewhere.
        """
        if len(self.puts) != 1 or any(isinstance(part, (n.Break, n.Continue)) for part in n.walk(kernel.body)):
            return None
        (keys, values, old) = self.puts[0]
        around: list[tuple[tuple[n.Statement, ...], n.For]] = []
        body = kernel.body
        for key, axis in zip(keys, self.axes):
            loop = next((part for part in body if isinstance(part, n.For) and part.target == key), None)
            if loop is None or axis is None or not self._is_whole(loop, axis, lengths):
                return None
            around.append((body, loop))
            body = loop.body
        if not all(any(isinstance(part, n.Load) and part.target == x for part in body) for x in old):
            return None
        to_write = dict(zip(self.arrays, values))
        stored = {part.value: part.array for part in body if isinstance(part, n.Store) and part.array in to_write}

        def with_written(part: n.Statement) -> n.Statement:
            match part:
                case n.Store(array) if array in to_write and self.nans is None:
                    return replace(part, value=to_write[array])
                case n.Assign((target,)) if self.nans is not None and target in stored:
                    return replace(part, values=(to_write[stored[target]],))
            return part

        body = tuple(with_written(part) for part in body if not (isinstance(part, n.Load) and part.target in old))
        for outside, loop in reversed(around):
            body = tuple(replace(loop, body=body) if part is loop else part for part in outside)
        return replace(kernel, body=body)

    def _is_whole(self, loop: n.For, axis: Any, lengths: Mapping[Expr, Any]) -> bool:
        root, of = self.lowering.axes.root, lengths.get(loop.stop)
        is_upwards = loop.start == Constant(0, "int64") and loop.step == 1 and not loop.down
        return is_upwards and of is not None and root(of) == root(axis)


class Counted(Output):
    """How many entries there are to list."""

    def __init__(self, lowering: Lowering, axes: Sequence[Any], sizes: Sequence[Expr], looks: bool = False):
        super().__init__(lowering, axes, sizes, looks)
        self.count = lowering.build.let("count", 0)

    def put(self, keys: list[Expr], values: Values) -> None:
        self.lowering.build.set(self.count, self.count + 1)


class Places(Counted):
    """Where each entry that the program adds is in the result."""

    def __init__(self, lowering: Lowering, axes: Any, sizes: Any, places: n.Array):
        super().__init__(lowering, axes, sizes)
        self.places = places

    def put(self, keys: list[Expr], values: Values) -> None:
        self.lowering.build.store(self.places, self.count, self.place(keys))
        super().put(keys, values)


class Positioned(Counted):
    """The values of entries that are stored one after the other.

    positions  [addition] which entry of the result the program adds to; None if to the first, the second, ...
    """

    def __init__(
        self, lowering: Lowering, axes: Any, sizes: Any, arrays: Sequence[n.Array], positions: Any, looks: bool
    ):
        super().__init__(lowering, axes, sizes, looks)
        self.arrays, self.positions = arrays, positions

    def put(self, keys: list[Expr], values: Values) -> None:
        build = self.lowering.build
        if self.positions is None:
            for a, x in zip(self.arrays, values):
                self.store(a, self.count, x)
        else:
            at = build.load(self.positions, self.count, "at")
            old = tuple(build.load(a, at, "old", d) for a, d in zip(self.arrays, self.lowering.semiring.dtypes))
            for a, x in zip(self.arrays, self.lowering.plus(old, values)):
                self.store(a, at, x)
        super().put(keys, values)
