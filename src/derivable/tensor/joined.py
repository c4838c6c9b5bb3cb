"""Loops over parts of an array that lie one after the other, as one loop.

A loop over rows costs a wrongly predicted branch for each row, as long as adding five entries. Where what is done with
an entry does not ask for its row, the rows of compressed storage are one long row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from derivable.algebra.expr.nodes import Argument, Constant, in_order
from derivable.kernel import nodes as n


def join_parts(kernel: n.Kernel, offsets: Collection[n.Array]) -> n.Kernel:
    """The kernel with one loop for each two that run over all parts of an array.

    offsets  arrays that ascend: part i is from offsets[i] to offsets[i + 1]
    """
    if not offsets:
        return kernel
    read = _read(kernel.body)
    return replace(kernel, body=_block(kernel.body, offsets, read))


def _block(block: tuple[n.Statement, ...], offsets: Collection[n.Array], read: set[Argument]) -> tuple:
    found: list[n.Statement] = []
    for statement in block:
        match statement:
            case n.Load(target) if target not in read:
                continue
            case n.For():
                found += _loop(replace(statement, body=_block(statement.body, offsets, read)), offsets)
            case n.While():
                found.append(replace(statement, body=_block(statement.body, offsets, read)))
            case n.If():
                parts = (_block(part, offsets, read) for part in (statement.body, statement.otherwise))
                found.append(n.If(statement.condition, *parts))
            case _:
                found.append(statement)
    return tuple(found)


def _loop(loop: n.For, offsets: Collection[n.Array]) -> tuple[n.Statement, ...]:
    """`for i in 0 .. m: a = offsets[i]; b = offsets[i + 1]; for p in a .. b: ...`, the dots without i, a and b."""
    match loop.body:
        case (n.Load(a, first, here), n.Load(b, last, after), n.For() as inner) if (
            (loop.start, loop.step, loop.down) == (Constant(0, "int64"), 1, False)
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
