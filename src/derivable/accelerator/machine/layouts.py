"""Where values lie in the cache: strided views, and the memory that they are given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from derivable.accelerator.machine.instructions import BITS
from derivable.accelerator.operators.runtime import ceil_div
from derivable.core.diagnostics import LimitError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class View:
    """Numbers in memory: that at [i, j, ...] is at byte `address + (i * strides[0] + j * strides[1] + ...) * size`.

    buffer  the address of the memory that was allocated for it
    border  of an activation [image, channel, row, column]: rows and columns of zeros around it
    """

    address: int
    type: str
    shape: Shape
    strides: Shape
    buffer: int
    border: tuple[int, int] = (0, 0)

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return BITS[self.type] // 8

    @property
    def span(self) -> int:
        """Bytes from the first number to after the last."""
        return (sum((n - 1) * stride for n, stride in zip(self.shape, self.strides)) + 1) * self.size

    def permuted(self, order: Sequence[int]) -> View:
        shape, strides = (tuple(part[axis] for axis in order) for part in (self.shape, self.strides))
        return replace(self, shape=shape, strides=strides, border=(0, 0))

    def sliced(self, starts: Sequence[int], lengths: Shape, steps: Sequence[int]) -> View:
        address = self.address + self.size * sum(start * stride for start, stride in zip(starts, self.strides))
        strides = tuple(step * stride for step, stride in zip(steps, self.strides))
        return replace(self, address=address, shape=tuple(lengths), strides=strides, border=(0, 0))

    def part(self, axis: int, start: int, length: int, step: int = 1) -> View:
        """A slice along one axis."""
        starts, steps, lengths = [0] * len(self.shape), [1] * len(self.shape), list(self.shape)
        starts[axis], steps[axis], lengths[axis] = start, step, length
        return self.sliced(starts, tuple(lengths), steps)

    def expanded(self, shape: Shape) -> View:
        """Broadcast to a shape."""
        new = (0,) * (len(shape) - len(self.shape))
        kept = (stride if n == m else 0 for n, m, stride in zip(self.shape, shape[len(new) :], self.strides))
        return replace(self, shape=tuple(shape), strides=(*new, *kept), border=(0, 0))

    def with_axes(self, axes: Sequence[int]) -> View:
        """With axes of length one at these places of the result."""
        shape, strides = list(self.shape), list(self.strides)
        for axis in sorted(axes):
            shape.insert(axis, 1)
            strides.insert(axis, 0)
        return replace(self, shape=tuple(shape), strides=tuple(strides), border=(0, 0))

    def reshaped(self, shape: Shape) -> View | None:
        """The same numbers in another shape, None where no strides give them."""
        old = [(n, stride) for n, stride in zip(self.shape, self.strides) if n != 1]
        strides: list[int] = []
        rest = 1  # of the old axis at hand, how often its inner part of the new axes is repeated
        stride = 0
        for n in reversed(shape):
            if n == 1:
                strides.append(0)
                continue
            if rest == 1:
                # Old axes that are one: as many as the new one needs.
                rest, stride = old.pop()
            while rest % n and old and old[-1][1] == rest * stride:
                rest *= old.pop()[0]
            if rest % n:
                return None
            strides.append(stride)
            rest, stride = rest // n, stride * n
        return replace(self, shape=tuple(shape), strides=tuple(reversed(strides)), border=(0, 0))

    def within(self, whole: View, other: View) -> View | None:
        """The same part of `other` as this is of `whole`, which has the same shape; None where no strides say so."""
        order = sorted((k for k, n in enumerate(whole.shape) if n > 1), key=lambda k: -whole.strides[k])

        def digits(distance: int) -> dict[int, int] | None:
            found = {}
            for axis in order:
                found[axis], distance = divmod(distance, whole.strides[axis]) if whole.strides[axis] else (0, distance)
            return found if not distance else None

        offset, rest = divmod(self.address - whole.address, self.size)
        start = digits(offset) if offset >= 0 and not rest else None
        if start is None or self.type != whole.type:
            return None
        reach, strides = dict(start), []
        for n, stride in zip(self.shape, self.strides):
            steps = digits(stride) if n > 1 else {}
            if steps is None:
                return None
            for axis, step in steps.items():
                reach[axis] += (n - 1) * step
            strides.append(sum(step * other.strides[axis] for axis, step in steps.items()))
        if any(last >= whole.shape[axis] for axis, last in reach.items()):
            return None
        address = other.address + other.size * sum(at * other.strides[axis] for axis, at in start.items())
        return replace(other, address=address, shape=self.shape, strides=tuple(strides), border=(0, 0))

    def places(self) -> np.ndarray:
        """The bytes of each number, [*shape, size]."""
        found = self.address + np.arange(self.size)
        for n, stride in zip(reversed(self.shape), reversed(self.strides)):
            # The last axis first: each axis goes before those that are there.
            found = np.arange(n).reshape(-1, *(1,) * found.ndim) * (stride * self.size) + found
        return found

    def gather(self, memory: np.ndarray) -> np.ndarray:
        """The numbers in a memory of bytes, int64."""
        words = np.ascontiguousarray(memory[self.places()])
        return words.view(f"<i{self.size}")[..., 0].astype(np.int64)

    def scatter(self, memory: np.ndarray, numbers: np.ndarray) -> None:
        """Write numbers into a memory of bytes."""
        words = np.asarray(numbers, f"<i{self.size}")[..., None].copy()
        memory[self.places()] = words.view(np.uint8)


def dense(shape: Shape, order: Sequence[int] | None = None) -> Shape:
    """Strides without gaps; `order` has the axes from the outermost to the innermost."""
    strides, stride = [0] * len(shape), 1
    for axis in reversed(range(len(shape)) if order is None else order):
        strides[axis] = stride
        stride *= shape[axis]
    return tuple(strides)


def canonical(shape: Shape) -> Shape:
    """Strides of vectors [*batch, block, length] as columns take them: the same entry of all vectors is together.

    Lengths are outermost, then blocks, then the axes of the batch, the first innermost.
    """
    return dense(shape, list(reversed(range(len(shape)))))


def columns_like(shape: Shape, strides: Shape) -> Shape:
    """Strides as columns take them, lengths outermost, with the vectors in the order in which others lie."""
    order = sorted(range(len(shape) - 1), key=lambda axis: (-strides[axis], axis))
    return dense(shape, [len(shape) - 1, *order])


def like(shape: Shape, strides: Shape) -> Shape:
    """Strides without gaps, the axes in the order of others; axes that are broadcast are outermost."""
    return dense(shape, sorted(range(len(shape)), key=lambda axis: (strides[axis] > 0, -strides[axis], axis)))


class Allocator:
    """Memory in X, in whole lines. What is freed is taken again last, so that units seldom wait for it; but little is
    put into the first half, and much at the end, so that there is room for much."""

    def __init__(self, size: int, line: int):
        self.size, self.line = size, line
        self.used: dict[int, int] = {}  # address -> bytes
        self.most = 0
        self._next = 0

    def allocate(self, length: int, what: str) -> int:
        """The address of so many bytes. Raises LimitError with the sizes."""
        length = ceil_div(max(length, 1), self.line) * self.line
        ends = [0, *(start + used for start, used in sorted(self.used.items()))]
        gaps = list(zip(ends, [*sorted(self.used), self.size]))
        half = self.size // 2
        windows = [(self._next, half), (0, half)] if 8 * length <= self.size else []
        for low, high in windows:
            for start, stop in gaps:
                start, stop = max(start, low), min(stop, high)
                if stop - start >= length:
                    self._next = start + length
                    return self._take(start, length)
        for start, stop in reversed(gaps):
            if stop - start >= length:
                return self._take(stop - length, length)
        largest = max(stop - start for start, stop in gaps)
        raise LimitError(
            f"{what} takes {length} bytes of the cache of {self.size}, of which {sum(self.used.values())} are taken "
            f"and at most {largest} are together",
            hint="give the model smaller batches; a Machine that is made by hand takes a larger x=",
        )

    def _take(self, address: int, length: int) -> int:
        self.used[address] = length
        self.most = max(self.most, sum(self.used.values()))
        return address

    def free(self, address: int) -> None:
        del self.used[address]


def elements(shape: Shape) -> int:
    return math.prod(shape)
