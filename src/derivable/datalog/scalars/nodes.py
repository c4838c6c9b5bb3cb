"""Scalar expressions of the core rules. Each node's docstring shows its printed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from derivable.core.diagnostics import Span
from derivable.datalog.values.values import ValueType

NOWHERE = Span(1, 1)


@dataclass(frozen=True)
class Var:
    """`x`"""

    name: str
    type: ValueType
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Const:
    """`3`, `"a"`"""

    value: Any
    type: ValueType


@dataclass(frozen=True)
class Apply:
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


def applied(node: Expr) -> Iterator[Apply]:
    """All applied operators and functions of an expression."""
    if isinstance(node, Apply):
        yield node
        for operand in node.operands:
            yield from applied(operand)
