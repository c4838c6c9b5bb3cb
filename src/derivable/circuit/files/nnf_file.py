"""d-DNNF text files: D4's dialect, with literals on the edges, and c2d's.

D4 (lines in any order; the root is the node that no edge leads to, the first declared if there are several):

    o 1 0                     or-node 1 (a: and, t: true, f: false)
    t 2 0
    1 2 3 -4 0                edge from 1 to 2, conjoined with 3 and -4
    1 2 -3 0

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
import re

import numpy as np

from derivable.circuit.files.read_error import fail, fail_code, fail_empty, fail_header, most_words, read_header
from derivable.circuit.graph.builder import circuit_from_arrays
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.kernels import parse_bytes as text
from derivable.circuit.kernels.and_or import children_first, grouped
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.diagnostics import UnsupportedError
from derivable.core.files import atomic_write

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

    num_variables  None: c2d's header, or the greatest variable in the file (D4's dialect does not say)
    origin         "decision" if a knowledge compiler wrote the text, so that or-nodes are deterministic

    Raises ParseError with line and column, LayoutError if a literal is above `num_variables`.
    """
    array = np.frombuffer(data, np.uint8)
    start = int(text.first_line(array))
    if start >= len(data):
        fail_empty(data, source, "a d-DNNF file starts with `nnf <nodes> <edges> <variables>` (c2d) or `o 1 0` (D4)")
    if data[start] == ord("n"):
        return _parse_c2d(data, array, source, num_variables, origin)
    return _parse_d4(data, array, source, num_variables, origin)


def _parse_c2d(data: bytes | memoryview, array: np.ndarray, source, num_variables: int | None, origin: str) -> Circuit:
    header = "<nodes> <edges> <variables>"
    (count, num_edges, variables), position = read_header(data, array, "nnf", header, source, "a d-DNNF file")
    words = most_words(data)
    announced = min(count, words // 2)  # a line has two words
    kind = np.empty(announced, np.uint8)
    literal = np.empty(announced, np.int32)
    offsets = np.zeros(announced + 1, np.int64)
    children = np.empty(words, np.int32)
    code, position, value, nodes, edges = text.parse_c2d(
        array, position, announced, variables, kind, literal, offsets, children
    )
    if code != text.OK and not (code == text.ID_RANGE and announced < count):
        fail_code(data, source, code, position, value, count=count, variables=variables, hints=_C2D_HINTS)
    if nodes != count:
        fail_header(data, source, b"nnf", f"the header announces {count} nodes, the file has {nodes}")
    if edges != num_edges:
        message = f"the header announces {num_edges} edges, the file has {edges}"
        fail_header(data, source, rb"nnf[ \t]+\d+", message, "the header is `nnf <nodes> <edges> <variables>`")
    if count == 0:
        fail_header(data, source, b"nnf", "a circuit has at least one node", hint=None)
    if num_variables is None:
        num_variables = variables
    return circuit_from_arrays(kind, literal, offsets, children[:edges], [count - 1], num_variables, None, origin)


def _parse_d4(data: bytes | memoryview, array: np.ndarray, source, num_variables: int | None, origin: str) -> Circuit:
    words = most_words(data)
    room = words // 2 + 1
    ids, kinds = np.empty(room, np.int32), np.empty(room, np.uint8)
    sources, targets, places = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int64)
    literal_offsets, literals = np.empty(room + 1, np.int64), np.empty(words, np.int32)
    code, position, value, nodes, edges = text.parse_d4(
        array, ids, kinds, sources, targets, places, literal_offsets, literals
    )
    if code != text.OK:
        fail_code(data, source, code, position, value, first_id=1, hints=_D4_HINTS)
    ids, kinds = ids[:nodes], kinds[:nodes]
    sources, targets, places = sources[:edges], targets[:edges], places[:edges]
    literal_offsets = literal_offsets[: edges + 1]
    literals = literals[: literal_offsets[-1]]
    sources, targets = _declared(data, source, ids, sources, targets, places)
    leaf_edges = np.flatnonzero(kinds[sources] <= TRUE)
    if len(leaf_edges):
        edge = leaf_edges[0]
        fail(data, source, int(places[edge]), f"node {ids[sources[edge]]} is a constant and cannot have edges")
    starts, edge_order = grouped(sources, nodes)
    parent_starts, by_target = grouped(targets, nodes)
    order, ordered = children_first(starts, parent_starts, sources[by_target])
    if len(order) < nodes:
        _fail_cycle(data, source, ids, sources, targets, places, ~ordered)
    has_parent = np.zeros(nodes, bool)
    has_parent[targets] = True
    root = int(np.flatnonzero(~has_parent)[0])

    numbers, literal_nodes = _distinct(literals)
    leaves = 2 + len(numbers)
    total_nodes, total_edges = leaves + nodes + edges, 2 * edges + len(literals)
    kind, literal = np.empty(total_nodes, np.uint8), np.zeros(total_nodes, np.int32)
    offsets, children = np.zeros(total_nodes + 1, np.int64), np.empty(total_edges, np.int32)
    kind[:2] = FALSE, TRUE
    kind[2:leaves] = LITERAL
    literal[2:leaves] = numbers
    node_of = np.empty(nodes, np.int32)
    total_nodes, total_edges = text.emit_d4(
        kinds, targets, starts, edge_order, order, literal_offsets, literals, literal_nodes + np.int32(2),
        node_of, kind, offsets, children, leaves, 0,
    )  # fmt: skip
    arrays = kind[:total_nodes], literal[:total_nodes], offsets[: total_nodes + 1], children[:total_edges]
    return circuit_from_arrays(*arrays, [node_of[root]], num_variables, None, origin)


