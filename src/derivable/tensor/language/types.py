"""Types of SDQLite: scalars, and tensors as nested dictionaries from indices to scalars.

Printed form: `real`, `int`, `bool`, `tensor 2` for `{ int -> { int -> real } }`; arrays of storage formats have dense
indices, `{ dense_int -> int }`.

Source: figure 4 of Shaikhha, Huot and Hashemian, nabla-SD (2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scalar = Literal["real", "int", "bool"]
Index = Literal["int", "dense_int"]
# `X_size_0` is the size of axis 0 of `X`, which is taken from X where it is not given.
SIZE = "_size_"


@dataclass(frozen=True)
class Type:
    """A scalar, or a tensor with an index of some kind for each axis, the outermost first.

    element  of the scalars; those of "real" are values of the semiring that a program runs in
    indices  "int" is a key of a dictionary, "dense_int" a place in an array
    """

    element: Scalar = "real"
    indices: tuple[Index, ...] = ()

    @property
    def order(self) -> int:
        return len(self.indices)

    @property
    def is_scalar(self) -> bool:
        return not self.indices

    @property
    def inner(self) -> Type:
        """The type of what a key leads to."""
        return Type(self.element, self.indices[1:])

    def __str__(self) -> str:
        if self.element == "real" and self.indices and set(self.indices) == {"int"}:
            return f"tensor {self.order}"
        text: str = self.element
        for index in reversed(self.indices):
            text = f"{{ {index} -> {text} }}"
        return text


REAL, INT, BOOL = Type("real"), Type("int"), Type("bool")


def tensor(order: int) -> Type:
    """A tensor of reals; of order 0 it is `real`."""
    return Type("real", ("int",) * order)


def array(element: Scalar) -> Type:
    """An array of a storage format."""
    return Type(element, ("dense_int",))


def is_tensor(of: Type) -> bool:
    """Whether it is a tensor of reals, which a storage format holds, and neither a scalar nor an array."""
    return bool(of.indices) and of == tensor(of.order)


def product(left: Type, right: Type) -> Type:
    """The type of an outer product: all axes of the left factor, then those of the right one."""
    return Type(left.element, left.indices + right.indices)


# The types of inputs, as users name them.
scalar, vector, matrix, index = REAL, tensor(1), tensor(2), INT
