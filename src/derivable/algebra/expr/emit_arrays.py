"""Expressions as source on the arrays of JAX and torch.

float64 and int64 need JAX's x64 mode (`jax.config.update("jax_enable_x64", True)`); without it JAX computes in 32 bits.
"""

from __future__ import annotations

import importlib
import linecache
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from derivable.algebra.expr.emit import function
from derivable.algebra.expr.nodes import Argument, Expr
from derivable.core.diagnostics import MissingDependencyError

Exprs = Expr | Sequence[Expr]


def _compile(
    target: Literal["jnp", "torch"], module: str, exprs: Exprs, arguments: Sequence[Argument], name: str
) -> Callable:
    try:
        scope: dict[str, Any] = {target: importlib.import_module(module)}
    except ImportError:
        package, hint = ("JAX", "'derivable[jax]'") if target == "jnp" else ("PyTorch", "torch")
        raise MissingDependencyError(f"{package} is not installed", hint=f"pip install {hint}") from None
    name = re.sub(r"\W", "_", name)
    source = function(target, name, exprs, arguments)
    filename = f"<derivable {target} {name} {abs(hash(source)):x}>"
    # Tracebacks show the generated line.
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), scope)
    return scope[name]


def emit_jnp(name: str, exprs: Exprs, arguments: Sequence[Argument]) -> str:
    """The text of a function `name(*arguments)` on jax.numpy arrays of one shape; needs `jnp` in scope.

    Returns an array for one expression, a tuple for a sequence of them.
    """
    return function("jnp", name, exprs, arguments)


def compile_jnp(exprs: Exprs, arguments: Sequence[Argument], name: str = "scalar") -> Callable:
    """The function of `emit_jnp`. Raises MissingDependencyError without JAX."""
    return _compile("jnp", "jax.numpy", exprs, arguments, name)


def compile_torch(exprs: Exprs, arguments: Sequence[Argument], name: str = "scalar") -> Callable:
    """The function of tensors of the arguments' types, of one shape and device, that computes expressions.

    torch differentiates it by its own rules. A result that depends on no argument has no dimensions. Raises
    MissingDependencyError without torch.
    """
    return _compile("torch", "torch", exprs, arguments, name)
