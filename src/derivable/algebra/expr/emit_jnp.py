"""Expressions as jax.numpy source.

float64 and int64 need JAX's x64 mode (`jax.config.update("jax_enable_x64", True)`); without it JAX computes in 32 bits.
"""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, as_tuple, in_order
from derivable.core.diagnostics import MissingDependencyError, TypeMismatchError

# Operation -> source on operand names; {0} {1} {2} are operands, {t} is the result's type.
JNP: dict[str, str] = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "floor_divide": "jnp.floor_divide({0}, {1})",
    "remainder": "jnp.remainder({0}, {1})",
    "negate": "-{0}",
    "power": "jnp.power({0}, {1})",
    "abs": "jnp.abs({0})",
    "sign": "jnp.sign({0})",
    "minimum": "jnp.minimum({0}, {1})",
    "maximum": "jnp.maximum({0}, {1})",
    "floor": "jnp.floor({0})",
    "ceil": "jnp.ceil({0})",
    "exp": "jnp.exp({0})",
    "expm1": "jnp.expm1({0})",
    "log": "jnp.log({0})",
    "log1p": "jnp.log1p({0})",
    "log1mexp": "jnp.where({0} > {log_half}, jnp.log(-jnp.expm1({0})), jnp.log1p(-jnp.exp({0})))",
    "logaddexp": "jnp.logaddexp({0}, {1})",
    "sqrt": "jnp.sqrt({0})",
    "sin": "jnp.sin({0})",
    "cos": "jnp.cos({0})",
    "tanh": "jnp.tanh({0})",
    "sigmoid": "1 / (1 + jnp.exp(-{0}))",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "logical_not": "jnp.logical_not({0})",
    "logical_and": "jnp.logical_and({0}, {1})",
    "logical_xor": "jnp.logical_xor({0}, {1})",
    "logical_or": "jnp.logical_or({0}, {1})",
    "where": "jnp.where({0}, {1}, {2})",
    "cast": "jnp.asarray({0}).astype(jnp.{np_type})",
}
# Integers: x // 0 = x % 0 = 0, as in every route.
INTEGER_JNP = {
    "floor_divide": "jnp.where({1} == 0, 0, jnp.floor_divide({0}, jnp.where({1} == 0, 1, {1})))",
    "remainder": "jnp.where({1} == 0, 0, jnp.remainder({0}, jnp.where({1} == 0, 1, {1})))",
}


def _type(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype


def constant_source(constant: Constant) -> str:
    """A typed jnp constant."""
    value = constant.value
    text = repr(value)
    if isinstance(value, float) and not math.isfinite(value):
        text = "jnp.nan" if math.isnan(value) else f"{'-' * (value < 0)}jnp.inf"
    return f"jnp.{_type(constant.dtype)}({text})"


def emit_jnp(name: str, exprs: Expr | Sequence[Expr], arguments: Sequence[Argument]) -> str:
    """The text of a function `name(*arguments)` on jax.numpy arrays of one shape; needs `jnp` in scope.

    Returns an array for one expression, a tuple for a sequence of them.
    """
    if not name.isidentifier():
        raise TypeMismatchError(f"{name!r} is not a name for a function")
    parameters = {argument: f"x{position}" for position, argument in enumerate(arguments)}
    texts: dict[Expr, str] = {}
    lines = [f"    {text} = jnp.asarray({text}, jnp.{_type(a.dtype)})" for a, text in parameters.items()]
    count = 0
    for node in in_order(exprs):
        if isinstance(node, Constant):
            texts[node] = constant_source(node)
        elif isinstance(node, Argument):
            if node not in parameters:
                raise TypeMismatchError(f"the expression uses the argument `{node.name}`, which is no parameter")
            texts[node] = parameters[node]
        else:
            assert isinstance(node, Apply)
            row = JNP[node.operation]
            if node.dtype == "int64":
                row = INTEGER_JNP.get(node.operation, row)
            operands = [texts[operand] for operand in node.operands]
            texts[node] = f"t{count}"
            count += 1
            source = row.format(*operands, np_type=_type(node.dtype), log_half=f"jnp.{node.dtype}(-0.6931471805599453)")
            lines.append(f"    {texts[node]} = {source}")
    results = [texts[root] for root in as_tuple(exprs)]
    answer = results[0] if isinstance(exprs, Expr) else f"({', '.join(results)},)"
    body = "\n".join([*lines, f"    return {answer}"])
    return f"def {name}({', '.join(parameters.values())}):\n{body}\n"


def compile_jnp(exprs: Expr | Sequence[Expr], arguments: Sequence[Argument], name: str = "scalar") -> Callable:
    """The function of `emit_jnp`. Raises MissingDependencyError without JAX."""
    try:
        import jax.numpy as jnp
    except ImportError:
        raise MissingDependencyError("JAX is not installed", hint="pip install 'derivable[jax]'") from None
    name = re.sub(r"\W", "_", name)
    source = emit_jnp(name, exprs, arguments)
    filename = f"<derivable jnp {name} {abs(hash(source)):x}>"
    # Tracebacks show the generated line.
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    scope: dict[str, Any] = {"jnp": jnp}
    exec(compile(source, filename, "exec"), scope)
    return scope[name]
