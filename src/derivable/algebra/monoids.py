"""The monoids of folds: the named ones, those of semirings, a user's own, and products of matrices.

`add`, `mul`, `min`, `max`, `logaddexp`, `or`, `and`. Where an operator belongs, a semiring stands for its plus.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from operator import add, mul
from types import FunctionType
from typing import Any

import numpy as np

from derivable.algebra import expr, semirings
from derivable.algebra.element import Element, element_of, flatten
from derivable.algebra.monoid import Monoid
from derivable.algebra.monoid_laws import check_laws
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import ShapeError, TypeMismatchError, UnsupportedError
from derivable.core.registry import Registry

NAMED: Registry[Monoid] = Registry(
    "operator",
    {
        monoid.name: monoid
        for monoid in (
            Monoid("add", add, "ifO", 0),
            Monoid("mul", mul, "ifO", 1),
            Monoid("min", expr.minimum, "ifO", math.inf),
            Monoid("max", expr.maximum, "ifO", -math.inf),
            Monoid("logaddexp", expr.logaddexp, "f", -math.inf),
            # Of truth values, and of the bits of integers; the integer with all bits is true.
            Monoid("or", expr.bitwise_or, "bi", 0),
            Monoid("and", expr.bitwise_and, "bi", -1),
            Monoid("xor", expr.bitwise_xor, "bi", 0),
        )
    },
    more="or give a Semiring",
    error=UnsupportedError,
)

# Functions of NumPy, PyTorch and Python that have an operator.
_NAMES = {
    "add": "add",
    "sum": "add",
    "multiply": "mul",
    "mul": "mul",
    "prod": "mul",
    "minimum": "min",
    "min": "min",
    "maximum": "max",
    "max": "max",
    "logaddexp": "logaddexp",
    "logical_or": "or",
    "logical_and": "and",
    "bitwise_or": "or",
    "or_": "or",
    "bitwise_and": "and",
    "and_": "and",
    "bitwise_xor": "xor",
    "xor": "xor",
}


def semiring_of(operator: object) -> Semiring | None:
    """The semiring that stands for its plus: a record, its name, or "semiring:" and its name; None for an operator.

    A name that an operator has too is the operator's. Raises DomainError for "semiring:" and an unknown name.
    """
    if isinstance(operator, Semiring):
        return semirings.get(operator)
    if not isinstance(operator, str) or operator in NAMED:
        return None
    if operator.startswith("semiring:"):
        return semirings.get(operator.removeprefix("semiring:"))
    return semirings.get(operator) if operator in semirings.REGISTRY else None


def resolve(operator: str | Monoid | Semiring, dtype: Any) -> Monoid:
    """The operator of that name, or the plus of a semiring (see `semiring_of`), checked to take arrays of `dtype`.

    Raises UnsupportedError for an unknown name (with the nearest) or a dtype that it does not take.
    """
    ring = semiring_of(operator)
    if ring is not None:
        found = ring.addition
    elif isinstance(operator, Monoid):
        found = operator
    elif callable(operator):
        written = getattr(operator, "__name__", str(operator))
        named = None if isinstance(operator, FunctionType) else _NAMES.get(written)
        made = "make an operator of it with its neutral element: `dv.parallel.operator(function, neutral=0)`"
        raise UnsupportedError(
            f"{written} is a function, not an operator", hint=made if named is None else f'write its name: "{named}"'
        )
    else:
        found = NAMED[operator]
    dtype = np.dtype(dtype)
    if dtype.kind not in found.kinds or dtype.name not in ("bool", "int64", "float32", "float64", "object"):
        takes = {"b": "bool", "i": "int64", "f": "float32, float64", "O": "object (Python integers)"}
        raise UnsupportedError(
            f"the operator {found.name} does not take {dtype}",
            hint=f"it takes {', '.join(takes[kind] for kind in found.kinds)}; convert with `astype`",
        )
    return found


def operator(
    function: Callable[[Any, Any], Any],
    *,
    neutral: Any,
    check: bool = False,
    domain: tuple[float, float] | Callable[[np.random.Generator], Any] | None = None,
    commutative: bool | None = None,
    name: str | None = None,
) -> Monoid:
    """An associative operator for `reduce`, `reduce_by_index` and `scan`, from a Python function of two elements.

    function     of two elements, gives an element; traced, so it decides by `where`, `minimum`, `maximum` and not by
                 `if`; its functions are those of `derivable` (exp, log, tanh, ...) and Python's operators
    neutral      the neutral element. Its nesting is that of an element: a number for scalars (and, elementwise, for
                 arrays of them), a tuple, named tuple or dataclass, a NumPy array for small vectors and matrices
    check        try associativity and the neutral element on random elements, commutativity too if it is promised.
                 A test, not a proof; it also finds out whether the operator commutes
    domain       where the random elements come from: (low, high) for every scalar, or a function of a NumPy generator
                 that gives one element; None takes small numbers of both signs. Saturated addition, say, is
                 associative from 0 to its limit only
    commutative  `reduce_by_index` needs it: False is refused there, None is taken on trust

    Raises OperatorError, with a counterexample, if `check` finds a broken law; UnsupportedError, with the line, if the
    function decides on a value; TypeMismatchError if its result is not nested like its operands.
    """
    if not callable(function):
        raise TypeMismatchError(f"an operator is made from a function of two elements, not {function!r}")
    title = name or getattr(function, "__name__", type(function).__name__)
    function = _referable(function)
    element = element_of(neutral)
    if not element.leaf_shapes:
        raise ShapeError("the neutral element is empty", hint="an element has at least one scalar")
    made = Monoid("lambda" if title == "<lambda>" else title, function, "bif", neutral, element, commutative)
    # Float64 stands for all types here: functions that cannot be traced are refused at once, not at the first use.
    made.with_parameters(_default_dtypes(neutral, element))
    if check:
        commutes = check_laws(made, _default_dtypes(neutral, element), domain)
        if commutative is None:
            made = Monoid(made.name, function, "bif", neutral, element, commutes)
    return made


def _referable(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`function`, or a function that calls it: NumPy's own cannot be referred to weakly."""
    try:
        weakref.ref(function)
    except TypeError:
        return lambda a, b: function(a, b)
    return function


