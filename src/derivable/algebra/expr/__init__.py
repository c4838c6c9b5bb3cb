"""Scalar expressions: traced from Python functions, typed, simplified, differentiated, emitted.

    >>> from derivable.algebra import expr
    >>> (product,) = expr.trace(lambda a, b: a * b + 1, 2)
    >>> print(product, "; by a:", expr.differentiate(product, 0))
    a * b + 1.0 ; by a: b

`compile_numba`, `compile_jnp` and `compile_torch` import Numba, JAX and torch when they are called.
"""

from derivable.algebra.expr.differentiate import differentiate, vjp
from derivable.algebra.expr.emit_arrays import compile_jnp, compile_torch, emit_jnp
from derivable.algebra.expr.emit_numba import compile_numba, emit_numba
from derivable.algebra.expr.functions import (
    abs,
    apply,
    cast,
    ceil,
    cos,
    equal,
    exp,
    expm1,
    floor,
    less,
    less_equal,
    log,
    log1mexp,
    log1p,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    not_equal,
    power,
    saturating_add,
    saturating_cast,
    saturating_subtract,
    sigmoid,
    sign,
    sin,
    sqrt,
    tanh,
    truncate_divide,
    truncate_remainder,
    where,
)
from derivable.algebra.expr.interpret import interpret, interpreter
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, arguments_of, in_order
from derivable.algebra.expr.optional import Optional, optional
from derivable.algebra.expr.simplify import simplify
from derivable.algebra.expr.text import to_text
from derivable.algebra.expr.trace import trace

__all__ = [
    "Apply",
    "Argument",
    "Constant",
    "Expr",
    "Optional",
    "abs",
    "apply",
    "arguments_of",
    "cast",
    "ceil",
    "compile_jnp",
    "compile_numba",
    "compile_torch",
    "cos",
    "differentiate",
    "emit_jnp",
    "emit_numba",
    "equal",
    "exp",
    "expm1",
    "floor",
    "in_order",
    "interpret",
    "interpreter",
    "less",
    "less_equal",
    "log",
    "log1mexp",
    "log1p",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "not_equal",
    "optional",
    "power",
    "saturating_add",
    "saturating_cast",
    "saturating_subtract",
    "sigmoid",
    "sign",
    "simplify",
    "sin",
    "sqrt",
    "tanh",
    "to_text",
    "trace",
    "truncate_divide",
    "truncate_remainder",
    "vjp",
    "where",
]
