"""Loops over parts of an array that lie one after the other, as one loop.

A loop over rows costs a wrongly predicted branch for each row, as long as adding five entries. Where what is done with
an entry does not ask for its row, the rows of compressed storage are one long row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from derivable.algebra.expr.nodes import Argument, Constant, Expr, in_order
from derivable.kernel import nodes as n


def coalesced(kernel: n.Kernel, offsets: Collection[n.Array], low: Expr | None = None) -> n.Kernel:
    """The kernel with one loop for each two that run over all parts of an array, without loads that nobody reads.

    offsets  arrays that ascend: part i is from offsets[i] to offsets[i + 1]
    low      a number that no loop from it on stops below
    """
    starts = (Constant(0, "int64"), low)
    return replace(kernel, body=_block(kernel.body, offsets, _read(kernel.body), starts))


def _block(
    block: tuple[n.Statement, ...], offsets: Collection[n.Array], read: set[Argument], starts: tuple[Expr | None, ...]
) -> tuple[n.Statement, ...]:
    found: list[n.Statement] = []
    for statement in block:
        match statement:
            case n.Load(target) if target not in read:
                continue
            case n.For():
                found += _loop(replace(statement, body=_block(statement.body, offsets, read, starts)), offsets, starts)
            case n.While():
                found.append(replace(statement, body=_block(statement.body, offsets, read, starts)))
            case n.If():
                parts = (_block(part, offsets, read, starts) for part in (statement.body, statement.otherwise))
                found.append(n.If(statement.condition, *parts))
            case _:
                found.append(statement)
    return tuple(found)


def _loop(loop: n.For, offsets: Collection[n.Array], starts: tuple[Expr | None, ...]) -> tuple[n.Statement, ...]:
    """`for i in k .. m: a = offsets[i]; b = offsets[i + 1]; for p in a .. b: ...`, the dots without i, a and b."""
    match loop.body:
        case (n.Load(a, first, here), n.Load(b, last, after), n.For() as inner) if (
            loop.start in starts
            and (loop.step, loop.down) == (1, False)
            and first == last
            and first in offsets
            and (here, after) == (loop.target, loop.target + 1)
            and (inner.start, inner.stop, inner.step, inner.down) == (a, b, 1, False)
            and not _read(inner.body) & {loop.target, a, b}
            and not any(isinstance(part, n.Break) for part in n.walk(inner.body))
        ):
            return n.Load(a, first, loop.start), n.Load(b, last, loop.stop), inner
    return (loop,)


def _read(block: tuple[n.Statement, ...]) -> set[Argument]:
    """The registers that a block reads."""
    operands = [x for statement in n.walk(block) for x in n.operands_of(statement)]
    return {x for x in in_order(operands) if isinstance(x, Argument)}
