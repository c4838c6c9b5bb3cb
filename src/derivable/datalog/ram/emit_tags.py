"""Kernels that add up the tags of candidates, emitted from a semiring's expressions.

During a round a row's candidates are added up in columns of their own, since rules read the tags of the round before.
At its end they are added to the tags; rows that are new, or whose tags say something new, become recent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from derivable.algebra.expr.functions import equal
from derivable.algebra.expr.nodes import Argument, Expr
from derivable.algebra.semiring import TypedSemiring
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder, substitute
from derivable.kernel.emit_numba import compile_kernel


def accumulate_kernel(typed: TypedSemiring) -> n.Kernel:
    """Add candidates to the pending tags of their rows; returns the number of rows touched in this round.

    ids      [candidate] rows; those from `old` on are new in this round
    touched  [row] the round in which a row was touched last; list [k] the rows touched in the round `stamp`
    """
    k = Builder("accumulate")
    count, old, stamp, number = (k.scalar(name) for name in ("count", "old", "stamp", "number"))
    ids, touched, listed = k.array("ids", "int64"), k.array("touched", "int32"), k.array("listed", "int64")
    given, tags, pending = (_arrays(k, name, typed) for name in ("given", "tags", "pending"))
    with k.loop("i", 0, count) as i:
        row, tag = k.load(ids, i, "row"), _load(k, given, i, typed)
        with k.when(equal(k.load(touched, row, "last"), stamp)):
            _store(k, pending, row, _plus(typed, _load(k, pending, row, typed), tag))
        with k.otherwise():
            if typed.semiring.idempotent_plus:
                k.comment("What changes nothing is no news; of a sum that is not idempotent everything is.")
                with k.when(row < old):
                    before = _load(k, tags, row, typed)
                    after = k.registers("after", typed.dtypes)
                    k.set(after, _plus(typed, before, tag))
                    same = equal(before[0], after[0])
                    for a, b in zip(before[1:], after[1:]):
                        same = same & equal(a, b)
                    with k.when(same):
                        k.continue_()
            k.store(touched, row, stamp)
            _store(k, pending, row, tag)
            k.store(listed, number, row)
            k.set(number, number + 1)
    k.return_(number)
    return k.kernel()


def merge_kernel(typed: TypedSemiring) -> n.Kernel:
    """Add the pending tags of the first `number` rows of `listed` to their tags; returns how many become recent.

    Those come first in `listed` then, and `stamps` says so.
    """
    k = Builder("merge_tags")
    number, old, stamp = (k.scalar(name) for name in ("number", "old", "stamp"))
    listed, stamps = k.array("listed", "int64"), k.array("stamps", "int32")
    tags, pending = (_arrays(k, name, typed) for name in ("tags", "pending"))
    kept = k.let("kept", 0)
    with k.loop("j", 0, number) as j:
        row = k.load(listed, j, "row")
        after = k.registers("after", typed.dtypes)
        k.set(after, _load(k, pending, row, typed))
        is_news = k.let("is_news", True)
        with k.when(row < old):
            before = _load(k, tags, row, typed)
            k.set(after, _plus(typed, before, after))
            first, second = typed.saturated.operands
            operands: dict[Argument, Expr] = dict(zip((*first, *second), (*before, *after)))
            k.set(is_news, ~substitute(typed.saturated.values, operands)[0])
        _store(k, tags, row, after)
        with k.when(is_news):
            k.store(stamps, row, stamp)
            k.store(listed, kept, row)
            k.set(kept, kept + 1)
    k.return_(kept)
    return k.kernel()


@cache
def compiled_tags(typed: TypedSemiring) -> tuple[Callable, Callable]:
    """(accumulate, merge)"""
    return compile_kernel(accumulate_kernel(typed)), compile_kernel(merge_kernel(typed))


def _arrays(k: Builder, name: str, typed: TypedSemiring) -> list[n.Array]:
    return [k.array(name, dtype) for dtype in typed.dtypes]


def _load(k: Builder, arrays: Sequence[n.Array], row: Expr, typed: TypedSemiring) -> tuple[n.Register, ...]:
    return tuple(k.load(array, row, array.name, dtype) for array, dtype in zip(arrays, typed.dtypes))


def _store(k: Builder, arrays: Sequence[n.Array], row: Expr, values: Sequence[Expr]) -> None:
    made = [value if isinstance(value, n.Register) else k.let("sum", value) for value in values]
    for array, value in zip(arrays, made):
        k.store(array, row, value)


def _plus(typed: TypedSemiring, a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
    return substitute(typed.plus.values, dict(zip((*typed.plus.left, *typed.plus.right), (*a, *b))))
