"""The named operators of folds, and those of semirings.

`add`, `mul`, `min`, `max`, `logaddexp`, `or`, `and`. Where an operator is asked for, a semiring (its
record, or "semiring:" and its name) stands for its plus. An operator is an expression, so its
derivative, its NumPy meaning and its kernels come from `algebra.expr`.
"""

from __future__ import annotations

import difflib
import math
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from derivable.algebra import expr, semirings
from derivable.algebra.expr.nodes import Argument
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import ShapeError, TypeMismatchError, UnsupportedError
from derivable.parallel import layout
from derivable.parallel.structure import Structure, flatten, rebuild, structure_of
from derivable.parallel.typed_operator import TypedOperator


def _add(a, b):
    return a + b


def _mul(a, b):
    return a * b


_SCALAR = Structure(())


@dataclass(frozen=True)
class Operator:
    """An associative operator of two elements, which are scalars unless `structure` says otherwise.

    function     traceable on two elements; of scalars it also works on NumPy arrays
    neutral      what an empty fold gives, nested like `structure`; None means the neutral element of the dtype
    kinds        the dtype kinds it takes: "b" bool, "i" int64, "f" float32 and float64, "O" exact Python integers
    commutative  None if nobody knows
    """

    name: str
    function: Callable[[Any, Any], Any]
    kinds: str
    neutral: Any = None
    structure: Structure = _SCALAR
    commutative: bool | None = True

    def __hash__(self) -> int:
        # Neutral elements may be arrays.
        return hash((self.name, self.function, self.kinds, self.structure))

    def __repr__(self) -> str:
        return f"<{self.name} on {self.structure}>"

    def neutral_for(self, dtype: Any) -> Any:
        """The neutral element of a scalar operator as a scalar of `dtype`."""
        return _neutral_scalar(_NEUTRAL[self.name] if self.neutral is None else self.neutral, np.dtype(dtype))

    def __call__(self, a: Any, b: Any) -> Any:
        """`a op b`: on scalars and arrays of them for a scalar operator, else on one pair of elements."""
        with np.errstate(all="ignore"):
            return self.function(a, b)

    def typed(self, dtypes: Sequence[Any]) -> TypedOperator:
        """The operator on elements whose leaves have these types: traced once for each combination.

        Raises UnsupportedError if the function decides on a value, with the line; TypeMismatchError if its result
        is not nested or typed like its operands.
        """
        names = tuple(str(np.dtype(dtype)) for dtype in dtypes)
        with _lock:
            known = _typed.setdefault(self.function, {})
            key = (names, self.structure, self.name, _frozen(self.neutral), self.commutative)
            if key not in known:
                known[key] = _trace(self, names)
            return known[key]

    def is_differentiable(self, dtype: Any) -> bool:
        return np.dtype(dtype).kind == "f"

    def vjp(self, a: Any, b: Any, adjoint: Any) -> tuple[Any, Any]:
        """Adjoints of a and b of a scalar operator, elementwise. Ties of min and max go to `a`."""
        dtype = np.asarray(a).dtype
        if not self.is_differentiable(dtype):
            raise refusal(self, dtype)
        (left,), (right,) = self.typed((dtype,)).apply_vjp((a,), (b,), (adjoint,))
        return left, right


_lock = threading.RLock()
# Functions are the keys, weakly: an operator made in a loop does not outlive its last use.
_typed: weakref.WeakKeyDictionary[Callable, dict[tuple, TypedOperator]] = weakref.WeakKeyDictionary()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _neutral_scalar(value: Any, dtype: np.dtype) -> Any:
    if dtype.kind == "O":
        return value
    if dtype.kind == "i" and isinstance(value, (float, np.floating)) and math.isinf(value):
        return dtype.type(np.iinfo(dtype).max if value > 0 else np.iinfo(dtype).min)
    return dtype.type(value)


def _frozen(neutral: Any) -> Any:
    if isinstance(neutral, np.ndarray):
        return neutral.dtype.str, neutral.shape, neutral.tobytes()
    if neutral is None or isinstance(neutral, (bool, int, float, np.generic)):
        return type(neutral), neutral
    return tuple(_frozen(leaf) for leaf in flatten(structure_of(neutral), neutral, "the neutral element"))


