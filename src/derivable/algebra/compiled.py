"""A semiring's operations as jitted scalar functions, for use inside kernels.

    >>> from derivable.algebra.compiled import compiled
    >>> log = compiled("log", "float64")
    >>> log.plus(0.0, 0.0), log.times_vjp(1.0, 2.0, 5.0)
    (0.6931471805599453, (5.0, 5.0))

Works for every semiring whose functions can be traced, the user's own included. A kernel may call the
functions (Numba inlines them), or a generated kernel may carry `source` in its own text, so that its
on-disk cache depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from derivable.algebra import semirings
from derivable.algebra.expr.emit_numba import HEADER, function_source, preamble
from derivable.algebra.expr.generated import load_generated
from derivable.algebra.expr.nodes import Expr
from derivable.algebra.semiring import Semiring, TypedSemiring


@dataclass(frozen=True)
class CompiledSemiring:
    """Jitted scalar functions (nogil, cached on disk). Those of a nest take and give its scalars one by one.

    zero, one        NumPy scalars, or tuples of them
    plus, times      (a, b) -> scalar
    plus_vjp         (a, b, adjoint) -> (adjoint of a, adjoint of b); ties of min and max to `a`;
    times_vjp        None if the semiring is not differentiable
    complement       (a) -> scalar, or None if the semiring has none
    complement_vjp   (a, adjoint) -> adjoint of a; 0 where the adjoint is 0, even at a = 0 in the log semiring
    source           the text of these functions under these names, with the imports they need
    """

    typed: TypedSemiring
    zero: Any
    one: Any
    plus: Callable
    times: Callable
    plus_vjp: Callable | None
    times_vjp: Callable | None
    complement: Callable | None
    complement_vjp: Callable | None
    source: str


def compiled(semiring: str | Semiring, dtype: str | None = None) -> CompiledSemiring:
    """The jitted functions of a semiring; compiled on first call, then taken from the disk cache.

    dtype  "float32" or "float64" (default) for the float carrier, "bool" for the bool carrier

    Raises as `Semiring.typed` does.
    """
    return _compiled(semirings.get(semiring).typed(dtype or "float64"))


@cache
def _compiled(typed: TypedSemiring) -> CompiledSemiring:
    rows = typed.functions
    every = [part for exprs, _ in rows.values() for part in ((exprs,) if isinstance(exprs, Expr) else exprs)]
    parts = [HEADER, preamble(every), *(function_source(name, *row) for name, row in rows.items())]
    source = "\n\n".join(part for part in parts if part)
    module = load_generated(source, f"semiring_{typed.semiring.name}_{typed.precision}")
    functions = {
        name: getattr(module, name, None)
        for name in ("plus", "times", "plus_vjp", "times_vjp", "complement", "complement_vjp")
    }
    one = typed.semiring.is_scalar
    return CompiledSemiring(
        typed,
        typed.zero[0] if one else typed.zero,
        typed.one[0] if one else typed.one,
        source=source,
        **functions,  # type: ignore[arg-type]
    )
