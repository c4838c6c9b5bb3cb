"""Floor 6: sparse tensor programs (paper: nabla-SD, Shaikhha, Huot and Hashemian, 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.tensor.compilation import Kernel, compile
    from derivable.tensor.derivative import gradient, hessian, jacobian, jvp, vjp
    from derivable.tensor.einstein import einsum
    from derivable.tensor.expression import Expression, variable
    from derivable.tensor.factored import Factored
    from derivable.tensor.formats.format import Format
    from derivable.tensor.formats.held import Held, hold
    from derivable.tensor.function import Function
    from derivable.tensor.optimisation import optimise
    from derivable.tensor.program import Program
    from derivable.tensor.syntax import parse
    from derivable.tensor.types import Type, index, matrix, scalar, tensor, vector
    from derivable.tensor.values import Coordinates, coordinates

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
    "variable",
    "vector",
    "vjp",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Coordinates": "derivable.tensor.values",
        "Expression": "derivable.tensor.expression",
        "Held": "derivable.tensor.formats.held",
        "hold": "derivable.tensor.formats.held",
        "Factored": "derivable.tensor.factored",
        "Function": "derivable.tensor.function",
        "Format": "derivable.tensor.formats.format",
        "Kernel": "derivable.tensor.compilation",
        "Program": "derivable.tensor.program",
        "Type": "derivable.tensor.types",
        "compile": "derivable.tensor.compilation",
        "coordinates": "derivable.tensor.values",
        "einsum": "derivable.tensor.einstein",
        "gradient": "derivable.tensor.derivative",
        "hessian": "derivable.tensor.derivative",
        "index": "derivable.tensor.types",
        "jacobian": "derivable.tensor.derivative",
        "jvp": "derivable.tensor.derivative",
        "matrix": "derivable.tensor.types",
        "optimise": "derivable.tensor.optimisation",
        "parse": "derivable.tensor.syntax",
        "scalar": "derivable.tensor.types",
        "tensor": "derivable.tensor.types",
        "variable": "derivable.tensor.expression",
        "vector": "derivable.tensor.types",
        "vjp": "derivable.tensor.derivative",
    },
)
