"""Loops over stored entries that ask for those to come.

What is read in order would be there in time, but that processors stop at each page of 4 KiB, and that additions at
other places keep them from looking further. A long loop over entries that asks for what it needs 512 entries later
takes half the time where these come from memory. Where they are in a cache it takes up to a tenth longer, so short
loops remain as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from derivable.algebra.expr.functions import apply, lift
from derivable.algebra.expr.nodes import Expr, in_order
from derivable.kernel import nodes as n

# Entries of a loop from which on they are too many for the caches; how many it asks ahead, for so many at a time.
LEAST, AHEAD, STEP = 1 << 19, 512, 16
_LINE = 64


def with_prefetches(kernel: n.Kernel) -> n.Kernel:
    """The kernel with a second form of loops over many entries, outside of which is no other one."""
    return replace(kernel, body=tuple(_statement(part) for part in kernel.body))


def _statement(loop: n.Statement) -> n.Statement:
    if not isinstance(loop, n.For) or loop.step != 1 or loop.down or not _is_scattered(loop):
        return loop
    p = loop.target
    asked = dict.fromkeys(part.array for part in loop.body if isinstance(part, n.Load) and part.index == p)
    if not asked:
        return loop
    lines = [
        n.Prefetch(array, p + (AHEAD + k))
        for array in asked
        for k in range(0, STEP, max(1, _LINE // np.dtype(array.dtype).itemsize))
    ]
    is_first = lift(apply("equal", apply("bitwise_and", p, STEP - 1), 0))
    long = replace(loop, body=(n.If(is_first, tuple(lines)), *loop.body))
    return n.If(lift(loop.stop - loop.start >= LEAST), (long,), (loop,))


def _is_scattered(loop: n.For) -> bool:
    """Whether there is no loop inside, and it uses places that it reads from an array. Others become vector code."""
    known: set[Expr] = set()
    for part in n.walk(loop.body):
        match part:
            case n.For() | n.While():
                return False
            case n.Load(target):
                known.add(target)
            case n.Assign(targets, values) if _depends(values, known):
                known.update(targets)
    return any(isinstance(part, (n.Load, n.Store)) and _depends((part.index,), known) for part in n.walk(loop.body))


def _depends(values: Sequence[Expr], known: set[Expr]) -> bool:
    return not known.isdisjoint(in_order(tuple(values)))
