"""Scalar expressions: traced from Python functions, typed, simplified, differentiated, emitted.

    >>> from derivable.algebra import expr
    >>> (product,) = expr.trace(lambda a, b: a * b + 1, 2)
    >>> print(product, "; by a:", expr.differentiate(product, 0))
    a * b + 1.0 ; by a: b

`compile_numba`, `compile_jnp` and `compile_torch` import Numba, JAX and torch when they are called.
"""

from derivable.algebra.expr import functions
from derivable.algebra.expr.differentiate import differentiate, vjp
from derivable.algebra.expr.emit_arrays import compile_jnp, compile_torch, emit_jnp
from derivable.algebra.expr.emit_numba import compile_numba, emit_numba
from derivable.algebra.expr.functions import *
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
    "arguments_of",
    "compile_jnp",
    "compile_numba",
    "compile_torch",
    "differentiate",
    "emit_jnp",
    "emit_numba",
    "in_order",
    "interpret",
    "interpreter",
    "optional",
    "simplify",
    "to_text",
    "trace",
    "vjp",
]
__all__ += functions.__all__
