"""Program analyses and other recursions: first, second and third run, memory, and DuckDB where SQL can say them.

    python benchmarks/analyses.py                    all programs of benchmarks/programs that have facts here
    python benchmarks/analyses.py --programs tc sg   some of them

Each program has a process of its own, on one thread; times are those of the processor, the first run with what it
compiles or reads from the caches of earlier processes. DuckDB computes recursive common table expressions, in which a
relation is recursive by itself alone and once in a body; where the analysis needs more its cell is empty.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import analysis_facts
import harness
import numpy as np

HERE = Path(__file__).parent
RUNS, LIMIT = 3, 300.0
COLUMNS = "abcdefgh"
# Programs whose recursion is linear and by itself alone: the query of what the program's output counts.
SQL = {
    "bipartite": """
        with recursive both_ways(a, b) as (select a, b from edge union select b, a from edge),
        side(x, s) as (select a, 0 from start union select b, 1 - s from side, both_ways where x = a)
        select count(*) from side""",
    "csda": """
        with recursive reaches(x, y) as (
            select a, b from "null" union select x, b from reaches, arc where y = a)
        select count(*) from reaches""",
    "reach": """
        with recursive reached(x) as (select a from start union select b from reached, edge where x = a)
        select count(*) from reached""",
    "sg": """
        with recursive same(x, y) as (
            select p.b, q.b from parent p, parent q where p.a = q.a and p.b <> q.b
            union select p.b, q.b from parent p, same, parent q where p.a = x and q.a = y)
        select count(*) from same""",
    "tc": """
        with recursive path(x, y) as (select a, b from edge union select x, b from path, edge where y = a)
        select count(*) from path""",
}


def ours(name: str) -> dict[str, Any]:
    import derivable as dv

    text, facts = (HERE / "programs" / f"{name}.scl").read_text(), analysis_facts.FACTS[name]()
    before, taken, rows = harness.peak_memory_bytes(), [], {}
    program = None
    for _ in range(RUNS):
        start = time.process_time()
        program = program or dv.Program(text)
        found = program.run(facts=facts, provenance="unit")
        rows = {output: len(found[output]) for output in found}
        taken.append(time.process_time() - start)
    size = sum(len(one) for one in facts.values())
    return {"seconds": taken, "rows": rows, "facts": size, "bytes": harness.peak_memory_bytes() - before}


def by_sql(name: str) -> dict[str, Any]:
    import duckdb
    import pyarrow

    facts = analysis_facts.FACTS[name]()
    before, taken, count = harness.peak_memory_bytes(), [], 0
    for _ in range(RUNS):
        start = time.process_time()
        with duckdb.connect() as connection:
            connection.execute("set threads = 1")
            for relation, rows in facts.items():
                columns = {COLUMNS[c]: np.ascontiguousarray(rows[:, c]) for c in range(rows.shape[1])}
                connection.register("given", pyarrow.table(columns))
                connection.execute(f'create table "{relation}" as select * from given')
            count = connection.execute(SQL[name]).fetchone()[0]
        taken.append(time.process_time() - start)
    return {"seconds": taken, "rows": count, "bytes": harness.peak_memory_bytes() - before}


def child(name: str, is_sql: bool) -> dict[str, Any] | None:
    """What one of them gives in a process of its own; None if it took too long."""
    environment = {**os.environ, "DERIVABLE_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--child", name, *(["--sql"] if is_sql else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)
    except subprocess.TimeoutExpired:
        return None
    if not done.stdout.strip():
        raise SystemExit(f"{name}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


HEADER = ["program", "facts", "rows", "first run", "second", "third", "MB", "DuckDB", "MB", "DuckDB / third"]


def row_of(name: str, has_sql: bool) -> list[str]:
    found = child(name, False)
    if found is None:
        return [name, "", "", f"over {LIMIT:.0f} s"]
    sql = child(name, True) if has_sql and name in SQL else None
    times = [harness.duration(seconds) for seconds in found["seconds"]]
    row = [name, f"{found['facts']:,}", f"{sum(found['rows'].values()):,}", *times, f"{found['bytes'] / 1e6:,.0f}"]
    if sql is None:
        over = f"over {LIMIT:.0f} s" if has_sql and name in SQL else ""
        return [*row, over, "", ""]
    first = next(iter(found["rows"].values()))
    if sql["rows"] != first:
        raise SystemExit(f"{name}: {first} rows, {sql['rows']} by DuckDB")
    least = min(sql["seconds"])
    return [*row, harness.duration(least), f"{sql['bytes'] / 1e6:,.0f}", f"{least / found['seconds'][-1]:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="+", default=list(analysis_facts.FACTS), choices=list(analysis_facts.FACTS))
    parser.add_argument("--alone", action="store_true", help="without DuckDB")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--sql", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(by_sql(options.child) if options.sql else ours(options.child)))
        return
    print(harness.machine(("numpy", "duckdb")), end="\n\n")
    rows = []
    for name in options.programs:
        rows.append(row_of(name, not options.alone))
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    print(harness.table(HEADER, rows))


if __name__ == "__main__":
    main()
