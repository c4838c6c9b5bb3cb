"""Same generation on public graphs: which nodes are equally far below a common ancestor?

    python examples/tasks/same_generation.py --data FOLDER [--graphs cal.cedge,ego-Facebook]

Discrete reasoning, one of the two programs with which Datalog engines are compared on graphs (the paper itself shows
transitive closure). Real graphs are read as `transitive_closure.py` reads them. There is nothing to learn, so accuracy
is agreement with products of SciPy's sparse matrices, which are the baseline of speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import derivable as dv
from experiment import draw_bars, figure, options, report_published, save, timed, timed_again
from transitive_closure import files_of, graphs

if TYPE_CHECKING:
    from scipy.sparse import csr_array

PROGRAM = """
    type edge(i32, i32)
    rel same(x, y) = edge(p, x), edge(p, y), x != y
    rel below(x, q) = edge(p, x), same(p, q)
    rel same(x, y) = below(x, q), edge(q, y), x != y
    query same
"""


def multiplied(edges: np.ndarray) -> csr_array:
    """The same relation as a matrix of ones: S = E'E + E'SE without its diagonal, repeated until nothing is new."""
    from scipy.sparse import csr_array

    size = int(edges.max()) + 1
    matrix = csr_array((np.ones(len(edges), np.int32), (edges[:, 0], edges[:, 1])), shape=(size, size))
    new = found = csr_array((size, size), dtype=np.int32)
    step = matrix.T @ matrix
    while True:
        step = csr_array(step)
        step.setdiag(0)
        step.eliminate_zeros()
        step.data[:] = 1
        new = csr_array(step - step.multiply(found))
        new.eliminate_zeros()
        if not new.nnz:
            return found
        found = csr_array(found + new)
        step = matrix.T @ new @ matrix


def main(arguments: list[str] | None = None) -> None:
    sizes = {"graphs": "cal.cedge,ego-Facebook"}
    wanted = options(__doc__ or "", arguments, "same_generation", files=files_of, needs=["scipy"], **sizes)
    program = dv.Program(PROGRAM)
    rates = {}
    for name, edges in graphs(wanted.data, wanted.graphs, wanted.seed).items():
        database, seconds = timed_again(lambda edges=edges: program.run({"edge": edges}))
        pairs = len(database["same"])
        answers, search = timed(lambda edges=edges: multiplied(edges))
        rows, columns = answers.nonzero()
        wide = int(edges.max()) + 1
        start, end = database["same"].columns
        both = np.intersect1d(start.astype(np.int64) * wide + end, rows.astype(np.int64) * wide + columns).size
        rates[name] = pairs / seconds / 1e6
        print(f"{name}: {len(edges):,} edges, {pairs:,} pairs in {seconds:.3f} s; SciPy's products {search:.1f} s")
        print(f"{name}: {both / max(pairs, len(rows), 1):.1%} of the pairs agree")

    report_published(
        "no figure for this program in Lobster's paper, whose graphs and machine are those of transitive closure",
        "no network and nothing to learn: all of the time is in the symbolic part, on one core",
    )

    made, (axes,) = figure(1, 0.8 + 0.4 * len(rates))
    draw_bars(axes, rates, "million pairs a second")
    save(made, wanted.picture)


if __name__ == "__main__":
    main()
