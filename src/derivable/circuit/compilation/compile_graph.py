"""And-or graphs over random choices, with cycles or without, compiled by elimination."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from derivable.circuit.compilation.eliminate import cost_of
from derivable.circuit.compilation.frontier import TooWide
from derivable.circuit.compilation.graph_definitions import Choices
from derivable.circuit.compilation.graph_tables import GraphTables, Unsuited
from derivable.circuit.compilation.orders import Order
from derivable.circuit.compilation.planner import CHEAP, HOPED, MOST_TRIED, Compilation
from derivable.circuit.compilation.tables import TooLarge
from derivable.circuit.graph.and_or_graph import AndOrGraph, plain
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.kernels.and_or import components
from derivable.core.progress import NEVER, Deadline

# Entries of all joined tables up to which frontiers are tried (those whose circuits are small enough had 1e11 at most),
# and nodes of a circuit of them.
HOPED_OF_FRONTIER, MOST_OF_FRONTIER = 1e12, 1 << 21
# Nodes up to which the atoms of one cycle are compiled together before they are tried apart, and of all that are
# compiled apart.
MOST_TOGETHER, MOST_APART = 1 << 18, 1 << 23
# (graph, nodes of its circuit at most, if it has a frontier) -> the circuit, None where its cycles do not suit one.
_Compile = Callable[[AndOrGraph, int], Circuit | None]


def compile_graph(
    graph: AndOrGraph,
    num_variables: int,
    groups: Iterable[Sequence[int] | np.ndarray],
    observed: Sequence[int] = (),
    first_indicator: int = 0,
    deadline: Deadline = NEVER,
) -> Circuit | None:
    """The circuit of a graph by elimination, None where its cycles do not suit a frontier.

    Raises TooLarge where the tables would be too large.

    graph     has no nodes that are not needed; children and roots may be negated, but not in cycles
    groups    sets of variables of which exactly one is true, from 1
    observed  signed nodes of evidence, whose indicators are the variables from `first_indicator` on; see
              `GraphTables.compiled`
    """
    compiled = partial(
        _compiled,
        num_variables=num_variables,
        choices=Choices.of(num_variables, groups),
        observed=observed,
        first_indicator=first_indicator,
        deadline=deadline,
    )
    # Evidence depends on all roots together.
    if len(observed):
        return compiled(graph, MOST_OF_FRONTIER)
    cones = _cones(graph, deadline)
    if len(cones) == 1:
        return _of_one_cone(graph, num_variables, compiled, deadline)
    what = f"elimination, {len(cones)} groups of roots with cycles of their own"
    return _joined(
        graph, cones, num_variables, what, lambda one, _: _of_one_cone(one, num_variables, compiled, deadline)
    )


def _of_one_cone(graph: AndOrGraph, num_variables: int, compiled: _Compile, deadline: Deadline) -> Circuit | None:
    """The circuit of roots that need the same cycles.

    The truth of all atoms of a cycle together takes more than that of each alone where many of them are in the frontier
    at a time, and less where few are.
    """
    groups = _by_atoms(graph, deadline)
    if len(groups) > 1:
        with suppress(TooLarge):
            return compiled(graph, MOST_TOGETHER)
        what = f"elimination, {len(groups)} groups of atoms of a cycle by states of frontiers of their own"
        with suppress(TooLarge):
            return _joined(graph, groups, num_variables, what, compiled)
    return compiled(graph, MOST_OF_FRONTIER)


def _joined(
    graph: AndOrGraph,
    groups: Sequence[np.ndarray],
    num_variables: int,
    what: str,
    compiled: _Compile,
) -> Circuit | None:
    """The circuits of groups of roots in one, None if one of them is none."""
    builder, roots, rows = CircuitBuilder(), np.zeros(len(graph.roots), np.int64), list[tuple[str, str, str]]()
    for group in groups:
        made = compiled(
            graph.with_roots(graph.roots[group]).trimmed(), min(MOST_OF_FRONTIER, MOST_APART - builder.num_nodes)
        )
        if made is None:
            return None
        roots[group] = builder.add(made)
        rows += [] if made.compilation is None else made.compilation.rows
    whole = builder.build(roots, num_variables)
    return replace(whole, compilation=Compilation(what, tuple(dict.fromkeys(rows))))


def cost_by_elimination(
    graph: AndOrGraph,
    num_variables: int,
    groups: Iterable[Sequence[int] | np.ndarray],
    observed: Sequence[int] = (),
    deadline: Deadline = NEVER,
) -> str:
    """What `compile_graph` would cost, in words, or why it cannot."""
    try:
        tables = GraphTables(graph, Choices.of(num_variables, groups), observed, num_variables + 1, deadline)
        return cost_of(_together(tables.orders(deadline)))
    except (TooLarge, TooWide, Unsuited) as error:
        return error.message


def _together(orders: Sequence[Order]) -> Order:
    """The order that costs most, with the cost of all."""
    widest = max(orders, key=lambda order: order.cost, default=Order((), "weight", 0.0, 0))
    return replace(widest, cost=sum(order.cost for order in orders))


def _compiled(
    graph: AndOrGraph,
    most_nodes: int,
    num_variables: int,
    choices: Choices,
    observed: Sequence[int],
    first_indicator: int,
    deadline: Deadline,
) -> Circuit | None:
    """The circuit of all roots together; where it has a frontier, with `most_nodes` nodes at most."""
    try:
        tables = GraphTables(graph, choices, observed, first_indicator, deadline)
        orders = tables.orders(deadline)
        cost = _together(orders).cost
        if cost > (HOPED_OF_FRONTIER if tables.has_frontier else HOPED):
            raise TooLarge(f"elimination would make tables of {cost:.1e} entries")
        most = most_nodes if tables.has_frontier else None if cost <= CHEAP else MOST_TRIED
        circuit = tables.compiled(orders, num_variables, deadline, most)
    except (TooWide, Unsuited):
        return None
    what = "elimination, cycles by states of a frontier" if tables.has_frontier else "elimination"
    row = ("elimination", cost_of(_together(orders)), f"taken: {circuit.num_nodes:,} nodes")
    return replace(circuit, compilation=Compilation(what, (row,)))


def _by_atoms(graph: AndOrGraph, deadline: Deadline) -> list[np.ndarray]:
    """The numbers of the roots, by the nodes in cycles that they mention; one group where nothing has a cycle."""
    component, count = components(graph.offsets, graph.children)
    is_cyclic = np.bincount(component, minlength=count)[component] > 1
    if not is_cyclic.any():
        return [np.arange(len(graph.roots))]
    mentioned: dict[int, frozenset[int]] = {}
    below = plain(graph.children).tolist()
    starts = graph.offsets.tolist()
    # Components are numbered from what others need on.
    for node in np.argsort(component, kind="stable").tolist():
        deadline.remaining()
        if is_cyclic[node]:
            mentioned[node] = frozenset((node,))
        else:
            mentioned[node] = frozenset[int]().union(
                *(mentioned[one] for one in below[starts[node] : starts[node + 1]])
            )
    groups: dict[frozenset[int], list[int]] = {}
    for number, root in enumerate(plain(graph.roots).tolist()):
        groups.setdefault(mentioned[root], []).append(number)
    return [np.array(group) for group in groups.values()]


def _cones(graph: AndOrGraph, deadline: Deadline) -> list[np.ndarray]:
    """The numbers of roots that are compiled together: those whose cycles are among those of one of them.

    Cycles that do not need each other, such as the ways from several nodes of a graph, make one frontier that is as
    wide as all of theirs.
    """
    component, count = components(graph.offsets, graph.children)
    parents, children = component[graph.parents], component[plain(graph.children)]
    cyclic = np.flatnonzero(np.bincount(component, minlength=count) > 1)
    cycles = [0] * count
    for bit, one in enumerate(cyclic.tolist()):
        cycles[one] = 1 << bit
    # Components are numbered from what others need on.
    order = np.argsort(parents, kind="stable")
    for parent, child in zip(parents[order].tolist(), children[order].tolist()):
        cycles[parent] |= cycles[child]
    needed = [cycles[one] for one in component[plain(graph.roots)].tolist()]
    largest: list[int] = []
    home: dict[int, int] = {}
    for one in sorted(set(needed), key=int.bit_count, reverse=True):
        deadline.remaining()
        home[one] = next((k for k, other in enumerate(largest) if one & other == one), len(largest))
        if home[one] == len(largest):
            largest.append(one)
    homes = np.array([home[one] for one in needed])
    return [np.flatnonzero(homes == k) for k in range(len(largest))]
