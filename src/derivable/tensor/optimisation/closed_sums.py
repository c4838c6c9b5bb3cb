"""Sums that depend on nothing but inputs, with names outside of all loops.

Two loops in one another run as often as there are entries, though what they add up may depend on the inner key alone;
and a sum over a row is taken again wherever the row's key comes again. Either way the sum by that key is a vector of
its own, and a look-up in it takes the place of the loop. It is worth while where keys come often, so that this is one
more program for `saturate` to choose from.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from derivable.core.names import FreshNames
from derivable.tensor.analysis.anf import bound as to_let
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables, names_in, replaced, substitute, unique_names
from derivable.tensor.language.check import Types, check, scope
from derivable.tensor.language.linearity import is_linear
from derivable.tensor.language.types import Type, is_tensor
from derivable.tensor.optimisation.normalise import RULES, Context, is_map, rewrite


def with_closed_sums(node: t.Node, types: Mapping[str, Type], sizes: Set[str] = frozenset()) -> t.Node:
    """An equal expression with names for such sums; entries of other tensors are computed where they are looked up.

    types, sizes  as of `normalise`
    """
    node = unique_names(node)
    closed = _ClosedSums(types, FreshNames(names_in(node) | set(types)))
    body = closed.named(node, types)
    if not closed.made and not any(isinstance(part, t.Let) for part in t.walk(node)):
        return node
    known = {**types, **closed.types}
    body = rewrite(body, known, (inline_all_maps, *RULES), sizes)
    used = free_variables(body)
    return to_let([(name, value) for value, name in closed.made.items() if name in used], body)


def inline_all_maps(node: t.Node, context: Context) -> t.Node | None:
    """let x = sum(<i, a> in R) { i -> e } in b ~> b[x := sum(<i, a> in R) { i -> e }]

    if x is looked up in wherever it stands in b.
    """
    if not isinstance(node, t.Let) or not isinstance(node.value, t.Sum) or not is_map(node.value):
        return None
    uses = [part for part in t.walk(node.body) if part == t.Var(node.name)]
    lookups = [part for part in t.walk(node.body) if isinstance(part, t.Lookup) and part.tensor == t.Var(node.name)]
    return substitute(node.body, {node.name: node.value}) if len(uses) == len(lookups) else None


@dataclass
class _ClosedSums:
    """made: by sum, its name"""

    inputs: Mapping[str, Type]
    fresh: FreshNames
    made: dict[t.Node, str] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)

    def named(self, node: t.Node, types: Types) -> t.Node:
        """types: of the names around a node"""
        if isinstance(node, (t.Sum, t.Let)):
            outside = self.named(node.children[0], types)
            inner = scope(node, [check(outside, {**types, **self.types})], types)
            node = node.with_children((outside, self.named(node.body, inner)))
        else:
            node = node.with_children(tuple(self.named(child, types) for child in node.children))
        if not isinstance(node, t.Sum):
            return node
        return self.of_inner_key(node) or self.of_row(node, {**types, **self.types}) or node

    def of_inner_key(self, node: t.Sum) -> t.Node | None:
        """sum(<i, r> in R) sum(<k, a> in r) e ~> sum(<k, a> in s) e, s = sum(<i, r> in R) r

        if e is linear in a, and depends on neither i nor r.
        """
        inner = node.body
        if not isinstance(inner, t.Sum) or inner.range != t.Var(node.value) or not self.is_closed(node.range):
            return None
        if {node.key, node.value} & free_variables(inner.body) or not is_linear(inner.body, {inner.value}):
            return None
        return replace(inner, range=self.name(t.Sum("_", "r", node.range, t.Var("r"))))

    def of_row(self, node: t.Sum, types: Types) -> t.Node | None:
        """sum(<j, a> in R(k)) e ~> s(k), s = sum(<k, r> in R) { k -> sum(<j, a> in r) e }

        if e is a scalar, and depends on nothing but inputs and k.
        """
        row = node.range
        if not isinstance(row, t.Lookup) or not isinstance(row.key, t.Var) or not self.is_closed(row.tensor):
            return None
        key, of = row.key.name, check(node, types)
        if key in self.inputs or of is None or not of.is_scalar or not free_variables(node) <= {key, *self.inputs}:
            return None
        whole = replaced(node, row, t.Var("r"))
        if "r" in free_variables(node) or key in free_variables(row.tensor):
            return None
        whole = substitute(whole, {key: t.Var("k")})
        return t.Lookup(self.name(t.Sum("k", "r", row.tensor, t.Singleton(t.Var("k"), whole))), row.key)

    def is_closed(self, node: t.Node) -> bool:
        return isinstance(node, t.Var) and node.name in self.inputs and is_tensor(self.inputs[node.name])

    def name(self, node: t.Node) -> t.Var:
        if node not in self.made:
            self.made[node] = self.fresh("s")
            of = check(node, self.inputs)
            assert of is not None
            self.types[self.made[node]] = of
        return t.Var(self.made[node])
