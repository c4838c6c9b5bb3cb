"""d-DNNF text files: D4's dialect, with literals on the edges, and c2d's.

D4 (lines in any order; the root is the node that no edge leads to, and there is one, but for constants):

    o 1 0                     or-node 1 (a: and, t: true, f: false)
    o 2 0
    t 3 0
    2 3 3 -4 0                edge from 2 to 3, conjoined with 3 and -4
    2 3 -3 0
    1 2 0

Such a file has no header: its variables are those up to the greatest that it names. We write the edge of the root last,
as D4 does, so that a file that is cut at the end of a line has an inner node without edges, which is refused.

c2d (nodes are numbered by line from 0, children before parents, the root is last):

    nnf 4 4 2                 nodes, edges, variables
    L 1                       literal
    L -1
    L 2
    O 1 2 0 1                 or: decision variable or 0, number of children, children
    A 2 3 2                   and: number of children, children; `A 0` is true, `O 0 0` false
"""

from __future__ import annotations

import os

import numpy as np

from derivable.circuit.files.text_file import CUT_OFF, TextFile
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.graph.builder import circuit_from_arrays
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.kernels import parse_bytes as text
from derivable.circuit.kernels.and_or import children_first, grouped
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.diagnostics import UnsupportedError
from derivable.core.files import atomic_write
from derivable.core.graph import offsets_of

_C2D_LINES = text.grammar(L=(LITERAL, text.SIGNED), A=(AND, text.COUNT), O=(OR, text.PLACE, text.COUNT))
_C2D_HINTS = {
    text.UNKNOWN_LINE: "lines of this dialect start with L, A or O",
    text.UNDEFINED_ID: "nodes are numbered by line from 0, and children come before parents, so there are no cycles",
    text.ZERO_LITERAL: "literals are signed variables, counted from 1",
    text.VARIABLE_RANGE: "the header is `nnf <nodes> <edges> <variables>`",
}
_D4_HINTS = {
    text.UNKNOWN_LINE: "lines of this dialect start with o, a, t, f, or the two node numbers of an edge",
    text.NOT_TERMINATED: "node and edge lines end with 0",
    text.EXPECTED_END: "a line ends after its 0",
}


def parse_nnf(
    data: bytes | memoryview, source: str | None = None, num_variables: int | None = None, origin: str = ""
) -> Circuit:
    """The circuit of a d-DNNF file's content; a header `nnf` means c2d's dialect, else it is D4's.

    num_variables  None: c2d's header, or in D4's dialect the greatest variable in the file
    origin         "decision" if a knowledge compiler wrote the text, so that or-nodes are deterministic

    Raises ParseError with line and column, LayoutError if a literal is above `num_variables`.
    """
    file = TextFile(data, source, _D4_HINTS)
    start = int(text.first_line(file.array))
    if start >= len(data):
        file.fail_empty("a d-DNNF file starts with `nnf <nodes> <edges> <variables>` (c2d) or `o 1 0` (D4)")
    graph, variables = _c2d_graph(TextFile(data, source, _C2D_HINTS)) if data[start] == ord("n") else _d4_graph(file)
    return circuit_from_arrays(*graph.arrays, variables if num_variables is None else num_variables, None, origin)


def _c2d_graph(file: TextFile) -> tuple[AndOrGraph, int]:
    """The graph of the lines, and the number of variables that the header announces."""
    (count, num_edges, variables), position = file.header("nnf", "<nodes> <edges> <variables>", "a d-DNNF file")
    kinds, _, _, numbers, children = file.lines(position, _C2D_LINES, count, "nnf", variables)
    if len(children) != num_edges:
        message = f"the header announces {num_edges} edges, the file has {len(children)}"
        file.fail_header(r"nnf[ \t]+\d+", message, "the header is `nnf <nodes> <edges> <variables>`")
    if kinds[-1] != LITERAL:
        file.check_last_number(count - 1)
    is_leaf = kinds == LITERAL
    offsets = offsets_of(np.where(is_leaf, 0, numbers))
    return AndOrGraph(kinds, np.where(is_leaf, numbers, 0), offsets, children, np.array([count - 1])), variables


