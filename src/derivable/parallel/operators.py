"""The named operators of folds, and those of semirings.

`add`, `mul`, `min`, `max`, `logaddexp`, `or`, `and`. Where an operator is asked for, a semiring (its
record, or "semiring:" and its name) stands for its plus. An operator is an expression, so its
derivative, its NumPy meaning and its kernels come from `algebra.expr`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from derivable.algebra import expr, semirings
from derivable.algebra.expr.nodes import Argument, Expr
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import ShapeError, UnsupportedError


def _add(a, b):
    return a + b


def _mul(a, b):
    return a * b


@dataclass(frozen=True)
class Operator:
    """An associative operator of two scalars.

    function  traceable; also works on NumPy arrays
    neutral   what an empty fold gives; None means the neutral element of the array's dtype
    kinds     the dtype kinds it takes: "b" bool, "i" int64, "f" float32 and float64, "O" exact Python integers
    """

    name: str
    function: Callable[[Any, Any], Any]
    kinds: str
    neutral: Any = None

    def neutral_for(self, dtype: Any) -> Any:
        """The neutral element as a scalar of `dtype`."""
        dtype = np.dtype(dtype)
        value = _NEUTRAL[self.name] if self.neutral is None else self.neutral
        if dtype.kind == "i" and isinstance(value, float) and math.isinf(value):
            return dtype.type(np.iinfo(dtype).max if value > 0 else np.iinfo(dtype).min)
        return value if dtype.kind == "O" else dtype.type(value)

    def __call__(self, a: Any, b: Any) -> Any:
        with np.errstate(all="ignore"):
            return self.function(a, b)

    def expressions(self, dtype: Any) -> tuple[Expr, tuple[Expr, ...] | None, tuple[Argument, ...]]:
        """(the operator, the adjoints of its operands or None, the arguments a, b, adjoint) for a dtype."""
        return _expressions(self.function, str(np.dtype(dtype)))

    def is_differentiable(self, dtype: Any) -> bool:
        return np.dtype(dtype).kind == "f"

    def vjp(self, a: Any, b: Any, adjoint: Any) -> tuple[Any, Any]:
        """Adjoints of a and b, elementwise. Ties of min and max go to `a`."""
        _, adjoints, _ = self.expressions(np.asarray(a).dtype)
        if adjoints is None:
            raise refusal(self, np.asarray(a).dtype)
        left, right = expr.interpret(adjoints, (a, b, adjoint))
        return left, right


@cache
def _expressions(function: Callable, dtype: str) -> tuple[Expr, tuple[Expr, ...] | None, tuple[Argument, ...]]:
    arguments = (Argument(0, dtype, "a"), Argument(1, dtype, "b"))  # type: ignore[arg-type]
    adjoint = Argument(2, dtype, "adjoint")  # type: ignore[arg-type]

    def named(a, b):
        return function(a, b)

    (value,) = expr.trace(named, [dtype, dtype])
    value = expr.simplify(value)
    if value.dtype != dtype:
        raise ShapeError(f"the operator gives {value.dtype} for {dtype} operands")
    adjoints = expr.vjp((value,), arguments)[1] if dtype in ("float32", "float64") else None
    return value, adjoints, (*arguments, adjoint)


NAMED: dict[str, Operator] = {
    "add": Operator("add", _add, "ifO"),
    "mul": Operator("mul", _mul, "ifO"),
    "min": Operator("min", expr.minimum, "ifO"),
    "max": Operator("max", expr.maximum, "ifO"),
    "logaddexp": Operator("logaddexp", expr.logaddexp, "f"),
    "or": Operator("or", expr.logical_or, "b"),
    "and": Operator("and", expr.logical_and, "b"),
}
_NEUTRAL = {
    "add": 0,
    "mul": 1,
    "min": math.inf,
    "max": -math.inf,
    "logaddexp": -math.inf,
    "or": False,
    "and": True,
}
_KINDS = {"float": "f", "bool": "b", "integer": "iO"}


@cache
def plus_of(semiring: Semiring) -> Operator:
    """A semiring's plus as an operator; an empty fold gives the semiring's zero."""
    return Operator(f"{semiring.name}.plus", semiring.plus, _KINDS[semiring.carrier], semiring.zero)


@cache
def times_of(semiring: Semiring) -> Operator:
    """A semiring's times as an operator; an empty fold gives the semiring's one."""
    return Operator(f"{semiring.name}.times", semiring.times, _KINDS[semiring.carrier], semiring.one)


def resolve(operator: str | Operator | Semiring, dtype: Any) -> Operator:
    """The operator of that name, or a semiring's plus, checked to take arrays of `dtype`.

    Raises UnsupportedError for an unknown name (with the nearest) or a dtype that it does not take.
    """
    if isinstance(operator, Semiring):
        found = plus_of(semirings.get(operator))
    elif isinstance(operator, Operator):
        found = operator
    elif isinstance(operator, str) and operator.startswith("semiring:"):
        found = plus_of(semirings.get(operator.removeprefix("semiring:")))
    elif operator in NAMED:
        found = NAMED[operator]
    else:
        near = difflib.get_close_matches(str(operator), NAMED, 1)
        raise UnsupportedError(
            f"there is no operator {operator!r}",
            hint=f"did you mean {near[0]!r}?" if near else f"known are {', '.join(NAMED)}; or give a Semiring",
        )
    dtype = np.dtype(dtype)
    if dtype.kind not in found.kinds or dtype.name not in ("bool", "int64", "float32", "float64", "object"):
        takes = {"b": "bool", "i": "int64", "f": "float32, float64", "O": "object (Python integers)"}
        raise UnsupportedError(
            f"the operator {found.name} does not take {dtype}",
            hint=f"it takes {', '.join(takes[kind] for kind in found.kinds)}; convert with `astype`",
        )
    return found


def refusal(operator: Operator, dtype: Any) -> UnsupportedError:
    """The error of a derivative that does not exist."""
    return UnsupportedError(
        f"the operator {operator.name} on {np.dtype(dtype)} has no derivative", hint="use float32 or float64 values"
    )
