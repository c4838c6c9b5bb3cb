"""Which keys come once when loops run over a tensor, and which programs do not mind."""

from __future__ import annotations

from derivable.tensor.analysis.bound import Bound, Closure, Listed, Names, Tree, type_of
from derivable.tensor.language import nodes as t
from derivable.tensor.language.linearity import is_linear


def is_unique(node: t.Node, names: Names) -> bool:
    """Whether every key comes once when `iterate` runs over a tensor."""
    match node:
        case t.Zero():
            return True
        case t.Var():
            return _bound_is_unique(names[node.name])
        case t.If():
            return is_unique(node.body, names)
        case t.Let():
            return is_unique(node.body, {**names, node.name: _unbound(node.value, names)})
        case t.Singleton():
            return True
        case t.Multiply():
            left = type_of(node.left, names)
            return is_unique(node.right if left is None or left.is_scalar else node.left, names)
        case t.Sum():
            inner: t.Node = node.body
            while isinstance(inner, (t.If, t.Let, t.Sum)):
                inner = inner.body
            if not isinstance(inner, t.Singleton):
                return False
            if inner.is_unique:
                return True
            is_direct = not isinstance(node.body, t.Sum)
            return is_direct and inner.key == t.Var(node.key) and is_unique(node.range, names)
        case t.Lookup():
            return is_one_entry(node, names) and _value_is_unique(node, names)
    return False


def _bound_is_unique(bound: Bound) -> bool:
    return isinstance(bound, (Listed, Tree)) or (isinstance(bound, Closure) and is_unique(bound.node, bound.names))


def _unbound(node: t.Node, names: Names) -> Bound:
    if isinstance(node, t.Var):
        return names[node.name]
    of = type_of(node, names)
    return Closure(node, names, of)


def is_one_entry(node: t.Lookup, names: Names) -> bool:
    """Whether there is at most one part of what is looked up."""
    below = node.tensor
    if isinstance(below, t.Lookup):
        return is_one_entry(below, names) and _value_is_unique(below, names)
    return is_unique(below, names)


def _value_is_unique(node: t.Lookup, names: Names) -> bool:
    """Whether what a lookup leads to is unique itself: the values of singletons are, all the way down."""
    depth, below = 1, node.tensor
    while isinstance(below, t.Lookup):
        depth, below = depth + 1, below.tensor
    return _is_unique_below(below, names, depth)


def _is_unique_below(node: t.Node, names: Names, depth: int) -> bool:
    if isinstance(node, t.Var):
        bound = names[node.name]
        return isinstance(bound, Tree) or (
            isinstance(bound, Closure) and _is_unique_below(bound.node, bound.names, depth)
        )
    inner = node
    for level in range(depth + 1):
        passed = 0
        while isinstance(inner, (t.Sum, t.If, t.Let)):
            passed += isinstance(inner, t.Sum)
            inner = inner.body
        if not isinstance(inner, t.Singleton) or (passed and not inner.is_unique):
            return False
        if level < depth:
            inner = inner.value
    return True


def may_come_in_parts(node: t.Sum, names: Names, *, is_real: bool) -> bool:
    """Whether the body of a sum may be run for each part of what a key leads to, in the real semiring or in any."""
    if is_linear(node.body, {node.value}, is_real=is_real) or is_unique(node.range, names):
        return True
    # No entry of an input is stored twice, so that parts of its rows have none in common.
    bound = names.get(node.range.name) if isinstance(node.range, t.Var) else None
    below = bound.type.order - 1 if isinstance(bound, Closure) and bound.type and bound.entries_differ else 0
    return below > 0 and is_linear(node.body, {node.value}, below, is_real=is_real)
