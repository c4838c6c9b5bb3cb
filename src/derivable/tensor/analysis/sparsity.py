"""Zeros propagated, and what is trivial taken away.

Source: figure 9 of Shaikhha, Huot and Hashemian, nabla-SD (2023), first group. Beyond it: bindings of atoms are put in
place, bindings that nothing uses go, `one` is no factor, conditions that are constants are decided, and guards go where
what they guard is zero without them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables, unique_names
from derivable.tensor.language.linearity import conjuncts, guarded_part, vanishes

ATOMS = (t.Var, t.Number, t.Zero, t.One)


def propagate(node: t.Node) -> t.Node:
    """An expression with the same entries, in which `{}` stands nowhere but as a whole or as an operand of `Apply`.

    Bound names of the result are unique.
    """
    return _propagated(unique_names(node), {})


def _propagated(node: t.Node, names: dict[str, t.Node]) -> t.Node:
    if isinstance(node, t.Var):
        return names.get(node.name, node)
    if isinstance(node, t.Let):
        value = _propagated(node.value, names)
        if isinstance(value, ATOMS):
            return _propagated(node.body, {**names, node.name: value})
        body = _propagated(node.body, names)
        if isinstance(body, t.Var) and body.name == node.name:
            return value
        return replace(node, value=value, body=body) if node.name in free_variables(body) else body
    if isinstance(node, t.Sum):
        over = _propagated(node.range, names)
        body = t.Zero() if isinstance(over, t.Zero) else _propagated(node.body, names)
        if isinstance(body, t.Zero):
            return body
        used = free_variables(body)
        key, value = (name if name in used else "_" for name in (node.key, node.value))
        return replace(node, key=key, value=value, range=over, body=body)
    return without_zeros(node.with_children(tuple(_propagated(child, names) for child in node.children)))


def without_zeros(node: t.Node) -> t.Node:
    """The rules on one node without bound names whose children have been through them."""
    match node:
        case t.Multiply(t.Zero(), _) | t.Multiply(_, t.Zero()) | t.Lookup(t.Zero(), _) | t.Singleton(_, t.Zero()):
            return t.Zero()
        case t.If(_, t.Zero()) | t.If(t.Number(False), _):
            return t.Zero()
        case t.Multiply(t.One(), found) | t.Multiply(found, t.One()) | t.Add(t.Zero(), found) | t.Add(found, t.Zero()):
            return found
        case t.If(t.Number(True), found):
            return found
        case t.Apply("logical_and", (t.Number(True), found)) | t.Apply("logical_and", (found, t.Number(True))):
            return found
        case t.If(condition, body):
            return _without_guards(node, condition, body)
    return node


def _without_guards(node: t.If, condition: t.Node, body: t.Node) -> t.Node:
    """A guard goes where the body is zero without it, also for a tensor whose entries are zeros that are stored."""
    terms = conjuncts(condition)
    kept = [
        term
        for term in terms
        if not isinstance(part := guarded_part(term), t.Var) or not vanishes(body, {part.name}, is_stored=True)
    ]
    if len(kept) == len(terms):
        return node
    return t.If(reduce(lambda left, right: t.Apply("logical_and", (left, right)), kept), body) if kept else body
