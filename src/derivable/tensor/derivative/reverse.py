"""Reverse mode: the transpose of a tangent, which is linear in the tangents of the variables.

What a tangent passes from a variable to the result, its transpose passes from the adjoint of the result to that of the
variable: a lookup becomes a singleton and a singleton a lookup, a sum the sum of the contributions in it, and a name
that is used several times is the sum of what all uses contribute, which is bound once. Names of the primal values are
those of the tangent, so the cost is that of the tangent times a constant which depends on the program and not on its
inputs.

    sum(<i, r> in A) { i -> sum(<j, a> in r) let t_dot = X_dot(j) in a * t_dot }      with the adjoint y_bar

    sum(<i, r> in A)
      let t_bar = y_bar(i) in
      sum(<j, a> in r)
        let t_bar_1 = a * t_bar in
        { j -> t_bar_1 }

Source: Radul et al., You only linearize once (2023), for a language of sums over dictionaries; beyond nabla-SD, whose
modes are forward.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from derivable.core.names import FreshNames
from derivable.tensor.analysis.anf import Bindings, bound, taken_apart
from derivable.tensor.analysis.sparsity import ATOMS
from derivable.tensor.derivative.forward import total
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables, names_in

# [name] what is contributed to its adjoint
Contributions = dict[str, list[t.Node]]


def transpose(node: t.Node, adjoint: t.Node, wanted: Iterable[str]) -> dict[str, t.Node]:
    """{free variable: its adjoint} of an expression that is linear in all those variables together.

    node     in A-normal form, with unique names and products of scalars only
    adjoint  that of the expression, a name or a constant
    """
    wanted = tuple(wanted)
    taken = names_in(node) | free_variables(adjoint) | set(wanted)
    found = _Reverse(FreshNames(taken)).contributions(node, adjoint, frozenset(wanted))
    return {name: total(*found.get(name, [])) for name in wanted}


class _Reverse:
    def __init__(self, fresh: FreshNames):
        self.fresh = fresh

    def contributions(self, node: t.Node, adjoint: t.Node, linear: frozenset[str]) -> Contributions:
        """`linear` are the names that the expression is linear in."""
        match node:
            case t.Var():
                return {node.name: [adjoint]} if node.name in linear else {}
            case t.Let():
                return self.scope(node, adjoint, linear)
            case t.Sum():
                assert not linear & free_variables(node.range), node
                inner = self.contributions(node.body, adjoint, linear)
                return {name: [replace(node, body=total(*parts))] for name, parts in inner.items()}
            case t.If():
                inner = self.contributions(node.body, adjoint, linear)
                return {name: [replace(node, body=total(*parts))] for name, parts in inner.items()}
            case t.Lookup():
                return self.contributions(node.tensor, t.Singleton(node.key, adjoint), linear)
            case t.Singleton():
                return self.contributions(node.value, t.Lookup(adjoint, node.key), linear)
            case t.Add():
                return _merged(self.contributions(part, adjoint, linear) for part in node.children)
            case t.Multiply():
                if linear & free_variables(node.right):
                    assert not linear & free_variables(node.left), node
                    return self.contributions(node.right, t.Multiply(node.left, adjoint), linear)
                return self.contributions(node.left, t.Multiply(adjoint, node.right), linear)
        assert not linear & free_variables(node), node
        return {}

    def scope(self, node: t.Node, adjoint: t.Node, linear: frozenset[str]) -> Contributions:
        bindings, tail = taken_apart(node)
        primal: Bindings = []
        passed: Bindings = []
        for name, value in bindings:
            if linear & free_variables(value):
                linear |= {name}
                passed.append((name, value))
            else:
                primal.append((name, value))
        found = self.contributions(tail, adjoint, linear)
        adjoints: Bindings = []
        for name, value in reversed(passed):
            if name not in found:
                continue
            bar = total(*found.pop(name))
            if not isinstance(bar, ATOMS):
                adjoints.append((self.fresh(f"{name.removesuffix('_dot')}_bar"), bar))
                bar = t.Var(adjoints[-1][0])
            found = _merged([found, self.contributions(value, bar, linear)])
        return {name: [_needed(primal + adjoints, total(*parts))] for name, parts in found.items()}


def _merged(several: Iterable[Contributions]) -> Contributions:
    found: Contributions = {}
    for each in several:
        for name, parts in each.items():
            found[name] = found.get(name, []) + parts
    return found


def _needed(bindings: Bindings, node: t.Node) -> t.Node:
    """Those of the bindings around an expression that it uses."""
    used, kept = set(free_variables(node)), []
    for name, value in reversed(bindings):
        if name in used:
            used |= free_variables(value)
            kept.append((name, value))
    return bound(kept[::-1], node)
