"""Transitive closure of public graphs: which nodes can be reached from which?

    python examples/tasks/transitive_closure.py --data FOLDER [--graphs cal.cedge,ego-Facebook]

Discrete reasoning, as in Lobster's evaluation, on its graphs where the folder has them (`graphs/NAME.txt.gz`, an edge a
line), else on a random one. There is nothing to learn, so accuracy is agreement with SciPy's breadth-first search from
nodes drawn at random, and SciPy is the baseline of speed. The paper gives speedups over Soufflé on a GPU, no seconds.
"""

from __future__ import annotations

import gzip
from argparse import Namespace
from pathlib import Path

import numpy as np

import derivable as dv
from experiment import draw_bars, figure, options, report_published, save, timed, timed_again

PROGRAM = """
    type edge(i32, i32)
    rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
    query path
"""


def read_graph(path: Path) -> np.ndarray:
    """The distinct edges [edge, 2] int32 of a file with an edge a line."""
    with gzip.open(path, "rt") as file:
        return np.unique(np.loadtxt(file, dtype=np.int32, usecols=(0, 1)), axis=0)


def file_of(name: str) -> str:
    return f"graphs/{name}.txt.gz"


def files_of(wanted: Namespace) -> list[str]:
    return list(map(file_of, wanted.graphs.split(",")))


def graphs(data: Path | None, names: str, seed: int) -> dict[str, np.ndarray]:
    if data is not None:
        return {name: read_graph(data / file_of(name)) for name in names.split(",")}
    rng = np.random.default_rng(seed)
    return {"random": np.unique(rng.integers(0, 2000, (2400, 2)).astype(np.int32), axis=0)}


def searched(edges: np.ndarray, sources: np.ndarray) -> dict[int, set[int]]:
    """For each source the nodes that a breadth-first search reaches in one step or more."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    size = int(edges.max()) + 1
    matrix = csr_array((np.ones(len(edges), np.int8), (edges[:, 0], edges[:, 1])), shape=(size, size))
    reached: dict[int, set[int]] = {}
    for source in sources.tolist():
        order = breadth_first_order(matrix, source, return_predecessors=False)
        on_a_cycle = np.isin(edges[edges[:, 1] == source, 0], order).any()
        reached[source] = set(order.tolist()) - (set() if on_a_cycle else {source})
    return reached


def main(arguments: list[str] | None = None) -> None:
    sizes = {"graphs": "cal.cedge,ego-Facebook,wiki-Vote", "sources": 20}
    wanted = options(__doc__ or "", arguments, "closure", files=files_of, needs=["scipy"], **sizes)
    program = dv.Program(PROGRAM)
    rates = {}
    for name, edges in graphs(wanted.data, wanted.graphs, wanted.seed).items():
        database, seconds = timed_again(lambda edges=edges: program.run({"edge": edges}))
        pairs = len(database["path"])

        sources = np.random.default_rng(wanted.seed).choice(np.unique(edges[:, 0]), wanted.sources)
        reached, seconds_of_some = timed(lambda edges=edges, sources=sources: searched(edges, sources))
        search = seconds_of_some / len(sources) * len(np.unique(edges[:, 0]))
        start, end = database["path"].columns
        right = sum(set(end[start == source].tolist()) == nodes for source, nodes in reached.items())
        rates[name] = pairs / seconds / 1e6
        print(f"{name}: {len(edges):,} edges, {pairs:,} pairs in {seconds:.3f} s; SciPy from every node {search:.1f} s")
        print(f"{name}: {right / len(reached):.1%} of the nodes searched agree")

    report_published(
        "speedups over Soufflé on a GPU (Lobster, figure 13), no seconds; no accuracy, as the answers are certain",
        "no network and nothing to learn: all of the time is in the symbolic part, on one core",
    )

    made, (axes,) = figure(1, 0.8 + 0.4 * len(rates))
    draw_bars(axes, rates, "million pairs a second")
    save(made, wanted.picture)


if __name__ == "__main__":
    main()
