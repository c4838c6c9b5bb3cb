"""How long the axes of the inputs of a call and of its result are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import ShapeError
from derivable.tensor.analysis.axes import Axes, added_sizes, axis_sizes, describe, size_inputs
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables
from derivable.tensor.language.interpret import interpret
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import INT, SIZE, Type, is_tensor


@dataclass(frozen=True, eq=False)
class AxisSizes:
    """What a program says of the sizes of its axes.

    inputs       {name: type} of those that are given
    axes         which axes are the same
    result_axes  of the result, None where it is of no input
    shape        of the result, where it was given
    """

    program: Program
    inputs: Mapping[str, Type]
    axes: Axes
    result_axes: tuple[Any, ...]
    shape: tuple[int, ...] | None
    semiring: Semiring

    def of_inputs(self, held: Mapping[str, Any], others: Mapping[str, Any], is_stage: bool) -> dict[Any, int]:
        """The size of each axis of the inputs. Raises ShapeError where axes that are the same differ."""
        sizes: dict[Any, int] = {(name, k): size for name, of in held.items() for k, size in enumerate(of.shape)}
        for name in self.inputs:
            tensor, _, axis = name.rpartition(SIZE)
            if name in others and tensor:
                known = sizes.setdefault((tensor, int(axis)), others[name])
                if known != others[name]:
                    raise ShapeError(
                        f"`{name}` is {others[name]}, and {describe((tensor, int(axis)))} has {known} indices"
                    )
        for k, stop in self._ranges.items():
            sizes["range", k] = self._size(stop, sizes, others)
        for (left, right), node in self.axes.places:
            if sizes[left] != sizes[right]:
                raise ShapeError(
                    f"`{node}` runs over {describe(left)}, of {sizes[left]}, and {describe(right)}, of {sizes[right]}",
                    span=node.span,
                )
        for left, right, node in () if is_stage else self._added:
            first, second = (self._size(stop, sizes, others) for stop in (left, right))
            if first != second:
                raise ShapeError(
                    f"`{node}` adds a tensor of {first} indices, `{left}`, to one of {second}, `{right}`",
                    span=node.span,
                )
        return sizes

    def of_result(self, sizes: Mapping[Any, int], is_stage: bool) -> tuple[int, ...]:
        """The shape of the result, for these sizes of the axes of inputs. Raises ShapeError where nothing says it."""
        if self.shape is not None:
            if len(self.shape) != self.program.type.order:
                raise ShapeError(f"the shape {self.shape} was asked for, and the result is {self.program.type}")
            for k, axis in enumerate(self.result_axes):
                if axis is not None and sizes[axis] != self.shape[k]:
                    raise ShapeError(
                        f"the shape {self.shape} was asked for, and axis {k} of the result runs over {describe(axis)}, "
                        f"of {sizes[axis]}"
                    )
            return self.shape
        axes = [("range", k) if k in self._ranges else axis for k, axis in enumerate(self.result_axes)]
        if None in axes and is_stage:
            # Of a stage nobody sees the shape.
            known = [1 if axis is None else max(sizes[axis], 1) for axis in axes]
            room = int(((1 << 62) // math.prod(known)) ** (1 / axes.count(None)))
            return tuple(min(room, 1 << 40) if axis is None else sizes[axis] for axis in axes)
        if None in axes:
            raise ShapeError(
                f"nothing says how large axis {axes.index(None)} of the result is",
                hint="its keys are computed: give `shape=`",
            )
        return tuple(sizes[axis] for axis in axes)

    def _size(self, stop: t.Node, sizes: Mapping[Any, int], others: Mapping[str, Any]) -> int:
        """The number of indices up to an integer expression of inputs and of sizes of their axes."""
        values = {}
        for name in free_variables(stop):
            tensor, _, axis = name.rpartition(SIZE)
            values[name] = others[name] if name in others else sizes[tensor, int(axis)]
        return max(int(interpret(stop, values, self.semiring)), 0)

    @cached_property
    def _added(self) -> list[tuple[t.Node, t.Node, t.Node]]:
        """As of `added_sizes`: of two inputs `axes` says it."""
        if self.shape is not None:
            return []
        known = {name for name, of in self.inputs.items() if of == INT}
        known |= set(size_inputs({name: of for name, of in self.inputs.items() if is_tensor(of)}))
        sums = added_sizes(self.program.node, self.program.inputs)
        return [each for each in sums if free_variables(each[0]) | free_variables(each[1]) <= known]

    @cached_property
    def _ranges(self) -> dict[int, t.Node]:
        """Of axes of the result that are those of no input and run over (0:n), that n, if inputs say it."""
        if None not in self.result_axes:
            return {}
        whole = {name for name, of in self.inputs.items() if of == INT}
        stops = axis_sizes(self.program.node, self.inputs)
        pairs = zip(self.result_axes, stops) if len(stops) == len(self.result_axes) else ()
        ranges = {k: stop for k, (axis, stop) in enumerate(pairs) if axis is None and stop is not None}
        return {k: stop for k, stop in ranges.items() if free_variables(stop) <= whole}
