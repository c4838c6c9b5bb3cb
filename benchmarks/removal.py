"""What removing 100 facts of a database costs, as parts of a fresh run without them, in one process.

    python benchmarks/removal.py [--facts N] [--rounds R]

The first removals of a database go over the rows of its relations, whose sets and indexes later ones make and read.
Both are the least seconds of the processor over rounds.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import derivable as dv

REMOVED = 100
CLOSURE = "type edge(a: {0}, b: {0})\nrel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))\nquery path"
AROUND = """
rel node(x) = edge(x, _) or edge(_, x)
rel leaf(x) = node(x), not edge(x, _)
rel degree(x, n) = n := count(y: edge(x, y))
query leaf
query degree
"""
POINTS_TO = """
type alloc(v: u32, h: u32), assign(a: u32, b: u32), load(a: u32, b: u32), store(a: u32, b: u32)
rel points(v, h) = alloc(v, h) or (assign(v, w) and points(w, h)) or (load(v, w), points(w, g), heap(g, h))
rel heap(g, h) = store(v, w), points(v, g), points(w, h)
query points
"""


def chains(facts: int, length: int) -> np.ndarray:
    """Edges [edge, 2] of chains of so many edges."""
    starts = np.arange(facts // length)[:, None] * (length + 1) + np.arange(length)
    return np.stack([starts.ravel(), starts.ravel() + 1], 1)


def points_to(facts: int) -> dict[str, np.ndarray]:
    rng, variables = np.random.default_rng(1), 2 * facts
    sizes = {"alloc": facts // 2, "assign": facts // 4, "load": facts // 8, "store": facts // 8}
    return {name: np.unique(rng.integers(0, variables, (size, 2)), axis=0) for name, size in sizes.items()}


def cases(facts: int) -> dict:
    """name -> (program, provenance, facts, the relation that loses some); a fifth part are the facts that may go."""
    short, long = chains(facts, 2), chains(facts, 20)
    hubs = np.stack([np.arange(facts) % (facts // 20) + facts, np.arange(facts)], 1)
    texts = [(f"n{a}", f"n{b}") for a, b in chains(facts // 5, 2).tolist()]
    random = [((1 + k % 97) / 100, tuple(row)) for k, row in enumerate(chains(facts // 5, 2).tolist())]
    return {
        "closure, chains of 2": (CLOSURE.format("i32"), "unit", {"edge": short}, "edge"),
        "closure, chains of 20": (CLOSURE.format("i32"), "unit", {"edge": long}, "edge"),
        "chains of 20, ends": (CLOSURE.format("i32"), "unit", {"edge": long}, "edge", long[19::20]),
        "chains of 20, starts": (CLOSURE.format("i32"), "unit", {"edge": long}, "edge", long[::20]),
        "stars of 20": (CLOSURE.format("i32"), "unit", {"edge": hubs}, "edge"),
        "points-to": (POINTS_TO, "unit", points_to(facts), "assign"),
        "texts": (CLOSURE.format("String"), "unit", {"edge": texts}, "edge"),
        "negation, aggregate": (CLOSURE.format("i32") + AROUND, "unit", {"edge": short}, "edge"),
        "minmaxprob": (CLOSURE.format("i32"), "minmaxprob", {"edge": random}, "edge"),
    }


def seconds(work, *arguments) -> tuple[float, object]:
    began = time.process_time()
    found = work(*arguments)
    return time.process_time() - began, found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--case", help="only those whose name has this")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    print(f"{'':24}{'fresh, ms':>10}{'first':>8}{'later':>8}{'gone':>8}  strata recomputed")
    for name, (text, provenance, facts, relation, *some) in cases(options.facts).items():
        if (options.case or "") not in name:
            continue
        program, rows = dv.Program(text), some[0] if some else facts[relation]
        fresh = min(seconds(program.run, facts, provenance)[0] for _ in range(options.rounds))
        first, later, change = [], [], None
        for _ in range(options.rounds):
            database = program.run(facts, provenance, keep=True)
            for costs in (first, later, later):
                gone = {relation: [rows[k] for k in rng.choice(len(rows), REMOVED, replace=False)]}
                if isinstance(rows, np.ndarray):
                    gone = {relation: np.array(gone[relation])}
                cost, change = seconds(database.remove, gone)
                costs.append(cost)
                database.add(gone)
        recomputed = ", ".join(change.recomputed) or "none"
        went = -sum(step.added for step in change.steps if not step.relations[0].startswith("#"))
        ratios = f"{min(first) / fresh:8.3f}{min(later) / fresh:8.3f}{went:8}"
        print(f"{name:24}{1000 * fresh:10.1f}{ratios}  {recomputed}", flush=True)


if __name__ == "__main__":
    main()
