"""What one element of a fold is: a scalar, a small array, or a nested tuple, named tuple or dataclass of them.

Arrays of elements are structures of arrays: `(a, b)` with `a` [n, *batch] and `b` [n, *batch] is n elements
`(a[i], b[i])`. A leaf of shape (2, 2) is an array [n, *batch, 2, 2].

Printed form:

    (scalar, [2, 2])        Affine(slope=scalar, offset=scalar)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from derivable.core.diagnostics import ShapeError


@dataclass(frozen=True)
class Structure:
    """A leaf, or a container of structures.

    shape  of a leaf: () for a scalar, else the shape of the small array; None for a container
    parts  of a container, in order
    names  of the fields of a named tuple or dataclass; () for a plain tuple
    title  the name of that class, for printing
    """

    shape: tuple[int, ...] | None
    parts: tuple[Structure, ...] = ()
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


def structure_of(element: Any) -> Structure:
    """The structure of one element, such as a neutral element."""
    fields = _fields(element)
    if fields is not None:
        names, parts = fields
        title = type(element).__name__ if names else ""
        return Structure(None, tuple(structure_of(part) for part in parts), names, title)
    # Not np.shape: the element may be a stand-in of a trace.
    return Structure(tuple(getattr(element, "shape", ())))


def flatten(structure: Structure, value: Any, what: str) -> list[Any]:
    """The leaves of `value`, which is nested like `structure`; a plain tuple may stand for a class.

    what  its name in messages

    Raises ShapeError, with both structures, for another nesting.
    """
    leaves: list[Any] = []
    _flatten(structure, value, leaves, what, structure)
    return leaves


def _flatten(structure: Structure, value: Any, leaves: list[Any], what: str, whole: Structure) -> None:
    if structure.shape is not None:
        if isinstance(value, tuple) or _is_record(value):
            raise ShapeError(
                f"{what} is nested deeper than the operator's element {whole}: "
                f"a {type(value).__name__} stands where one array belongs",
                hint="the neutral element says how elements are nested; give it the nesting of the values",
            )
        leaves.append(value)
        return
    fields = _fields(value)
    if fields is None or len(fields[1]) != len(structure.parts):
        found = f"a {type(value).__name__}" if fields is None else f"{len(fields[1])} parts"
        raise ShapeError(
            f"{what} has {found} where the operator's element {whole} has {len(structure.parts)} parts",
            hint="give one array per part, nested like the neutral element",
        )
    for part, inner in zip(structure.parts, fields[1]):
        _flatten(part, inner, leaves, what, whole)


def rebuild(structure: Structure, like: Any, leaves: Sequence[Any]) -> Any:
    """The leaves in containers of the classes that `like` has; lists become tuples."""
    remaining = iter(leaves)
    return _rebuild(structure, like, remaining)


def _rebuild(structure: Structure, like: Any, remaining: Any) -> Any:
    if structure.shape is not None:
        return next(remaining)
    fields = _fields(like)
    assert fields is not None
    names, parts = fields
    made = [_rebuild(part, inner, remaining) for part, inner in zip(structure.parts, parts)]
    if _is_record(like):
        return dataclasses.replace(like, **dict(zip(names, made)))
    return type(like)(*made) if names else tuple(made)


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
    return None
