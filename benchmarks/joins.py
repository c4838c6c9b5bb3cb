"""Joins of three and more relations, counted, beside DuckDB and rows of bits that are intersected by hand.

    python benchmarks/joins.py                     all cases
    python benchmarks/joins.py --cases clique hub  those whose title has one of these words

Each contestant counts the rows of a join of the same arrays in a process of its own, from the arrays to the number, on
one thread; times are those of the processor, the least of some runs, and memory is the most that the process had, less
what it had before the first run. By hand means Numba over a matrix of bits; where no count is written by hand the cell
is empty. The last rows list what the others count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import harness
import numpy as np

OURS, DUCKDB, BY_HAND = "derivable", "DuckDB", "by hand"
# A contestant runs until it has taken so many seconds behind its first run, at least and at most so many times; and
# seconds that it may take in all.
ENOUGH, LEAST_RUNS, MOST_RUNS, LIMIT = 1.0, 3, 40, 200.0

Facts = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """atoms   the body, relation -> variables
    cyclic     whether its variables form a cycle
    by_hand    name of a function below that counts
    is_listed  whether the rows are wanted, not their number
    """

    atoms: tuple[tuple[str, str], ...]
    facts: Callable[[], Facts]
    cyclic: bool = True
    by_hand: str | None = None
    is_listed: bool = False

    @property
    def variables(self) -> str:
        return "".join(sorted({name for _, names in self.atoms for name in names}))

    @property
    def text(self) -> str:
        arities = {relation: len(names) for relation, names in self.atoms}
        types = "".join(f"type {name}({', '.join(['u32'] * arity)})\n" for name, arity in arities.items())
        body = ", ".join(f"{relation}({', '.join(names)})" for relation, names in self.atoms)
        variables = ", ".join(self.variables)
        if self.is_listed:
            return f"{types}rel found({variables}) = {body}\nquery found"
        return f"{types}rel found(n) = n := count({variables}: {body})\nquery found"

    @property
    def sql(self) -> str:
        columns: dict[str, str] = {}
        equal = []
        for number, (_, names) in enumerate(self.atoms):
            for place, name in enumerate(names):
                column = f"r{number}.c{place}"
                if name in columns:
                    equal.append(f"{columns[name]} = {column}")
                columns.setdefault(name, column)
        tables = ", ".join(f"{relation} r{number}" for number, (relation, _) in enumerate(self.atoms))
        what = ", ".join(f"{columns[name]} as {name}" for name in self.variables) if self.is_listed else "count(*)"
        return f"select {what} from {tables} where {' and '.join(equal)}"


# Graphs, as pairs [edge, 2] with the smaller node first


def ordered(pairs: np.ndarray) -> np.ndarray:
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return np.unique(pairs, axis=0).astype(np.uint32)


@cache
def uniform(nodes: int = 4000, edges: int = 60_000) -> np.ndarray:
    return ordered(np.random.default_rng(1).integers(0, nodes, (edges, 2)))


@cache
def power_law(nodes: int = 4000, edges: int = 40_000) -> np.ndarray:
    weights = np.arange(1, nodes + 1) ** -0.7
    random = np.random.default_rng(2)
    return ordered(random.permutation(nodes)[random.choice(nodes, (edges, 2), p=weights / weights.sum())])


@cache
def hubs(nodes: int = 3000, number: int = 150, spokes: int = 20_000) -> np.ndarray:
    """Hubs that nearly all know each other, and nodes that some hubs know."""
    random = np.random.default_rng(3)
    some, others = np.triu_indices(number, 1)
    known = random.random(len(some)) < 0.8
    outer = np.stack([random.integers(0, number, spokes), random.integers(number, nodes, spokes)], 1)
    return ordered(np.concatenate([np.stack([some[known], others[known]], 1), outer]))


GRAPHS = {"uniform": uniform, "power law": power_law, "hubs": hubs}


def calls() -> Facts:
    """Who calls whom, by what variables point to, as doop has it (Bravenboer and Smaragdakis 2009)."""
    random, n = np.random.default_rng(4), 5000
    i, h = np.arange(4 * n), np.arange(2 * n)
    found = {
        "reach": np.arange(n)[::2, None],
        "insn": np.stack([i, i // 4], 1),
        "base": np.stack([i, i // 4 * 8 + random.integers(0, 8, 4 * n)], 1),
        "points": np.stack([h, h // 2 * 8 + random.integers(0, 8, 2 * n)], 1),
        "kind": np.stack([h, random.integers(0, n // 6, 2 * n)], 1),
        "look": np.stack([random.integers(0, n // 6, 6 * n), random.integers(0, n, 6 * n)], 1),
    }
    return {name: np.unique(rows, axis=0).astype(np.uint32) for name, rows in found.items()}


def fields() -> Facts:
    """Loads and stores of fields, and what variables point to: hot variables point to many objects."""
    random, n = np.random.default_rng(5), 3000
    hot = (n * random.random(6 * n) ** 3).astype(np.int64)
    found = {
        "points": np.stack([hot, random.integers(0, n // 4, 6 * n)], 1),
        "load": np.stack([random.integers(0, n, n), random.integers(0, 20, n), random.integers(0, n, n)], 1),
        "store": np.stack([random.integers(0, n, n), random.integers(0, 20, n), random.integers(0, n, n)], 1),
    }
    return {name: np.unique(rows, axis=0).astype(np.uint32) for name, rows in found.items()}


def registers() -> Facts:
    """Uses of the registers that functions return, of which there are sixteen, as in an analysis of machine code."""
    random, functions = np.random.default_rng(6), 1000
    block = np.arange(8 * functions)
    ends = np.stack([block[::4] // 8, block[::4]], 1)
    found = {
        "used": np.stack([random.integers(0, functions, 20_000), random.integers(0, 16, 20_000), np.arange(20_000)], 1),
        "ends": ends,
        "last": np.stack([np.repeat(block, 4), np.arange(4 * len(block)), random.integers(0, 16, 4 * len(block))], 1),
        "live": np.stack([np.repeat(block, 2), random.integers(0, 16, 2 * len(block))], 1),
    }
    return {name: np.unique(rows, axis=0).astype(np.uint32) for name, rows in found.items()}


def triples() -> Facts:
    random = np.random.default_rng(7)
    rows = {name: (60 * random.random((20_000, 3)) ** 1.5).astype(np.uint32) for name in "rstu"}
    return {name: np.unique(some, axis=0) for name, some in rows.items()}


def of_edges(*pairs: str) -> tuple[tuple[str, str], ...]:
    return tuple(("edge", pair) for pair in pairs)


SHAPES: dict[str, tuple[tuple[tuple[str, str], ...], bool, str | None]] = {
    "triangles": (of_edges("ab", "bc", "ac"), True, "triangles"),
    "4-cliques": (of_edges("ab", "ac", "bc", "ad", "bd", "cd"), True, "four_cliques"),
    "5-cliques": (of_edges("ab", "ac", "bc", "ad", "bd", "cd", "ae", "be", "ce", "de"), True, "five_cliques"),
    "4-cycles": (of_edges("ab", "bc", "ad", "dc"), True, "four_cycles"),
    "5-cycles": (of_edges("ab", "bc", "cd", "ae", "ed"), True, None),
    "bowties": (of_edges("ab", "bc", "ac", "ad", "de", "ae"), True, "bowties"),
    "stars": (of_edges("ab", "ac", "ad"), False, None),
    "chains": (of_edges("ab", "bc", "cd", "de"), False, None),
}
# What gives too many rows for a count by going through them.
SMALLER = {
    ("5-cliques", "hubs"): lambda: hubs(number=70, spokes=10_000),
    ("5-cycles", "hubs"): lambda: hubs(number=40, spokes=4000),
    ("5-cycles", "power law"): lambda: power_law(edges=10_000),
    ("5-cycles", "uniform"): lambda: uniform(edges=30_000),
    ("bowties", "hubs"): lambda: hubs(number=80, spokes=10_000),
    ("bowties", "power law"): lambda: power_law(edges=20_000),
    ("stars", "hubs"): lambda: hubs(number=60, spokes=5000),
    ("stars", "power law"): lambda: power_law(edges=10_000),
    ("chains", "hubs"): lambda: hubs(number=60, spokes=5000),
}


def on(graph: Callable[[], np.ndarray]) -> Callable[[], Facts]:
    return lambda: {"edge": graph()}


CASES: dict[str, Case] = {
    f"{shape}, {name}": Case(atoms, on(SMALLER.get((shape, name), graph)), cyclic, by_hand)
    for shape, (atoms, cyclic, by_hand) in SHAPES.items()
    for name, graph in GRAPHS.items()
}
CASES |= {
    "Loomis-Whitney, three columns": Case((("r", "abc"), ("s", "abd"), ("t", "acd"), ("u", "bcd")), triples),
    "calls of methods, six atoms": Case(
        (("reach", "m"), ("insn", "im"), ("base", "ib"), ("points", "hb"), ("kind", "hk"), ("look", "kt")), calls, False
    ),
    "loads and stores of fields, four atoms": Case(
        (("load", "vft"), ("store", "wfs"), ("points", "vb"), ("points", "wb")), fields
    ),
    "registers that are used, four atoms": Case(
        (("used", "cru"), ("ends", "cb"), ("last", "ber"), ("live", "br")), registers
    ),
    "triangles, hubs, listed": Case(SHAPES["triangles"][0], on(hubs), by_hand="list_triangles", is_listed=True),
    "4-cliques, hubs, listed": Case(SHAPES["4-cliques"][0], on(hubs), by_hand="list_four_cliques", is_listed=True),
}


# Contestants: each gives a call from facts to a number of rows


def ours(case: Case, facts: Facts) -> Callable[[], int]:
    import derivable as dv

    program = dv.Program(case.text)

    def call() -> int:
        found = program.run(facts=facts, provenance="unit")["found"]
        return len(found) if case.is_listed else next(iter(found))[0]

    return call


def by_sql(case: Case, facts: Facts) -> Callable[[], int]:
    import duckdb
    import pyarrow

    def call() -> int:
        with duckdb.connect() as connection:
            connection.execute("set threads = 1")
            for name, rows in facts.items():
                columns = {f"c{c}": np.ascontiguousarray(rows[:, c]) for c in range(rows.shape[1])}
                connection.register("given", pyarrow.table(columns))
                connection.execute(f"create table {name} as select * from given")
            if case.is_listed:
                connection.execute(f"create table found as {case.sql}")
                return connection.execute("select count(*) from found").fetchone()[0]
            return connection.execute(case.sql).fetchone()[0]

    return call


def by_hand(case: Case, facts: Facts) -> Callable[[], int]:
    import joins_by_hand

    function = getattr(joins_by_hand, case.by_hand or "")
    edges = facts["edge"].astype(np.int64)
    return lambda: int(function(joins_by_hand.rows_of_bits(edges)))


CONTESTANTS = {OURS: ours, DUCKDB: by_sql, BY_HAND: by_hand}


def run_one(title: str, contestant: str) -> dict[str, Any]:
    """In a process of its own: the least seconds of some runs, the number of rows, and memory."""
    case = CASES[title]
    call = CONTESTANTS[contestant](case, case.facts())
    before, taken, count = harness.peak_memory_bytes(), [], 0
    while len(taken) < LEAST_RUNS or (len(taken) < MOST_RUNS and sum(taken[1:]) < ENOUGH):
        start = time.process_time()
        count = call()
        taken.append(time.process_time() - start)
    return {"seconds": min(taken), "first": taken[0], "count": count, "bytes": harness.peak_memory_bytes() - before}


def child(title: str, contestant: str) -> dict[str, Any] | None:
    """What `run_one` gives in a child; None if it took too long."""
    harness_threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "DERIVABLE_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(harness_threads, "1")}
    command = [sys.executable, __file__, "--child", title, contestant]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise SystemExit(f"{title}, {contestant}:\n{done.stderr}")
    return json.loads(done.stdout)


def measure(title: str, chosen: list[str]) -> dict[str, dict[str, Any] | None]:
    names = [name for name in chosen if name != BY_HAND or CASES[title].by_hand]
    found = {name: child(title, name) for name in names}
    counts = {one["count"] for one in found.values() if one is not None}
    if len(counts) > 1:
        raise SystemExit(f"{title}: {found}")
    return found


def row_of(title: str, found: dict[str, dict[str, Any] | None]) -> list[str]:
    first = found.get(OURS)
    counts = [one["count"] for one in found.values() if one is not None]
    row = [title, f"{counts[0]:,}" if counts else ""]
    for name in CONTESTANTS:
        one = found.get(name)
        over = name in found and one is None
        row.append(f"over {LIMIT:.0f} s" if over else "" if one is None else harness.duration(one["seconds"]))
        row.append("" if one is None else f"{one['bytes'] / 1e6:,.0f}")
    for name in (DUCKDB, BY_HAND):
        one = found.get(name)
        row.append("" if one is None or first is None else f"{one['seconds'] / first['seconds']:.2f}")
    return row


HEADER = ["case", "rows", OURS, "MB", DUCKDB, "MB", BY_HAND, "MB", f"{DUCKDB} / {OURS}", f"{BY_HAND} / {OURS}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=[""], help="those whose title has one of these words")
    parser.add_argument("--beside", nargs="*", default=[DUCKDB, BY_HAND], choices=[DUCKDB, BY_HAND])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run_one(*options.child)))
        return
    print(harness.machine(("numpy", "numba", "duckdb")), end="\n\n")
    rows, ratios = [], []
    for title, case in CASES.items():
        if not any(word in title for word in options.cases):
            continue
        found = measure(title, [OURS, *options.beside])
        rows.append(row_of(title, found))
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
        first, other = found[OURS], found.get(DUCKDB)
        if case.cyclic and not case.is_listed and first is not None and other is not None:
            ratios.append(other["seconds"] / first["seconds"])
    print(harness.table(HEADER, rows))
    if ratios:
        print(f"\n{DUCKDB} takes {harness.geometric_mean(ratios):.1f} times as long for cyclic joins (geometric mean).")


if __name__ == "__main__":
    main()
