"""Expressions as Numba source: one assignment per shared node, no loops, no allocation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from derivable.algebra.expr import emit
from derivable.algebra.expr.generated import load_generated
from derivable.algebra.expr.nodes import Apply, Argument, Expr, in_order
from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.expr.types import INTEGERS, LIMITS, WIDTHS, Dtype, computed_in
from derivable.core.lazy import optional_module

# The rows that branch become calls where there are many. Numba's compile time grows with the square of the branches in
# one function, and LLVM turns only calls of such functions into selections: a 4x4 log product's vjp compiles in 8
# seconds instead of 28, the vjp of 3x3 best paths runs three times as fast. Each function costs some 0.1 seconds, so
# few branches stay in line.
SELECTIONS = ("minimum", "maximum", "where")
MANY_SELECTIONS = 16
DECORATOR = '@njit(cache=True, nogil=True, error_model="numpy")'
# For what compiled code alone calls: what Python would call it by takes a sixth of compiling it.
_INNER = '@njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True)'
HEADER = "import math\n\nimport numpy as np\nfrom numba import njit\n"


@cache
def _source(operation: str, dtype: Dtype, many: bool) -> tuple[str | None, str]:
    """(the text of an application, the text of the function that it calls or "" for none)."""
    row = OPERATIONS[operation]
    text, computed = row.text("numba", dtype), computed_in(dtype)
    if text is not None and (text.startswith("def ") or (many and operation in SELECTIONS)):
        (low, high), bits = LIMITS.get(dtype, (0, 0)), WIDTHS.get(dtype, 0)
        function = text.format(t=computed, low=low, high=high, bits=bits) if text.startswith("def ") else ""
        if not function:
            names = "abc"[: row.arity]
            function = f"def {operation}_{computed}({', '.join(names)}):\n    return {text.format(*names)}\n"
        return f"{operation}_{computed}({', '.join(f'{{{i}}}' for i in range(row.arity))})", function
    # Numba computes narrow integers in 64 bits, and negates unsigned ones to signed ones.
    wraps = row.rule in ("arithmetic", "bits") and dtype in INTEGERS and dtype != "int64"
    return (f"{{type}}({text})" if wraps else text), ""


def _has_many_selections(exprs: Expr | Sequence[Expr]) -> bool:
    found = sum(isinstance(node, Apply) and node.operation in SELECTIONS for node in in_order(exprs))
    return found >= MANY_SELECTIONS


def preamble(exprs: Expr | Sequence[Expr]) -> str:
    """The jitted functions that the statements of these expressions, or of some of them, call; "" for none."""
    return "\n\n".join(functions_called(exprs))


def functions_called(exprs: Expr | Sequence[Expr]) -> list[str]:
    """These functions one by one; none calls another."""
    many = _has_many_selections(exprs)
    applied = {(node.operation, node.dtype) for node in in_order(exprs) if isinstance(node, Apply)}
    called = {_source(*pair, many)[1] for pair in applied} - {""}
    return [f"{_INNER}\n{text}" for text in sorted(called)]


def statements(
    exprs: Expr | Sequence[Expr], names: dict[Argument, str], prefix: str = "t", indent: str = "    "
) -> tuple[list[str], list[str]]:
    """`emit.statements` for Numba; `preamble` goes before the function that has these lines."""
    return emit.statements("numba", exprs, names, prefix, indent, _texts(exprs))


def _texts(exprs: Expr | Sequence[Expr]) -> Callable[[Apply], str | None]:
    many = _has_many_selections(exprs)
    return lambda node: _source(node.operation, node.dtype, many)[0]


def emit_numba(name: str, exprs: Expr | Sequence[Expr], arguments: Sequence[Argument]) -> str:
    """The text of a module with one jitted function `name(*arguments)`.

    arguments  its parameters in order; all arguments that occur must be among them. They are converted to
               their types first, so Python numbers may be given
    returns    source; the function returns a scalar for one expression, a tuple for a sequence of them
    """
    function = emit.function("numba", name, exprs, arguments, _texts(exprs))
    parts = [HEADER, preamble(exprs), f"{DECORATOR}\n{function}"]
    return "\n\n".join(part for part in parts if part)


def compile_numba(exprs: Expr | Sequence[Expr], arguments: Sequence[Argument], name: str = "scalar") -> Callable:
    """The jitted function of `emit_numba`, from the on-disk cache where it was compiled before.

    Raises MissingDependencyError without Numba.
    """
    optional_module("numba", "numba")
    name = re.sub(r"\W", "_", name)
    module: Any = load_generated(emit_numba(name, exprs, arguments), name)
    return getattr(module, name)
