"""Whether the arrays of a storage format are as long as its definition reads them, and its indices within the axes.

Kernels do not look: they read and write where the definition says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from derivable.algebra.expr.operations import OPERATIONS
from derivable.core.diagnostics import LayoutError
from derivable.tensor import nodes as t
from derivable.tensor.formats.format import FAMILIES, Format, format_of


def check_bounds(format: Format, shape: tuple[int, ...], parts: Mapping[str, Any]) -> None:
    """Raises LayoutError for a place that an array does not have and an index outside of its axis; formats of the
    library are trusted. It takes time and memory in proportion to the rounds of the definition's loops."""
    if format.name in FAMILIES and format is format_of(format.name, format.order):
        return
    sizes = dict(zip(format.axis_sizes, shape)) | {name: parts[name] for name in format.sizes}
    _Bounds(format, shape, {name: parts[name] for name in format.arrays}).visit(format.node, sizes, 1, 0)


class _Bounds:
    def __init__(self, format: Format, shape: tuple[int, ...], arrays: Mapping[str, np.ndarray]):
        self.format, self.shape, self.arrays = format, shape, arrays

    def visit(self, node: t.Node, names: Mapping[str, Any], count: int, depth: int) -> Any:
        """The values of a scalar [round] or of all rounds; names are numbers, or arrays [round]."""
        match node:
            case t.Number():
                return node.value
            case t.Var():
                return names[node.name]
            case t.Apply():
                with np.errstate(all="ignore"):
                    return OPERATIONS[node.operation].meaning(
                        *(np.asarray(self.visit(operand, names, count, depth)) for operand in node.operands)
                    )
            case t.Lookup(t.Var(name), key):
                places = np.broadcast_to(self.visit(key, names, count, depth), (count,))
                self.inside(name, places)
                return self.arrays[name][places]
            case t.Let():
                inner = {**names, node.name: self.visit(node.value, names, count, depth)}
                return self.visit(node.body, inner, count, depth)
            case t.If():
                rows = np.flatnonzero(np.broadcast_to(self.visit(node.condition, names, count, depth), (count,)))
                self.visit(node.body, _taken(names, rows), len(rows), depth)
            case t.Singleton():
                self.index(np.broadcast_to(self.visit(node.key, names, count, depth), (count,)), depth)
                self.visit(node.value, names, count, depth + 1)
            case t.Sum():
                self.loop(node, names, count, depth)
            case _:
                for child in node.children:
                    self.visit(child, names, count, depth)
        return 0

    def loop(self, node: t.Sum, names: Mapping[str, Any], count: int, depth: int) -> None:
        over = node.range
        if not isinstance(over, t.PHYSICAL):
            return
        ends = (np.broadcast_to(self.visit(end, names, count, depth), (count,)) for end in (over.start, over.stop))
        start, stop = (np.asarray(end, np.int64) for end in ends)
        counts = np.maximum(stop - start, 0)
        rows = np.repeat(np.arange(count), counts)
        offset = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        key, value = offset, start[rows] + offset
        if isinstance(over, t.SubArray):
            assert isinstance(over.array, t.Var)
            key = value
            self.inside(over.array.name, key)
            value = self.arrays[over.array.name][key]
        self.visit(node.body, {**_taken(names, rows), node.key: key, node.value: value}, len(rows), depth)

    def inside(self, name: str, places: np.ndarray) -> None:
        if not len(places):
            return
        length, low, high = len(self.arrays[name]), int(places.min()), int(places.max())
        if low < 0 or high >= length:
            raise LayoutError(
                f"`{name}` of the format `{self.format.name}` has {length} places, and the definition reads place "
                f"{low if low < 0 else high}",
                hint=f"for a tensor of shape {list(self.shape)} "
                + (f"`pack` has to give at least {high + 1}" if low >= 0 else "places count from 0"),
            )

    def index(self, keys: np.ndarray, axis: int) -> None:
        if axis >= len(self.shape) or not len(keys):
            return
        low, high = int(keys.min()), int(keys.max())
        if low < 0 or high >= self.shape[axis]:
            raise LayoutError(
                f"the format `{self.format.name}` gives an entry at index {low if low < 0 else high}, outside axis "
                f"{axis} of size {self.shape[axis]}",
                hint=f"the shape is {list(self.shape)}: a condition in the definition leaves out what only fills up",
            )


def _taken(names: Mapping[str, Any], rows: np.ndarray) -> dict[str, Any]:
    return {name: value[rows] if np.ndim(value) else value for name, value in names.items()}
