"""SDQLite: tensor programs as sums over nested dictionaries with values in a semiring.

A tensor of order n is a dictionary from indices to tensors of order n - 1, and a tensor of order 0 a scalar. What a
dictionary does not hold is zero. Addition is pointwise, and multiplication the outer product; both are those of the
semiring that a program runs in. The logical fragment says what is computed, and is what is differentiated; the
physical one, with `Range` and `SubArray` besides, says where the entries are.

Printed form of the matrix-vector product:

    sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }

Source: figure 4 of Shaikhha, Huot and Hashemian, nabla-SD (2023). Beyond it, any operation of `algebra.expr` may be
applied to scalars.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from derivable.core.diagnostics import Span


@dataclass(frozen=True)
class Node:
    """An expression. `span` is its place in the text that it was parsed from, and no part of what it means."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)

    @property
    def children(self) -> tuple[Node, ...]:
        """The expressions that this one is made of, in the order of the text."""
        return self.operands if isinstance(self, Apply) else tuple(getattr(self, name) for name in _parts(type(self)))

    def with_children(self, children: tuple[Node, ...]) -> Any:
        """The same expression of other parts; itself, if they are the same objects."""
        if all(new is old for new, old in zip(children, self.children, strict=True)):
            return self
        if isinstance(self, Apply):
            return replace(self, operands=children)
        changed: dict[str, Any] = {name: children[place] for place, name in enumerate(_parts(type(self)))}
        return replace(self, **changed)

    def __str__(self) -> str:
        from derivable.tensor.language.text import to_text

        return to_text(self)


@cache
def _parts(kind: type[Node]) -> tuple[str, ...]:
    """The fields that are expressions."""
    return tuple(f.name for f in fields(kind) if f.type == "Node")


@dataclass(frozen=True)
class Var(Node):
    """`A`: an input, or what a `let` or a `sum` bound."""

    name: str


@dataclass(frozen=True)
class Number(Node):
    """`2.0`, `3`, `true`: a real (a value of the semiring), an integer, or a truth value, by its type in Python."""

    value: float | int | bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and (type(self.value), self.value) == (type(other.value), other.value)


@dataclass(frozen=True)
class Zero(Node):
    """`{}`: the zero of the semiring, or a tensor without entries, of whatever order is asked for."""


@dataclass(frozen=True)
class One(Node):
    """`one`: the one of the semiring."""


@dataclass(frozen=True)
class Sum(Node):
    """`sum(<i, a> in A) a * X(i)`: over the entries that a tensor holds; `_` where a name is not needed."""

    key: str
    value: str
    range: Node
    body: Node


@dataclass(frozen=True)
class Singleton(Node):
    """`{ i -> a }`; `{ unique(i) -> a }` promises that no other one inside the same sums has this key."""

    key: Node
    value: Node
    is_unique: bool = False


@dataclass(frozen=True)
class Lookup(Node):
    """`X(j)`: what a tensor holds at a key, or zero."""

    tensor: Node
    key: Node


@dataclass(frozen=True)
class Let(Node):
    """`let x = e in body`"""

    name: str
    value: Node
    body: Node


@dataclass(frozen=True)
class If(Node):
    """`if i == j then a`: zero otherwise."""

    condition: Node
    body: Node


@dataclass(frozen=True)
class Add(Node):
    """`a + b`: of the semiring, pointwise."""

    left: Node
    right: Node


@dataclass(frozen=True)
class Multiply(Node):
    """`a * b`: of the semiring, the outer product."""

    left: Node
    right: Node


@dataclass(frozen=True)
class Apply(Node):
    """`exp(a)`, `i < j`, `~c`, `i + 1`, `real(i)`: an operation of `algebra.expr` on scalars.

    All arithmetic of integers is of this kind; they are in no semiring.
    """

    operation: str
    operands: tuple[Node, ...]


@dataclass(frozen=True)
class Range(Node):
    """`(0:n)`: the integers from start to stop - 1 in an array, each at its distance from the start."""

    start: Node
    stop: Node


@dataclass(frozen=True)
class SubArray(Node):
    """`idx(pos(i):pos(i + 1))`: the places from start to stop - 1 of an array, with what stands there."""

    array: Node
    start: Node
    stop: Node


PHYSICAL = (Range, SubArray)


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, those before others in the order of the text."""
    stack = [node]
    while stack:
        found = stack.pop()
        yield found
        stack.extend(reversed(found.children))
