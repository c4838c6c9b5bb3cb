"""Column programs on JAX arrays: what `jit`, `grad` and `vmap` of JAX go through.

Shapes of arrays are known when JAX traces, so nodes whose sizes are found at run time are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from derivable.algebra.expr.emit_arrays import compile_jnp
from derivable.algebra.semiring import Semiring
from derivable.algebra.typed import TypedMonoid
from derivable.bridge import jnp_folds
from derivable.core.diagnostics import UnsupportedError
from derivable.parallel.program import nodes as n
from derivable.parallel.program.execute import Arrays

_compiled = lru_cache(512)(compile_jnp)


class Jnp(Arrays):
    """Columns as JAX arrays.

    semiring  of programs that say `times` and `plus`
    """

    def __init__(self, semiring: Semiring | None = None):
        self.semiring = semiring

    def constant(self, values: Any, dtype: str, count: int | None) -> jax.Array:
        array = jnp.asarray(values, None if dtype == n.VALUE else jax.dtypes.canonicalize_dtype(dtype))
        return array if count is None or array.ndim else jnp.full(count, array)

    def gather(self, of: jax.Array, rows: jax.Array, otherwise: Any) -> jax.Array:
        if otherwise is None:
            return of[rows]
        return jnp.where(rows >= 0, of[jnp.maximum(rows, 0)], otherwise) if len(of) else otherwise

    def apply(
        self, function: n.Function | str, operands: list[Any], count: int | None, lanes: int | None
    ) -> list[jax.Array]:
        shape = tuple(x for x in (count, lanes) if x is not None)
        aligned = [x[:, None] if x.ndim and x.ndim < len(shape) else x for x in operands]
        if isinstance(function, str):
            function = n.Function.named(function, tuple(x.dtype.name for x in aligned), self.semiring)
        return [jnp.broadcast_to(x, shape) for x in _compiled(function.values, function.arguments)(*aligned)]

    def bits(self, of: jax.Array) -> jax.Array:
        other = jnp.int64 if of.dtype == jnp.float64 else jnp.float64
        return jax.lax.bitcast_convert_type(of + 0.0 if other is jnp.int64 else of, other)

    def concatenate(self, parts: list[Any]) -> jax.Array:
        return jnp.concatenate(parts)

    def zeros(self, shape: Sequence[int], like: jax.Array) -> jax.Array:
        return jnp.zeros(shape, like.dtype)

    def put(self, buffer: jax.Array, start: int, end: int, rows: jax.Array) -> jax.Array:
        return buffer.at[start:end].set(rows)

    def add_at(self, of: jax.Array, rows: jax.Array, more: jax.Array) -> jax.Array:
        return of.at[rows].add(more)

    def fold(
        self, of: list[Any], rows: jax.Array, count: int, monoid: TypedMonoid | None, is_sorted: bool
    ) -> list[jax.Array]:
        if monoid is None:
            assert self.semiring is not None
            monoid = self.semiring.typed(of[0].dtype.name).plus
        columns = [x.reshape(len(rows), -1) for x in of]
        found = jnp_folds.by_rows(monoid, columns, rows, jnp.arange(count + 1, dtype=rows.dtype))
        return [x.reshape(count, *part.shape[1:]) for x, part in zip(found, of)]

    def fold_lanes(self, of: jax.Array) -> jax.Array:
        rows = jnp.repeat(jnp.arange(len(of)), of.shape[1])
        return self.fold([of.reshape(-1)], rows, len(of), None, True)[0]

    def to_host(self, column: jax.Array, dtype: Any = None) -> np.ndarray:
        return np.asarray(column, dtype)

    def _refuse(self, *arguments: Any, **named: Any) -> Any:
        raise UnsupportedError(
            "a column program finds sizes at run time, and arrays of JAX have sizes that are known before",
            hint='run it on torch: device="cuda", or device="torch:cpu"',
        )

    compact = build = join = find = sort = unique = call = insert = elements = locate = put_at = _refuse
