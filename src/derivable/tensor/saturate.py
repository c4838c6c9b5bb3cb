"""Programs of the same result that run faster, by equality saturation.

All programs that the equalities of `equalities` lead to are held at once, in an e-graph of egglog, and the cheapest one
by `loop_cost` is taken: factors leave loops, products are distributed or factorised, loops change places, and of
several tensors the sparsest is run over while the others are looked up in. Then what was computed several times, or
again and again in a loop, is bound to a name.

Source: section 5.1 of Shaikhha, Huot and Hashemian, nabla-SD (2023).
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from derivable.core.diagnostics import DomainError, ShapeError
from derivable.core.names import FreshNames
from derivable.core.registry import suggestion
from derivable.tensor import nodes as t
from derivable.tensor.axes import Axes, axes_of, inputs_known
from derivable.tensor.binding import alpha_equal, free_variables, names_in, renamed, replaced
from derivable.tensor.check import Types, check, scope
from derivable.tensor.loop_cost import PER_ROW, SIZE, Cost, Costs, Entries, entries_of
from derivable.tensor.normalise import normalise
from derivable.tensor.program import Program
from derivable.tensor.sparsity import propagate
from derivable.tensor.terms import Term, Terms, hoisted
from derivable.tensor.types import is_tensor

# Larger programs are left as they are. Equalities are no longer applied after so many seconds, or to so many terms.
MOST_NODES, _MOST_SECONDS, _MOST_ROWS = 200, 2.0, 3_000
_MOST_UPDATES = 50


def optimise(
    program: Program,
    sizes: Mapping[str, Sequence[int]] | None = None,
    counts: Mapping[str, int] | None = None,
) -> Program:
    """The cheapest program with the same result that was found.

    sizes   of the axes of inputs, by name; by default 10,000, or as long as an axis that must be equally long
    counts  entries of inputs, by name; by default vectors are dense and matrices have 10 entries in a row

    Sums and products are taken in another order, so results are equal up to rounding, and entries that are zero may be
    missing. It holds in every commutative semiring. Programs of more than 200 operations, and those over arrays of
    storage formats, come back as they are.

    Raises DomainError for unknown names and negative counts, and ShapeError for a wrong number of sizes.
    """
    return _optimised(program, sizes, counts).program


def loop_cost(
    program: Program,
    sizes: Mapping[str, Sequence[int]] | None = None,
    counts: Mapping[str, int] | None = None,
) -> float:
    """About how many operations a program takes. Arguments and errors as of `optimise`."""
    return _cost(program, _costs(program, sizes, counts))


@dataclass(frozen=True)
class _Outcome:
    program: Program
    remark: str


def _optimised(program: Program, sizes: Any, counts: Any) -> _Outcome:
    costs = _costs(program, sizes, counts)
    reason = _out_of_reach(program)
    if reason:
        return _Outcome(program, f"as it was: {reason}")
    before = _cost(program, costs)
    node = propagate(program.node)
    if isinstance(node, t.Zero):
        return _Outcome(Program(node, program.inputs, program.type), "zero")
    terms = Terms(program.inputs, costs)
    wholes = [terms.term(node), terms.term(node, inlines=True)]
    wholes.append(terms.term(normalise(node, program.inputs), inlines=True))
    wholes += map(hoisted, wholes[:])
    best = _cheapest(list(dict.fromkeys(wholes)), terms)
    found = share(propagate(terms.node(best)), program.inputs)
    made = Program(renamed(found, FreshNames(free_variables(found)), is_short=True), program.inputs, program.type)
    after = _cost(made, costs)
    if after >= before:
        return _Outcome(program, f"as it was: none of less than about {before:.3g} operations was found")
    return _Outcome(made, f"about {after:.3g} operations, before {before:.3g}")


def explained(program: Program) -> str:
    """The text of the optimised program for inputs of the default sizes, and what it gains."""
    outcome = _optimised(program, None, None)
    return f"{outcome.program}\n# {outcome.remark}"


def _out_of_reach(program: Program) -> str:
    """Why a program is not optimised; empty if it is."""
    if any(of.order and not is_tensor(of) for of in program.inputs.values()):
        return "it has inputs that are arrays"
    size = sum(1 for _ in t.walk(program.node))
    return f"it has {size} operations, more than {MOST_NODES}" if size > MOST_NODES else ""


# Costs


def _costs(program: Program, sizes: Mapping[str, Sequence[int]] | None, counts: Mapping[str, int] | None) -> Costs:
    sizes, counts = sizes or {}, counts or {}
    tensors = {name: of for name, of in program.inputs.items() if of.order}
    for name in (*sizes, *counts):
        if name not in tensors:
            raise DomainError(
                f"the program has no tensor `{name}`",
                hint=suggestion(name, tensors, f"it has {', '.join(tensors) or 'none'}"),
            )
    axes = Axes()
    known = inputs_known(program.inputs)
    axes_of(program.node, known, axes)
    lengths: dict[Any, float] = {}
    for name, shape in sizes.items():
        if len(shape) != tensors[name].order:
            raise ShapeError(f"`{name}` is {tensors[name]}, and {len(shape)} sizes of it were given")
        lengths |= {axes.root((name, axis)): float(size) for axis, size in enumerate(shape)}
    found: dict[str, Entries] = {}
    for name, of in tensors.items():
        shape = [lengths.get(axes.root((name, axis)), SIZE) for axis in range(of.order)]
        count = counts.get(name, shape[0] * PER_ROW ** (of.order - 1))
        if count < 0:
            raise DomainError(f"`{name}` has {count} entries", hint="a count is at least 0")
        found[name] = entries_of(shape, count)
    indices = {
        name: lengths.get(axes.root(of.axis), SIZE) for name, of in known.items() if of.is_size and of.axis is not None
    }
    return Costs(found, indices)


def _cost(program: Program, costs: Costs) -> float:
    node = propagate(program.node)
    terms = Terms(program.inputs, Costs(dict(costs.tensors), dict(costs.indices)))
    return terms.cost(terms.term(node)).total


# The e-graph


def _cheapest(wholes: Sequence[Term], terms: Terms) -> Term:
    """The cheapest of all terms that are equal to those, which are equal."""
    from egglog import EGraph, union

    from derivable.tensor import equalities

    graph = EGraph()
    made: dict[Term, Any] = {}
    # Strings are numbers in the graph, so that nothing in them is escaped.
    numbers: dict[str, int] = {}

    def to_graph(term: Term) -> Any:
        if term not in made:
            parts = [
                str(numbers.setdefault(part, len(numbers))) if isinstance(part, str) else to_graph(part)
                for part in term[1:]
            ]
            made[term] = equalities.OPERATIONS[term[0]](*parts)
        return made[term]

    whole, *others = map(to_graph, wholes)
    graph.register(whole, *(union(whole).with_(other) for other in others))
    _saturate(graph)
    nodes = json.loads(graph._serialize().to_json())["nodes"]
    strings = list(numbers)

    def part(place: str) -> Any:
        """A name, or the number of a class in brackets."""
        node = nodes[place]
        return strings[int(json.loads(node["op"]))] if node["op"].startswith('"') else (node["eclass"],)

    rows = [
        ((node["eclass"],), node["op"], [part(child) for child in node["children"]])
        for node in nodes.values()
        if node["op"] in equalities.OPERATIONS
    ]
    classes = {(operation, *parts): of for of, operation, parts in rows}

    def class_of(term: Term) -> Any:
        return classes[(term[0], *(part if isinstance(part, str) else class_of(part) for part in term[1:]))]

    return _extracted(rows, terms.costs)[class_of(wholes[0])]


def _extracted(rows: Sequence[tuple[Any, str, list[Any]]], costs: Costs) -> dict[Any, Term]:
    """The cheapest term of each class.

    rows  (class, operation, names and classes)

    A part that costs less may have more entries, so that the whole costs more, and egglog's own extractor fails where
    costs are not monotone. Here a class keeps the whole term that was its cheapest.
    """
    best: dict[Any, tuple[Cost, Term]] = {}
    users: dict[Any, list[int]] = {}
    for number, (_, _, parts) in enumerate(rows):
        for part in parts:
            if not isinstance(part, str):
                users.setdefault(part, []).append(number)
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
    return {of: term for of, (_, term) in best.items()}


def _saturate(graph: Any) -> None:
    """Apply all equalities until nothing is new, or it is enough."""
    from derivable.tensor import equalities

    stop = time.perf_counter() + _MOST_SECONDS
    is_new = True
    while is_new:
        is_new = False
        for rules in (equalities.LOOPS, equalities.LINEARITY, equalities.ALGEBRA):
            graph.run(equalities.ANALYSIS.saturate())
            is_new |= graph.run(1, ruleset=rules).updated
            rows = sum(size for _, size in graph.all_function_sizes())
            if rows > _MOST_ROWS or time.perf_counter() > stop:
                return


# Names for what is used often


def share(node: t.Node, types: Types) -> t.Node:
    """An expression in which no loop that gives a scalar runs twice for the same, and none in a loop that it does not
    depend on.

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
    """(the largest scalar loop that depends on nothing bound in an expression and runs often, all its copies)"""
    seen: list[tuple[t.Node, list[t.Node], bool]] = []
    for part, is_inside, bound in _parts(node, False, frozenset()):
        if part is node or not _is_worth(part) or bound & free_variables(part):
            continue
        if not free_variables(part) <= set(types) or not _is_scalar(part, types):
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
