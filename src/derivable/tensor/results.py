"""Where a kernel puts its results: dense arrays, or the entries of sparse ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from derivable.algebra.expr.functions import apply, lift
from derivable.algebra.expr.nodes import Expr
from derivable.kernel import nodes as n
from derivable.tensor.bound import Destination, Scalar, Values
from derivable.tensor.lower import Lowering

# What `outside` holds while no index was outside.
INSIDE = -(1 << 63)


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
            self.output.put(list(self.keys), values)
            return
        build, (x, size) = self.output.lowering.build, compared[0]
        with build.when(lift(apply("logical_and", x >= 0, x < size))):
            self._checked(compared[1:], values)
        with build.otherwise():
            build.set(self.output.outside, x)


class Output(ABC):
    """Where the kernel puts a result.

    axes     of the result
    sizes    registers with their sizes
    outside  a register for an index that is outside the shape, else `INSIDE`
    """

    def __init__(self, lowering: Lowering, axes: Sequence[Any], sizes: Sequence[Expr]):
        self.lowering, self.axes, self.sizes = lowering, tuple(axes), tuple(sizes)
        self.outside = lowering.build.let("outside", INSIDE)

    @abstractmethod
    def put(self, keys: list[Expr], values: Values) -> None:
        """Add the value of a scalar to the entry at some keys."""

    def place(self, keys: list[Expr]) -> Expr:
        place = keys[0]
        for key, size in zip(keys[1:], self.sizes[1:]):
            place = place * size + key
        return place


class Dense(Output):
    def __init__(self, lowering: Lowering, axes: Sequence[Any], sizes: Sequence[Expr], arrays: Sequence[n.Array]):
        super().__init__(lowering, axes, sizes)
        self.arrays = arrays

    def put(self, keys: list[Expr], values: Values) -> None:
        build = self.lowering.build
        place = build.let("place", self.place(keys))
        old = tuple(build.load(a, place, "old", d) for a, d in zip(self.arrays, self.lowering.semiring.dtypes))
        for a, x in zip(self.arrays, self.lowering.plus(old, values)):
            build.store(a, place, x)


class Counted(Output):
    """How many entries there are to list."""

    def __init__(self, lowering: Lowering, axes: Sequence[Any], sizes: Sequence[Expr]):
        super().__init__(lowering, axes, sizes)
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

    def __init__(self, lowering: Lowering, axes: Any, sizes: Any, arrays: Sequence[n.Array], positions: Any):
        super().__init__(lowering, axes, sizes)
        self.arrays, self.positions = arrays, positions

    def put(self, keys: list[Expr], values: Values) -> None:
        build = self.lowering.build
        if self.positions is None:
            for a, x in zip(self.arrays, values):
                build.store(a, self.count, x)
        else:
            at = build.load(self.positions, self.count, "at")
            old = tuple(build.load(a, at, "old", d) for a, d in zip(self.arrays, self.lowering.semiring.dtypes))
            for a, x in zip(self.arrays, self.lowering.plus(old, values)):
                build.store(a, at, x)
        super().put(keys, values)
