"""What an expression does where names in it are zero, and whether it is linear in them: the conditions of rewriting.

For `vanishes` and `is_present` all names that an expression binds must be unique.
"""

from __future__ import annotations

from collections.abc import Set

from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables


def vanishes(node: t.Node, names: Set[str], absent: t.Node | None = None, *, is_stored: bool = False) -> bool:
    """Whether an expression certainly has no entries where all those names are `{}`.

    absent     an expression that is `{}` too, wherever it stands
    is_stored  the names may have entries that are zero, over which loops run: whether it is zero then. So it is of
               `sum(<_, a> in r) a` for `r`, and not of `sum(<_, a> in r) one`, as derivatives have it
    """

    def is_zero(part: t.Node, names: Set[str]) -> bool:
        return vanishes(part, names, absent, is_stored=is_stored)

    if node == absent:
        return True
    match node:
        case t.Var():
            return node.name in names
        case t.Zero():
            return True
        case t.Sum():
            if not is_zero(node.range, names):
                return is_zero(node.body, names)
            return not is_stored or is_zero(node.body, names | {node.value})
        case t.Let():
            return is_zero(node.body, names | {node.name} if is_zero(node.value, names) else names)
        case t.Singleton():
            return is_zero(node.value, names)
        case t.Lookup():
            return is_zero(node.tensor, names)
        case t.If():
            # A guard fails for what is absent.
            parts = filter(None, map(guarded_part, conjuncts(node.condition)))
            return any(is_zero(part, names) for part in (*parts, node.body))
        case t.Add():
            return all(is_zero(part, names) for part in node.children)
        case t.Multiply():
            return any(is_zero(part, names) for part in node.children)
    return False


def guarded_part(condition: t.Node) -> t.Node | None:
    """What a condition says to be not zero, as a guard does: `a` of `a != {}`. None of another condition."""
    if isinstance(condition, t.Apply) and condition.operation == "not_equal" and len(condition.operands) == 2:
        left, right = condition.operands
        if isinstance(right, t.Zero):
            return left
    return None


def conjuncts(condition: t.Node) -> list[t.Node]:
    """The conditions that hold together where one holds."""
    if isinstance(condition, t.Apply) and condition.operation == "logical_and":
        return [term for operand in condition.operands for term in conjuncts(operand)]
    return [condition]


def is_linear(node: t.Node, names: Set[str], apart: int = 0, *, is_real: bool = False) -> bool:
    """Whether it can be seen from the form of an expression that of a sum it is the sum of what it is of the parts, in
    all those names together, and zero for zero.

    What mentions none of them is no such expression, unless it is zero: a sum would count it for each part.

    apart    the order of the tensor, if no two parts have an entry at the same place: then whatever is done with single
             entries is linear in this sense. 0 if that is not so
    is_real  the differences and quotients of numbers count too, as they do in the real semiring
    """

    def linear(part: t.Node, names: Set[str], apart: int = 0) -> bool:
        return is_linear(part, names, apart, is_real=is_real)

    match node:
        case t.Zero():
            return True
        case t.Var():
            return node.name in names
        case t.Sum() if apart and isinstance(node.range, t.Var) and node.range.name in names:
            inner = names - {node.key, node.value}
            return _is_free_of(node.body, inner) and (apart == 1 or linear(node.body, {node.value}, apart - 1))
        case t.Sum():
            inner = names - {node.key, node.value}
            if _is_free_of(node.range, names):
                return linear(node.body, inner, apart)
            # In the names, or in the value while the names are nowhere else.
            return linear(node.range, names) and _is_free_of(node.body, inner) and linear(node.body, {node.value})
        case t.Let():
            inner = names - {node.name}
            if _is_free_of(node.value, names):
                return linear(node.body, inner, apart)
            return linear(node.value, names) and linear(node.body, inner | {node.name})
        case t.Singleton():
            return _is_free_of(node.key, names) and linear(node.value, names, apart)
        case t.Lookup():
            return _is_free_of(node.key, names) and linear(node.tensor, names)
        case t.If():
            return _is_free_of(node.condition, names) and linear(node.body, names, apart)
        case t.Add():
            return all(linear(part, names, apart) for part in node.children)
        case t.Multiply():
            left, right = node.children
            return (linear(left, names, apart) and _is_free_of(right, names)) or (
                _is_free_of(left, names) and linear(right, names, apart)
            )
        case t.Apply("negate", (operand,)):
            return is_real and linear(operand, names)
        case t.Apply("subtract", (left, right)):
            return is_real and linear(left, names) and linear(right, names)
        case t.Apply("divide", (left, right)):
            return is_real and _is_free_of(right, names) and linear(left, names)
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
