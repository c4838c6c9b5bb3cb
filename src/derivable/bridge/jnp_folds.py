"""Folds and their vjps in jax.numpy, for platforms without kernels: tree scans, sorting for buckets.

The functions have the meaning of `Fold.apply` and `Fold.pull`. Their own derivatives are never asked for: the rules
of `jax` are made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from derivable.algebra.expr.emit_arrays import compile_jnp
from derivable.algebra.expr.nodes import Expr
from derivable.algebra.monoid import TypedMonoid
from derivable.algebra.recurrence import recurrence_of
from derivable.bridge.fold import Fold

Components = list[Any]  # [component] arrays [row, column]


def apply(fold: Fold, structure: Any, operands: Sequence[Any]) -> list[Any]:
    """The results [leaf], as `Fold.apply` gives them."""
    op = fold.operator
    leaves = len(op.leaf_sizes)
    values = _components(op, operands[-leaves:])
    if fold.kind == "scan":
        starts = _starts(structure, values[0].shape[0])
        found = _shifted(op, _scan(op, values, starts, fold.reverse), starts, fold)
    elif fold.kind == "segment_reduce":
        found = _last(op, _scan(op, values, _starts(structure, values[0].shape[0])), structure)
    else:
        buckets = _Buckets(structure, operands[0].shape[0])
        joined = buckets.joined(op, _components(op, operands[:leaves]), values)
        found = [x[buckets.ends] for x in _scan(op, joined, buckets.starts)]
    shapes = fold.result_shapes(None if structure is None else structure.shape, [x.shape for x in operands])
    return _leaves(op, found, shapes, [x.dtype for x in operands[:leaves]])


def pull(
    fold: Fold,
    structure: Any,
    adjoints: Sequence[Any],
    operands: Sequence[Any],
    results: Sequence[Any],
    kept: Sequence[Any] = (),
) -> list:
    """Adjoints [float operand], as `Fold.pull` gives them."""
    op = fold.operator
    leaves = len(op.leaf_sizes)
    values = _components(op, operands[-leaves:])
    columns = values[0].shape[1]
    seeds: list[Any] = [None] * leaves
    for leaf, adjoint in zip(fold.float_leaves, adjoints):
        seeds[leaf] = adjoint
    shape = fold.result_shapes(None if structure is None else structure.shape, [x.shape for x in operands])[0]
    seed = _components(op, seeds, (shape[0], columns))
    rows = values[0].shape[0]
    if fold.kind == "scan":
        starts = _starts(structure, rows)
        groups = [_scan_pull(op, _unshifted(seed, starts, fold), values, starts, fold.reverse)]
    elif fold.kind == "segment_reduce":
        assert structure is not None
        lengths = structure[1:] - structure[:-1]
        ends = jnp.where(lengths > 0, structure[1:] - 1, rows)
        spread = [jnp.zeros((rows, columns), x.dtype).at[ends].add(x, mode="drop") for x in seed]
        groups = [_scan_pull(op, spread, values, _starts(structure, rows))]
    else:
        buckets = _Buckets(structure, operands[0].shape[0])
        joined = buckets.joined(op, _components(op, operands[:leaves]), values)
        spread = [jnp.zeros((len(buckets.order), columns), x.dtype).at[buckets.ends].set(x) for x in seed]
        groups = buckets.parted(_scan_pull(op, spread, joined, buckets.starts))
    found: list[Any] = []
    for k, group in enumerate(groups):
        like = operands[k * leaves : (k + 1) * leaves]
        made = _leaves(op, group, [x.shape for x in like], [x.dtype for x in like])
        found += [made[leaf] for leaf in fold.float_leaves]
    return found


class _Buckets:
    """Destination and values in the order of their buckets: bucket k's own element first, ignored ones at the end.

    order   [bucket + n] into the destination followed by the values
    starts  [bucket + n] whether a bucket starts there
    ends    [bucket] the last element of each
    """

    def __init__(self, indices: Any, count: int):
        self.count = count
        self.inside = (indices >= 0) & (indices < count)
        keys = jnp.concatenate([jnp.arange(count, dtype=indices.dtype), jnp.where(self.inside, indices, count)])
        self.order = jnp.argsort(keys, stable=True)
        ordered = keys[self.order]
        # Those that are ignored are segments of their own, so that their values meet nothing.
        changes = (ordered[1:] != ordered[:-1]) | (ordered[1:] == count)
        self.starts = jnp.concatenate([jnp.ones(min(1, len(keys)), bool), changes])
        self.ends = jnp.searchsorted(ordered, jnp.arange(count, dtype=indices.dtype), side="right") - 1

    def joined(self, op: TypedMonoid, destination: Components, values: Components) -> Components:
        return [jnp.concatenate(pair)[self.order] for pair in zip(destination, values)]

    def parted(self, components: Components) -> list[Components]:
        """Of the destination, of the values; those that are ignored get 0."""
        back = [jnp.zeros_like(x).at[self.order].set(x) for x in components]
        return [
            [x[: self.count] for x in back],
            [jnp.where(self.inside[:, None], x[self.count :], 0).astype(x.dtype) for x in back],
        ]


def _starts(offsets: Any, rows: int) -> Any:
    """[row] whether a segment starts there; without offsets there is one."""
    if offsets is None:
        return jnp.arange(rows) == 0
    return jnp.zeros(rows, bool).at[offsets[:-1]].set(True, mode="drop")


def _scan(op: TypedMonoid, values: Components, starts: Any, reverse: bool = False) -> Components:
    """Inclusive, within segments."""
    combine = _function(op.values, op)
    if reverse:
        flipped = [x[::-1] for x in values]
        return [x[::-1] for x in _scan(op, flipped, _ends(starts)[::-1])]

    def step(a: tuple, b: tuple) -> tuple:
        made = combine(a[1:], b[1:])
        return a[0] | b[0], *(jnp.where(b[0], alone, both) for alone, both in zip(b[1:], made))

    if values[0].shape[0] < 2:
        return values
    return list(jax.lax.associative_scan(step, (starts[:, None], *values))[1:])


def _ends(starts: Any) -> Any:
    """[row] whether a segment ends there."""
    return jnp.concatenate([starts[1:], jnp.ones(min(1, len(starts)), bool)])


def _before(x: Any, starts: Any, first: Any) -> Any:
    """[row] the entry of the row before, `first` where a segment starts."""
    return jnp.where(starts[:, None], jnp.asarray(first, x.dtype), jnp.roll(x, 1, 0))


def _shifted(op: TypedMonoid, results: Components, starts: Any, fold: Fold) -> Components:
    """The exclusive results from the inclusive ones, if the fold is exclusive."""
    if not fold.exclusive:
        return results
    if fold.reverse:
        ends = _ends(starts)[::-1]
        return [_before(x[::-1], ends, neutral)[::-1] for x, neutral in zip(results, op.neutral)]
    return [_before(x, starts, neutral) for x, neutral in zip(results, op.neutral)]


def _unshifted(adjoints: Components, starts: Any, fold: Fold) -> Components:
    """Adjoints of the inclusive results."""
    if not fold.exclusive:
        return adjoints
    if fold.reverse:
        return [_before(x, starts, 0) for x in adjoints]
    return [_before(x[::-1], _ends(starts)[::-1], 0)[::-1] for x in adjoints]


def _last(op: TypedMonoid, results: Components, offsets: Any) -> Components:
    """The last of each segment, the neutral element for those without elements."""
    empty = (offsets[1:] == offsets[:-1])[:, None]
    if results[0].shape[0] == 0:
        return [jnp.full((len(empty), x.shape[1]), neutral, x.dtype) for x, neutral in zip(results, op.neutral)]
    return [
        jnp.where(empty, jnp.asarray(neutral, x.dtype), x[jnp.maximum(offsets[1:] - 1, 0)])
        for x, neutral in zip(results, op.neutral)
    ]


def _scan_pull(
    op: TypedMonoid, adjoints: Components, values: Components, starts: Any, reverse: bool = False
) -> Components:
    """Adjoints of the values from those of the inclusive results."""
    if reverse:
        backwards = _scan_pull(op, [x[::-1] for x in adjoints], [x[::-1] for x in values], _ends(starts)[::-1])
        return [x[::-1] for x in backwards]
    results = _scan(op, values, starts)
    recurrence = recurrence_of(op)
    after = [jnp.where(_ends(starts)[:, None], x, jnp.roll(x, -1, 0)) for x in values]
    entries = _function(recurrence.entries, op)(results, after)
    # Where a segment ends, nothing comes after, and the entries only need to be finite.
    entries = [jnp.where(_ends(starts)[:, None], 0, x).astype(x.dtype) for x in entries]
    running = _scan(recurrence.operator, [*(adjoints[k] for k in op.float_components), *entries], starts, True)
    by_component: list[Any] = [jnp.zeros_like(x) for x in values]
    for k, x in zip(op.float_components, running):
        by_component[k] = x
    before = [_before(x, starts, neutral) for x, neutral in zip(results, op.neutral)]
    rules = op.adjoints
    arguments = (*op.left, *op.right, *rules.arguments)
    right = _evaluate(rules.right, arguments, (*before, *values, *by_component))
    # The first element of a segment is its result.
    return [jnp.where(starts[:, None], r, x).astype(r.dtype) for r, x in zip(by_component, right)]


def _function(exprs: Sequence[Expr], op: TypedMonoid) -> Callable:
    return lambda a, b: _evaluate(exprs, (*op.left, *op.right), (*a, *b))


def _evaluate(exprs: Sequence[Expr], arguments: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    if not exprs:
        return []
    found = compile_jnp(tuple(exprs), arguments)(*arrays)
    return [jnp.broadcast_to(x, arrays[0].shape) for x in found]


def _components(op: TypedMonoid, leaves: Sequence[Any], zeros: tuple[int, int] | None = None) -> Components:
    """[component] of [row, column]; None is zeros of that shape."""
    found: Components = []
    for leaf, size, dtype in zip(leaves, op.leaf_sizes, op.leaf_dtypes):
        if leaf is None:
            found += [jnp.zeros(zeros, dtype)] * size
        else:
            columns = 1
            for length in leaf.shape[1:]:
                columns *= length
            flat = leaf.reshape(leaf.shape[0], columns // size, size).astype(dtype)
            found += [flat[:, :, k] for k in range(size)]
    return found


def _leaves(op: TypedMonoid, components: Components, shapes: Sequence[tuple[int, ...]], dtypes: Sequence) -> list:
    found = []
    for leaf, (shape, dtype) in enumerate(zip(shapes, dtypes)):
        array = jnp.stack(components[op.starts[leaf] : op.starts[leaf + 1]], -1).reshape(shape)
        if jnp.issubdtype(dtype, jnp.integer) and op.special in ("min", "max"):
            array = jnp.clip(array, jnp.iinfo(dtype).min, jnp.iinfo(dtype).max)
        found.append(array.astype(dtype))
    return found
