"""The validator of circuits: every invariant that the docstring of `Circuit` promises, in NumPy.

Slow next to the kernels (tens of nanoseconds per edge) and independent of them: it shares no code with
the builder. Tests run it between passes; `Circuit.check` runs it for a user.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from derivable.circuit.graph.and_or_graph import AndOrGraph, plain
from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import AND, KIND_NAMES, LITERAL, OR, TRUE
from derivable.core.diagnostics import LayoutError

_DTYPES = {"kind": np.uint8, "literal": np.int32, "offsets": np.int64, "children": np.int64, "roots": np.int64}


def validate_graph(graph: AndOrGraph) -> None:
    """Raise LayoutError at the first array of an and-or graph that does not fit to the others, naming the node."""
    _check_arrays(graph, _DTYPES)
    _check_nodes(graph, 0)
    count, children = graph.num_nodes, graph.children
    _refuse(plain(children) >= count, lambda e: f"node {graph.parents[e]} has child {children[e]} of {count} nodes")
    _refuse(plain(graph.roots) >= count, lambda r: f"root {r} is node {graph.roots[r]}; there are {count} nodes")


def validate(circuit: Circuit) -> None:
    """Raise LayoutError at the first broken invariant, naming the first node that breaks it."""
    _check_order(circuit)
    _check_distinct(circuit)
    _check_roots(circuit)


def validate_layout(circuit: Circuit) -> None:
    """All but the search for equal nodes: what kernels rely on. A fraction of a microsecond per edge."""
    _check_order(circuit)
    _check_roots(circuit)


def _check_order(circuit: Circuit) -> None:
    _check_arrays(circuit, {**_DTYPES, "children": np.int32, "level_offsets": np.int64})
    if circuit.weights is not None:
        for array in circuit.weights:
            if array.shape != (circuit.num_variables,):
                raise LayoutError(f"weights of shape {array.shape} for {circuit.num_variables} variables")
    if circuit.names is not None and len(circuit.names) != circuit.num_variables:
        raise LayoutError(f"{len(circuit.names)} names for {circuit.num_variables} variables")
    _check_nodes(circuit, 2)
    _refuse(
        np.abs(circuit.literal.astype(np.int64)) > circuit.num_variables,
        lambda n: f"node {n} is literal {circuit.literal[n]} of {circuit.num_variables} variables",
    )
    _check_edges(circuit)
    _check_levels(circuit)


def _refuse(bad: np.ndarray, told: Callable[[int], str]) -> None:
    """Raise LayoutError with what is told of the first position where `bad` is true."""
    for position in np.flatnonzero(bad)[:1].tolist():
        raise LayoutError(told(position))


def _check_arrays(circuit: AndOrGraph, dtypes: dict[str, type]) -> None:
    for name, dtype in dtypes.items():
        array = getattr(circuit, name)
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
            raise LayoutError(f"{name} must be a one-dimensional array of {np.dtype(dtype).name}")
    nodes, edges = circuit.num_nodes, circuit.num_edges
    if len(circuit.literal) != nodes or len(circuit.offsets) != nodes + 1:
        raise LayoutError(
            f"{nodes} kinds need {nodes} literals and {nodes + 1} offsets, "
            f"got {len(circuit.literal)} and {len(circuit.offsets)}"
        )
    if circuit.offsets[0] != 0 or circuit.offsets[-1] != edges:
        raise LayoutError(f"offsets run from {circuit.offsets[0]} to {circuit.offsets[-1]}, not from 0 to {edges}")
    _refuse(np.diff(circuit.offsets) < 0, lambda n: f"the offsets of node {n} are not monotone")


def _check_nodes(circuit: AndOrGraph, fewest: int) -> None:
    kind, literal, sizes = circuit.kind, circuit.literal, circuit.sizes
    _refuse(kind > OR, lambda n: f"node {n} has kind {kind[n]}; kinds are 0 to 4")
    _refuse(
        (kind <= LITERAL) & (sizes > 0),
        lambda n: f"node {n} is a leaf ({KIND_NAMES[kind[n]]}) with {sizes[n]} children",
    )
    _refuse(
        (kind >= AND) & (sizes < fewest),
        lambda n: f"node {n} ({KIND_NAMES[kind[n]]}) has {sizes[n]} children, fewer than two",
    )
    _refuse(
        (kind == LITERAL) != (literal != 0),
        lambda n: f"node {n} is of kind {KIND_NAMES[kind[n]]} and has literal {literal[n]}",
    )


def _check_edges(circuit: Circuit) -> None:
    children, parents, count = circuit.children, circuit.parents, circuit.num_nodes
    _refuse(
        (children < 0) | (children >= count),
        lambda e: f"node {parents[e]} has child {children[e]}; there are {count} nodes",
    )
    _refuse(children >= parents, lambda e: f"node {parents[e]} has child {children[e]}, which does not come before it")
    _refuse(
        (np.diff(children) <= 0) & (np.diff(parents) == 0),
        lambda e: f"the children of node {parents[e]} do not ascend: {children[e]} is followed by {children[e + 1]}",
    )
    _refuse(circuit.kind[children] <= TRUE, lambda e: f"node {parents[e]} has the constant {children[e]} as a child")


def _check_levels(circuit: Circuit) -> None:
    levels = circuit.level_offsets
    if len(levels) == 0 or levels[0] != 0 or levels[-1] != circuit.num_nodes:
        raise LayoutError(f"level offsets do not run from 0 to {circuit.num_nodes} nodes")
    _refuse(np.diff(levels) <= 0, lambda level: f"level {level} is empty or its offsets are not monotone")
    if circuit.num_nodes == 0:
        return
    height = np.repeat(np.arange(circuit.num_levels), np.diff(levels))
    starts = circuit.offsets[:-1]
    inner = np.flatnonzero(circuit.kind >= AND)
    expected = np.zeros(circuit.num_nodes, np.int64)
    if len(inner):
        expected[inner] = np.maximum.reduceat(height[circuit.children], starts[inner]) + 1
    _refuse(height != expected, lambda n: f"node {n} is in level {height[n]}, its height is {expected[n]}")
    _refuse(
        (np.diff(circuit.kind.astype(np.int64)) < 0) & (np.diff(height) == 0),
        lambda n: (
            f"node {n + 1} ({KIND_NAMES[circuit.kind[n + 1]]}) follows node {n} "
            f"({KIND_NAMES[circuit.kind[n]]}) in level {height[n]}; kinds ascend within a level"
        ),
    )


def _check_distinct(circuit: Circuit) -> None:
    """No two nodes are equal. Children are sorted, so equal nodes have equal bytes."""
    seen: dict[bytes | tuple[int, int], int] = {}
    data, offsets = circuit.children.tobytes(), (circuit.offsets * 4).tolist()
    for node, (kind, literal) in enumerate(zip(circuit.kind.tolist(), circuit.literal.tolist())):
        if kind <= LITERAL:
            key: bytes | tuple[int, int] = (kind, literal)
        else:
            key = data[offsets[node] : offsets[node + 1]] + bytes([kind])
        other = seen.setdefault(key, node)
        if other != node:
            raise LayoutError(f"nodes {other} and {node} are equal ({KIND_NAMES[kind]})")


def _check_roots(circuit: Circuit) -> None:
    roots = circuit.roots
    _refuse(
        (roots < 0) | (roots >= circuit.num_nodes),
        lambda r: f"root {r} is node {roots[r]}; there are {circuit.num_nodes} nodes",
    )
    used = np.zeros(circuit.num_nodes, bool)
    used[circuit.children] = True
    used[roots] = True
    _refuse(~used, lambda n: f"node {n} ({KIND_NAMES[circuit.kind[n]]}) is neither a root nor a child")
