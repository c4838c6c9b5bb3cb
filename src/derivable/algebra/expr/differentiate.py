"""Symbolic derivatives, by the chain rule from the arguments up.

Derivatives are propagated forward, so an unselected branch of `where` never reaches the result, and a
NaN in it cannot spread (a reverse sweep multiplies it by zero and keeps the NaN). Scalar functions have few
arguments, so one sweep per argument is cheap, and shared nodes keep it linear.

The derivative of each operation, and what holds at corners, is its row in `operations`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from derivable.algebra.expr.functions import where
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, as_tuple, in_order
from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.expr.simplify import simplify, simplify_into
from derivable.algebra.expr.types import FLOATS
from derivable.core.diagnostics import UnsupportedError


@overload
def differentiate(exprs: Expr, argument: Argument | int) -> Expr: ...
@overload
def differentiate(exprs: Sequence[Expr], argument: Argument | int) -> tuple[Expr, ...]: ...
def differentiate(exprs: Expr | Sequence[Expr], argument: Argument | int):
    """The derivative of an expression (several: a tuple) by one argument, simplified.

    argument  an `Argument`, or its index

    The result has the expression's type; integer and bool results have derivative 0 of their own type.
    Raises UnsupportedError if the argument is not a float.
    """
    done: dict[Expr, Expr] = {}
    roots = simplify_into(as_tuple(exprs), done)
    tangents: dict[Expr, Expr | None] = {}
    for node in in_order(roots):
        tangent = _tangent(node, argument, tangents)
        tangents[node] = None if tangent is None else simplify_into([tangent], done)[0]
    answers = simplify_into([_or_zero(tangents[root], root) for root in roots], done)
    return answers[0] if isinstance(exprs, Expr) else answers


def _or_zero(tangent: Expr | None, node: Expr) -> Expr:
    return Constant(0, node.dtype) if tangent is None else tangent


def _tangent(node: Expr, argument: Argument | int, tangents: dict[Expr, Expr | None]) -> Expr | None:
    """The derivative of one node; None stands for a structural zero."""
    if isinstance(node, Argument):
        if node is not argument and node.index != argument:
            return None
        if node.dtype not in FLOATS:
            raise UnsupportedError(
                f"the argument `{node.name}` is {node.dtype}, which has no derivative", hint="differentiate by floats"
            )
        return Constant(1, node.dtype)
    if not isinstance(node, Apply) or node.dtype not in FLOATS:
        return None
    inner = [tangents[operand] for operand in node.operands]
    if all(tangent is None for tangent in inner):
        return None
    if node.operation == "where":
        condition, a, b = node.operands
        return where(condition, _or_zero(inner[1], a), _or_zero(inner[2], b))
    if node.operation == "cast":
        assert inner[0] is not None
        return Apply("cast", (inner[0],), node.dtype)
    total, partials = None, OPERATIONS[node.operation].partials
    assert partials is not None
    for partial, tangent in zip(partials(node, *node.operands), inner):
        if tangent is not None:
            term = partial * tangent
            total = term if total is None else total + term
    return total


def vjp(exprs: Sequence[Expr], arguments: Sequence[Argument]) -> tuple[tuple[Argument, ...], tuple[Expr, ...]]:
    """The adjoints of `arguments` from adjoints of the expressions.

    returns  (adjoint arguments, one per expression, with indices after those of `arguments`;
             the adjoint of each argument as an expression of arguments and adjoint arguments)

    The adjoint of an argument that is not a float is 0. Zero-safe: there is no division in it that the
    function itself does not have.
    """
    exprs = tuple(exprs)
    first = 1 + max((argument.index for argument in arguments), default=-1)
    adjoints = tuple(
        Argument(first + position, expr.dtype, "adjoint" if len(exprs) == 1 else f"adjoint_{position}")
        for position, expr in enumerate(exprs)
    )
    gradients = []
    for argument in arguments:
        total: Expr = Constant(0, argument.dtype)
        if argument.dtype in FLOATS:
            for adjoint, partial in zip(adjoints, differentiate(exprs, argument)):
                if adjoint.dtype in FLOATS:
                    term = simplify(adjoint * partial)
                    # Adjoints have the type of what they belong to, also through casts.
                    if term.dtype != argument.dtype:
                        term = Apply("cast", (term,), argument.dtype)
                    total = total + term
        gradients.append(simplify(total))
    return adjoints, tuple(gradients)
