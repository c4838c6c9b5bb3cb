"""Which joins are read by an ordered index: those with a column that conditions compare with what is bound before.

The conditions stay where they are, so that an index decides nothing: it leaves rows out that they would drop.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.nodes import Filter, Generate, names
from derivable.datalog.scalars.nodes import Apply, Expr, Var, applied

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
# What bounds may compute: numbers, without functions of users.
_ARITHMETIC = {"+", "-", "*", "/", "%", "+!", "-!", "neg"}


def with_ranges(operators: tuple[m.Operator, ...]) -> tuple[m.Operator, ...]:
    """The operators, joins without keys being read by the first range that they have, both of whose ends are bounded if
    there is such a one."""
    found, bound = list(operators), set[str]()
    for i, node in enumerate(operators):
        if isinstance(node, m.Join) and not m.bindings(node.right, bound).keys:
            found[i] = replace(node, range=max(ranges(operators, i, bound), key=_is_bounded, default=None))
        bound |= set(m.binds(node))
    return tuple(found)


def has_ranges(store: m.Store) -> bool:
    """Whether some join of a store can be read by a range."""
    bound = set[str]()
    for i, node in enumerate(store.query.operators):
        if ranges(store.query.operators, i, bound):
            return True
        bound |= set(m.binds(node))
    return False


def _is_bounded(found: m.Range) -> bool:
    """Whether a range has both ends."""
    return len({bound.operator[0] for bound in found.bounds}) == 2


def ranges(operators: Sequence[m.Operator], place: int, bound: Container[str]) -> list[m.Range]:
    """The ranges by which the join at a place can be read, if these names are bound before it."""
    join = operators[place]
    if not isinstance(join, m.Join):
        return []
    found: dict[str, list[m.Bound]] = {}
    for node in operators[place + 1 :]:
        for name, made in _bounds(node):
            if all(used in bound for used in names(made.value)):
                found.setdefault(name, []).append(made)
    fresh = m.bindings(join.right, bound).fresh
    return [m.Range(fresh[name], tuple(bounds)) for name, bounds in found.items() if name in fresh]


def _bounds(node: m.Operator) -> Iterator[tuple[str, m.Bound]]:
    """(variable, its bound) of each comparison of a variable that an operator tests."""
    match node:
        case m.Select(condition=condition):
            for operator, a, b in _comparisons(condition):
                yield from _bound(operator, a, b, node)
                yield from _bound(_MIRRORED[operator], b, a, node)
        case m.Generate(predicate=predicate, outputs=(Var() as output,), inputs=(low, high), negated=False):
            closed = PREDICATES[predicate].closed
            if closed is not None:
                yield from _bound(">=", output, low, node)
                yield from _bound("<=" if closed else "<", output, high, node)


def _comparisons(condition: Expr) -> Iterator[tuple[str, Expr, Expr]]:
    match condition:
        case Apply(operator="&&", operands=(a, b)):
            yield from _comparisons(a)
            yield from _comparisons(b)
        case Apply(operator=operator, operands=(a, b)) if operator in _MIRRORED:
            yield operator, a, b


def _bound(operator: str, a: Expr, b: Expr, source: Filter | Generate) -> Iterator[tuple[str, m.Bound]]:
    if not isinstance(a, Var) or a.type != b.type or not a.type.is_number or a.type.is_wide:
        return
    if all(part.operator in _ARITHMETIC for part in applied(b)):
        yield a.name, m.Bound(operator, b, source)
