"""Expressions of SDQLite as terms of `equalities`, and back.

A term is an operation with its operands: names, and terms. A loop over an input, or over a part of one, is
`over(i, R, body)`, in which the value at the key is `look(R, i)`; its key is called by its range, so that equal loops
are equal terms. A loop over anything else is `run(i, v, R, body)`. Which factors of a product are tensors is said by
its operation: `times`, `scale`, `outer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from derivable.core.names import FreshNames
from derivable.tensor.analysis.loop_cost import SIZE, Cost, Costs, Entries
from derivable.tensor.analysis.sparsity import ATOMS
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import renamed, replaced
from derivable.tensor.language.check import scope, type_from
from derivable.tensor.language.types import Type

Term = tuple[Any, ...]
_NODES: dict[str, Callable[..., t.Node]] = {
    "look": t.Lookup,
    "singleton": t.Singleton,
    "row": t.Singleton,
    "when": t.If,
    "add": t.Add,
    "times": t.Multiply,
    "scale": t.Multiply,
    "outer": t.Multiply,
    "between": t.Range,
}


def is_path(term: Term) -> bool:
    """Whether it is a name, or looked up in one."""
    while term[0] == "look":
        term = term[1]
    return term[0] == "var"


def _indices(entries: Entries) -> float:
    return entries[0][1] if entries else SIZE


@dataclass
class Terms:
    """Expressions of one program as terms, what their names were, and what they cost.

    inputs  types by name
    costs   which learns here how many entries names have
    """

    inputs: Mapping[str, Type]
    costs: Costs
    _fresh: FreshNames = field(init=False)
    _numbers: dict[str, t.Number] = field(default_factory=dict)
    _keys: dict[tuple[Term, int], str] = field(default_factory=dict)
    _called: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._fresh = FreshNames(self.inputs)

    def term(self, node: t.Node, *, inlines: bool = False) -> Term:
        """inlines  bindings of scalars are put in place"""
        names = {name: ("var", name) for name in self.inputs}
        made, _ = self._term(renamed(node, self._fresh), names, self.inputs, inlines)
        return made

    def cost(self, term: Term) -> Cost:
        return self.costs.of(term[0], self._costs(term))

    def whole_cost(self, term: Term) -> Cost:
        """The cost of a term that is the whole result."""
        return self.costs.of_whole(term[0], self._costs(term))

    def _costs(self, term: Term) -> list[Any]:
        return [part if isinstance(part, str) else self.cost(part) for part in term[1:]]

    def _term(
        self, node: t.Node, names: dict[str, Term], types: Mapping[str, Type | None], inlines: bool
    ) -> tuple[Term, Type | None]:
        if isinstance(node, t.Sum):
            return self._sum(node, names, types, inlines)
        if isinstance(node, t.Let):
            value, of = self._term(node.value, names, types, inlines)
            types = scope(node, [of], types)
            is_inline = isinstance(node.value, ATOMS) or (inlines and of is not None and of.is_scalar)
            if not is_inline:
                self.costs.tensors[node.name] = self.cost(value).entries
            inner = {**names, node.name: value if is_inline else ("var", node.name)}
            body, of = self._term(node.body, inner, types, inlines)
            return (body if is_inline else ("let", node.name, value, body)), of
        found = [self._term(child, names, types, inlines) for child in node.children]
        parts, ofs = [part for part, _ in found], [of for _, of in found]
        of = type_from(node, ofs, types)
        return self._made(node, parts, ofs, names), of

    def _made(self, node: t.Node, parts: list[Term], ofs: list[Type | None], names: dict[str, Term]) -> Term:
        match node:
            case t.Var():
                return names[node.name]
            case t.Number():
                text = f"{type(node.value).__name__} {node.value!r}"
                self._numbers[text] = node
                return ("number", text)
            case t.Zero():
                return ("zero",)
            case t.One():
                return ("one",)
            case t.Lookup():
                return ("look", *parts)
            case t.Singleton():
                return ("singleton" if ofs[1] is None or ofs[1].is_scalar else "row", *parts)
            case t.If():
                return ("when", *parts)
            case t.Add():
                return ("add", *parts)
            case t.Range():
                return ("between", *parts)
            case t.Apply():
                return (f"apply{len(parts)}", node.operation, *parts)
            case t.Multiply():
                orders = [of.order if of else 0 for of in ofs]
                if all(orders):
                    return ("outer", *parts)
                if any(orders):
                    return ("scale", *(parts if orders[1] else reversed(parts)))
                return ("times", *parts)
        raise AssertionError(node)

    def _sum(
        self, node: t.Sum, names: dict[str, Term], types: Mapping[str, Type | None], inlines: bool
    ) -> tuple[Term, Type | None]:
        over, of = self._term(node.range, names, types, inlines)
        key, value = (self._fresh(base) if name == "_" else name for name, base in ((node.key, "i"), (node.value, "v")))
        entries = self.cost(over).entries
        types = scope(node, [of], types)
        if is_path(over):
            # The same name wherever the range is the same, but never inside itself.
            used = set(names.values())
            number = 0
            while ("var", name := self._keys.setdefault((over, number), f"key {len(self._keys)}")) in used:
                number += 1
            self._called.setdefault(name, (key, value))
            self.costs.indices[name] = _indices(entries)
            inner = {**names, key: ("var", name), value: ("look", over, ("var", name))}
            body, of = self._term(node.body, inner, types, inlines)
            return ("over", name, over, body), of
        if isinstance(node.range, t.Range):
            self.costs.indices[value] = _indices(entries)
        else:
            self.costs.indices[key] = _indices(entries)
            self.costs.tensors[value] = entries[1:]
        inner = {**names, key: ("var", key), value: ("var", value)}
        body, of = self._term(node.body, inner, types, inlines)
        return ("run", key, value, over, body), of

    # Back

    def node(self, term: Term) -> t.Node:
        """The expression of a term, whose bound names are unique."""
        return self._node(term, {}, FreshNames(self.inputs))

    def _node(self, term: Term, names: Mapping[str, str], fresh: FreshNames) -> t.Node:
        operation, *parts = term
        if operation == "var":
            return t.Var(names.get(parts[0], parts[0]))
        if operation == "number":
            return self._numbers[parts[0]]
        if operation in ("zero", "one"):
            return t.Zero() if operation == "zero" else t.One()
        if operation.startswith("apply"):
            return t.Apply(parts[0], tuple(self._node(part, names, fresh) for part in parts[1:]))
        if operation == "let":
            value, name = self._node(parts[1], names, fresh), fresh(parts[0])
            return t.Let(name, value, self._node(parts[2], {**names, parts[0]: name}, fresh))
        if operation == "run":
            over, key, value = self._node(parts[2], names, fresh), fresh(parts[0]), fresh(parts[1])
            return t.Sum(key, value, over, self._node(parts[3], {**names, parts[0]: key, parts[1]: value}, fresh))
        if operation == "over":
            over = self._node(parts[1], names, fresh)
            key, value = map(fresh, self._called[parts[0]])
            body = self._node(parts[2], {**names, parts[0]: key}, fresh)
            return t.Sum(key, value, over, replaced(body, t.Lookup(over, t.Var(key)), t.Var(value)))
        made = [self._node(part, names, fresh) for part in parts]
        if operation == "scale" and any(isinstance(part, t.Sum) for part in t.walk(made[0])):
            name = fresh("s")
            return t.Let(name, made[0], t.Multiply(t.Var(name), made[1]))
        return _NODES[operation](*made)


# Factors outside of loops


def hoisted(term: Term) -> Term:
    """An equal term in which every factor has left the loops that it does not depend on.

    It is a good beginning: in a long product, equalities alone try all orders first.
    """
    operation = term[0]
    parts: list[Any] = [part if isinstance(part, str) else hoisted(part) for part in term[1:]]
    if operation not in ("over", "run") or parts[-1][0] not in ("times", "scale", "singleton", "row"):
        return (operation, *parts)
    *head, body = parts
    names = {part for part in head if isinstance(part, str)}
    scalars, tensor = _factors(body)
    before = [factor for factor in scalars if not names & free_in(factor)]
    inside = [factor for factor in scalars if names & free_in(factor)]
    if tensor is not None and not names & free_in(tensor):
        return _product(before, ("scale", (operation, *head, _product(inside, None)), tensor))
    if not before:
        return (operation, *head, body)
    loop = (operation, *head, _product(inside, tensor))
    return _product([*before, loop], None) if tensor is None else _product(before, loop)


def _factors(term: Term) -> tuple[list[Term], Term | None]:
    """Scalars, and the tensor that they are multiplied with; None where there is none."""
    operation, *parts = term
    if operation == "times":
        return _factors(parts[0])[0] + _factors(parts[1])[0], None
    if operation == "scale":
        scalars, tensor = _factors(parts[1])
        # What is no product may be either; here it is the tensor.
        return _factors(parts[0])[0] + (scalars if tensor else []), tensor or parts[1]
    if operation == "singleton":
        return _factors(parts[1])[0], ("singleton", parts[0], ("one",))
    if operation == "row":
        scalars, tensor = _factors(parts[1])
        return (scalars, ("row", parts[0], tensor)) if tensor else ([], term)
    return [term], None


def _product(scalars: list[Term], tensor: Term | None) -> Term:
    if tensor is not None and tensor[0] == "singleton" and tensor[2] == ("one",):
        return ("singleton", tensor[1], _product(scalars, None))
    if not scalars:
        return ("one",) if tensor is None else tensor
    product = scalars[0]
    for scalar in scalars[1:]:
        product = ("times", product, scalar)
    return product if tensor is None else ("scale", product, tensor)


def free_in(term: Term) -> frozenset[str]:
    """The names that are free in a term."""
    operation, *parts = term
    return free_of(operation, parts, [free_in(part) for part in parts if not isinstance(part, str)])


def free_of(operation: str, parts: Sequence[Any], inner: Sequence[frozenset[str]]) -> frozenset[str]:
    """The names that are free in an operation. parts: names and operands; inner: what is free in the operands"""
    if operation == "var":
        return frozenset(parts)
    if operation in ("over", "run", "let"):
        *outside, body = inner
        inner = [*outside, body.difference(part for part in parts if isinstance(part, str))]
    return frozenset().union(*inner)
