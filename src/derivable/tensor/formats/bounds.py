"""Whether the arrays of a storage format are what its definition says: as long as it reads them, with indices within
the axes, ascending where they are sorted, and keys once where they are unique; and whether they hold the entries that
were packed.

Kernels do not look: they read and write where the definition says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.algebra.expr.operations import OPERATIONS
from derivable.core.diagnostics import LayoutError
from derivable.core.graph import ranges
from derivable.tensor.formats.format import FAMILIES, Format, format_of
from derivable.tensor.formats.table import misplaced
from derivable.tensor.language import nodes as t


def check_bounds(format: Format, shape: tuple[int, ...], parts: Mapping[str, Any], packed: Packed | None) -> None:
    """Raises LayoutError for a place that an array does not have, an index outside of its axis, arrays that are not of
    their kind, and arrays that hold other entries than those which were packed, if they were; formats of the library
    are trusted. It takes time and memory in proportion to the rounds of the definition's loops."""
    if is_known(format):
        return
    sizes = dict(zip(format.axis_sizes, shape)) | {name: parts[name] for name in format.sizes}
    found = _Bounds(format, shape, {name: parts[name] for name in format.arrays})
    for name, kind in format.arrays.items():
        found.kind(name, kind)
    found.visit(format.node, {**sizes, _OUTSIDE: 0}, 1, 0)
    if packed is not None:
        _compare(format, packed)


@dataclass(frozen=True)
class Packed:
    """What a format was given to pack.

    read  what the arrays hold, by the kernels that read tensors in that format
    """

    entries: Any
    zero: Any
    read: Callable[[], Any]


def is_known(format: Format) -> bool:
    """Whether a format is one of the library."""
    return format.name in FAMILIES and format is format_of(format.name, format.order)


class _Bounds:
    def __init__(self, format: Format, shape: tuple[int, ...], arrays: Mapping[str, np.ndarray]):
        self.format, self.shape, self.arrays = format, shape, arrays

    def error(self, message: str, hint: str | None = None) -> LayoutError:
        return LayoutError(f"{message}, in the format `{self.format.name}`", hint=hint)

    def kind(self, name: str, kind: str) -> None:
        array = self.arrays[name]
        if kind == "offsets" and (array[1:] < array[:-1]).any():
            place = int(np.flatnonzero(array[1:] < array[:-1])[0])
            raise self.error(
                f"the offsets `{name}` fall from {array[place]} to {array[place + 1]} at place {place}", _SAY_INT
            )
        if kind != "hashed":
            return
        if len(array) & (len(array) - 1) or not (array < 0).any():
            raise self.error(
                f"the hash table `{name}` has {len(array)} places, of which {int((array < 0).sum())} are empty",
                "it has a power of two of places, and -1 in at least one",
            )
        place = misplaced(np.ascontiguousarray(array, np.int64))
        if place < len(array):
            raise self.error(f"the key {array[place]} at place {place} of the table `{name}` is not found", _SAY_INT)

    def visit(self, node: t.Node, names: Mapping[str, Any], count: int, depth: int) -> Any:
        """The values of a scalar [round] or of all rounds; names are numbers, or arrays [round], `_OUTSIDE` the rounds
        of the entry around."""
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
                key = np.broadcast_to(self.visit(node.key, names, count, depth), (count,))
                self.index(key, depth)
                if node.is_unique:
                    self.once(node, np.broadcast_to(names[_OUTSIDE], (count,)), key)
                self.visit(node.value, {**names, _OUTSIDE: np.arange(count)}, count, depth + 1)
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
        ends = (np.broadcast_to(self.visit(end, names, count, 0), (count,)) for end in (over.start, over.stop))
        start, stop = (np.asarray(end, np.int64) for end in ends)
        counts = np.maximum(stop - start, 0)
        rows = np.repeat(np.arange(count), counts)
        value = ranges(start, counts)
        key = value - start[rows]
        if isinstance(over, t.SubArray):
            assert isinstance(over.array, t.Var)
            key = value
            self.inside(over.array.name, key)
            value = self.arrays[over.array.name][key]
            if (kind := self.format.arrays[over.array.name]) in ("sorted", "ascending"):
                self.ascending(over.array.name, kind, rows, value)
        self.visit(node.body, {**_taken(names, rows), node.key: key, node.value: value}, len(rows), depth)

    def ascending(self, name: str, kind: str, rows: np.ndarray, values: np.ndarray) -> None:
        falls = values[1:] <= values[:-1] if kind == "sorted" else values[1:] < values[:-1]
        falls &= rows[1:] == rows[:-1]
        if falls.any():
            place = int(np.flatnonzero(falls)[0])
            raise self.error(
                f"{values[place + 1]} comes after {values[place]} in one part of `{name}`, which is {kind}", _SAY_INT
            )

    def once(self, node: t.Singleton, outside: np.ndarray, keys: np.ndarray) -> None:
        order = np.lexsort((keys, outside))
        is_same = (keys[order][1:] == keys[order][:-1]) & (outside[order][1:] == outside[order][:-1])
        if is_same.any():
            key = keys[order[int(np.flatnonzero(is_same)[0])]]
            raise self.error(
                f"the key `unique({node.key})` is {key} twice",
                "without `unique( )` entries of one key add up",
            )

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


# No name of the language.
_OUTSIDE = "{"
_SAY_INT = '`pack` says otherwise than `arrays`: an array of the kind "int" promises nothing'


def _taken(names: Mapping[str, Any], rows: np.ndarray) -> dict[str, Any]:
    return {name: value[rows] if np.ndim(value) else value for name, value in names.items()}


def _compare(format: Format, packed: Packed) -> None:
    """Raises LayoutError unless the arrays hold the entries that were packed."""
    given = packed.entries
    places, kept = _places(given, packed.zero), _places(packed.read(), packed.zero)
    if len(places) == len(kept) and (places == kept).all():
        return
    is_lost = ~np.isin(places, kept)
    lost, more = int(is_lost.sum()), len(kept) - len(places) + int(is_lost.sum())
    others = f", and {more} that {'was' if more == 1 else 'were'} not" if more else ""
    hint = "each entry of `entries` is an entry of the definition's, at the same indices"
    if lost:
        where = np.flatnonzero(given.values != packed.zero)[np.flatnonzero(is_lost)[0]]
        value, index = given.values[where], tuple(given.indices[:, where].tolist())
        hint = f"the entry {value} at {index} is lost; {hint}"
    raise LayoutError(
        f"`pack` of the format `{format.name}` was given {len(places)} "
        f"{'entry' if len(places) == 1 else 'entries'}, and its arrays hold {len(places) - lost} of them{others}",
        hint=hint,
    )


def _places(entries: Any, zero: Any) -> np.ndarray:
    """[entry] the places in row-major order of all entries that are not zero; modulo 2^64, which is enough to compare
    places."""
    rows = np.flatnonzero(entries.values != zero)
    place = np.zeros(len(rows), np.uint64)
    for keys, size in zip(entries.indices, entries.shape):
        place = place * np.uint64(size % (1 << 64)) + keys[rows].astype(np.uint64)
    return place
