"""Loops that stand one after the other, as one loop.

Derivatives of a product by both of its factors are loops over the same axis, in which each reads what the other one
writes beside. One loop reads it once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from derivable.algebra.expr.nodes import Constant, Expr, in_order
from derivable.kernel import nodes as n


def in_one_loop(block: tuple[n.Statement, ...], are_same: Callable[[Expr, Expr], bool]) -> tuple[n.Statement, ...]:
    """A block in which loops from 0 on that touch nothing that the loop before them writes run together with it.

    are_same  whether two registers that loops stop at are the size of the same axis
    """
    found: list[n.Statement] = []
    for part in block:
        match part:
            case n.For() | n.While():
                part = replace(part, body=in_one_loop(part.body, are_same))
            case n.If():
                part = replace(
                    part, body=in_one_loop(part.body, are_same), otherwise=in_one_loop(part.otherwise, are_same)
                )
        before = found[-1] if found else None
        if isinstance(part, n.For) and isinstance(before, n.For) and _run_together(before, part, are_same):
            body = (*before.body, n.Assign((part.target,), (before.target,)), *part.body)
            found[-1] = replace(before, body=body)
        else:
            found.append(part)
    return tuple(found)


def _run_together(first: n.For, second: n.For, are_same: Callable[[Expr, Expr], bool]) -> bool:
    for loop in (first, second):
        # Loops that may end early, or have loops in them, stay what they are.
        if loop.start != Constant(0, "int64") or loop.step != 1 or loop.down:
            return False
        if not all(isinstance(part, (n.Load, n.Store, n.Assign)) for part in loop.body):
            return False
    if first.stop != second.stop and not are_same(first.stop, second.stop):
        return False
    return not any(_written(a) & (_read(b) | _written(b)) for a, b in ((first, second), (second, first)))


def _written(loop: n.For) -> set[Expr | n.Array]:
    stored: set[Expr | n.Array] = {part.array for part in loop.body if isinstance(part, n.Store)}
    loaded = {part.target for part in loop.body if isinstance(part, n.Load)}
    return stored | loaded | {x for part in loop.body if isinstance(part, n.Assign) for x in part.targets}


def _read(loop: n.For) -> set[Expr | n.Array]:
    loaded: set[Expr | n.Array] = {part.array for part in loop.body if isinstance(part, n.Load)}
    return loaded | set(in_order([x for part in loop.body for x in n.operands_of(part)]))
