"""The language's functions and predicates of tensors."""

from __future__ import annotations

from derivable.datalog.foreign.function import ForeignFunction
from derivable.datalog.foreign.predicate import ForeignPredicate
from derivable.datalog.foreign.signature import signature
from derivable.datalog.values import tensors

FUNCTIONS = (
    ForeignFunction("dim", signature("(x: Tensor) -> usize"), lambda x: len(x.shape)),
    ForeignFunction("dot", signature("(a: Tensor, b: Tensor) -> Tensor"), tensors.dot),
)
PREDICATES = (
    ForeignPredicate(
        "tensor_shape", signature("(x: Tensor) -> (place: usize, size: i64)"), lambda x: enumerate(map(int, x.shape))
    ),
)
