"""Expressions of the same result that run faster, by equality saturation.

All programs that the equalities of `equalities` lead to are held at once, in an e-graph of egglog, and the cheapest one
by `loop_cost` is taken: factors leave loops, products are distributed or factorised, loops change places, and of
several tensors the sparsest is run over while the others are looked up in. `share` binds what was computed several
times, or again and again in a loop, to a name.

Source: section 5.1 of Shaikhha, Huot and Hashemian, nabla-SD (2023).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from derivable.core.names import FreshNames
from derivable.tensor.analysis.loop_cost import Cost, Costs
from derivable.tensor.analysis.sparsity import propagate
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import alpha_equal, free_variables, names_in, replaced
from derivable.tensor.language.check import Types, check, scope
from derivable.tensor.language.types import Type, is_tensor
from derivable.tensor.optimisation.terms import Term, Terms, free_of, hoisted

# Larger programs are left as they are. Equalities are no longer applied after this number of runs, or to this number of
# terms: a limit in seconds would make the result, and with it the last bits, depend on the load of the machine.
MOST_NODES, _MOST_RUNS, _MOST_ROWS = 200, 120, 3_000
_MOST_UPDATES = 50

# (class, operation, names and classes)
Row = tuple[Any, str, list[Any]]


def saturated(node: t.Node, types: Mapping[str, Type], costs: Costs, others: Sequence[t.Node] = ()) -> t.Node:
    """The cheapest expression that was found among those that are equal to one.

    types   of the free variables
    costs   of loops
    others  expressions that are equal to it, to begin with too

    Expressions of more than `MOST_NODES` operations, and those over arrays of storage formats, come back as they are.
    """
    if out_of_reach(node, types):
        return node
    node = propagate(node)
    if isinstance(node, t.Zero):
        return node
    terms = Terms(types, costs.copy())
    wholes = [terms.term(node), terms.term(node, inlines=True)]
    wholes += [terms.term(other, inlines=True) for other in others]
    wholes += map(hoisted, wholes[:])
    return propagate(terms.node(_cheapest(list(dict.fromkeys(wholes)), terms)))


def out_of_reach(node: t.Node, types: Mapping[str, Type]) -> str:
    """Why an expression is not optimised; empty if it is."""
    if any(of.order and not is_tensor(of) for of in types.values()):
        return "it has inputs that are arrays"
    size = sum(1 for _ in t.walk(node))
    return f"it has {size} operations, more than {MOST_NODES}" if size > MOST_NODES else ""


# The e-graph


def _cheapest(wholes: Sequence[Term], terms: Terms) -> Term:
    """The cheapest of all terms that are equal to those, which are equal."""
    rows, class_of = equal_terms(tuple(wholes))
    rows, whole = _in_scope(rows), class_of(wholes[0])
    best = _extracted(rows, terms.costs)
    found = [
        (operation, *(part if isinstance(part, str) else best[part][1] for part in parts))
        for of, operation, parts in rows
        if of == whole and all(isinstance(part, str) or part in best for part in parts)
    ]
    return min(found, key=terms.whole_cost, default=wholes[0])


# What is equal depends on no sizes, and a program is optimised for all that it is run on.
@lru_cache(64)
def equal_terms(wholes: tuple[Term, ...]) -> tuple[list[Row], Callable[[Term], Any]]:
    """(all that is equal to terms which are equal, and to their parts; the class of one of their parts)"""
    from derivable.tensor.optimisation import equalities

    nodes, strings = _all_nodes(wholes)

    def part(place: str) -> Any:
        """A name, or the number of a class in brackets."""
        node = nodes[place]
        return strings[int(node["op"])] if node["eclass"].startswith("i64-") else (node["eclass"],)

    rows = [
        ((node["eclass"],), node["op"], [part(child) for child in node["children"]])
        for node in nodes.values()
        if node["op"] in equalities.OPERATIONS
    ]
    classes = {(operation, *parts): of for of, operation, parts in rows}

    def class_of(term: Term) -> Any:
        return classes[(term[0], *(part if isinstance(part, str) else class_of(part) for part in term[1:]))]

    return rows, class_of


def _all_nodes(wholes: Sequence[Term]) -> tuple[dict[str, Any], list[str]]:
    """(the nodes of the saturated graph as egglog writes them, the names that are numbers there)

    A graph may be dropped by the thread that made it only. Egglog's schedules are cycles of references, which would
    leave it to the collector, and that runs in any thread.
    """
    from egglog import EGraph, union

    graph = EGraph()
    made: dict[Term, Any] = {}
    numbers: dict[str, int] = {}
    try:
        whole, *others = [_to_graph(term, graph, made, numbers) for term in wholes]
        graph.register(whole, *(union(whole).with_(other) for other in others))
        _saturate(graph)
        return json.loads(graph._serialize().to_json())["nodes"], list(numbers)
    finally:
        graph._state.egraph = None  # pyright: ignore[reportAttributeAccessIssue]


def _to_graph(term: Term, graph: Any, made: dict[Term, Any], numbers: dict[str, int]) -> Any:
    """A term and its parts, registered; names are numbers, which egglog compares faster than texts."""
    from derivable.tensor.optimisation import equalities

    if term not in made:
        parts = [
            numbers.setdefault(part, len(numbers)) if isinstance(part, str) else _to_graph(part, graph, made, numbers)
            for part in term[1:]
        ]
        # What it is given in one piece egglog takes apart in any order, and results would differ from run to run.
        # Names of its `let` must not stand in for parts: with many of them one is taken for another (13.2).
        made[term] = equalities.OPERATIONS[term[0]](*parts)
        graph.register(made[term])
    return made[term]


def _in_scope(rows: Sequence[Row]) -> list[Row]:
    """Those rows that have no more free names than all others of their class.

    A factor leaves a loop if one of its class does not depend on it. Another one may mention the loop's names, and
    would do so outside of the loop.
    """
    users = _users(rows)
    free: dict[Any, frozenset[str]] = {}
    waiting = deque(range(len(rows)))
    while waiting:
        of, operation, parts = rows[waiting.popleft()]
        if not all(isinstance(part, str) or part in free for part in parts):
            continue
        found = free_of(operation, parts, [free[part] for part in parts if not isinstance(part, str)])
        if of in free:
            found &= free[of]
        if found != free.get(of):
            free[of] = found
            waiting.extend(users.get(of, ()))
    return [
        (of, operation, parts)
        for of, operation, parts in rows
        if all(isinstance(part, str) or part in free for part in parts)
        and free_of(operation, parts, [free[part] for part in parts if not isinstance(part, str)]) == free[of]
    ]


def _users(rows: Sequence[Row]) -> dict[Any, list[int]]:
    """By class, the numbers of the rows with a part of it."""
    users: dict[Any, list[int]] = {}
    for number, (_, _, parts) in enumerate(rows):
        for part in parts:
            if not isinstance(part, str):
                users.setdefault(part, []).append(number)
    return users


def _extracted(rows: Sequence[Row], costs: Costs) -> dict[Any, tuple[Cost, Term]]:
    """The cheapest term of each class, and its cost.

    A part that costs less may have more entries, so that the whole costs more, and egglog's own extractor fails where
    costs are not monotone. Here a class keeps the whole term that was its cheapest.
    """
    best: dict[Any, tuple[Cost, Term]] = {}
    users = _users(rows)
    waiting = deque(range(len(rows)))
    queued = set(waiting)
    left = _MOST_UPDATES * len(rows)
    while waiting and left:
        left -= 1
        number = waiting.popleft()
        queued.discard(number)
        of, operation, parts = rows[number]
        if not all(isinstance(part, str) or part in best for part in parts):
            continue
        found = costs.of(operation, [part if isinstance(part, str) else best[part][0] for part in parts])
        if of in best and found.total >= best[of][0].total:
            continue
        best[of] = found, (operation, *(part if isinstance(part, str) else best[part][1] for part in parts))
        for user in users.get(of, ()):
            if user not in queued:
                queued.add(user)
                waiting.append(user)
    return best


def _saturate(graph: Any) -> None:
    """Apply all equalities until nothing is new, or it is enough."""
    from derivable.tensor.optimisation import equalities

    runs, is_new = 0, True
    while is_new:
        is_new = False
        for rules in (equalities.LOOPS, equalities.LINEARITY, equalities.ALGEBRA):
            graph.run(equalities.ANALYSIS.saturate())
            is_new |= graph.run(1, ruleset=rules).updated
            runs += 1
            rows = sum(size for _, size in graph.all_function_sizes())
            if rows > _MOST_ROWS or runs == _MOST_RUNS:
                return


# Names for what is used often


def share(node: t.Node, types: Types) -> t.Node:
    """An expression in which no loop that gives a scalar runs twice for the same, and none in a loop that it does not
    depend on. There a tensor has a name too: whether it is made once, or in each round, is decided with the loops.

    Its bound names must be unique.
    """
    return _shared(node, types, FreshNames(names_in(node) | set(types)))


def _shared(node: t.Node, types: Types, fresh: FreshNames) -> t.Node:
    bound: list[tuple[str, t.Node]] = []
    while True:
        found = _worth_a_name(node, types)
        if found is None:
            break
        first, uses = found
        name = fresh("s")
        for use in uses:
            node = replaced(node, use, t.Var(name))
        bound.append((name, first))
        types = {**types, name: check(first, types)}
    if isinstance(node, (t.Sum, t.Let)):
        outside = _shared(node.children[0], types, fresh)
        inner = scope(node, [check(outside, types)], types)
        node = node.with_children((outside, _shared(node.children[1], inner, fresh)))
    else:
        node = node.with_children(tuple(_shared(child, types, fresh) for child in node.children))
    for name, value in reversed(bound):
        node = t.Let(name, _shared(value, types, fresh), node)
    return node


def _worth_a_name(node: t.Node, types: Types) -> tuple[t.Node, list[t.Node]] | None:
    """(the largest loop that depends on nothing bound in an expression and runs often, all its copies)"""
    seen: list[tuple[t.Node, list[t.Node], bool]] = []
    for part, is_inside, bound in _parts(node, False, frozenset()):
        if part is node or not _is_worth(part) or bound & free_variables(part):
            continue
        if not free_variables(part) <= set(types) or not (is_inside or _is_scalar(part, types)):
            continue
        for k, (first, uses, _) in enumerate(seen):
            if alpha_equal(first, part):
                seen[k] = (first, [*uses, part], True)
                break
        else:
            seen.append((part, [part], is_inside))
    return next(((first, uses) for first, uses, often in seen if often), None)


def _parts(node: t.Node, is_inside: bool, bound: frozenset[str]) -> Iterator[tuple[t.Node, bool, frozenset[str]]]:
    """(part, whether it is in a loop, names bound around it), larger ones first."""
    yield node, is_inside, bound
    for place, child in enumerate(node.children):
        if place and isinstance(node, t.Sum):
            yield from _parts(child, True, bound | {node.key, node.value})
        elif place and isinstance(node, t.Let):
            yield from _parts(child, is_inside, bound | {node.name})
        else:
            yield from _parts(child, is_inside, bound)


def _is_worth(part: t.Node) -> bool:
    return not isinstance(part, t.Let) and any(isinstance(inner, t.Sum) for inner in t.walk(part))


def _is_scalar(part: t.Node, types: Types) -> bool:
    of = check(part, types)
    return of is not None and of.is_scalar
