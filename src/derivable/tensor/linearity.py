"""What an expression does where names in it are zero, and whether it is linear in them: the conditions of rewriting.

All names that an expression binds must be unique.
"""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from derivable.algebra.expr.operations import OPERATIONS
from derivable.tensor import nodes as t
from derivable.tensor.binding import free_variables


def vanishes(node: t.Node, names: Set[str], absent: t.Node | None = None, *, is_real: bool = False) -> bool:
    """Whether an expression certainly has no entries where all those names are `{}`.

    absent   an expression that is `{}` too, wherever it stands
    is_real  a number that is zero is as good as none, and functions of real numbers count: `sin(a)`, not `cos(a)`
    """
    if node == absent:
        return True
    match node:
        case t.Var():
            return node.name in names
        case t.Zero():
            return True
        case t.Sum():
            return vanishes(node.range, names, absent, is_real=is_real) or vanishes(
                node.body, names, absent, is_real=is_real
            )
        case t.Let():
            inner = names | {node.name} if vanishes(node.value, names, absent, is_real=is_real) else names
            return vanishes(node.body, inner, absent, is_real=is_real)
        case t.Singleton():
            return vanishes(node.value, names, absent, is_real=is_real)
        case t.Lookup():
            return vanishes(node.tensor, names, absent, is_real=is_real)
        case t.If():
            return vanishes(node.body, names, absent, is_real=is_real)
        case t.Add():
            return all(vanishes(part, names, absent, is_real=is_real) for part in node.children)
        case t.Multiply():
            return any(vanishes(part, names, absent, is_real=is_real) for part in node.children)
        case t.Apply():
            return (
                is_real
                and OPERATIONS[node.operation].rule in ("arithmetic", "float")
                and all(vanishes(part, names, absent, is_real=True) for part in node.operands)
                and _at_zero(node.operation) == 0
            )
    return False


def _at_zero(operation: str) -> float:
    row = OPERATIONS[operation]
    with np.errstate(all="ignore"):
        return float(row.meaning(*[np.float64(0.0)] * row.arity))


def is_linear(node: t.Node, names: Set[str]) -> bool:
    """Whether an expression is linear in all those names together, homogeneous, by its form."""
    match node:
        case t.Var():
            return node.name in names
        case t.Zero():
            return True
        case t.Sum():
            if _is_free_of(node.range, names):
                return is_linear(node.body, names)
            if not is_linear(node.range, names):
                return False
            # In the names, or in the value while the names are nowhere else.
            return _is_free_of(node.body, names) and is_linear(node.body, {node.value})
        case t.Let():
            if _is_free_of(node.value, names):
                return is_linear(node.body, names)
            return is_linear(node.value, names) and is_linear(node.body, names | {node.name})
        case t.Singleton():
            return _is_free_of(node.key, names) and is_linear(node.value, names)
        case t.Lookup():
            return _is_free_of(node.key, names) and is_linear(node.tensor, names)
        case t.If():
            return _is_free_of(node.condition, names) and is_linear(node.body, names)
        case t.Add():
            return all(is_linear(part, names) for part in node.children)
        case t.Multiply():
            left, right = node.children
            return (is_linear(left, names) and _is_free_of(right, names)) or (
                _is_free_of(left, names) and is_linear(right, names)
            )
    return False


def _is_free_of(node: t.Node, names: Set[str]) -> bool:
    return not names & free_variables(node)


def is_present(node: t.Node, names: Set[str]) -> bool:
    """Whether an expression certainly has an entry, given that those names have one."""
    match node:
        case t.Var():
            return node.name in names
        case t.Number() | t.One() | t.Apply():
            return True
        case t.Singleton():
            return is_present(node.value, names)
        case t.Let():
            inner = names | {node.name} if is_present(node.value, names) else names
            return is_present(node.body, inner)
        case t.Add():
            return any(is_present(part, names) for part in node.children)
        case t.Multiply():
            return all(is_present(part, names) for part in node.children)
    return False
