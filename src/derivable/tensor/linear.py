"""Whether an expression is linear in a name: of a sum it is the sum of what it is of the parts."""

from __future__ import annotations

from derivable.tensor import nodes as t
from derivable.tensor.binding import free_variables


def is_linear(node: t.Node, name: str, apart: int = 0) -> bool:
    """Whether expression(x + y) = expression(x) + expression(y) and zero for zero can be seen from its form.

    What does not mention the name is no such expression, unless it is zero: a sum would count it for each part.

    apart  the order of the tensor, if x and y have no entry at the same place: then whatever is done with single
           entries is linear in this sense. 0 if that is not so
    """
    match node:
        case t.Zero():
            return True
        case t.Var():
            return node.name == name
        case t.Add():
            return is_linear(node.left, name, apart) and is_linear(node.right, name, apart)
        case t.Multiply():
            left, right = (name in free_variables(part) for part in node.children)
            return left != right and is_linear(node.left if left else node.right, name, apart)
        case t.Sum() if apart and node.range == t.Var(name):
            in_body = name not in (node.key, node.value) and name in free_variables(node.body)
            return not in_body and (apart == 1 or is_linear(node.body, node.value, apart - 1))
        case t.Sum():
            return _through(node.range, node.body, node.value, (node.key, node.value), name, apart)
        case t.Let():
            return _through(node.value, node.body, node.name, (node.name,), name, apart)
        case t.Singleton():
            return name not in free_variables(node.key) and is_linear(node.value, name, apart)
        case t.Lookup():
            return name not in free_variables(node.key) and is_linear(node.tensor, name)
        case t.If():
            return name not in free_variables(node.condition) and is_linear(node.body, name, apart)
        case t.Apply("negate", (operand,)):
            return is_linear(operand, name)
        case t.Apply("subtract", (left, right)):
            return is_linear(left, name) and is_linear(right, name)
        case t.Apply("divide", (left, right)):
            return name not in free_variables(right) and is_linear(left, name)
    return False


def _through(outside: t.Node, body: t.Node, inner: str, bound: tuple[str, ...], name: str, apart: int) -> bool:
    in_body = name not in bound and name in free_variables(body)
    if name in free_variables(outside):
        return not in_body and is_linear(outside, name) and is_linear(body, inner)
    return name not in bound and is_linear(body, name, apart)
