"""Building, reading and writing circuits: nodes and megabytes per second, beside klaycircuits and PySDD.

    python benchmarks/structure.py [--nodes N] [--rounds R]

Random 3-CNF SDDs and D4 circuits are compiled first (a few seconds), then each file is read by
everybody in turn. Numbers are medians over rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import tempfile
from pathlib import Path

import harness
import numpy as np


def random_arrays(nodes: int, variables: int = 1000, seed: int = 0):
    """All literals, then and- and or-nodes with two or three children among the last 100,000 nodes."""
    rng = np.random.default_rng(seed)
    kind = np.concatenate([np.full(2 * variables, 2), rng.integers(3, 5, nodes - 2 * variables)]).astype(np.uint8)
    literal = np.zeros(nodes, np.int32)
    literal[: 2 * variables] = np.r_[1 : variables + 1, -variables:0]
    sizes = np.where(kind > 2, rng.integers(2, 4, nodes), 0)
    parents = np.repeat(np.arange(nodes), sizes)
    children = (parents - 1 - rng.random(len(parents)) * np.minimum(parents, 100_000)).astype(np.int32)
    return kind, literal, np.r_[0, np.cumsum(sizes)], np.maximum(children, 0)


def random_cnf(variables: int, clauses: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [
        [v * rng.choice((1, -1)) for v in rng.sample(range(1, variables + 1), min(3, variables))]
        for _ in range(clauses)
    ]


def write_random_sdd(path: Path, variables: int, clauses: int, seed: int) -> None:
    from pysdd.sdd import SddManager

    manager = SddManager(var_count=variables)
    root = manager.true()
    for clause in random_cnf(variables, clauses, seed):
        disjunction = manager.false()
        for literal in clause:
            disjunction = disjunction | manager.literal(literal)
        root = root & disjunction
    root.save(bytes(path))
    manager.vtree().save(bytes(path.with_suffix(".vtree")))


@contextlib.contextmanager
def no_stdout():
    """D4 prints statistics from C++."""
    kept = os.dup(1)
    with open(os.devnull, "w") as sink:
        os.dup2(sink.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def write_random_d4(path: Path, variables: int, clauses: int, seed: int) -> None:
    import py_d4

    with no_stdout():
        path.write_text(py_d4.Solver(random_cnf(variables, clauses, seed), variables).compile().getNNFString())


def klay_sdd(path: Path):
    import klay

    circuit = klay.Circuit()
    circuit.add_sdd_from_file(str(path))
    return circuit


def klay_d4(path: Path):
    import klay

    circuit = klay.Circuit()
    circuit.add_d4_from_file(str(path))
    return circuit


def pysdd(path: Path):
    from pysdd.sdd import SddManager, Vtree

    manager = SddManager.from_vtree(Vtree.from_file(bytes(path.with_suffix(".vtree"))))
    return manager.read_sdd_file(bytes(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000, help="size of the circuit that is built from arrays")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    harness.use_threads(1)
    from derivable.circuit import load
    from derivable.circuit.files.nnf_file import write_nnf
    from derivable.circuit.graph.builder import circuit_from_arrays

    print(harness.machine(("numpy", "numba", "klaycircuits", "pysdd")))
    arrays = random_arrays(options.nodes)
    roots = np.arange(options.nodes)
    timing = harness.paired({"build": lambda: circuit_from_arrays(*arrays, roots, 1000)}, rounds=options.rounds)
    seconds = timing.median("build")
    print(f"\nbuild {options.nodes} nodes, {len(arrays[3])} edges: {harness.duration(seconds)}, ", end="")
    print(f"{options.nodes / seconds / 1e6:.2f} M nodes/s\n")

    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = []
        for variables, clauses in ((30, 60), (40, 60)):
            path = folder / f"sdd_{variables}_{clauses}.sdd"
            write_random_sdd(path, variables, clauses, 1)
            files.append((path, {"klay": klay_sdd, "PySDD": pysdd}))
        for variables, clauses in ((50, 120), (70, 160)):
            path = folder / f"d4_{variables}_{clauses}.nnf"
            write_random_d4(path, variables, clauses, 1)
            files.append((path, {"klay": klay_d4}))
        largest = load(files[1][0])
        for dialect in ("d4", "c2d"):
            path = folder / f"largest_{dialect}.nnf"
            write_nnf(largest, path, dialect)
            files.append((path, {}))
        largest.save(folder / "largest.dvc")
        files.append((folder / "largest.dvc", {}))
        for path, peers in files:
            calls = {"ours": lambda path=path: load(path)}
            calls |= {peer: lambda read=read, path=path: read(path) for peer, read in peers.items()}
            timing = harness.paired(calls, rounds=options.rounds)
            circuit = load(path)
            size = path.stat().st_size
            ours = timing.median("ours")
            row = [path.name, f"{size / 1e6:.3g}", circuit.num_nodes, circuit.num_edges, harness.duration(ours)]
            row.append(f"{size / ours / 1e6:.0f}")
            row += [harness.duration(timing.median(peer)) if peer in peers else "" for peer in ("klay", "PySDD")]
            rows.append(row)
    print(harness.table(["file", "MB", "nodes", "edges", "ours", "MB/s", "klaycircuits", "PySDD"], rows))


if __name__ == "__main__":
    main()
