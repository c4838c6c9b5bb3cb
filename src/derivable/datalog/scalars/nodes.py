"""Scalar expressions of the core rules. Each node's docstring shows its printed form.

Nodes of the syntax, of core rules and of their expressions are frozen dataclasses over one base, whose children are
those of its fields that are nodes, alone or in tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar, cast

from derivable.core.diagnostics import Span
from derivable.datalog.values.values import ValueType

NOWHERE = Span(1, 1)


# Annotations of fields in which no nodes are.
_PLAIN = {
    "Any",
    "Kind",
    "Parameters",
    "Part",
    "Span",
    "ValueType",
    "bool",
    "str",
    "tuple[ValueType, ...]",
    "tuple[str, ...]",
}
_PLAIN |= {"tuple[tuple[str, str], ...]", "tuple[tuple[str, int | None], ...]", "str | None"}


class Node:
    """A dataclass that is a node of a tree; `branches` are its fields that may have nodes, alone or in tuples."""

    branches: ClassVar[tuple[str, ...]] = ()
    last_first: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.branches = tuple(name for name, t in cls.__annotations__.items() if t not in _PLAIN)
        cls.last_first = cls.branches[::-1]


Tree = TypeVar("Tree", bound=Node)


def children(node: Node) -> list[Any]:
    """The nodes right below a node, in the order of its fields."""
    nodes: list[Any] = []
    for name in node.branches:
        value = getattr(node, name)
        nodes += value if isinstance(value, tuple) else (value,)
    return [part for part in nodes if isinstance(part, Node)]


def walk(node: Node | None) -> list[Any]:
    """A node and all nodes below it, from the first; nothing of None, which is a wildcard."""
    nodes: list[Any] = []
    stack: list[Any] = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, Node):
            nodes.append(top)
            for name in top.last_first:
                value = getattr(top, name)
                if isinstance(value, tuple):
                    stack += value[::-1]
                else:
                    stack.append(value)
    return nodes


def mapped(node: Tree, change: Callable[[Any], Any]) -> Tree:
    """The node with its children changed; itself if none of them is."""
    changed = {}
    for name in node.branches:
        value = getattr(node, name)
        parts = value if isinstance(value, tuple) else (value,)
        new = tuple(change(part) if isinstance(part, Node) else part for part in parts)
        if any(a is not b for a, b in zip(parts, new)):
            changed[name] = new if parts is value else new[0]
    return replace(cast(Any, node), **changed) if changed else node


@dataclass(frozen=True)
class Var(Node):
    """`x`"""

    name: str
    type: ValueType
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Const(Node):
    """`3`, `"a"`"""

    value: Any
    type: ValueType


@dataclass(frozen=True)
class Apply(Node):
    """`(x + 1)`: operators + - * / % == != < <= > >= && || ^ ! neg if cast, operands of one type, result `type`;
    `$name(x, y)`, a foreign function; `new Node(x, l)`, a term; `(e is Node)`, whether a term has this functor; and
    `Node.1(e)`, one of its fields, which has a value only then. `(x -! 1)` and `(x +! 1)` are differences and sums of
    integers that have no value beyond the limits of the type, where `-` and `+` stop at them. Dates and durations also
    mix: `(t + d)`, `(t - t)`, `(d * n)`."""

    operator: str
    operands: tuple[Expr, ...]
    type: ValueType
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Expr = Var | Const | Apply


def applied(node: Node) -> Iterator[Apply]:
    """All applied operators and functions of an expression."""
    return (part for part in walk(node) if isinstance(part, Apply))
