"""Expressions as straight lines of source: one assignment per shared node, for every target of `operations`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, as_tuple, in_order
from derivable.algebra.expr.operation import Target
from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.expr.types import LIMITS, WIDTHS, Dtype, computed_in, numpy_dtype
from derivable.core.diagnostics import TypeMismatchError, UnsupportedError

# Target -> how a function's parameter becomes what the expressions take. torch's tensors have their types.
_GIVEN = {"numba": "{type}({name})", "jnp": "jnp.asarray({name}, {type})"}
# Target -> how it writes a type; {t} is the type's name.
_TYPES = {"numba": "np.{t}", "triton": "tl.{t}", "jnp": "jnp.{t}", "torch": "torch.{t}"}
_BOOLS = {"numba": "bool", "triton": "tl.int1", "jnp": "jnp.bool_", "torch": "torch.bool"}
_INFINITY = {"numba": "np.inf", "triton": 'float("inf")', "jnp": "jnp.inf", "torch": "float('inf')"}


def type_source(target: Target, dtype: Dtype) -> str:
    """The type as the target writes it: `np.float32`, `tl.int1`."""
    return _BOOLS[target] if dtype == "bool" else _TYPES[target].format(t=_name(target, dtype))


@cache
def _fields(target: Target, dtype: Dtype) -> dict[str, Any]:
    """What the texts of the table ask for, besides operands."""
    low, high = LIMITS.get(dtype, (0, 0))
    given = {"t": _name(target, dtype), "type": type_source(target, dtype), "low": low, "high": high}
    return {**given, "bits": WIDTHS.get(dtype) or 8 * numpy_dtype(computed_in(dtype)).itemsize}


def _name(target: Target, dtype: Dtype) -> Dtype:
    # Numba has neither half precision: its variables hold them as float32, from where they are loaded to where stored.
    return computed_in(dtype) if target == "numba" else dtype


def constant_source(target: Target, constant: Constant, variable: str = "") -> str:
    """A typed literal. `variable` is one on the same device, for torch."""
    value, kind = constant.value, type_source(target, constant.dtype)
    text = repr(value)
    if isinstance(value, float) and not math.isfinite(value):
        infinity = _INFINITY[target]
        text = infinity.replace("inf", "nan") if math.isnan(value) else f"{'-' * (value < 0)}{infinity}"
    if target == "triton":
        return f"tl.full((), {text}, {kind})"
    if target == "torch":
        return f"torch.tensor({text}, dtype={kind}, device={variable}.device)"
    return text if kind == "bool" else f"{kind}({text})"


def statements(
    target: Target,
    exprs: Expr | Sequence[Expr],
    names: Mapping[Argument, str],
    prefix: str = "t",
    indent: str = "    ",
    text: Callable[[Apply], str | None] | None = None,
) -> tuple[list[str], list[str]]:
    """Source lines that compute expressions inside a larger function.

    names    the variable that holds each argument, of the argument's type
    prefix   start of the names of temporaries
    text     the text of an application, where it is not the table's
    returns  (lines, one source text per expression: a temporary, an argument or a literal)

    Raises UnsupportedError for an operation that the target has not, TypeMismatchError for an argument without a name.
    """
    texts: dict[Expr, str] = {}
    lines: list[str] = []
    anything = next(iter(names.values()), "")
    for node in in_order(exprs):
        if isinstance(node, Constant):
            texts[node] = constant_source(target, node, anything)
            if target == "torch":
                # To make the tensor of a constant takes as long as an operation, so it is made once.
                lines.append(f"{indent}{prefix}{len(lines)} = {texts[node]}")
                texts[node] = f"{prefix}{len(lines) - 1}"
        elif isinstance(node, Argument):
            if node not in names:
                raise TypeMismatchError(f"the expression uses the argument `{node.name}`, which is not among {names}")
            texts[node] = names[node]
        else:
            assert isinstance(node, Apply)
            row = text(node) if text else OPERATIONS[node.operation].text(target, node.dtype)
            if row is None:
                raise UnsupportedError(f"{target} has no {node.operation} of {node.dtype}")
            operands = [texts[operand] for operand in node.operands]
            source = row.format(*operands, **_fields(target, node.dtype))
            texts[node] = f"{prefix}{len(lines)}"
            lines.append(f"{indent}{texts[node]} = {source}")
    return lines, [texts[root] for root in as_tuple(exprs)]


def function(
    target: Target,
    name: str,
    exprs: Expr | Sequence[Expr],
    arguments: Sequence[Argument],
    text: Callable[[Apply], str | None] | None = None,
) -> str:
    """A function `name(*arguments)` that returns the value of one expression, or a tuple for a sequence of them.

    Raises TypeMismatchError for a name that is none, and as `statements` does.
    """
    if not name.isidentifier():
        raise TypeMismatchError(f"{name!r} is not a name for a function")
    parameters = {argument: f"x{position}" for position, argument in enumerate(arguments)}
    lines, results = statements(target, exprs, parameters, text=text)
    given = [
        f"    {x} = {_GIVEN[target].format(name=x, type=type_source(target, argument.dtype))}"
        for argument, x in parameters.items()
        if target in _GIVEN
    ]
    answer = results[0] if isinstance(exprs, Expr) else f"({', '.join(results)},)"
    body = "\n".join([*given, *lines, f"    return {answer}"])
    return f"def {name}({', '.join(parameters.values())}):\n{body}\n"
