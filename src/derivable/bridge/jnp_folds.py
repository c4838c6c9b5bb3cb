"""Folds and their vjps in jax.numpy, for platforms without kernels: tree scans, sorting for buckets.

The functions have the meaning of `Fold.apply` and `Fold.pull`. JAX differentiates `apply`, in which the operator has a
rule of its own; no other derivatives are asked for, since the rules of `jax` are made of these two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from derivable.algebra.expr.emit_arrays import compile_jnp
from derivable.algebra.expr.nodes import Expr
from derivable.algebra.monoid import TypedMonoid
from derivable.bridge.fold import Fold

Components = list[Any]  # [component] arrays [row, column]


def apply(fold: Fold, structure: Any, operands: Sequence[Any]) -> list[Any]:
    """The results [leaf], as `Fold.apply` gives them."""
    op = fold.operator
    leaves = len(op.leaf_sizes)
    values = _components(op, operands[-leaves:])
    if fold.kind == "scan":
        starts = _starts(structure, values[0].shape[0])
        if fold.reverse:
            # A segment ends where the next one starts.
            starts, values = jnp.roll(starts, -1)[::-1], [x[::-1] for x in values]
        found = _scan(op, values, starts)
        if fold.exclusive:
            pairs = zip(found, op.neutral)
            found = [jnp.where(starts[:, None], jnp.asarray(e, x.dtype), jnp.roll(x, 1, 0)) for x, e in pairs]
        if fold.reverse:
            found = [x[::-1] for x in found]
    elif fold.kind == "segment_reduce":
        found = _last(op, _scan(op, values, _starts(structure, values[0].shape[0])), structure)
    else:
        order, starts, ends = _buckets(structure, operands[0].shape[0])
        pairs = zip(_components(op, operands[:leaves]), values)
        found = [x[ends] for x in _scan(op, [jnp.concatenate(pair)[order] for pair in pairs], starts)]
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

    def results_of(*floats: Any) -> list:
        given = list(operands)
        for k, array in zip(fold.float_operands, floats):
            given[k] = array
        found = apply(fold, structure, given)
        return [found[leaf] for leaf in fold.float_results]

    found, back = jax.vjp(results_of, *(operands[k] for k in fold.float_operands))
    return list(back([jnp.zeros_like(x) if seed is None else seed for x, seed in zip(found, adjoints)]))


def _buckets(indices: Any, count: int) -> tuple[Any, Any, Any]:
    """Destination and values in the order of their buckets: bucket k's own element first, ignored ones at the end.

    returns  ([bucket + n] places in the destination followed by the values, [bucket + n] whether a bucket starts
             there, [bucket] the last element of each)
    """
    inside = (indices >= 0) & (indices < count)
    keys = jnp.concatenate([jnp.arange(count, dtype=indices.dtype), jnp.where(inside, indices, count)])
    order = jnp.argsort(keys, stable=True)
    ordered = keys[order]
    # Those that are ignored are segments of their own, so that their values meet nothing.
    changes = (ordered[1:] != ordered[:-1]) | (ordered[1:] == count)
    starts = jnp.concatenate([jnp.ones(min(1, len(keys)), bool), changes])
    return order, starts, jnp.searchsorted(ordered, jnp.arange(count, dtype=indices.dtype), side="right") - 1


def _starts(offsets: Any, rows: int) -> Any:
    """[row] whether a segment starts there; without offsets there is one."""
    if offsets is None:
        return jnp.arange(rows) == 0
    return jnp.zeros(rows, bool).at[offsets[:-1]].set(True, mode="drop")


def _scan(op: TypedMonoid, values: Components, starts: Any) -> Components:
    """Inclusive, within segments."""
    combine = _combine_of(op)

    def step(a: tuple, b: tuple) -> tuple:
        made = combine(a[1:], b[1:])
        return a[0] | b[0], *(jnp.where(b[0], alone, both) for alone, both in zip(b[1:], made))

    if values[0].shape[0] < 2:
        return values
    return list(jax.lax.associative_scan(step, (starts[:, None], *values))[1:])


def _last(op: TypedMonoid, results: Components, offsets: Any) -> Components:
    """The last of each segment, the neutral element for those without elements."""
    empty = (offsets[1:] == offsets[:-1])[:, None]
    if results[0].shape[0] == 0:
        return [jnp.full((len(empty), x.shape[1]), neutral, x.dtype) for x, neutral in zip(results, op.neutral)]
    return [
        jnp.where(empty, jnp.asarray(neutral, x.dtype), x[jnp.maximum(offsets[1:] - 1, 0)])
        for x, neutral in zip(results, op.neutral)
    ]


def _combine_of(op: TypedMonoid) -> Callable:
    """The operator on components, with its own derivative: ties go to the first, and no adjoint gives no contribution,
    whatever it would be multiplied with."""
    arguments, rules, floats = (*op.left, *op.right), op.adjoints, op.float_components

    @jax.custom_vjp
    def combine(a: tuple, b: tuple) -> tuple:
        return tuple(_evaluate(op.values, arguments, (*a, *b)))

    def back(given: tuple, adjoints: tuple) -> tuple:
        # Components without derivatives have adjoints of JAX's own type for that.
        seeds = [c if k in floats else jnp.zeros_like(x) for k, (c, x) in enumerate(zip(adjoints, given[0]))]
        dead = jnp.all(jnp.stack([seeds[k] == 0 for k in floats]), 0)

        def of_side(exprs: Sequence[Expr]) -> tuple:
            found = _evaluate(exprs, (*arguments, *rules.arguments), (*given[0], *given[1], *seeds))
            return tuple(jnp.where(dead, 0, x).astype(x.dtype) if k in floats else None for k, x in enumerate(found))

        return of_side(rules.left), of_side(rules.right)

    combine.defvjp(lambda a, b: (combine(a, b), (a, b)), back)
    return combine


def _evaluate(exprs: Sequence[Expr], arguments: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    if not exprs:
        return []
    found = compile_jnp(tuple(exprs), arguments)(*arrays)
    return [jnp.broadcast_to(x, arrays[0].shape) for x in found]


def _components(op: TypedMonoid, leaves: Sequence[Any]) -> Components:
    """[component] of [row, column]"""
    found: Components = []
    for leaf, size, dtype in zip(leaves, op.leaf_sizes, op.leaf_dtypes):
        columns = math.prod(leaf.shape[1:]) // size
        flat = leaf.reshape(leaf.shape[0], columns, size).astype(dtype)
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
