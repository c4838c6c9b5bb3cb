"""Symbolic derivatives, by the chain rule from the arguments up.

Derivatives are propagated forward, so an unselected branch of `where` never reaches the result, and a
NaN in it cannot spread (a reverse sweep multiplies it by zero and keeps the NaN). Scalar functions have few
arguments, so one sweep per argument is cheap, and shared nodes keep it linear.

Conventions at corners: `abs` and `sign` have derivative 0 at 0; `minimum` and `maximum` give a tie
to the first argument; `floor`, `ceil`, comparisons and integer results have derivative 0; `logaddexp` has
derivative 0 where the result is -inf, and 1/2 each for two equal infinities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from derivable.algebra.expr.functions import (
    cos,
    equal,
    exp,
    expm1,
    less_equal,
    log,
    maximum,
    power,
    sigmoid,
    sign,
    sin,
    where,
)
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, as_tuple, in_order
from derivable.algebra.expr.simplify import simplify, simplify_into
from derivable.algebra.expr.types import FLOATS
from derivable.core.diagnostics import UnsupportedError

Rule = Callable[..., tuple[Expr, ...]]


def _one(node: Expr) -> Expr:
    return Constant(1, node.dtype)


def _zero(node: Expr) -> Expr:
    return Constant(0, node.dtype)


def _flat(node: Expr, *operands: Expr) -> tuple[Expr, ...]:
    return tuple(_zero(node) for _ in operands)


def _choose(first: Expr, node: Expr) -> tuple[Expr, Expr]:
    return where(first, _one(node), _zero(node)), where(first, _zero(node), _one(node))


def _power(node: Expr, a: Expr, b: Expr) -> tuple[Expr, ...]:
    to_base = where(equal(b, 0), _zero(node), b * power(a, b - 1))
    # 0 ** b is 0 for every b > 0, so b has no influence there.
    to_exponent = where(equal(a, 0), _zero(node), node * log(a))
    return to_base, to_exponent


def _logaddexp(node: Expr, a: Expr, b: Expr) -> tuple[Expr, ...]:
    dead = equal(maximum(a, b), float("-inf"))

    def share(x: Expr, y: Expr) -> Expr:
        return where(dead, _zero(node), where(equal(x, y), Constant(0.5, node.dtype), sigmoid(x - y)))

    return share(a, b), share(b, a)


def _log1mexp(node: Expr, a: Expr) -> tuple[Expr, ...]:
    # -exp(a) / (1 - exp(a)); at a = 0 the limit from below.
    return (where(less_equal(0, a), Constant(float("-inf"), node.dtype), exp(a) / expm1(a)),)


# Operation -> rule(node, *operands): the partial derivative by each operand.
PARTIALS: dict[str, Rule] = {
    "add": lambda node, a, b: (_one(node), _one(node)),
    "subtract": lambda node, a, b: (_one(node), -_one(node)),
    "multiply": lambda node, a, b: (b, a),
    "divide": lambda node, a, b: (1 / b, -node / b),
    "floor_divide": _flat,
    "remainder": lambda node, a, b: (_one(node), -(a // b)),
    "negate": lambda node, a: (-_one(node),),
    "power": _power,
    "abs": lambda node, a: (sign(a),),
    "sign": _flat,
    "minimum": lambda node, a, b: _choose(less_equal(a, b), node),
    "maximum": lambda node, a, b: _choose(less_equal(b, a), node),
    "floor": _flat,
    "ceil": _flat,
    "exp": lambda node, a: (node,),
    "expm1": lambda node, a: (exp(a),),
    "log": lambda node, a: (1 / a,),
    "log1p": lambda node, a: (1 / (1 + a),),
    "log1mexp": _log1mexp,
    "logaddexp": _logaddexp,
    "sqrt": lambda node, a: (0.5 / node,),
    "sin": lambda node, a: (cos(a),),
    "cos": lambda node, a: (-sin(a),),
    "tanh": lambda node, a: (1 - node * node,),
    "sigmoid": lambda node, a: (node * sigmoid(-a),),
}


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
    total = None
    for partial, tangent in zip(PARTIALS[node.operation](node, *node.operands), inner):
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
