"""What a kind of operators is; the table of them is in `kinds`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from derivable.accelerator.operators.runtime import Elementwise, Layer, Vectors
from derivable.core.diagnostics import ShapeError

Shape: TypeAlias = tuple[int, ...]
Attributes: TypeAlias = Mapping[str, Any]
Unit = Literal["source", "gemm", "vector", "simd", "view"]
Rank = Literal["bool", "int", "float", "same", "first"]


@dataclass(frozen=True)
class Moved:
    """Work of the memories: `elements` values go to other places; none where only the shape changes."""

    elements: int

    def __str__(self) -> str:
        return f"moved[{self.elements}]"


Work: TypeAlias = Layer | Vectors | Elementwise | Moved
ShapeRule: TypeAlias = Callable[[Sequence[Shape], Attributes], Shape]
Evaluate: TypeAlias = Callable[[Sequence[np.ndarray], Attributes], np.ndarray]
WorkRule: TypeAlias = Callable[[Sequence[Shape], Shape, Attributes], Work]


@dataclass(frozen=True)
class Kind:
    """What an operator of this kind is.

    unit        "gemm" and "vector" run on the array, "simd" on the SIMD unit, "view" in the memories; "source" is given
    operands    how many inputs it takes: the least and the most, None for any number
    attributes  those it has, each with what it is when it is not given; `REQUIRED` where it must be
    shape       (shapes of the inputs, attributes) -> shape of the result. Raises ShapeError for shapes that do not fit
    evaluate    (arrays, attributes) -> the result; floating numbers are float64
    work        (shapes of the inputs, shape of the result, attributes) -> what there is to do
    stationary  (shapes of the inputs, attributes) -> which input waits in the array; None beside gemm
    values      the numbers of the result: "float", "int", "bool", "same" as those of the inputs, or of the "first"
    composite   (graph under construction, inputs, attributes) -> the name of the same value made of other kinds
    is_entrywise  whether an entry of the result needs one entry of each operand, so that it can follow at once where
                  these come out of the array
    """

    unit: Unit
    operands: tuple[int, int | None]
    attributes: Mapping[str, Any]
    shape: ShapeRule
    evaluate: Evaluate
    work: WorkRule
    stationary: Callable[[Sequence[Shape], Attributes], int] | None = None
    values: Rank = "same"
    composite: Callable[[Any, Sequence[str], Attributes], str] | None = None
    is_entrywise: bool = False


REQUIRED = object()


def size(shape: Shape) -> int:
    return math.prod(shape)


def broadcast(*shapes: Shape) -> Shape:
    """The shape of what is broadcast together. Raises ShapeError with the shapes."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise ShapeError(f"shapes {' and '.join(str(list(shape)) for shape in shapes)} do not broadcast") from None