def _distinct(literals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different literals, and each literal's position among them, int32; without sorting if they are dense."""
    top = int(np.abs(literals).max(initial=0))
    if top > 4 * len(literals) + 1024:
        numbers, positions = np.unique(literals, return_inverse=True)
        return numbers, positions.astype(np.int32)
    seen = np.zeros(2 * top + 1, bool)
    seen[literals + top] = True
    return np.flatnonzero(seen) - top, (np.cumsum(seen, dtype=np.int32) - 1)[literals + top]


def _declared(data: bytes | memoryview, source, ids, sources, targets, places):
    """Edges by position of declaration instead of by id; ids may be any positive numbers."""
    top = int(ids.max(initial=0))
    by_id = np.argsort(ids, kind="stable") if len(ids) else ids
    repeated = np.flatnonzero(np.diff(ids[by_id]) == 0)
    if len(repeated):
        number = ids[by_id[repeated[0]]]
        fail(data, source, _declaration(data, number, 1), f"node {number} is declared twice")
    for ends in (sources, targets):
        if top <= 4 * len(ids) + 1024:
            position = np.full(top + 1, -1, np.int32)
            position[ids] = np.arange(len(ids), dtype=np.int32)
            found = np.where(ends <= top, position[np.minimum(ends, top)], -1)
        else:
            place = np.minimum(np.searchsorted(ids, ends, sorter=by_id), len(ids) - 1)
            found = np.where(ids[by_id[place]] == ends, by_id[place], -1).astype(np.int32)
        dangling = np.flatnonzero(found < 0)
        if len(dangling):
            edge = dangling[0]
            at = int(places[edge]) if ends is sources else _second_word(data, int(places[edge]))
            hint = "declare it with a line such as `o 5 0` (or a, t, f)"
            fail(data, source, at, f"the edge names node {ends[edge]}, which no line declares", hint)
        if ends is sources:
            new_sources = found
        else:
            new_targets = found
    return new_sources, new_targets


def _second_word(data: bytes | memoryview, position: int) -> int:
    while data[position] > 32:
        position += 1
    while data[position] <= 32:
        position += 1
    return position


def _declaration(data: bytes | memoryview, number: int, which: int) -> int:
    found = re.finditer(rb"^[ \t]*[oatf][ \t]+(0*%d)\b" % number, bytes(data).replace(b"\r", b"\n"), re.MULTILINE)
    return [match.start(1) for match in found][which]


def _fail_cycle(data: bytes | memoryview, source, ids, sources, targets, places, above: np.ndarray):
    """Name the nodes of one cycle. Every node `above` [node] one has an edge to another such node: follow them."""
    next_edge = {}
    for edge in np.flatnonzero(above[sources] & above[targets])[::-1]:
        next_edge[int(sources[edge])] = int(edge)
    node = min(next_edge)
    seen: dict[int, int] = {}
    path: list[int] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = int(targets[next_edge[node]])
    cycle = path[seen[node] :]
    names = [str(ids[member]) for member in [*cycle, node]]
    shown = names if len(names) <= 12 else [*names[:6], "...", *names[-5:]]
    message = f"the edges form a cycle of {len(cycle)} nodes: {' -> '.join(shown)}"
    hint = "a circuit is acyclic; this line is the edge that closes the cycle"
    fail(data, source, int(places[next_edge[cycle[-1]]]), message, hint)


def write_nnf(circuit: Circuit, path: str | os.PathLike, dialect: str = "d4") -> None:
    """Write a single-rooted circuit as text in the dialect of "d4" or "c2d", whole or not at all.

    D4's dialect does not hold the number of variables: read it back with `load(path, num_variables=...)`
    if some are free. Weights are not part of either format. Law: reading it back gives the same circuit.
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
    """Node ids count down from the root, so that parents come first, as in D4's own output."""
    count = circuit.num_nodes
    kinds, literal = circuit.kind.tolist(), circuit.literal.tolist()
    offsets, children = circuit.offsets.tolist(), circuit.children.tolist()
    if count == 1:
        if kinds[0] <= TRUE:
            return ["t 1 0" if kinds[0] else "f 1 0"]
        return ["o 1 0", "t 2 0", f"1 2 {literal[0]} 0"]
    rows, edges = [], []
    true = count + 1
    for node in range(count - 1, -1, -1):
        kind, name = kinds[node], count - node
        if kind < AND:
            continue
        rows.append(f"{'a' if kind == AND else 'o'} {name} 0")
        row = children[offsets[node] : offsets[node + 1]]
        inner = [count - child for child in row if kinds[child] >= AND]
        leaves = [str(literal[child]) for child in row if kinds[child] == LITERAL]
        if kind == OR:
            edges += [f"{name} {true} {leaf} 0" for leaf in leaves]
            edges += [f"{name} {child} 0" for child in inner]
        else:
            first, *rest = inner or [true]
            edges.append(" ".join([str(name), str(first), *leaves, "0"]))
            edges += [f"{name} {child} 0" for child in rest]
    return [*rows, f"t {true} 0", *edges]
