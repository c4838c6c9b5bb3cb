"""Folds and their vjps in jax.numpy, for platforms without kernels: tree scans, sorting for buckets.

The functions have the meaning of `Fold.apply` and `Fold.pull`. JAX transposes the tree, and the operator in it by the
operator's own rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from derivable.algebra.expr.emit_arrays import compile_jnp
from derivable.algebra.typed import TypedMonoid
from derivable.bridge.fold import Fold
from derivable.parallel.program import nodes as n

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
        found = segments(op, values, structure)
    else:
        # A bucket's own element is its first; those that are ignored stand after all buckets.
        count = operands[0].shape[0]
        numbers = jnp.arange(count + 1, dtype=structure.dtype)
        inside = (structure >= 0) & (structure < count)
        rows = jnp.concatenate([numbers[:-1], jnp.where(inside, structure, count)])
        joined = [jnp.concatenate(pair) for pair in zip(_components(op, operands[:leaves]), values)]
        found = by_rows(op, joined, rows, numbers)
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

    def of_floats(*floats: Any) -> list[Any]:
        given = list(operands)
        for k, x in zip(fold.float_operands, floats):
            given[k] = x
        found = apply(fold, structure, given)
        return [found[k] for k in fold.float_results]

    made, back = jax.vjp(of_floats, *(operands[k] for k in fold.float_operands))
    return list(back([jnp.zeros_like(x) if seed is None else seed for x, seed in zip(made, adjoints)]))


def by_rows(op: TypedMonoid, values: Components, rows: Any, numbers: Any) -> Components:
    """The fold of the values that go to each row, in their order, of the rows numbered by all but the last number."""
    order = jnp.argsort(rows, stable=True)
    return segments(op, [x[order] for x in values], jnp.searchsorted(rows[order], numbers))


def _starts(offsets: Any, rows: int) -> Any:
    """[row] whether a segment starts there; without offsets there is one."""
    if offsets is None:
        return jnp.arange(rows) == 0
    return jnp.zeros(rows, bool).at[offsets[:-1]].set(True, mode="drop")


def _scan(op: TypedMonoid, values: Components, starts: Any, reverse: bool = False) -> Components:
    """Inclusive, within segments."""
    combine = _function(op)
    if reverse:
        flipped = [x[::-1] for x in values]
        return [x[::-1] for x in _scan(op, flipped, _ends(starts)[::-1])]

    def step(a: tuple, b: tuple) -> tuple:
        made = combine(*a[1:], *b[1:])
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


def segments(op: TypedMonoid, values: Components, offsets: Any) -> Components:
    """The fold of each segment, the neutral element for those without elements."""
    results = _scan(op, values, _starts(offsets, values[0].shape[0]))
    empty = (offsets[1:] == offsets[:-1])[:, None]
    if results[0].shape[0] == 0:
        return [jnp.full((len(empty), x.shape[1]), neutral, x.dtype) for x, neutral in zip(results, op.neutral)]
    return [
        jnp.where(empty, jnp.asarray(neutral, x.dtype), x[jnp.maximum(offsets[1:] - 1, 0)])
        for x, neutral in zip(results, op.neutral)
    ]


@lru_cache(256)
def _function(op: TypedMonoid) -> Callable:
    """The operator on components of both operands, with its vjp."""
    function = n.Function.of(op.name, op)
    vjp, live = function.vjp
    compute, compute_vjp = (compile_jnp(of.values, of.arguments) for of in (function, vjp))

    def computed(*operands: Any) -> list[Any]:
        return [jnp.broadcast_to(x, operands[0].shape) for x in compute(*operands)]

    def pulled(operands: Sequence[Any], adjoints: Sequence[Any]) -> tuple[Any, ...]:
        # JAX has no numbers for the adjoints of integers, which occur nowhere.
        numbers = [0.0 if x.dtype == jax.dtypes.float0 else x for x in adjoints]
        by_operand = dict(zip(live, compute_vjp(*operands, *numbers)))
        return tuple(
            jnp.broadcast_to(by_operand[k], x.shape) if k in by_operand else None for k, x in enumerate(operands)
        )

    with_rule = jax.custom_vjp(computed)
    with_rule.defvjp(lambda *operands: (computed(*operands), operands), pulled)
    return with_rule


def _components(op: TypedMonoid, leaves: Sequence[Any]) -> Components:
    """[component] of [row, column]."""
    found: Components = []
    for leaf, size, dtype in zip(leaves, op.leaf_sizes, op.leaf_dtypes):
        flat = leaf.reshape(leaf.shape[0], math.prod(leaf.shape[1:]) // size, size).astype(dtype)
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
