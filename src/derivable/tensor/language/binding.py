"""Names: what is free in an expression, and expressions in the place of names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from derivable.core.diagnostics import DomainError
from derivable.core.names import FreshNames
from derivable.tensor.language import nodes as t


def by_name(given: Any, what: str) -> Mapping[str, Any]:
    """What is given by the names of inputs, nothing for None. Raises DomainError for what is no mapping."""
    if given is None or isinstance(given, Mapping):
        return given or {}
    raise DomainError(f"`{what}` is a {type(given).__name__}, and is given by name", hint=f"{what}={{name: ...}}")


def bound_names(node: t.Node) -> tuple[str, ...]:
    """The names that a node itself binds."""
    if isinstance(node, t.Sum):
        return tuple(name for name in (node.key, node.value) if name != "_")
    return (node.name,) if isinstance(node, t.Let) else ()


def free_variables(node: t.Node) -> frozenset[str]:
    if isinstance(node, t.Var):
        return frozenset([node.name])
    if isinstance(node, t.Sum):
        return free_variables(node.range) | (free_variables(node.body) - {node.key, node.value})
    if isinstance(node, t.Let):
        return free_variables(node.value) | (free_variables(node.body) - {node.name})
    return frozenset().union(*map(free_variables, node.children))


def names_in(node: t.Node) -> set[str]:
    """All names, free and bound."""
    found = {part.name for part in t.walk(node) if isinstance(part, t.Var)}
    return found.union(*(bound_names(part) for part in t.walk(node)))


def renamed(
    node: t.Node, fresh: Callable[[str], str], names: Mapping[str, t.Node] | None = None, *, is_short: bool = False
) -> t.Node:
    """The expression with every bound name made anew by `fresh`, and free ones replaced by what `names` gives.

    is_short  numbers behind names are left out
    """
    make = (lambda name: fresh(re.sub(r"(_\d+)+$", "", name))) if is_short else fresh
    return _renamed(node, make, dict(names or {}))


def replaced(node: t.Node, old: t.Node, new: t.Node) -> t.Node:
    """One expression in the place of another, wherever it stands and whatever is bound there."""
    if node == old:
        return new
    return node.with_children(tuple(replaced(child, old, new) for child in node.children))


def _renamed(node: t.Node, fresh: Callable[[str], str], names: dict[str, t.Node]) -> t.Node:
    if isinstance(node, t.Var):
        return names.get(node.name, node)
    if isinstance(node, t.Sum):
        over = _renamed(node.range, fresh, names)
        key, value = (name if name == "_" else fresh(name) for name in (node.key, node.value))
        inner = {**names, node.key: t.Var(key), node.value: t.Var(value)}
        return replace(node, key=key, value=value, range=over, body=_renamed(node.body, fresh, inner))
    if isinstance(node, t.Let):
        given, name = _renamed(node.value, fresh, names), fresh(node.name)
        return replace(node, name=name, value=given, body=_renamed(node.body, fresh, {**names, node.name: t.Var(name)}))
    return node.with_children(tuple(_renamed(child, fresh, names) for child in node.children))


def unique_names(node: t.Node) -> t.Node:
    """The same expression, in which no name is bound twice, nor bound and free."""
    return renamed(node, FreshNames(free_variables(node)))


def substitute(node: t.Node, names: Mapping[str, t.Node]) -> t.Node:
    """Expressions in the place of free names; bound names that would catch theirs are made anew."""
    caught = frozenset().union(*map(free_variables, names.values()))
    return _substituted(node, dict(names), caught)


def _substituted(node: t.Node, names: dict[str, t.Node], caught: frozenset[str]) -> t.Node:
    if isinstance(node, t.Var):
        return names.get(node.name, node)
    bound = bound_names(node)
    if not bound:
        return node.with_children(tuple(_substituted(child, names, caught) for child in node.children))
    if caught.intersection(bound):
        fresh = FreshNames(names_in(node) | caught)
        renaming = {name: fresh(name) for name in bound if name in caught}
        node = _rebound(node, renaming)
        bound = bound_names(node)
    inner = {name: value for name, value in names.items() if name not in bound}
    outside, body = node.children
    return node.with_children((_substituted(outside, names, caught), _substituted(body, inner, caught)))


def _rebound(node: t.Node, renaming: Mapping[str, str]) -> t.Node:
    given = {name: t.Var(new) for name, new in renaming.items()}
    if isinstance(node, t.Sum):
        return replace(
            node,
            key=renaming.get(node.key, node.key),
            value=renaming.get(node.value, node.value),
            body=substitute(node.body, given),
        )
    assert isinstance(node, t.Let)
    return replace(node, name=renaming[node.name], body=substitute(node.body, given))


def alpha_equal(left: t.Node, right: t.Node) -> bool:
    """Whether two expressions differ in bound names only."""
    return numbered(left) == numbered(right)


def numbered(node: t.Node) -> t.Node:
    """The same expression with bound names that say nothing: those that differ in them alone become equal."""
    free = free_variables(node)
    count = iter(range(1 << 62))

    def fresh(name: str) -> str:
        return next(name for name in (f"x{k}" for k in count) if name not in free)

    return renamed(node, fresh)
