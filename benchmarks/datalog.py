"""Transitive closure of public road, citation and peer-to-peer graphs: tuples per second.

    python benchmarks/datalog.py [--data DIR] [--graphs NAME ...] [--limit TUPLES] [--json FILE]

Ours (`path(a, c) = path(a, b), edge(b, c)`, provenance unit, semi-naive) beside two other routes to the same
relation: SciPy's sparse Boolean matrix product iterated to a fixpoint, and breadth-first search from every
node with SciPy's compiled graph routines. All must find the same number of pairs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from pathlib import Path

import harness
import numpy as np

PROGRAM = """
type edge(u32, u32)
type path(u32, u32)
rel path(a, b) = edge(a, b)
rel path(a, c) = path(a, b), edge(b, c)
query path
"""
GRAPHS = ["cal.cedge", "fe_sphere", "p2p-Gnutella04", "CA-HepTh", "wiki-Vote", "SF.cedge"]


def data_folder() -> Path:
    if "DERIVABLE_DATA" in os.environ:
        return Path(os.environ["DERIVABLE_DATA"])
    return Path(__file__).parents[2] / "shared" / "data"


def read_edges(path: Path) -> np.ndarray:
    """[edge, 2] int64, nodes renumbered from 0, without repeats."""
    numbers = np.array(gzip.decompress(path.read_bytes()).split(), dtype=np.int64).reshape(-1, 2)
    _, compact = np.unique(numbers, return_inverse=True)
    return np.unique(compact.reshape(-1, 2), axis=0)


def ours(edges: np.ndarray) -> tuple[int, float]:
    import derivable as dv

    program = dv.Program(PROGRAM)
    columns = edges.astype(np.uint32)
    start = time.perf_counter()
    answer = program.run(facts={"edge": columns}, provenance="unit")
    pairs = len(answer["path"])
    return pairs, time.perf_counter() - start


def by_matrices(edges: np.ndarray) -> tuple[int, float]:
    """Semi-naive too: the new pairs of each round times the edges."""
    from scipy.sparse import csr_array

    count = int(edges.max()) + 1
    start = time.perf_counter()
    step = csr_array((np.ones(len(edges), np.int32), (edges[:, 0], edges[:, 1])), shape=(count, count)).astype(bool)
    known, recent = step, step
    while recent.nnz:
        found = recent @ step
        recent = found.astype(np.int8) - found.multiply(known).astype(np.int8)
        recent = recent.astype(bool)
        recent.eliminate_zeros()
        known = known + recent
    return known.nnz, time.perf_counter() - start


def by_search(edges: np.ndarray) -> tuple[int, float]:
    """Reachability from every node; a node reaches itself only along a cycle."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    count = int(edges.max()) + 1
    start = time.perf_counter()
    graph = csr_array((np.ones(len(edges), np.int8), (edges[:, 0], edges[:, 1])), shape=(count, count))
    reached = sum(
        len(breadth_first_order(graph, node, directed=True, return_predecessors=False)) - 1 for node in range(count)
    )
    _, component = connected_components(graph, directed=True, connection="strong")
    on_cycle = np.bincount(component)[component] > 1
    on_cycle[edges[edges[:, 0] == edges[:, 1], 0]] = True
    return reached + int(on_cycle.sum()), time.perf_counter() - start


ROUTES = {"derivable": ours, "SciPy searches": by_search, "SciPy products": by_matrices}
LARGEST_PRODUCT = 5_000_000  # pairs; beyond, the products take minutes


def measure(name: str, edges: np.ndarray, rounds: int) -> dict:
    best: dict[str, float] = {}
    pairs: dict[str, int] = {}
    for route, call in ROUTES.items():
        if call is by_matrices and pairs["SciPy searches"] > LARGEST_PRODUCT:
            continue
        for _ in range(rounds):
            pairs[route], seconds = call(edges)
            best[route] = min(best.get(route, seconds), seconds)
    if len(set(pairs.values())) != 1:
        raise SystemExit(f"{name}: the routes disagree: {pairs}")
    return {"graph": name, "edges": len(edges), "pairs": pairs["derivable"], "seconds": best}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder() / "graphs")
    parser.add_argument("--graphs", nargs="+", default=GRAPHS[:3], choices=GRAPHS)
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many is reported")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    ours(np.array([[0, 1], [1, 2]]))  # compile
    results = []
    for name in options.graphs:
        path = options.data / f"{name}.txt.gz"
        if not path.exists():
            print(f"{path.name} is absent", file=sys.stderr)
            continue
        results.append(measure(name, read_edges(path), options.rounds))
        print(f"{name} done", file=sys.stderr)

    rows = [
        [
            result["graph"],
            f"{result['edges']:,}",
            f"{result['pairs']:,}",
            *(harness.duration(result["seconds"][route]) if route in result["seconds"] else "" for route in ROUTES),
            f"{result['pairs'] / result['seconds']['derivable'] / 1e6:.2f}",
        ]
        for result in results
    ]
    print(harness.machine(("numpy", "numba", "scipy")), end="\n\n")
    print(harness.table(["graph", "edges", "pairs", *ROUTES, "million pairs/s, derivable"], rows))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
