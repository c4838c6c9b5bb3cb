"""The programs that `datalog.py` measures, with their facts and other routes to the same relations.

A route gives a fingerprint: the number of tuples and the sums of their columns.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Fingerprint = list[float]

CLOSURE = """
type edge(u32, u32)
rel path(a, b) = edge(a, b)
rel path(a, c) = path(a, b), {step}(b, c)
query path
"""
SQL_CLOSURE = """
with recursive path(a, b) as (
    select a, b from edge union select path.a, edge.b from path join edge on path.b = edge.a
) select count(*), sum(a), sum(b) from path
"""
SAME_GENERATION = """
type edge(u32, u32)
rel same(x, y) = edge(p, x), edge(p, y), x != y
rel same(x, y) = edge(a, x), same(a, b), edge(b, y)
query same
"""
SQL_SAME_GENERATION = """
with recursive same(a, b) as (
    select l.b, r.b from edge l join edge r on l.a = r.a where l.b <> r.b
    union select l.b, r.b from same join edge l on l.a = same.a join edge r on r.a = same.b
) select count(*), sum(a), sum(b) from same
"""
GROUPED = """
type edge(g: u32, x: u32, y: u32)
rel path(g, x, y) = edge(g, x, y)
rel path(g, x, z) = path(g, x, y), edge(g, y, z)
query path
"""
SQL_GROUPED = """
with recursive path(a, b, c) as (
    select a, b, c from edge
    union select path.a, path.b, edge.c from path join edge on path.a = edge.a and path.c = edge.b
) select count(*), sum(a), sum(b), sum(c) from path
"""
JOIN = """
type r(u32, u32), s(u32, u32)
rel t(a, c) = r(a, b), s(b, c)
rel counted(a, n) = n := count(c: t(a, c))
query counted
"""
SQL_JOIN = """
with t as (select distinct r.a, s.b from r join s on r.b = s.a),
counted as (select a, count(*) as n from t group by a) select count(*), sum(a), sum(n) from counted
"""
WINDOWS = """
type r(u32), s(u32)
rel near(x, y) = r(x), s(y), y >= x, y < x + 20
query near
"""
RANGES = """
type r(u32), s(u32)
rel near(x, y) = r(x), y in x..x + 20, s(y)
query near
"""
SQL_WINDOWS = "select count(*), sum(r.a), sum(s.a) from r join s on s.a >= r.a and s.a < r.a + 20"
CHAIN = """
type edge(u32, u32)
rel reached = {0}
rel reached(y) = reached(x), edge(x, y)
query reached
"""
COUNT = """
type n(x: i64)
rel n = {{0}}
rel n(x + 1) = n(x), x < {limit}
query n
"""
MUTUAL = """
type a(x: i64), b(x: i64, y: i64), c(x: i64), step(x: i64, y: i64), never(x: i64)
rel a = {{0}}
rel step = {{(0, 1), (1, 1)}}
rel never = {{-1, {limit}}}
rel b(x + 1, x % 2) = a(x), x < {limit}
rel c(x + z) = b(x, y), step(y, z), not never(x)
rel a(x + 1) = c(x), not never(x)
query a
"""
TRIANGLES = """
type edge(u32, u32)
rel found(x, y, z) = edge(x, y), edge(y, z), edge(x, z)
query found
"""
SQL_TRIANGLES = """
select count(*), sum(p.a), sum(p.b), sum(q.b)
from edge p join edge q on q.a = p.b join edge r on r.a = p.a and r.b = q.b
"""
CLIQUES = """
type edge(u32, u32)
rel found(w, x, y, z) = edge(w, x), edge(x, y), edge(w, y), edge(y, z), edge(x, z), edge(w, z)
query found
"""
SQL_CLIQUES = """
with triangle(a, b, c) as (
    select p.a, p.b, q.b from edge p join edge q on q.a = p.b join edge r on r.a = p.a and r.b = q.b
) select count(*), sum(t.a), sum(t.b), sum(t.c), sum(p.b)
from triangle t join edge p on p.a = t.c join edge q on q.a = t.b and q.b = p.b join edge r on r.a = t.a and r.b = p.b
"""
# Pointers of C programs: who flows to whom, and which pointers and places in memory may be the same.
POINTS_TO = """
type assign(u32, u32), dereference(u32, u32)
rel flow(x, y) = assign(x, y)
rel flow(x, x) = assign(x, _) or assign(_, x)
rel flow(x, y) = assign(x, z), memory_alias(z, y)
rel flow(x, y) = flow(x, z), flow(z, y)
rel memory_alias(x, x) = assign(x, _) or assign(_, x)
rel memory_alias(x, w) = dereference(y, x), value_alias(y, z), dereference(z, w)
rel value_alias(x, y) = flow(z, x), flow(z, y)
rel value_alias(x, y) = flow(z, x), memory_alias(z, w), flow(w, y)
query {output}
"""
EQUIVALENCE = """
type edge(u32, u32), node(u32)
rel same(x, x) = node(x)
rel same(x, y) = edge(x, y) or same(y, x)
rel same(x, z) = same(x, y), same(y, z)
query same
"""
SYMMETRIC = """
type edge(u32, u32)
rel same(x, y) = edge(x, y) or edge(y, x)
rel same(x, z) = same(x, y), same(y, z)
query same
"""
LABELS = """
type edge(u32, u32), start(u32), label(node: u32, min of: u32)
rel label(x, x) = start(x)
rel label(y, l) = label(x, l), edge(x, y)
query label
"""
DISTANCES = """
type edge(u32, u32, f64), start(u32), distance(node: u32, min length: f64)
rel distance(x, 0.0) = start(x)
rel distance(y, d + w) = distance(x, d), edge(x, y, w)
query distance
"""
REACHED = """
type edge(u32, u32), start(u32)
rel reached(x) = start(x)
rel reached(y) = reached(x), edge(x, y)
query reached
"""


@dataclass(frozen=True)
class Case:
    """A program with facts.

    facts   relation -> [row, column]
    run     facts as derivable takes them, if they are not those arrays
    sql     a query over tables of the names of the facts, with columns a, b, c, d
    routes  further contestants: facts -> fingerprint
    loops   whether DuckDB runs a loop of INSERT statements, where relations are mutually recursive
    souffle seconds that the reference gives for Soufflé
    """

    text: str
    facts: Mapping[str, np.ndarray]
    output: str
    sql: str | None = None
    provenance: Any = None
    run: Mapping[str, Any] | None = None
    routes: Mapping[str, Callable[[Mapping[str, np.ndarray]], Fingerprint]] = field(default_factory=dict)
    with_tags: bool = False
    loops: bool = False
    souffle: float | None = None


PROGRAMS = Path(__file__).parent / "programs"
# Seconds for closures, the best of a B-tree and a brie, compiled, with two threads (Zen 4); of p2p-Gnutella09 2.20.
SOUFFLE = {
    "chain 4000": 2.76,
    "grid 100": 2.62,
    "fe_sphere": 7.75,
    "CA-HepTh": 7.46,
    "SF.cedge": 16.23,
    "wiki-Vote": 2.89,
}


def data_folder() -> Path:
    if "DERIVABLE_DATA" in os.environ:
        return Path(os.environ["DERIVABLE_DATA"])
    return Path(__file__).parents[2] / "shared" / "data"


def read_edges(name: str) -> np.ndarray:
    """[edge, 2] uint32, nodes renumbered from 0, without repeats."""
    path = data_folder() / "graphs" / f"{name}.txt.gz"
    numbers = np.array(gzip.decompress(path.read_bytes()).split(), dtype=np.int64).reshape(-1, 2)
    _, compact = np.unique(numbers, return_inverse=True)
    return np.unique(compact.reshape(-1, 2), axis=0).astype(np.uint32)


def grid(side: int) -> np.ndarray:
    """[edge, 2]: to the right and down."""
    node = np.arange(side * side, dtype=np.uint32).reshape(side, side)
    right = np.stack([node[:, :-1].ravel(), node[:, 1:].ravel()], 1)
    return np.concatenate([right, np.stack([node[:-1].ravel(), node[1:].ravel()], 1)])


def tree(count: int) -> np.ndarray:
    """[edge, 2]: a random tree, parents before children."""
    child = np.arange(1, count)
    return np.stack([(np.random.default_rng(0).random(count - 1) * child).astype(int), child], 1).astype(np.uint32)


def chain(count: int) -> np.ndarray:
    return np.stack([np.arange(count), np.arange(1, count + 1)], 1).astype(np.uint32)


def random_pairs(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, count, (count, 2)).astype(np.uint32)


def searched(name: str) -> np.ndarray:
    """[edge, 2]: the tree of a breadth-first search from the node with most edges, directions apart."""
    from scipy.sparse.csgraph import breadth_first_order

    edges = read_edges(name)
    matrix = _matrix(edges, int(edges.max()) + 1)
    reached, parent = breadth_first_order(matrix, hub(edges), directed=False)
    return np.stack([parent[reached[1:]], reached[1:]], 1).astype(np.uint32)


def graph(name: str) -> np.ndarray:
    """A public graph, its "search tree of NAME", or a generated one: "grid 100", "tree 3000", "chain 4000"."""
    if name.startswith("search tree of "):
        return searched(name.removeprefix("search tree of "))
    kind, _, size = name.partition(" ")
    made = {"grid": grid, "tree": tree, "chain": chain}.get(kind)
    return read_edges(name) if made is None else made(int(size))


# Routes


def fingerprint(columns: Any) -> Fingerprint:
    """The number of rows and the sums of columns, of texts those of their lengths."""
    columns = list(columns)
    sums = [sum(map(len, c)) if c.dtype == object else np.sum(c, dtype=np.float64) for c in columns]
    return [float(len(columns[0])), *map(float, sums)]


def _matrix(pairs: np.ndarray, count: int) -> Any:
    from scipy.sparse import csr_array

    made = csr_array((np.ones(len(pairs), np.int32), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    made.data[:] = 1
    return made


def closure_by_search(facts: Mapping[str, np.ndarray]) -> Fingerprint:
    """A breadth-first search of SciPy from every node; a node reaches itself only along a cycle."""
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    edges = facts["edge"]
    count = int(edges.max()) + 1
    matrix = _matrix(edges, count)
    _, component = connected_components(matrix, directed=True, connection="strong")
    cyclic = np.bincount(component)[component] > 1
    cyclic[edges[edges[:, 0] == edges[:, 1], 0]] = True
    found = np.zeros(3)
    for node in range(count):
        reached = breadth_first_order(matrix, node, return_predecessors=False)
        number = len(reached) - 1 + cyclic[node]
        found += [number, float(node) * number, float(reached.sum()) - (0 if cyclic[node] else node)]
    return found.tolist()


def chain_by_search(facts: Mapping[str, np.ndarray]) -> Fingerprint:
    from scipy.sparse.csgraph import breadth_first_order

    edges = facts["edge"]
    matrix = _matrix(edges, int(edges.max()) + 1)
    return fingerprint([breadth_first_order(matrix, 0, return_predecessors=False)])


def points_to_by_products(output: str) -> Callable[[Mapping[str, np.ndarray]], Fingerprint]:
    """Products of sparse Boolean matrices until nothing changes."""

    def route(facts: Mapping[str, np.ndarray]) -> Fingerprint:
        from scipy.sparse import csr_array

        count = int(max(part.max() for part in facts.values())) + 1
        assign, dereference = (_matrix(facts[name], count) for name in ("assign", "dereference"))
        nodes = np.unique(facts["assign"])
        itself = _matrix(np.stack([nodes, nodes], 1), count)

        def either(*parts: Any) -> Any:
            total = csr_array(sum(parts[1:], parts[0]))
            total.data[:] = 1
            return total

        flow, memory, size = either(assign, itself), itself, -1
        while flow.nnz + memory.nnz > size:
            size = flow.nnz + memory.nnz
            value = either(flow.T @ flow, flow.T @ memory @ flow)
            memory = either(memory, dereference.T @ value @ dereference)
            flow = either(flow, assign @ memory, flow @ flow)
        value = either(flow.T @ flow, flow.T @ memory @ flow)
        made = {"flow": flow, "memory_alias": memory, "value_alias": value}[output].tocoo()
        return fingerprint([made.row, made.col])

    return route


def components_by_scipy(facts: Mapping[str, np.ndarray]) -> Fingerprint:
    from scipy.sparse.csgraph import connected_components

    count = len(facts["start"])
    _, component = connected_components(_matrix(facts["edge"], count), directed=False)
    smallest = np.full(count, count)
    np.minimum.at(smallest, component, np.arange(count))
    return fingerprint([np.arange(count), smallest[component]])


def classes_by_scipy(facts: Mapping[str, np.ndarray]) -> Fingerprint:
    """The pairs of nodes of one component; a node without edges is in none unless `node` lists it."""
    from scipy.sparse.csgraph import connected_components

    members = np.unique(np.concatenate([part.ravel() for part in facts.values()])).astype(np.int64)
    _, component = connected_components(_matrix(facts["edge"], int(members.max()) + 1), directed=False)
    size = np.bincount(component[members])[component[members]]
    total = float((members * size).sum())
    return [float(size.sum()), total, total]


def distances_by_scipy(facts: Mapping[str, np.ndarray]) -> Fingerprint:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    edges = facts["edge"]
    count = int(edges.max()) + 1
    matrix = csr_array((lengths(len(edges)), (edges[:, 0], edges[:, 1])), shape=(count, count))
    distance = dijkstra(matrix, indices=hub(edges))
    there = np.flatnonzero(np.isfinite(distance))
    return fingerprint([there, distance[there]])


def hub(edges: np.ndarray) -> int:
    """The node with most edges."""
    return int(np.bincount(edges[:, 0]).argmax())


def lengths(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 20, count).astype(float)


def distances_by_lattice(facts: Mapping[str, np.ndarray]) -> Fingerprint:
    import pandas as pd

    edges = facts["edge"]
    rows = pd.DataFrame({"from": edges[:, 0], "to": edges[:, 1], "length": lengths(len(edges))})
    return by_lattice(DISTANCES, "distance")({"edge": rows, "start": np.array([hub(edges)], np.uint32)})


def by_lattice(text: str, name: str) -> Callable[[Mapping[str, Any]], Fingerprint]:
    """A program with a column that keeps the best value, where the other contestants have semirings."""

    def run(facts: Mapping[str, Any]) -> Fingerprint:
        import derivable as dv

        return fingerprint(dv.Program(text).run(facts)[name].columns)

    return run


def untagged(facts: Mapping[str, np.ndarray]) -> Fingerprint:
    import derivable as dv

    answer = dv.Program(CLOSURE.format(step="edge")).run(facts, provenance="unit")["path"]
    return fingerprint(answer.columns)


# Cases


def closure(name: str) -> Case:
    facts = {"edge": graph(name)}
    routes = {"SciPy": closure_by_search}
    text = CLOSURE.format(step="edge")
    return Case(text, facts, "path", SQL_CLOSURE, routes=routes, souffle=SOUFFLE.get(name))


def nonlinear(name: str) -> Case:
    return Case(CLOSURE.format(step="path"), {"edge": graph(name)}, "path", SQL_CLOSURE)


def same_generation(name: str) -> Case:
    return Case(SAME_GENERATION, {"edge": graph(name)}, "same", SQL_SAME_GENERATION)


def equivalence(count: int) -> Case:
    """One class of so many nodes, which are joined in an order of their own."""
    order = np.random.default_rng(0).permutation(count)
    facts = {"edge": np.stack([order[:-1], order[1:]], 1), "node": np.arange(count)}
    facts = {name: part.astype(np.uint32) for name, part in facts.items()}
    return Case(EQUIVALENCE, facts, "same", routes={"SciPy": classes_by_scipy}, souffle=0.01)


def symmetric(name: str) -> Case:
    return Case(SYMMETRIC, {"edge": graph(name)}, "same", routes={"SciPy": classes_by_scipy})


def join(count: int) -> Case:
    return Case(JOIN, {"r": random_pairs(count, 0), "s": random_pairs(count, 1)}, "counted", SQL_JOIN)


def windows(text: str, count: int) -> Case:
    """Pairs of numbers that are less than 20 apart."""
    random = np.random.default_rng(0)
    facts = {name: np.unique(random.integers(0, 10 * count, count)).astype(np.uint32)[:, None] for name in "rs"}
    return Case(text, facts, "near", SQL_WINDOWS)


def rounds(count: int) -> Case:
    return Case(CHAIN, {"edge": chain(count)}, "reached", routes={"SciPy": chain_by_search})


def counting(text: str, limit: int, output: str, step: int) -> Case:
    """A recursion by arithmetic, a row a round, whose answer is every `step`-th integer up to the limit."""
    routes = {"NumPy": lambda facts: fingerprint([np.arange(0, limit + 1, step)])}
    return Case(text.format(limit=limit), {}, output, routes=routes)


def ring(count: int, edges: int) -> Case:
    """As many rules and relations, each of which makes the next one's paths longer by an edge of a chain."""
    names = [f"path{k}" for k in range(count)]
    rules = [f"rel {b}(x, z) = {a}(x, y), edge(y, z)" for a, b in zip(names, [*names[1:], names[0]])]
    text = "\n".join(["type edge(u32, u32)", "rel path0(x, y) = edge(x, y)", *rules, "query path0"])

    def by_lengths(facts: Mapping[str, np.ndarray]) -> Fingerprint:
        starts = [np.arange(edges + 1 - length) for length in range(1, edges + 1, count)]
        ends = [start + length for start, length in zip(starts, range(1, edges + 1, count))]
        return fingerprint([np.concatenate(starts), np.concatenate(ends)])

    return Case(text, {"edge": chain(edges)}, "path0", routes={"NumPy": by_lengths})