def _d4_graph(file: TextFile) -> tuple[AndOrGraph, int]:
    """The graph of the lines, in which literals are children and not on edges, and the greatest variable of the lines.

    An edge out of an or-node with literals leads to an and-node of its own; one out of an and-node adds its literals to
    the conjunction.
    """
    room = file.most_words
    kinds, starts, places = np.empty(room, np.uint8), np.empty(room + 1, np.int64), np.empty(room, np.int64)
    numbers = np.empty(room, np.int32)
    code, position, value, count = text.parse_d4(file.array, kinds, starts, places, numbers)
    if code != text.OK:
        file.fail_code(code, position, value, first_id=1)
    numbers = numbers[: starts[count]]
    is_edge = kinds[:count] == LITERAL
    declared, edges = np.flatnonzero(~is_edge), np.flatnonzero(is_edge)
    kind, first = kinds[declared], starts[edges]
    ends, edge_places = (numbers[first], numbers[first + 1]), places[edges]
    sources, targets = _positions(file, numbers[starts[declared]], places[declared], ends, edge_places)
    for edge in np.flatnonzero(kind[sources] <= TRUE)[:1]:
        file.fail(int(edge_places[edge]), f"node {ends[0][edge]} is a constant and cannot have edges")
    _check_cut(file, kind, numbers[starts[declared]], places[declared], sources, targets)
    sizes = starts[edges + 1] - first - 2
    is_literal = np.ones(len(numbers), bool)
    is_literal[starts[declared]] = is_literal[first] = is_literal[first + 1] = False
    different, literal_nodes = _distinct(numbers[is_literal])

    # First the literals, then what is declared, then conjunctions of the or-nodes' edges.
    base, own = len(different), np.flatnonzero((sizes > 0) & (kind[sources] == OR))
    total = base + len(kind) + len(own)
    owner = sources + np.int32(base)
    conjunctions = np.arange(base + len(kind), total, dtype=np.int32)
    above, owner[own] = owner[own], conjunctions
    parents = np.concatenate([above, owner, np.repeat(owner, sizes)])
    children = np.concatenate([conjunctions, targets + np.int32(base), literal_nodes])
    parent_offsets, by_child = grouped(children, total)
    sizes = np.bincount(parents, minlength=total)
    order, is_ordered = children_first(offsets_of(sizes), parent_offsets, parents[by_child])
    if len(order) < total:
        _fail_cycle(file, ends[0], sources, targets, edge_places, ~is_ordered[base : base + len(kind)])
    number = np.empty(total, np.int32)
    number[order] = np.arange(total, dtype=np.int32)
    offsets, by_parent = grouped(number[parents], total)
    kind = np.concatenate([np.full(base, LITERAL, np.uint8), kind, np.full(len(own), AND, np.uint8)])
    literal = np.zeros(total, np.int32)
    literal[:base] = different
    loose = np.flatnonzero(np.diff(parent_offsets)[base : base + len(declared)] == 0)
    root = number[base + loose[[np.argmax(kind[base + loose] >= AND)]]]
    graph = AndOrGraph(kind[order], literal[order], offsets, number[children[by_parent]], root)
    return graph, int(np.abs(different).max(initial=0))


def _check_cut(file: TextFile, kind, ids, places, sources, targets) -> None:
    """Refuse inner nodes without edges, and a second one that no edge leads to: what a file that was cut has."""
    has_edge, is_child = np.zeros((2, len(kind)), bool)
    has_edge[sources] = is_child[targets] = True
    inner = kind >= AND
    for node in np.flatnonzero(inner & ~has_edge)[:1]:
        file.fail(int(places[node]), f"node {ids[node]} has no edges", f"{CUT_OFF}; constants are `t` and `f` nodes")
    tops = np.flatnonzero(inner & ~is_child)
    for node in tops[1:2]:
        message = f"no edge leads to node {ids[node]}, and the root is node {ids[tops[0]]}"
        file.fail(int(places[node]), message, CUT_OFF)


