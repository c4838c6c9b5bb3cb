"""Python functions of scalars as scalar expressions, which are compiled as a part of the rules that call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from derivable.algebra import expr
from derivable.algebra.expr import Argument, Optional
from derivable.algebra.expr.types import FLOATS, Dtype
from derivable.core.diagnostics import TypeMismatchError
from derivable.kernel.build import substitute


def traced_scalar(call: Callable[..., Any], name: str) -> Callable[..., Optional]:
    """What `ForeignFunction.scalar` is of a function that can be traced; a NaN is no value."""

    def scalar(dtype: Dtype, *operands: Optional) -> Optional:
        traced = expr.trace(call, [operand.value.dtype for operand in operands])
        if len(traced) != 1:
            raise TypeMismatchError(f"the function ${name} returns {len(traced)} values, not one")
        result = expr.saturating_cast(traced[0], dtype)
        arguments = {Argument(k, o.value.dtype, ""): o.value for k, o in enumerate(operands)}
        named = {node: arguments[Argument(node.index, node.dtype, "")] for node in _arguments(result)}
        value = substitute([result], named)[0]
        answer = Optional(value)
        for operand in operands:
            answer = answer.only_if(operand.valid)
        return answer.only_if(expr.equal(value, value)) if dtype in FLOATS else answer

    return scalar


def _arguments(e: expr.Expr) -> list[Argument]:
    return [node for node in expr.in_order((e,)) if isinstance(node, Argument)]
