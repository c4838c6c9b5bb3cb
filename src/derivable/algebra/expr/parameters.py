"""Parameters: tensors of one number that a traced function holds, as `w` in `lambda a, b: a + b + w * a * b`.

The function of a fold's operator sees its parameters in every combination, and kernels know elements only. So a
parameter is one more component of all elements, with the same number in each. What combines two of them gives that
number, and has a neutral element besides: the maximum, of truth values `or`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from derivable.algebra.expr.nodes import Apply, Argument, Expr
from derivable.algebra.expr.types import FLOATS, INTEGERS, Dtype, promote
from derivable.core.diagnostics import TypeMismatchError

HELD = (
    "an operator of a fold may hold tensors of one number, which are its parameters; more numbers are a leaf of each "
    "element: `scan(op, (values, w.expand(n, 3)))`"
)
_collecting: ContextVar[Parameters | None] = ContextVar("parameters", default=None)


class Parameters:
    """The parameters that a function turns out to hold, in the order of their first use.

    tensors      [parameter]
    left, right  [parameter] the components of both operands
    values       [parameter] what combines them, which stands for the tensor in the function
    """

    def __init__(self, first: int, dtypes: tuple[Dtype, ...]):
        """first: the index of the first argument; dtypes: of the other leaves, whose float type floats take."""
        floats: list[Dtype] = [dtype for dtype in dtypes if dtype in FLOATS]
        self._first = first
        self._float: Dtype | None = promote(floats) if floats else None
        self.tensors: list[Any] = []
        self.left: list[Argument] = []
        self.right: list[Argument] = []
        self.values: list[Expr] = []

    @property
    def dtypes(self) -> tuple[Dtype, ...]:
        return tuple(argument.dtype for argument in self.left)

    @property
    def neutral(self) -> tuple[Any, ...]:
        """[parameter] scalars"""
        lowest = {"bool": np.False_, "int64": np.int64(np.iinfo(np.int64).min)}
        return tuple(lowest[t] if t in lowest else np.dtype(t).type(-math.inf) for t in self.dtypes)

    def value_of(self, tensor: Any) -> Expr:
        """Raises TypeMismatchError for more than one number, and for numbers that are not real."""
        for known, value in zip(self.tensors, self.values):
            if known is tensor:
                return value
        shape, name = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        if math.prod(shape) != 1:
            raise TypeMismatchError(f"the operator holds a tensor of shape {shape}", hint=HELD)
        if name not in (*FLOATS, *INTEGERS, "bool"):
            raise TypeMismatchError(f"the operator holds a tensor of type {name}", hint="its parameters are real")
        dtype: Dtype = "bool" if name == "bool" else "int64"
        if name in FLOATS:
            dtype = self._float or ("float64" if name == "float64" else "float32")
        index, count = self._first + 2 * len(self.tensors), len(self.tensors)
        left, right = (Argument(index + side, dtype, f"p{count}_{'ab'[side]}") for side in (0, 1))
        value = Apply("logical_or" if dtype == "bool" else "maximum", (left, right), dtype)
        self.tensors.append(tensor)
        self.left.append(left)
        self.right.append(right)
        self.values.append(value)
        return value


@contextmanager
def collected(first: int, dtypes: tuple[Dtype, ...]) -> Iterator[Parameters]:
    """Tensors in functions that are traced inside are parameters of these."""
    found = Parameters(first, dtypes)
    token = _collecting.set(found)
    try:
        yield found
    finally:
        _collecting.reset(token)


def is_tensor(value: Any) -> bool:
    """Whether it is an array of a library that differentiates, or something like one."""
    return hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, np.ndarray | np.generic | Expr)


def symbolic(value: Any) -> Any:
    """What stands for a tensor that the traced function holds; all else, and where nothing is collected, as it is."""
    collecting = _collecting.get()
    return value if collecting is None or not is_tensor(value) else collecting.value_of(value)
