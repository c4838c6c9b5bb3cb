"""What SDQLite means: a slow and obvious interpreter over nested dictionaries of Python.

What an expression gives no value to, as `if` does where its condition fails, is no entry. A dictionary may hold zeros,
but an entry that is zero is as good as none: sums over tensors leave it out, and it makes every product zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import DomainError
from derivable.tensor.language import nodes as t
from derivable.tensor.language.linearity import guarded_part


class _Nothing:
    """The zero of any order."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING: Any = _Nothing()


def interpret(node: t.Node, values: Mapping[str, Any], semiring: Semiring, *, is_guarded: bool = False) -> Any:
    """The value of an expression.

    values   by the names that are free in it: scalars, nested dictionaries {index: ...}, and arrays [place] for those
             with dense indices; reals are elements of the semiring
    is_guarded  whether sums run over zeros too, as those of programs with guards do
    returns  a scalar or a nested dictionary; `NOTHING` where there is no value, which is zero

    Raises DomainError for a place outside an array.
    """
    return _Run(semiring, is_guarded).value(node, dict(values))


class _Run:
    def __init__(self, semiring: Semiring, is_guarded: bool):
        self.semiring, self.is_guarded = semiring, is_guarded

    def value(self, node: t.Node, names: dict[str, Any]) -> Any:
        match node:
            case t.Var():
                return names[node.name]
            case t.Number():
                return node.value
            case t.Zero():
                return NOTHING
            case t.One():
                return self.semiring.one
            case t.Let():
                return self.value(node.body, {**names, node.name: self.value(node.value, names)})
            case t.If():
                return self.value(node.body, names) if self.value(node.condition, names) else NOTHING
            case t.Add():
                return self.add(self.value(node.left, names), self.value(node.right, names))
            case t.Multiply():
                return self.multiply(self.value(node.left, names), self.value(node.right, names))
            case t.Apply():
                return self.applied(node, names)
            case t.Sum():
                total = NOTHING
                for key, value in _entries(self.value(node.range, names)):
                    if not (self.is_guarded or isinstance(node.range, t.PHYSICAL) or self.is_nonzero(value)):
                        continue
                    total = self.add(total, self.value(node.body, {**names, node.key: key, node.value: value}))
                return total
            case t.Singleton():
                value = self.value(node.value, names)
                # A tensor without entries is zero, so it is no entry.
                return NOTHING if value is NOTHING or value == {} else {self.value(node.key, names): value}
            case t.Lookup():
                return _at(self.value(node.tensor, names), self.value(node.key, names), node)
            case t.Range():
                return range(self.value(node.start, names), self.value(node.stop, names))
            case t.SubArray():
                over, start, stop = (self.value(part, names) for part in node.children)
                if not 0 <= start <= stop <= len(over):
                    raise DomainError(
                        f"`{node}` is places {start} to {stop} of an array of {len(over)}", span=node.span
                    )
                return {place: over[place] for place in range(start, stop)}
        raise AssertionError(node)

    def add(self, left: Any, right: Any) -> Any:
        if left is NOTHING or right is NOTHING:
            return left if right is NOTHING else right
        if isinstance(left, dict):
            return {
                **left,
                **{key: self.add(left[key], value) if key in left else value for key, value in right.items()},
            }
        return self.semiring.plus(left, right)

    def multiply(self, left: Any, right: Any) -> Any:
        if left is NOTHING or right is NOTHING:
            return NOTHING
        if isinstance(left, dict):
            return {key: self.multiply(value, right) for key, value in left.items()}
        if isinstance(right, dict):
            return {key: self.multiply(left, value) for key, value in right.items()}
        if self.semiring.zero in (left, right):
            return self.semiring.zero
        return self.semiring.times(left, right)

    def is_nonzero(self, value: Any) -> bool:
        """Whether a number is not zero, or a tensor has an entry that is not."""
        if isinstance(value, dict):
            return any(map(self.is_nonzero, value.values()))
        return value is not NOTHING and value != self.semiring.zero

    def applied(self, node: t.Apply, names: dict[str, Any]) -> Any:
        if (part := guarded_part(node)) is not None:
            return self.is_nonzero(self.value(part, names))
        operands = [self.value(operand, names) for operand in node.operands]
        given = [np.asarray(self.semiring.zero if x is NOTHING else x) for x in operands]
        row = OPERATIONS[node.operation]
        with np.errstate(all="ignore"):
            found = row.meaning(*given, dtype=np.float64) if row.rule == "cast" else row.meaning(*given)
        return found.item()


def _entries(over: Any) -> Any:
    if over is NOTHING:
        return ()
    return over.items() if isinstance(over, dict) else enumerate(over)


def _at(over: Any, key: Any, node: t.Lookup) -> Any:
    if over is NOTHING:
        return NOTHING
    if isinstance(over, dict):
        return over.get(key, NOTHING)
    if not 0 <= key < len(over):
        raise DomainError(f"`{node}` is place {key} of an array of {len(over)}", span=node.span)
    return over[key]