def bottleneck(name: str) -> Case:
    import derivable as dv

    edges = graph(name)
    chances = np.random.default_rng(0).uniform(0.1, 0.9, len(edges))
    given = {"edge": dv.independent([tuple(edge) for edge in edges.tolist()], chances)}
    text = CLOSURE.format(step="edge")
    return Case(text, {"edge": edges}, "path", None, "minmaxprob", given, {"derivable, no tags": untagged})


def grouped(groups: int, nodes: int) -> Case:
    edges = np.random.default_rng(0).integers(0, nodes, (groups * nodes * 3 // 2, 2))
    group = np.arange(len(edges)) % groups
    facts = {"edge": np.column_stack([group, edges]).astype(np.uint32)}
    return Case(GROUPED, facts, "path", SQL_GROUPED)


def points_to(count: int, output: str = "value_alias") -> Case:
    """A program of so many variables: values are assigned to later variables nearby, and pointers are few."""
    rng = np.random.default_rng(0)
    source = rng.integers(0, count, count)
    near = np.minimum(source + rng.integers(1, 30, count), count - 1)
    pointers = rng.integers(0, count, count // 4)
    places = count + rng.integers(0, count // 2 + 1, len(pointers))
    facts = {"assign": np.stack([source, near], 1), "dereference": np.stack([pointers, places], 1)}
    facts = {name: part.astype(np.uint32) for name, part in facts.items()}
    routes = {"SciPy": points_to_by_products(output)}
    return Case(POINTS_TO.format(output=output), facts, output, routes=routes, loops=True)


def published(name: str, folder: str, output: str, copies: int) -> Case:
    """A program over the facts that Soufflé has for it, and over copies of them with names of their own."""
    paths = sorted((data_folder() / "program_analysis" / folder / "facts").glob("[!.]*.facts*"))
    read = {path.name.split(".")[0]: read_texts(path) for path in paths}
    facts = {relation: copied(rows, copies) for relation, rows in read.items() if len(rows)}
    return Case((PROGRAMS / f"{name}.scl").read_text(), facts, output, loops=True)


def read_texts(path: Path) -> np.ndarray:
    """[row, column] of a file separated by tabs: texts, and integers in columns of such."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [line.split("\t") for line in text.decode().splitlines()]
    columns = [[*map(int, c)] if all(x.isdigit() for x in c) else c for c in map(list, zip(*rows))]
    found = np.empty((len(rows), len(columns)), dtype=object)
    for c, column in enumerate(columns):
        found[:, c] = column
    return found


def copied(rows: np.ndarray, copies: int) -> np.ndarray:
    """[row, column]: the rows, and copies in which each text has a number behind it."""
    made = np.tile(rows, (copies, 1))
    number = np.repeat(np.arange(copies), len(rows))
    for c in range(rows.shape[1]):
        if isinstance(rows[0, c], str):
            made[:, c] = [f"{text}#{k}" if k else text for text, k in zip(made[:, c], number.tolist())]
    return made


def cliques(name: str, of: int) -> Case:
    edges = graph(name)
    facts = {"edge": edges[edges[:, 0] < edges[:, 1]]}
    return Case(CLIQUES if of == 4 else TRIANGLES, facts, "found", SQL_CLIQUES if of == 4 else SQL_TRIANGLES)


def components(name: str) -> Case:
    """A node's label is its number; the smallest that reaches a node is that of its component."""
    import derivable as dv
    from derivable.algebra.semiring import Semiring

    edges = graph(name)
    both = np.concatenate([edges, edges[:, ::-1]])
    nodes = np.arange(int(edges.max()) + 1, dtype=np.uint32)
    smallest = Semiring(
        "smallest_label",
        lambda a, b: dv.where(b < a, b, a),
        lambda a, b: dv.where(a < b, b, a),
        zero=float("inf"),
        one=-1.0,
        idempotent_plus=True,
        selective_plus=True,
        absorptive=True,
        domain=(-1.0, float("inf")),
        fact=lambda chance, variable: dv.cast(variable, "float64"),
    )
    given = {"edge": both, "start": dv.independent(nodes.tolist(), [0.5] * len(nodes))}
    routes = {"SciPy": components_by_scipy, "derivable, a lattice": by_lattice(LABELS, "label")}
    return Case(REACHED, {"edge": both, "start": nodes}, "reached", None, smallest, given, routes, True)


def distances(name: str) -> Case:
    """The shortest ways from the node with most edges; the tag of an edge is its length."""
    import derivable as dv

    edges = graph(name)
    both = np.unique(np.concatenate([edges, edges[:, ::-1]]), axis=0)
    given = {
        "edge": dv.independent([tuple(edge) for edge in both.tolist()], lengths(len(both))),
        "start": np.array([hub(both)], np.uint32),
    }
    routes = {"SciPy": distances_by_scipy, "derivable, a lattice": distances_by_lattice}
    return Case(REACHED, {"edge": both}, "reached", None, "min_plus", given, routes, True)


def _graphs(kind: Callable[[str], Case], title: str, quick: str, full: str) -> dict[str, tuple[bool, Callable]]:
    named = {name.strip(): name in quick.split(",") for name in f"{quick},{full}".split(",")}
    return {f"{title} {name}": (is_quick, lambda name=name: kind(name)) for name, is_quick in named.items()}


# Title -> whether it belongs to the quick run, and what makes the case.
CASES: dict[str, tuple[bool, Callable[[], Case]]] = {
    **_graphs(
        closure,
        "closure of",
        "cal.cedge,p2p-Gnutella04,wiki-Vote",
        "chain 4000,grid 100,ego-Facebook,CA-HepTh,fe_sphere,SF.cedge",
    ),
    "nonlinear closure of cal.cedge": (True, lambda: nonlinear("cal.cedge")),
    "equivalence of 5,000 nodes": (True, lambda: equivalence(5_000)),
    **_graphs(symmetric, "symmetric closure of", "cal.cedge", "CA-HepTh"),
    **_graphs(
        same_generation,
        "same generation of",
        "tree 3000,cal.cedge,search tree of fe_sphere",
        "grid 150,search tree of cal.cedge,search tree of SF.cedge,search tree of usroads,search tree of CA-HepTh,"
        "search tree of p2p-Gnutella04,search tree of wiki-Vote,search tree of ego-Facebook",
    ),
    "join and count, 1,000,000": (True, lambda: join(1_000_000)),
    "join and count, 4,000,000": (True, lambda: join(4_000_000)),
    "join within a window, 30,000": (True, lambda: windows(WINDOWS, 30_000)),
    "join with a range, 3,000": (True, lambda: windows(RANGES, 3_000)),
    "chain of 200,000 rounds": (True, lambda: rounds(200_000)),
    "counting to 200,000": (True, lambda: counting(COUNT, 200_000, "n", 1)),
    "three relations with negation, 200,001 rounds": (True, lambda: counting(MUTUAL, 200_001, "a", 3)),
    "300 recursive rules": (True, lambda: ring(300, 200)),
    **_graphs(bottleneck, "minmaxprob closure of", "cal.cedge", "wiki-Vote,fe_sphere"),
    "closures of 20 groups": (True, lambda: grouped(20, 500)),
    **{
        f"points-to, {count:,} variables": (count == 1_000, lambda count=count: points_to(count))
        for count in (1_000, 4_000, 16_000, 64_000, 256_000)
    },
    **{
        f"points-to of Java, {copies:,} copies": (
            copies == 1_000,
            lambda copies=copies: published("java_points_to", "souffle-java-pointsto", "points_to", copies),
        )
        for copies in (1, 100, 1_000)
    },
    **{
        f"universities (LUBM), {copies} copies": (
            copies == 1,
            lambda copies=copies: published("lubm", "souffle-lubm", "Person", copies),
        )
        for copies in (1, 10)
    },
    "triangles of ca-CondMat": (True, lambda: cliques("ca-CondMat", 3)),
    "4-cliques of ca-CondMat": (True, lambda: cliques("ca-CondMat", 4)),
    **_graphs(components, "components of", "ca-CondMat", "usroads,SF.cedge"),
    **_graphs(distances, "shortest paths in", "usroads", "SF.cedge"),
}