def _trace(operator: Operator, dtypes: tuple[str, ...]) -> TypedOperator:
    structure = operator.structure
    shapes, sizes = structure.leaf_shapes, structure.leaf_sizes
    like = operator.neutral if structure.shape is None else None

    def element(scalars: tuple) -> Any:
        leaves, position = [], 0
        for shape, size in zip(shapes, sizes):
            if shape == ():
                leaves.append(scalars[position])
            else:
                leaf = np.empty(size, object)
                leaf[:] = scalars[position : position + size]
                leaves.append(leaf.reshape(shape))
            position += size
        return rebuild(structure, like, leaves)

    def flat(a: tuple, b: tuple) -> tuple:
        return _components(operator, operator.function(element(a), element(b)))

    component_types = [dtype for dtype, size in zip(dtypes, sizes) for _ in range(size)]
    if len(component_types) == 1:
        # One scalar: the names are plain, and so are the messages.
        values = expr.trace(lambda a, b: flat((a,), (b,)), component_types * 2)
        names = [("a",), ("b",)]
    else:
        values = expr.trace(lambda a, b: flat(a, b), [tuple(component_types)] * 2)
        names = [tuple(f"{side}_{k}" for k in range(len(component_types))) for side in "ab"]
    size = len(component_types)
    left = tuple(Argument(k, component_types[k], names[0][k]) for k in range(size))  # type: ignore[arg-type]
    right = tuple(Argument(size + k, component_types[k], names[1][k]) for k in range(size))  # type: ignore[arg-type]
    values = expr.simplify(values)
    for k, (value, dtype) in enumerate(zip(values, component_types)):
        if value.dtype != dtype:
            where = "" if size == 1 else f"component {k} of "
            raise TypeMismatchError(
                f"the operator {operator.name} gives {value.dtype} for {where}{dtype} operands",
                hint=f"its results must have the types of its operands: use `cast(x, '{dtype}')`, or give "
                f"{value.dtype} values",
            )
    if operator.neutral is None:
        neutral = (operator.neutral_for(component_types[0]),)
    else:
        leaves = flatten(structure, operator.neutral, "the neutral element")
        scalars = [scalar for leaf in leaves for scalar in np.asarray(leaf).reshape(-1).tolist()]
        neutral = tuple(_neutral_scalar(scalar, np.dtype(dtype)) for scalar, dtype in zip(scalars, component_types))
    return TypedOperator(operator.name, dtypes, sizes, left, right, values, neutral, operator.commutative)  # type: ignore[arg-type]


def _components(operator: Operator, result: Any) -> tuple:
    """The scalars of an operator's result, which must be nested like its operands."""
    try:
        leaves = flatten(operator.structure, result, "the result")
    except ShapeError:
        leaves = None
    shapes = operator.structure.leaf_shapes
    if leaves is not None and all(getattr(leaf, "shape", ()) == shape for leaf, shape in zip(leaves, shapes)):
        return tuple(
            scalar
            for leaf, shape in zip(leaves, shapes)
            for scalar in ((leaf,) if shape == () else np.asarray(leaf, object).reshape(-1))
        )
    found = structure_of(result)
    raise TypeMismatchError(
        f"the operator {operator.name} gives {found} for elements {operator.structure}",
        hint="its result must be nested like its operands, and both like the neutral element",
    )


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


def resolve_differentiable(values: Any, operator: str | Operator | Semiring) -> tuple[np.ndarray, Operator]:
    """Values [n, *batch] and their operator, which has a derivative. Raises as `resolve` does, and UnsupportedError."""
    values = layout.check_values(values)
    found = resolve(operator, values.dtype)
    if not found.is_differentiable(values.dtype):
        raise refusal(found, values.dtype)
    return values, found


def refusal(operator: Operator, dtype: Any) -> UnsupportedError:
    """The error of a derivative that does not exist."""
    return UnsupportedError(
        f"the operator {operator.name} on {np.dtype(dtype)} has no derivative", hint="use float32 or float64 values"
    )
