"""Sparse tensor programs (paper: nabla-SD, Shaikhha, Huot and Hashemian, 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.tensor.call.compilation import Kernel, compile
    from derivable.tensor.call.factored import Factored
    from derivable.tensor.call.function import Function
    from derivable.tensor.call.value_and_gradient import ValueAndGradient, value_and_gradient
    from derivable.tensor.derivative.derivative import gradient, hessian, jacobian, jvp, vjp
    from derivable.tensor.formats.format import Format
    from derivable.tensor.formats.held import Held, hold
    from derivable.tensor.language.program import Program
    from derivable.tensor.language.syntax import parse
    from derivable.tensor.language.types import Type, index, matrix, scalar, tensor, vector
    from derivable.tensor.optimisation.optimisation import optimise
    from derivable.tensor.values.values import Coordinates, coordinates
    from derivable.tensor.write.einstein import einsum
    from derivable.tensor.write.expression import Expression, variable

__all__ = [
    "Coordinates",
    "Expression",
    "Factored",
    "Format",
    "Function",
    "Held",
    "Kernel",
    "Program",
    "Type",
    "ValueAndGradient",
    "compile",
    "coordinates",
    "einsum",
    "gradient",
    "hessian",
    "hold",
    "index",
    "jacobian",
    "jvp",
    "matrix",
    "optimise",
    "parse",
    "scalar",
    "tensor",
    "value_and_gradient",
    "variable",
    "vector",
    "vjp",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Coordinates": "derivable.tensor.values.values",
        "Expression": "derivable.tensor.write.expression",
        "Held": "derivable.tensor.formats.held",
        "hold": "derivable.tensor.formats.held",
        "Factored": "derivable.tensor.call.factored",
        "Function": "derivable.tensor.call.function",
        "Format": "derivable.tensor.formats.format",
        "Kernel": "derivable.tensor.call.compilation",
        "Program": "derivable.tensor.language.program",
        "Type": "derivable.tensor.language.types",
        "ValueAndGradient": "derivable.tensor.call.value_and_gradient",
        "compile": "derivable.tensor.call.compilation",
        "coordinates": "derivable.tensor.values.values",
        "einsum": "derivable.tensor.write.einstein",
        "gradient": "derivable.tensor.derivative.derivative",
        "hessian": "derivable.tensor.derivative.derivative",
        "index": "derivable.tensor.language.types",
        "jacobian": "derivable.tensor.derivative.derivative",
        "jvp": "derivable.tensor.derivative.derivative",
        "matrix": "derivable.tensor.language.types",
        "optimise": "derivable.tensor.optimisation.optimisation",
        "parse": "derivable.tensor.language.syntax",
        "scalar": "derivable.tensor.language.types",
        "tensor": "derivable.tensor.language.types",
        "value_and_gradient": "derivable.tensor.call.value_and_gradient",
        "variable": "derivable.tensor.write.expression",
        "vector": "derivable.tensor.language.types",
        "vjp": "derivable.tensor.derivative.derivative",
    },
)
