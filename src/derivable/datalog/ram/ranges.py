"""Which joins are read by an ordered index: those with a column that conditions compare with what is bound before.

The conditions stay where they are, so that an index decides nothing: it leaves rows out that they would drop.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from derivable.datalog.foreign.standard import predicate_of
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.nodes import Filter, Generate, names
from derivable.datalog.rules.simplify import fold
from derivable.datalog.scalars.nodes import Apply, Const, Expr, Var, applied
from derivable.datalog.values.values import BOOL

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
# What bounds may compute: numbers, without functions of users.
_ARITHMETIC = {"+", "-", "*", "/", "%", "+!", "-!", "neg", "if", "=="}
_INVERSE = {"+": "-", "-": "+", "+!": "-", "-!": "+"}


def with_ranges(operators: tuple[m.Operator, ...]) -> tuple[m.Operator, ...]:
    """The operators, joins without keys being read by the first range that they have, both of whose ends are bounded if
    there is such a one."""
    if not any(isinstance(node, (m.Select, m.Generate)) for node in operators):
        return operators
    operators_now, bound = list(operators), set[str]()
    for i, node in enumerate(operators):
        spans = ranges(operators, i, bound)
        if spans and isinstance(node, m.Join) and not m.bindings(node.right, bound).keys:
            operators_now[i] = replace(node, range=max(spans, key=_is_bounded))
        bound |= set(m.binds(node))
    return tuple(operators_now)


def has_ranges(store: m.Store) -> bool:
    """Whether some join of a store can be read by a range."""
    bound = set[str]()
    for i, node in enumerate(store.query.operators):
        if ranges(store.query.operators, i, bound):
            return True
        bound |= set(m.binds(node))
    return False


def _is_bounded(span: m.Range) -> bool:
    """Whether a range has both ends."""
    return len({bound.operator[0] for bound in span.bounds}) == 2


def ranges(operators: Sequence[m.Operator], index: int, bound: Container[str]) -> list[m.Range]:
    """The ranges by which the join at an index can be read, if these names are bound before it."""
    join = operators[index]
    if not isinstance(join, m.Join):
        return []
    bounds_of: dict[str, list[m.Bound]] = {}
    for node in operators[index + 1 :]:
        for name, made in _bounds(node):
            if all(used in bound for used in names(made.value)):
                bounds_of.setdefault(name, []).append(made)
    if not bounds_of:
        return []
    fresh = m.bindings(join.right, bound).fresh
    return [m.Range(fresh[name], tuple(bounds)) for name, bounds in bounds_of.items() if name in fresh]


def _bounds(node: m.Operator) -> Iterator[tuple[str, m.Bound]]:
    """(variable, its bound) of each comparison of a variable that an operator tests."""
    match node:
        case m.Select(condition=condition):
            for operator, a, b in _comparisons(condition):
                for sign, e, limit in ((operator, a, b), (_MIRRORED[operator], b, a)):
                    for solved in _solved(sign, e, limit):
                        yield from _bound(*solved, node)
        case m.Generate(predicate=predicate, outputs=(Var() as output,), inputs=(low, high), negated=False):
            closed = predicate_of(predicate).closed
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
        case Apply(operator="==", operands=(a, b)):
            yield ">=", a, b
            yield "<=", a, b


def _solved(operator: str, e: Expr, limit: Expr) -> Iterator[tuple[str, Expr, Expr]]:
    """`e operator limit`, and what follows from it for the parts of sums and differences of integers.

    `y - 3 < x` gives `y <= (x + 3)`. Sums stop at the ends of their type: at such an end a part may be anything, and a
    bound that is itself beyond an end is met by all values.
    """
    yield operator, e, limit
    if not isinstance(e, Apply) or e.operator not in _INVERSE or not e.type.is_integer or e.type.is_wide:
        return
    (a, b), low, high = e.operands, *(Const(end, e.type) for end in e.type.limits)
    if a.type != e.type or b.type != e.type:
        return
    sign, back = e.operator[0], _INVERSE[e.operator[0]]
    for part, inverse in ((a, Apply(back, (limit, b), e.type)), (b, _other(sign, limit, a))):
        is_turned = part is b and sign == "-"
        bound = _MIRRORED[operator] if is_turned else operator
        if len(operator) == 2:
            end, least, most = (high, low, high) if operator == "<=" else (low, high, low)
            ends = Apply("==", (limit, end), BOOL)
            inverse = Apply("if", (ends, least if is_turned else most, inverse), e.type)
        yield from _solved(f"{bound[0]}=", part, fold(inverse))


def _other(sign: str, limit: Expr, a: Expr) -> Apply:
    """What b is between in `a + b` or `a - b`."""
    return Apply("-", (limit, a) if sign == "+" else (a, limit), a.type)


def _bound(operator: str, a: Expr, b: Expr, source: Filter | Generate) -> Iterator[tuple[str, m.Bound]]:
    if not isinstance(a, Var) or a.type != b.type or not a.type.is_number or a.type.is_wide:
        return
    if all(part.operator in _ARITHMETIC for part in applied(b)):
        yield a.name, m.Bound(operator, b, source)