def _default_dtypes(neutral: Any, element: Element) -> tuple[str, ...]:
    kinds = {"b": "bool", "i": "int64", "u": "int64", "f": "float64"}
    leaves = [np.asarray(leaf) for leaf in flatten(element, neutral, "the neutral element")]
    for leaf in leaves:
        if leaf.dtype.kind not in kinds:
            raise TypeMismatchError(f"the neutral element has dtype {leaf.dtype}", hint="use bool, int or float")
    return tuple(kinds[leaf.dtype.kind] for leaf in leaves)


# A function of the module, so that operators can be pickled.
def _product(size: int, ring: Semiring, a: Any, b: Any) -> Any:
    made = np.empty((size, size), object)
    for row in range(size):
        for column in range(size):
            total = ring.times(a[row, 0], b[0, column])
            for k in range(1, size):
                total = ring.plus(total, ring.times(a[row, k], b[k, column]))
            made[row, column] = total
    return made


# Sizes of matrices whose products are kernels; the next one takes seconds to compile.
_UNROLLED = 4


@dataclass(frozen=True)
class MatrixProduct(Monoid):
    """The product of large matrices in a semiring, whose folds no kernel has: see `bridge.matrix_folds`."""

    ring: Semiring = field(kw_only=True)

    __hash__ = Monoid.__hash__


@cache
def matrix_product(size: int, semiring: str | Semiring = "real") -> Monoid:
    """The product of [size, size] matrices in a semiring, as an operator: scans of it are Viterbi and its kin.

    values are [n, *batch, size, size]; "real" is the ordinary product, "max_plus" gives best paths, "log" sums of
    paths in log space. Up to size 4 it is unrolled into kernels of size**3 multiplications; folds of larger matrices
    are the array library's own operations, level by level.
    """
    ring = semirings.get(semiring)
    if size < 1:
        raise ShapeError(f"a matrix of size {size} has no entries")
    if not ring.is_scalar:
        raise UnsupportedError(
            f"entries of matrices are scalars, and the elements of the semiring {ring.name!r} are {ring.element}",
            hint="write the product out as an operator on nests: `dv.parallel.operator`",
        )
    one = np.full((size, size), ring.zero)
    np.fill_diagonal(one, ring.one)
    name, function, element = f"{ring.name} product", partial(_product, size, ring), element_of(one)
    commutes = size == 1 and ring.commutative
    if size > _UNROLLED:
        return MatrixProduct(name, function, "bif", one, element, commutes, ring=ring)
    return Monoid(name, function, "bif", one, element, commutes)