def _distinct(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different numbers, ascending, and each one's position among them, int32; no sorting if they are dense."""
    top = int(np.abs(numbers).max(initial=0))
    if top > 4 * len(numbers) + 1024:
        different, position = np.unique(numbers, return_inverse=True)
        return different, position.astype(np.int32)
    seen = np.zeros(2 * top + 1, bool)
    seen[numbers + np.int32(top)] = True
    return np.flatnonzero(seen) - top, (np.cumsum(seen, dtype=np.int32) - np.int32(1))[numbers + np.int32(top)]


def _positions(file: TextFile, ids, places, ends, edge_places) -> list[np.ndarray]:
    """The ends of edges by position of declaration instead of by id; ids may be any positive numbers."""
    named = ids, *ends
    if max(int(one.max(initial=0)) for one in named) > 4 * len(ids) + 1024:
        dense = np.unique(np.concatenate(named), return_inverse=True)[1]
        named = np.split(dense, [len(ids), len(ids) + len(edge_places)])
    declaration = np.full(max(int(one.max(initial=0)) for one in named) + 1, -1, np.int32)
    declaration[named[0][::-1]] = np.arange(len(ids), dtype=np.int32)[::-1]
    for line in np.flatnonzero(declaration[named[0]] != np.arange(len(ids)))[:1]:
        file.fail(_second_word(file.data, int(places[line])), f"node {ids[line]} is declared twice")
    found = [declaration[one] for one in named[1:]]
    for side, (given, one) in enumerate(zip(ends, found)):
        for edge in np.flatnonzero(one < 0)[:1]:
            at = int(edge_places[edge])
            hint = "declare it with a line such as `o 5 0` (or a, t, f)"
            message = f"the edge names node {given[edge]}, which no line declares"
            file.fail(_second_word(file.data, at) if side else at, message, hint)
    return found


def _second_word(data: bytes | memoryview, position: int) -> int:
    while data[position] > 32:
        position += 1
    while data[position] <= 32:
        position += 1
    return position


def _fail_cycle(file: TextFile, names, sources, targets, places, above: np.ndarray):
    """Name the nodes of one cycle. Every node `above` [node] one has an edge to another such node: follow them.

    names  [edge] the ids of the sources
    """
    next_edge = {int(sources[edge]): int(edge) for edge in np.flatnonzero(above[sources] & above[targets])[::-1]}
    path: dict[int, int] = {}
    node = min(next_edge)
    while node not in path:
        path[node] = next_edge[node]
        node = int(targets[path[node]])
    cycle = list(path.values())[list(path).index(node) :]
    ids = [str(names[edge]) for edge in [*cycle, cycle[0]]]
    shown = ids if len(ids) <= 12 else [*ids[:6], "...", *ids[-5:]]
    message = f"the edges form a cycle of {len(cycle)} nodes: {' -> '.join(shown)}"
    file.fail(int(places[cycle[-1]]), message, "a circuit is acyclic; this line is the edge that closes the cycle")


def write_nnf(circuit: Circuit, path: str | os.PathLike, dialect: str = "d4") -> None:
    """Write a single-rooted circuit as text in the dialect of "d4" or "c2d", whole or not at all.

    Where the greatest variable is free, in D4's dialect a conjunct "true, or false and that variable" names it. Weights
    are not part of either format. Law: reading it back gives the same circuit.
    Raises UnsupportedError for several roots or another dialect.
    """
    if dialect not in ("d4", "c2d"):
        raise UnsupportedError(f"unknown d-DNNF dialect {dialect!r}", hint='the dialects are "d4" and "c2d"')
    if circuit.num_roots != 1:
        raise UnsupportedError(
            f"a d-DNNF file has one root, this circuit has {circuit.num_roots}",
            hint="save it in this library's own format, circuit.save(path), or write one root at a time",
        )
    with atomic_write(path) as file:
        rows = _c2d_rows(circuit) if dialect == "c2d" else _d4_rows(circuit)
        file.write("\n".join(rows))
        file.write("\n")


def _c2d_rows(circuit: Circuit) -> list[str]:
    """The root is the last node because it is the only one of the greatest height."""
    rows = [f"nnf {circuit.num_nodes} {circuit.num_edges} {circuit.num_variables}"]
    literal, offsets, children = circuit.literal.tolist(), circuit.offsets.tolist(), circuit.children.tolist()
    parts: list[list[int]] = []
    for node, kind in enumerate(circuit.kind.tolist()):
        row = children[offsets[node] : offsets[node + 1]]
        parts.append(row if kind == AND else [node])
        if kind == LITERAL:
            rows.append(f"L {literal[node]}")
            continue
        listed = " ".join(map(str, [len(row), *row]))
        if kind in (AND, TRUE):
            rows.append(f"A {listed}")
        else:
            decided = _decision(parts[row[0]], parts[row[1]], literal) if len(row) == 2 else 0
            rows.append(f"O {decided} {listed}")
    return rows


def _decision(left: list[int], right: list[int], literal: list[int]) -> int:
    """The least variable that two conjunctions decide on, literals of it in both, opposed; 0 if none."""
    opposed = {-literal[part] for part in right if literal[part]}
    return min((abs(literal[part]) for part in left if literal[part] in opposed), default=0)


def _d4_rows(circuit: Circuit) -> list[str]:
    """Ids count the declarations, and the edges of a node come before those that lead to it, as klaycircuits needs."""
    kinds, literal = circuit.kind.tolist(), circuit.literal.tolist()
    offsets, children = circuit.offsets.tolist(), circuit.children.tolist()
    root = int(circuit.roots[0])
    if kinds[root] <= TRUE and circuit.num_variables == 0:
        return ["t 1 0" if kinds[root] else "f 1 0"]
    inner = [node for node in range(circuit.num_nodes - 1, -1, -1) if kinds[node] >= AND]
    name = {node: number for number, node in enumerate(inner, start=3)}
    true = len(inner) + 3
    rows = [
        "o 1 0",
        "a 2 0",
        *(f"{'a' if kinds[node] == AND else 'o'} {name[node]} 0" for node in inner),
        f"t {true} 0",
    ]
    edges = []
    for node in reversed(inner):
        row = children[offsets[node] : offsets[node + 1]]
        below = [name[child] for child in row if kinds[child] >= AND]
        leaves = [str(literal[child]) for child in row if kinds[child] == LITERAL]
        if kinds[node] == OR:
            edges += [f"{name[node]} {true} {leaf} 0" for leaf in leaves]
            edges += [f"{name[node]} {child} 0" for child in below]
        else:
            first, *rest = below or [true]
            edges.append(" ".join([str(name[node]), str(first), *leaves, "0"]))
            edges += [f"{name[node]} {child} 0" for child in rest]
    false, free = true + 1, true + 2
    greatest = int(np.abs(circuit.literal).max(initial=0))
    if kinds[root] == FALSE or greatest < circuit.num_variables:
        rows.append(f"f {false} 0")
    if kinds[root] >= AND:
        edges.append(f"2 {name[root]} 0")
    elif kinds[root] == LITERAL:
        edges.append(f"2 {true} {literal[root]} 0")
    else:
        edges.append(f"2 {true if kinds[root] else false} 0")
    if greatest < circuit.num_variables:
        rows.append(f"o {free} 0")
        edges += [f"{free} {true} 0", f"{free} {false} {circuit.num_variables} 0", f"2 {free} 0"]
    return [*rows, *edges, "1 2 0"]
