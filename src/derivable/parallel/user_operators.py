"""Operators of a user's own, and ready ones on tuples and matrices."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import ShapeError, TypeMismatchError
from derivable.parallel.operator_laws import check_laws
from derivable.parallel.operators import Operator
from derivable.parallel.structure import Structure, flatten, structure_of


def operator(
    function: Callable[[Any, Any], Any],
    *,
    neutral: Any,
    check: bool = False,
    domain: tuple[float, float] | Callable[[np.random.Generator], Any] | None = None,
    commutative: bool | None = None,
    name: str | None = None,
) -> Operator:
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
    structure = structure_of(neutral)
    if not structure.leaf_shapes:
        raise ShapeError("the neutral element is empty", hint="an element has at least one scalar")
    made = Operator("lambda" if title == "<lambda>" else title, function, "bif", neutral, structure, commutative)
    # Float64 stands for all types here: functions that cannot be traced are refused at once, not at the first use.
    made.typed(_default_dtypes(neutral, structure))
    if check:
        commutes = check_laws(made, _default_dtypes(neutral, structure), domain)
        if commutative is None:
            made = Operator(made.name, function, "bif", neutral, structure, commutes)
    return made


def _referable(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`function`, or a function that calls it: NumPy's own cannot be referred to weakly."""
    try:
        weakref.ref(function)
    except TypeError:
        return lambda a, b: function(a, b)
    return function


def _default_dtypes(neutral: Any, structure: Structure) -> tuple[str, ...]:
    kinds = {"b": "bool", "i": "int64", "u": "int64", "f": "float64"}
    leaves = [np.asarray(leaf) for leaf in flatten(structure, neutral, "the neutral element")]
    for leaf in leaves:
        if leaf.dtype.kind not in kinds:
            raise TypeMismatchError(f"the neutral element has dtype {leaf.dtype}", hint="use bool, int or float")
    return tuple(kinds[leaf.dtype.kind] for leaf in leaves)


@cache
def matrix_product(size: int, semiring: str | Semiring = "real") -> Operator:
    """The product of [size, size] matrices in a semiring, as an operator: scans of it are Viterbi and its kin.

    values are [n, *batch, size, size]; "real" is the ordinary product, "max_plus" gives best paths, "log" sums of
    paths in log space. Its source is unrolled: size**3 multiplications, so sizes up to about 8 are sensible.
    """
    ring = semirings.get(semiring)
    if size < 1:
        raise ShapeError(f"a matrix of size {size} has no entries")

    def product(a: Any, b: Any) -> Any:
        made = np.empty((size, size), object)
        for row in range(size):
            for column in range(size):
                total = ring.times(a[row, 0], b[0, column])
                for k in range(1, size):
                    total = ring.plus(total, ring.times(a[row, k], b[k, column]))
                made[row, column] = total
        return made

    one = np.full((size, size), ring.zero)
    np.fill_diagonal(one, ring.one)
    return Operator(
        f"{ring.name} product", product, "bif", one, structure_of(one), commutative=size == 1 and ring.commutative
    )
