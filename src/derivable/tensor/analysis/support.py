"""Where tensors may have entries: loops over all indices of an axis, and loops over entries again.

A loop over what is differentiated meets only the entries that are there, so neither does its derivative say what
happens elsewhere. Where no entry is as good as zero, `densify_loops` makes it a loop over all indices,

    sum(<i, x> in X) x * A(i)   ~>   sum(<_, i> in (0:X_size_0)) X(i) * A(i)

and after the derivative `sparsify_loops` makes it a loop over entries of what the result is zero without: here `A`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from derivable.algebra import semirings
from derivable.core.diagnostics import UnsupportedError
from derivable.core.names import FreshNames
from derivable.tensor.analysis.anf import bound, taken_apart
from derivable.tensor.analysis.axes import Axes, Known, axes_of, inputs_known, inside, size_of
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import bound_names, free_variables, names_in, replaced, unique_names
from derivable.tensor.language.guards import at_zero, is_zero_for
from derivable.tensor.language.linearity import vanishes
from derivable.tensor.language.types import SIZE, Type


def every_index(size: t.Node) -> t.Range:
    return t.Range(t.Number(0), size)


def densify_loops(node: t.Node, inputs: Mapping[str, Type], wrt: str, *, is_real: bool) -> t.Node:
    """The same expression, with loops over all indices in the place of those over what depends on `wrt`.

    Only loops whose bodies are zero where the value is; others stay, as for them an entry that is zero is not none. So
    do those over tensors that have the same entries whatever `wrt` holds.
    is_real  functions of real numbers can be zero too

    Raises UnsupportedError if the size of the axis of such a loop is not known.
    """
    node = unique_names(node)
    fresh = FreshNames(names_in(node) | set(inputs))
    return _densified(node, inputs_known(inputs), frozenset([wrt]), is_real, fresh)


def _densified(
    node: t.Node, names: Mapping[str, Known], active: frozenset[str], is_real: bool, fresh: FreshNames
) -> t.Node:
    if not isinstance(node, (t.Let, t.Sum)):
        return node.with_children(tuple(_densified(child, names, active, is_real, fresh) for child in node.children))
    outside, body = node.children
    outside = _densified(outside, names, active, is_real, fresh)
    is_active = _moves(outside, active)
    names = inside(replace(node, **{"value" if isinstance(node, t.Let) else "range": outside}), names, Axes())
    if is_active:
        active |= {node.name if isinstance(node, t.Let) else node.value}
    body = _densified(body, names, active, is_real, fresh)
    if isinstance(node, t.Let):
        return replace(node, value=outside, body=body)
    node = replace(node, range=outside, body=body)
    if not is_active or isinstance(outside, t.PHYSICAL) or not _is_zero_for(body, node.value, is_real):
        return node
    size = next(map(size_of, axes_of(node.range, names, Axes()).axes), None)
    if size is None:
        raise UnsupportedError(
            f"the loop over `{node.range}` has no known size, so the gradient has no known extent",
            span=node.span,
            hint='pattern="own" gives the entries of the gradient where the variable has its own',
        )
    key = node.key if node.key != "_" else fresh("i")
    return t.Sum("_", key, every_index(size), t.Let(node.value, t.Lookup(node.range, t.Var(key)), body))


def _is_zero_for(body: t.Node, name: str, is_real: bool) -> bool:
    """Whether a body is zero where a name is, and may change there: what a condition leaves out does not."""
    real = semirings.get("real")
    if isinstance(body, t.If) and at_zero(body.condition, name, real) is False:
        return False
    return is_zero_for(body, name, real if is_real else None)


def _moves(node: t.Node, active: frozenset[str]) -> bool:
    """Whether those names may decide where an expression has entries. Functions of numbers always have a value."""
    if not active & free_variables(node):
        return False
    match node:
        case t.Apply():
            return False
        case t.If():
            return bool(active & free_variables(node.condition)) or _moves(node.body, active)
        case t.Singleton():
            return _moves(node.value, active)
        case t.Sum() | t.Let():
            outside, body = node.children
            name = node.name if isinstance(node, t.Let) else node.value
            is_moved = _moves(outside, active)
            return (isinstance(node, t.Sum) and is_moved) or _moves(body, active | {name} if is_moved else active)
        case t.Lookup():
            return _moves(node.tensor, active)
        case t.Add() | t.Multiply():
            return any(_moves(part, active) for part in node.children)
    return True


def sparsify_loops(node: t.Node, sizes: frozenset[str]) -> t.Node:
    """The same expression, with loops over entries in the place of those over all indices, where a lookup at the index
    decides whether there is an entry at all.

    sizes  names of sizes of axes; of several lookups, that in the tensor whose axis it is comes first
    """
    node = unique_names(node)
    return _Sparsify(sizes, FreshNames(names_in(node) | sizes)).sparsified(node, {})


class _Sparsify:
    """`roots` are the inputs that tensors are parts of."""

    def __init__(self, sizes: frozenset[str], fresh: FreshNames):
        self.sizes = sizes
        self.fresh = fresh

    def sparsified(self, node: t.Node, roots: dict[str, str]) -> t.Node:
        if isinstance(node, t.Sum):
            found = self.over_entries(node, roots)
            if found is not None:
                return self.sparsified(found, roots)
            roots = {**roots, node.value: _root(node.range, roots)}
        elif isinstance(node, t.Let):
            roots = {**roots, node.name: _root(node.value, roots)}
        return node.with_children(tuple(self.sparsified(child, roots) for child in node.children))

    def over_entries(self, node: t.Sum, roots: dict[str, str]) -> t.Node | None:
        """The loop over entries, or one with such loops in it; None if there is none."""
        over = node.range
        if not isinstance(over, t.Range) or not isinstance(over.stop, t.Var) or over.stop.name not in self.sizes:
            return None
        if node.key != "_" or over.start != t.Number(0):
            return None
        inside = {name for part in t.walk(node) for name in bound_names(part)}
        found = [
            part
            for part in t.walk(node.body)
            if isinstance(part, t.Lookup)
            and part.key == t.Var(node.value)
            and not inside & free_variables(part.tensor)
            and vanishes(node.body, frozenset(), part)
        ]
        if found:
            own = [part for part in found if over.stop.name.startswith(f"{_root(part.tensor, roots)}{SIZE}")]
            lookup = (own or found)[0]
            value = self.fresh("a")
            return t.Sum(node.value, value, lookup.tensor, replaced(node.body, lookup, t.Var(value)))
        return self.interchanged(node, roots) or self.parted(node, roots)

    def interchanged(self, node: t.Sum, roots: dict[str, str]) -> t.Node | None:
        """A loop inside out, if it then runs over entries: sum_i { i -> sum_j e } is sum_j sum_i { i -> e }."""
        keys, body = [], node.body
        while isinstance(body, t.Singleton):
            keys.append(body)
            body = body.value
        if not isinstance(body, t.Sum) or node.value in free_variables(body.range):
            return None
        if {body.key, body.value} & {name for key in keys for name in free_variables(key.key)}:
            return None
        inner = body.body
        for key in reversed(keys):
            inner = replace(key, value=inner)
        found = self.over_entries(replace(node, body=inner), {**roots, body.value: _root(body.range, roots)})
        return None if found is None else replace(body, body=found)

    def parted(self, node: t.Sum, roots: dict[str, str]) -> t.Node | None:
        """A loop for each term of a sum, if one of them then runs over entries."""
        keys, body = [], node.body
        while isinstance(body, t.Singleton):
            keys.append(body)
            body = body.value
        bindings, tail = taken_apart(body)
        if not isinstance(tail, t.Add):
            return None
        parts = []
        for term in tail.children:
            inner = bound([(name, value) for name, value in bindings], term)
            for key in reversed(keys):
                inner = replace(key, value=inner)
            parts.append(replace(node, body=inner))
        found = [self.over_entries(part, roots) for part in parts]
        if all(part is None for part in found):
            return None
        left, right = (new or old for new, old in zip(found, parts))
        return t.Add(left, right)


def _root(node: t.Node, roots: Mapping[str, str]) -> str:
    while isinstance(node, t.Lookup):
        node = node.tensor
    return roots.get(node.name, node.name) if isinstance(node, t.Var) else ""
