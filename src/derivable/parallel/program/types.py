"""Columns of the column program, their types, and their numbers of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derivable.parallel.program.nodes import Node

# Sizes


@dataclass(frozen=True)
class Found:
    """`rows(edge)`, `found(c3)`: the number of rows of a result of a node, which is found at run time"""

    node: Node
    number: int = 0


@dataclass(frozen=True)
class Sum:
    """`rows(stable path) + found(c3)`"""

    parts: tuple[Size, ...]


Size = int | Found | Sum


def finders(size: Any) -> list[Node]:
    """The nodes that must have run before a size is known."""
    if isinstance(size, Sum):
        return [node for part in size.parts for node in finders(part)]
    return [size.node] if isinstance(size, Found) else []


def added(*sizes: Size) -> Size:
    """The sum of sizes, without sums of sums."""
    return Sum(tuple(part for size in sizes for part in (size.parts if isinstance(size, Sum) else (size,))))


# Types: names of scalars, `value` for values of the semiring that a run takes, `index` for what `Build` gives.
VALUE, INDEX = "value", "index"


@dataclass(frozen=True)
class Type:
    """`int64 [3]`

    size        of rows, None for one number without rows
    lanes       numbers in a row, None for one without an axis of its own
    bits        of integers: how many hold every value, sign included, so that several columns may be packed as one key
    is_natural  whether no value is negative: bits have no sign then
    """

    dtype: str
    size: Size | None = None
    lanes: int | None = None
    bits: int = 64
    is_natural: bool = False


@dataclass(frozen=True)
class Column:
    """One result of a node."""

    node: Node
    number: int = 0

    @property
    def type(self) -> Type:
        return self.node.types[self.number]

    @property
    def size(self) -> Size | None:
        return self.type.size

    @property
    def lanes(self) -> int | None:
        return self.type.lanes
