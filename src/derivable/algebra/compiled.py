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

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.expr.differentiate import vjp
from derivable.algebra.expr.emit_numba import HEADER, function_source, preamble
from derivable.algebra.expr.functions import equal, where
from derivable.algebra.expr.generated import load_generated
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, in_order
from derivable.algebra.expr.simplify import simplify
from derivable.algebra.expr.trace import trace
from derivable.algebra.expr.types import FLOATS, Dtype, check_dtype
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import TypeMismatchError, UnsupportedError


@dataclass(frozen=True)
class SemiringExpressions:
    """A semiring's operations as expressions for one dtype.

    arguments       (a, b), the arguments of plus and times; `complement` is of a
    adjoint         the argument that stands for the adjoint of the result in the derivatives
    plus_vjp, ...   the adjoints of the operands, of (a, b, adjoint); None if not differentiable
    """

    semiring: Semiring
    dtype: Dtype
    arguments: tuple[Argument, Argument]
    adjoint: Argument
    plus: Expr
    times: Expr
    complement: Expr | None
    plus_vjp: tuple[Expr, ...] | None
    times_vjp: tuple[Expr, ...] | None
    complement_vjp: Expr | None


@dataclass(frozen=True)
class CompiledSemiring:
    """Jitted scalar functions (nogil, cached on disk) on `dtype`.

    zero, one        NumPy scalars of `dtype`
    plus, times      (a, b) -> scalar
    plus_vjp         (a, b, adjoint) -> (adjoint of a, adjoint of b); ties of min and max to `a`;
    times_vjp        None if the semiring is not differentiable
    complement       (a) -> scalar, or None if the semiring has none
    complement_vjp   (a, adjoint) -> adjoint of a; 0 where the adjoint is 0, even at a = 0 in the log semiring
    source           the text of these functions under these names, with the imports they need
    """

    semiring: Semiring
    dtype: Dtype
    zero: Any
    one: Any
    plus: Callable
    times: Callable
    plus_vjp: Callable | None
    times_vjp: Callable | None
    complement: Callable | None
    complement_vjp: Callable | None
    source: str


def default_dtype(semiring: Semiring) -> Dtype:
    """bool for the bool carrier, float64 for the float carrier. Raises UnsupportedError for integers."""
    if semiring.carrier == "integer":
        raise UnsupportedError(
            f"the semiring {semiring.name!r} has exact Python integers, which have no compiled form",
            hint="evaluate it with the NumPy reference, on arrays of dtype object",
        )
    return "bool" if semiring.carrier == "bool" else "float64"


def expressions(semiring: str | Semiring, dtype: str | None = None) -> SemiringExpressions:
    """Trace a semiring. dtype: "float32" or "float64" for the float carrier, "bool" for the bool carrier.

    Raises UnsupportedError for the integer carrier and for functions that cannot be traced, and
    TypeMismatchError if a function does not give a scalar of the dtype.
    """
    record = semirings.get(semiring)
    return _expressions(record, default_dtype(record) if dtype is None else check_dtype(dtype))


@cache
def _expressions(record: Semiring, dtype: Dtype) -> SemiringExpressions:
    default = default_dtype(record)
    if (dtype == "bool") != (default == "bool") or dtype not in ("bool", "float32", "float64"):
        raise TypeMismatchError(
            f"the semiring {record.name!r} has the carrier {record.carrier!r}, which has no dtype {dtype}"
        )
    a, b, adjoint = Argument(0, dtype, "a"), Argument(1, dtype, "b"), Argument(2, dtype, "adjoint")
    plus = _traced(record, "plus", record.plus, (a, b))
    times = _traced(record, "times", record.times, (a, b))
    complement = _traced(record, "complement", record.complement, (a,)) if record.complement is not None else None
    plus_vjp = times_vjp = complement_vjp = None
    if record.differentiable and dtype in FLOATS:
        plus_vjp = _adjoints(plus, (a, b), adjoint)
        times_vjp = _adjoints(times, (a, b), adjoint)
        if complement is not None:
            (raw,) = _adjoints(complement, (a,), adjoint)
            zero = Constant(0, dtype)
            complement_vjp = simplify(raw if raw is zero or raw is -adjoint else where(equal(adjoint, 0), zero, raw))
    return SemiringExpressions(
        record, dtype, (a, b), adjoint, plus, times, complement, plus_vjp, times_vjp, complement_vjp
    )


