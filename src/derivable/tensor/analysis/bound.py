"""What names stand for while loops are emitted, and what receives values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from derivable.algebra.expr.nodes import Expr
from derivable.kernel import nodes as n
from derivable.tensor.language import nodes as t
from derivable.tensor.language.check import check
from derivable.tensor.language.types import Type

Values = tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Scalar:
    """A number in registers.

    values   one per component of the semiring's element; of integers and truth values one
    axis     of an index, where it runs over a whole axis: which one, by name
    is_size  of an integer, whether it is how many indices the axis has
    found    whether there is a value, else zero; None if there always is
    passes   of what runs over entries that may be others than those that are looked up, inside other loops
    """

    values: Values
    type: Type
    axis: Any = None
    is_size: bool = False
    found: Expr | None = None
    passes: bool = False


@dataclass(frozen=True, eq=False)
class Stored:
    """An array of a storage format: one for each component of what it holds.

    kind  "sorted": parts that loops run over ascend; "ascending": so, where equal ones follow each other; "hashed": a
          table with -1 in empty places; "" otherwise
    input  the tensor that is stored so
    """

    arrays: tuple[n.Array, ...]
    type: Type
    kind: str = ""
    input: str = ""


@dataclass(frozen=True, eq=False)
class Closure:
    """A tensor: an expression and what its names stand for.

    axes            of an input or a part of one, their names
    entries_differ  whether no entry is stored twice, so for inputs
    num_loops       how many loops it was named inside of
    """

    node: t.Node
    names: Names = field(repr=False)
    type: Type | None
    axes: tuple[Any, ...] = ()
    entries_differ: bool = False
    num_loops: int = 0


@dataclass(frozen=True, eq=False)
class Listed:
    """A vector in a workspace of this kernel: its keys, one after the other, and its values by key.

    stamps  by key: where it is `stamp`, the vector has an entry
    begins_with_zeros  whether values are the zero of the semiring where nothing was put yet
    """

    keys: n.Array
    count: n.Register
    values: tuple[n.Array, ...]
    stamps: n.Array
    stamp: n.Register
    axis: Any
    type: Type
    begins_with_zeros: bool = False


@dataclass(frozen=True, eq=False)
class Tree:
    """A tensor in a workspace of this kernel, or a part of one: what is below a node.

    axes  which its keys are indices of, None where they may be any integer
    """

    space: Any
    node: Expr
    axes: tuple[Any, ...]
    type: Type


Bound = Scalar | Stored | Closure | Listed | Tree
Names = Mapping[str, Bound]
Then = Callable[[Scalar, Bound], None]


def type_of(node: t.Node, names: Names) -> Type | None:
    """The type of an expression from what its names stand for."""
    return check(node, {name: bound.type for name, bound in names.items()})


def part_of(value: Bound, of: Closure, depth: int) -> Bound:
    """What so many keys of a tensor lead to, with what is known of the tensor."""
    if isinstance(value, Closure) and of.axes:
        return replace(value, axes=of.axes[depth:], entries_differ=of.entries_differ)
    return value


def named(node: t.Sum, names: Names, key: Bound, value: Bound) -> Names:
    """The names of the body of a sum."""
    return {**names, node.key: key, node.value: value}


def is_simple(value: Expr) -> bool:
    """Whether a value is a register or a constant."""
    return not value.operands


def loop_name(name: str, otherwise: str) -> str:
    """What the register for a name is called."""
    return otherwise if name == "_" else name


class NotWhole(Exception):
    """What a program needs whole comes in parts, and depends on its inputs only.

    node      as it stands in the program
    closed    the same, of inputs only
    is_stage  whether its axes are known, so that it can be a tensor of its own
    """

    def __init__(self, node: t.Node, closed: t.Node, is_stage: bool):
        self.node, self.closed, self.is_stage = node, closed, is_stage


class Searched(Exception):
    """An input is looked up inside loops by indices that its storage does not lead to: each time all entries of a part
    are compared. It is better stored by its first axes."""

    def __init__(self, name: str):
        self.name = name


class NeededEarlier(Exception):
    """What is needed whole inside a loop was named outside of it: it is better collected there."""

    def __init__(self, node: t.Node):
        self.node = node


class Destination(ABC):
    """What receives the values of a tensor, or of the part of it that some keys lead to."""

    @property
    @abstractmethod
    def holds_all(self) -> bool:
        """Whether there is a place for every value, whether or not anything is added."""

    @abstractmethod
    def at(self, key: Scalar, then: Callable[[Destination], None]) -> None:
        """Go on with the part below a key."""

    @abstractmethod
    def add(self, values: Values) -> None:
        """Add the value of a scalar."""
