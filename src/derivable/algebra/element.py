"""An element: a scalar, a small array, or a nest of them in tuples, named tuples, dataclasses and dictionaries.

Arrays of elements are structures of arrays: `(a, b)` with `a` [n, *batch] and `b` [n, *batch] is n elements
`(a[i], b[i])`. A leaf of shape (2, 2) is an array [n, *batch, 2, 2].

Printed form:

    (scalar, [2, 2])        Affine(slope=scalar, offset=scalar)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.core.diagnostics import ShapeError


@dataclass(frozen=True)
class Element:
    """A leaf, or a container of elements.

    shape  of a leaf: () for a scalar, else the shape of the small array; None for a container
    parts  of a container, in order
    names  of the fields of a named tuple or dataclass, or the keys of a dictionary in alphabetical order; () for a
           plain tuple
    title  the name of that class, for printing
    """

    shape: tuple[int, ...] | None
    parts: tuple[Element, ...] = ()
    names: tuple[str, ...] = ()
    title: str = ""

    def __str__(self) -> str:
        if self.shape is not None:
            return "scalar" if self.shape == () else f"[{', '.join(map(str, self.shape))}]"
        if self.names:
            fields = ", ".join(f"{name}={part}" for name, part in zip(self.names, self.parts))
            return f"{self.title}({fields})"
        return f"({', '.join(map(str, self.parts))}{',' * (len(self.parts) == 1)})"

    @property
    def leaf_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the leaves, from left to right."""
        if self.shape is not None:
            return (self.shape,)
        return tuple(shape for part in self.parts for shape in part.leaf_shapes)

    @property
    def leaf_sizes(self) -> tuple[int, ...]:
        """Scalars per leaf."""
        return tuple(math.prod(shape) for shape in self.leaf_shapes)


def element_of(value: Any) -> Element:
    """The nesting of one value, such as a neutral element."""
    fields = _fields(value)
    if fields is not None:
        names, parts = fields
        title = type(value).__name__ if names else ""
        return Element(None, tuple(element_of(part) for part in parts), names, title)
    # Not np.shape: the value may be a stand-in of a trace.
    return Element(tuple(getattr(value, "shape", ())))


def flatten(element: Element, value: Any, what: str) -> list[Any]:
    """The leaves of `value`, which is nested like `element`; a plain tuple may stand for a class.

    what  its name in messages

    Raises ShapeError, with both nestings, for another nesting.
    """
    leaves: list[Any] = []
    _flatten(element, value, leaves, what, element)
    return leaves


def _flatten(element: Element, value: Any, leaves: list[Any], what: str, whole: Element) -> None:
    if element.shape is not None:
        if isinstance(value, tuple | Mapping) or _is_record(value):
            raise ShapeError(
                f"{what} is nested deeper than the operator's element {whole}: "
                f"a {type(value).__name__} stands where one array belongs",
                hint="the neutral element says how elements are nested; give it the nesting of the values",
            )
        leaves.append(value)
        return
    fields = _fields(value)
    if fields is None or len(fields[1]) != len(element.parts):
        found = f"a {type(value).__name__}" if fields is None else f"{len(fields[1])} parts"
        raise ShapeError(
            f"{what} has {found} where the operator's element {whole} has {len(element.parts)} parts",
            hint="give one array per part, nested like the neutral element",
        )
    if isinstance(value, Mapping) and fields[0] != element.names:
        raise ShapeError(
            f"{what} has the keys {', '.join(fields[0])} where the operator's element {whole} has "
            f"{', '.join(element.names) or 'places without names'}",
            hint="give one array per part, under the keys of the neutral element",
        )
    for part, inner in zip(element.parts, fields[1]):
        _flatten(part, inner, leaves, what, whole)


def rebuild(element: Element, like: Any, leaves: Sequence[Any]) -> Any:
    """The leaves in containers of the classes that `like` has; lists become tuples."""
    remaining = iter(leaves)
    return _rebuild(element, like, remaining)


def _rebuild(element: Element, like: Any, remaining: Any) -> Any:
    if element.shape is not None:
        return next(remaining)
    fields = _fields(like)
    assert fields is not None
    names, parts = fields
    made = [_rebuild(part, inner, remaining) for part, inner in zip(element.parts, parts)]
    if _is_record(like):
        return dataclasses.replace(like, **dict(zip(names, made)))
    if isinstance(like, Mapping):
        by_key = dict(zip(names, made))
        return {key: by_key[key] for key in like}
    return type(like)(*made) if names else tuple(made)


def components(element: Element, value: Any, what: str) -> tuple[Any, ...]:
    """The scalars of a value from left to right, small arrays row by row. Raises ShapeError as `flatten` does, and for
    small arrays of another shape."""
    scalars: list[Any] = []
    for leaf, shape in zip(flatten(element, value, what), element.leaf_shapes):
        # Not np.shape: leaves may be stand-ins of a trace.
        found = tuple(getattr(leaf, "shape", ()))
        if found != shape:
            raise ShapeError(f"{what} has a leaf of shape {found} where the element {element} has {shape}")
        scalars += [leaf] if shape == () else list(leaf.reshape(-1))
    return tuple(scalars)


def compose(element: Element, like: Any, scalars: Sequence[Any]) -> Any:
    """The value with these scalars, the inverse of `components`; small arrays of dtype object."""
    leaves, position = [], 0
    for shape, size in zip(element.leaf_shapes, element.leaf_sizes):
        if shape == ():
            leaves.append(scalars[position])
        else:
            leaf = np.empty(size, object)
            leaf[:] = scalars[position : position + size]
            leaves.append(leaf.reshape(shape))
        position += size
    return rebuild(element, like, leaves)


def records(element: Element, columns: Sequence[np.ndarray]) -> np.ndarray:
    """Values as one array from a column [row] per scalar.

    returns  [row] for scalars, [row, *shape] for small arrays, [row] with fields for nests, whose names are those of
             the nest's fields, or f0, f1, ...
    """
    # A function that calls itself from inside would keep the columns until Python looks for cycles.
    return _gathered(element, iter(columns))


def _gathered(part: Element, columns: Iterator[np.ndarray]) -> np.ndarray:
    """The array of a part of an element from the next columns."""
    if part.shape is not None:
        scalars = [next(columns) for _ in range(math.prod(part.shape))]
        return np.stack(scalars, axis=-1).reshape(-1, *part.shape) if part.shape else scalars[0]
    names = part.names or tuple(f"f{k}" for k in range(len(part.parts)))
    fields = [_gathered(inner, columns) for inner in part.parts]
    rows = np.empty(len(fields[0]), [(name, x.dtype, x.shape[1:]) for name, x in zip(names, fields)])
    for name, field in zip(names, fields):
        rows[name] = field
    return rows


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _fields(value: Any) -> tuple[tuple[str, ...], tuple[Any, ...]] | None:
    """(field names, parts) of a container; None for a leaf."""
    if _is_record(value):
        names = tuple(field.name for field in dataclasses.fields(value) if field.init)
        return names, tuple(getattr(value, name) for name in names)
    if isinstance(value, tuple):
        return tuple(getattr(value, "_fields", ())), tuple(value)
    if isinstance(value, list):
        return (), tuple(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ShapeError(f"an element is a dictionary with the keys {list(value)}", hint="keys are texts")
        keys = tuple(sorted(value))
        return keys, tuple(value[key] for key in keys)
    return None