def _traced(record: Semiring, field: str, function: Callable, arguments: tuple[Argument, ...]) -> Expr:
    results = trace(function, [argument.dtype for argument in arguments])
    if len(results) != 1:
        raise TypeMismatchError(f"{field} of semiring {record.name!r} gives {len(results)} results, not one")
    result = results[0]
    if isinstance(result, Constant) and result.dtype != arguments[0].dtype:
        result = Constant(result.value, arguments[0].dtype)
    if result.dtype != arguments[0].dtype:
        raise TypeMismatchError(
            f"{field} of semiring {record.name!r} gives {result.dtype} for {arguments[0].dtype} operands",
            hint="use functions that keep the type, or `cast`",
        )
    return simplify(_renamed(result, arguments))


def _renamed(result: Expr, arguments: tuple[Argument, ...]) -> Expr:
    done: dict[Expr, Expr] = {}
    for node in in_order(result):
        if isinstance(node, Argument):
            done[node] = arguments[node.index]
        elif isinstance(node, Apply):
            done[node] = Apply(node.operation, tuple(done[operand] for operand in node.operands), node.dtype)
        else:
            done[node] = node
    return done[result]


def _adjoints(result: Expr, arguments: tuple[Argument, ...], adjoint: Argument) -> tuple[Expr, ...]:
    (own,), gradients = vjp((result,), arguments)
    renamed = {argument.index: argument for argument in arguments} | {own.index: adjoint}
    size = max(renamed) + 1
    table = tuple(renamed.get(index, adjoint) for index in range(size))
    return tuple(_renamed(gradient, table) for gradient in gradients)


def compiled(semiring: str | Semiring, dtype: str | None = None) -> CompiledSemiring:
    """The jitted functions of a semiring; compiled on first call, then taken from the disk cache.

    dtype  "float32" or "float64" (default) for the float carrier, "bool" for the bool carrier

    Raises as `expressions` does.
    """
    return _compiled(expressions(semiring, dtype))


@cache
def _compiled(traced: SemiringExpressions) -> CompiledSemiring:
    a, b = traced.arguments
    both = (a, b, traced.adjoint)
    rows: list[tuple[str, Any, tuple[Argument, ...]]] = [
        ("plus", traced.plus, (a, b)),
        ("times", traced.times, (a, b)),
        ("plus_vjp", traced.plus_vjp, both),
        ("times_vjp", traced.times_vjp, both),
        ("complement", traced.complement, (a,)),
        ("complement_vjp", traced.complement_vjp, (a, traced.adjoint)),
    ]
    rows = [row for row in rows if row[1] is not None]
    every = [part for _, exprs, _ in rows for part in ((exprs,) if isinstance(exprs, Expr) else exprs)]
    parts = [HEADER, preamble(every), *(function_source(*row) for row in rows)]
    source = "\n\n".join(part for part in parts if part)
    module = load_generated(source, f"semiring_{traced.semiring.name}_{traced.dtype}")
    scalar = np.dtype(traced.dtype).type
    functions = {
        name: getattr(module, name, None)
        for name in ("plus", "times", "plus_vjp", "times_vjp", "complement", "complement_vjp")
    }
    return CompiledSemiring(
        traced.semiring,
        traced.dtype,
        scalar(traced.semiring.zero),
        scalar(traced.semiring.one),
        source=source,
        **functions,  # type: ignore[arg-type]
    )
