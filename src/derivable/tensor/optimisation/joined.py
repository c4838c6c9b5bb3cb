"""Several results of the same inputs as one expression, whose loops run together.

The results are the parts of one tensor: its first key says which one, further keys 0 make all of them equally deep.

Printed form of the sum of a vector's squares, and of the derivative of it:

    sum(<i, x> in X) { 0 -> { 0 -> x * x } } + { 1 -> { i -> 2.0 * x } }

So they are one program, and whatever makes programs cheaper serves them all: loops over the same run once, and what
they compute in them has a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from derivable.core.names import FreshNames
from derivable.tensor.analysis.anf import Bindings, bound, to_anf
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import names_in, numbered, renamed, substitute


def joined(nodes: Sequence[t.Node], orders: Sequence[int]) -> t.Node:
    """The tensor of results of those orders, one more than the highest."""
    depth = max(orders)
    fresh = FreshNames(frozenset().union(*map(names_in, nodes)))
    parts = []
    for number, (node, order) in enumerate(zip(nodes, orders)):
        keys = [number, *[0] * (depth - order)]
        parts.append(renamed(to_anf(_below(keys, node)), fresh))
    return _together(parts, {})


def _below(keys: Sequence[int], node: t.Node) -> t.Node:
    """A result at some keys, inside of the loops that it is the sum of."""
    match node:
        case t.Let() | t.Sum() | t.If():
            return replace(node, body=_below(keys, node.body))
        case t.Add():
            return t.Add(*(_below(keys, child) for child in node.children))
        case t.Zero():
            return node
    for key in reversed(keys):
        node = t.Singleton(t.Number(key), node)
    return node


def _together(parts: Sequence[t.Node], known: Mapping[t.Node, t.Node]) -> t.Node:
    """The sum of expressions in A-normal form. known: by value, its name"""
    known = dict(known)
    bindings: Bindings = []
    loops: dict[t.Node, list[t.Sum]] = {}
    conditions: dict[t.Node, list[t.Node]] = {}
    found: list[t.Node] = []
    waiting = list(parts)
    while waiting:
        node = waiting.pop(0)
        while isinstance(node, t.Let):
            value = numbered(node.value)
            if value in known:
                node = substitute(node.body, {node.name: known[value]})
            else:
                known[value] = t.Var(node.name)
                bindings.append((node.name, node.value))
                node = node.body
        match node:
            case t.Zero():
                continue
            case t.Add():
                waiting[:0] = node.children
            case t.Sum():
                loops.setdefault(numbered(node.range), []).append(node)
            case t.If():
                conditions.setdefault(node.condition, []).append(node.body)
            case _:
                found.append(node)
    found += [t.If(condition, _together(bodies, known)) for condition, bodies in conditions.items()]
    found += [_one_loop(same, known) for same in loops.values()]
    return bound(bindings, reduce(t.Add, found)) if found else t.Zero()


def _one_loop(loops: Sequence[t.Sum], known: Mapping[t.Node, t.Node]) -> t.Node:
    key = next((loop.key for loop in loops if loop.key != "_"), "_")
    value = next((loop.value for loop in loops if loop.value != "_"), "_")
    bodies = [substitute(loop.body, {loop.key: t.Var(key), loop.value: t.Var(value)}) for loop in loops]
    return replace(loops[0], key=key, value=value, body=_together(bodies, known))
