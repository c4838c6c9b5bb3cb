"""Plain work over one relation with text keys, beside DuckDB: loading, sums, means, counts, first rows.

    python benchmarks/relational.py                        all cases at 10^6 and 3 * 10^6 rows
    python benchmarks/relational.py --cases sum top --rows 100000

Each contestant has a process of its own and one thread, and goes from the same Arrow table in memory, whose texts are
plain strings, to the rows of the answer; loading goes from a Parquet file, which nobody keeps from one run to the next.
DuckDB makes a table of the Arrow table and queries that, as a run of derivable does; the last column is DuckDB's query
over the Arrow table as it is, which reads only the columns of the query. Times are those of the processor, the least of
some runs; memory is the most that the process had, less what it had with the Arrow table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import numpy as np

OURS, TABLE, VIEW = "derivable", "DuckDB", "over Arrow"
RUNS, LIMIT = 5, 300.0
SIZES = 1_000_000, 3_000_000
TYPES = "type sale(id: i64, customer: String, item: String, amount: f64, units: i64)\n"


@dataclass(frozen=True)
class Case:
    """What is asked for of `sale`; loading asks for nothing."""

    rules: str
    sql: str


CASES = {
    "load": Case("", ""),
    "sum of integers by customer": Case(
        "rel r(c, s) = s := sum[i](u: sale(i, c, _, _, u))",
        "select customer, sum(units) from sale group by customer",
    ),
    "sum of floats by customer": Case(
        "rel r(c, s) = s := sum[i](a: sale(i, c, _, a, _))",
        "select customer, sum(amount) from sale group by customer",
    ),
    "sum by customer and item": Case(
        "rel r(c, m, s) = s := sum[i](u: sale(i, c, m, _, u))",
        "select customer, item, sum(units) from sale group by customer, item",
    ),
    "mean by item": Case(
        "rel r(m, s) = s := avg[i](a: sale(i, _, m, a, _))",
        "select item, avg(amount) from sale group by item",
    ),
    "count by item": Case(
        "rel r(m, n) = n := count(i: sale(i, _, m, _, _))",
        "select item, count(*) from sale group by item",
    ),
    "largest by item": Case(
        "rel r(m, a) = a := max(a: sale(_, _, m, a, _))",
        "select item, max(amount) from sale group by item",
    ),
    "first 3": Case(
        "rel r(i, a) = (p, i, a) := sort[i](a: sale(i, _, _, a, _)), p < 3",
        "select id, amount from sale order by amount desc, id limit 3",
    ),
    "first 3 by item": Case(
        "rel r(m, i, a) = (p, i, a) := sort[i](a: sale(i, _, m, a, _)), p < 3",
        "select item, id, amount from (select item, id, amount, row_number() over "
        "(partition by item order by amount desc, id) as place from sale) where place <= 3",
    ),
    "filter": Case(
        "rel r(i, a) = sale(i, _, _, a, u), u == 7, a > 990.0",
        "select id, amount from sale where units = 7 and amount > 990.0",
    ),
}


def sales(rows: int) -> Any:
    """Sales to some ten thousand customers, of whom few buy most, with numbers that ascend."""
    import pyarrow

    random = np.random.default_rng(1)
    customers = (random.zipf(1.3, rows) % 20_000).astype(str)
    return pyarrow.table(
        {
            "id": np.arange(rows),
            "customer": pyarrow.array(np.char.add("customer-", customers).tolist()),
            "item": pyarrow.array(np.char.add("item ", random.integers(0, 500, rows).astype(str)).tolist()),
            "amount": np.round(random.random(rows) * 1000, 2),
            "units": random.integers(1, 9, rows),
        }
    )


def ours(case: Case, path: Path) -> Callable[[], Any]:
    from pyarrow import parquet

    import derivable as dv

    if not case.rules:
        text = f'@file("{path}")\n{TYPES}rel r(n) = n := count(i: sale(i, _, _, _, _))\nquery r'
        program = dv.Program(text, roots=[path.parent])

        def load() -> Any:
            # Columns of files that have not changed are there already.
            os.utime(path)
            return program.run()["r"].columns

        return load
    facts, program = {"sale": parquet.read_table(path)}, dv.Program(f"{TYPES}{case.rules}\nquery r")
    return lambda: program.run(facts)["r"].columns


def by_sql(case: Case, path: Path, is_view: bool = False) -> Callable[[], Any]:
    import duckdb
    from pyarrow import parquet

    connection = duckdb.connect()
    connection.execute("set threads = 1")
    if not case.sql:

        def load() -> Any:
            connection.execute(f"create or replace table sale as select * from read_parquet('{path}')")
            return [connection.execute("select count(*) from sale").fetchnumpy()["count_star()"]]

        return load
    connection.register("sale" if is_view else "given", parquet.read_table(path))

    def call() -> Any:
        if not is_view:
            connection.execute("create or replace table sale as select * from given")
        return list(connection.execute(case.sql).fetchnumpy().values())

    return call


CONTESTANTS: dict[str, Callable[[Case, Path], Callable[[], Any]]] = {
    OURS: ours,
    TABLE: by_sql,
    VIEW: lambda case, path: by_sql(case, path, is_view=True),
}


def fingerprint(columns: list[Any]) -> list[Any]:
    """The number of rows, and the sum of each column: of texts that of their lengths."""
    found: list[Any] = [len(columns[0])]
    for column in map(np.asarray, columns):
        numbers = [len(text) for text in column.tolist()] if column.dtype.kind in "OUT" else column
        found.append(f"{float(np.sum(numbers, dtype=float)):.9g}")
    return found


def run_one(title: str, contestant: str, path: str) -> dict[str, Any]:
    call = CONTESTANTS[contestant](CASES[title], Path(path))
    before, seconds, found = harness.peak_memory_bytes(), [], []
    for _ in range(RUNS):
        start = time.process_time()
        columns = call()
        seconds.append(time.process_time() - start)
        found = fingerprint(columns)
    most = harness.peak_memory_bytes() - before
    return {"seconds": min(seconds), "first": seconds[0], "bytes": most, "found": found}


def child(title: str, contestant: str, path: Path) -> dict[str, Any]:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "DERIVABLE_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, "1")}
    command = [sys.executable, __file__, "--child", title, contestant, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)
    if done.returncode:
        raise SystemExit(f"{title}, {contestant}:\n{done.stderr}")
    return json.loads(done.stdout)


HEADER = ["case", "rows", OURS, "MB", TABLE, "MB", f"{OURS} / {TABLE}", f"{TABLE} {VIEW}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=[""], help="those whose title has one of these words")
    parser.add_argument("--rows", nargs="+", type=int, default=SIZES)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run_one(*options.child)))
        return
    from pyarrow import parquet

    print(harness.machine(("numpy", "numba", "pyarrow", "duckdb")), end="\n\n")
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.rows:
            path = Path(folder) / f"sales-{rows}.parquet"
            parquet.write_table(sales(rows), path)
            for title in CASES:
                if not any(word in title for word in options.cases):
                    continue
                found = {name: child(title, name, path) for name in CONTESTANTS}
                if len({str(one["found"]) for one in found.values()}) > 1:
                    raise SystemExit(f"{title}: {found}")
                first, second, third = found.values()
                cells = [title, f"{rows:,}"]
                for one in (first, second):
                    cells += [harness.duration(one["seconds"]), f"{one['bytes'] / 1e6:,.0f}"]
                over_arrow = harness.duration(third["seconds"]) if CASES[title].sql else ""
                table.append([*cells, f"{first['seconds'] / second['seconds']:.2f}", over_arrow])
                print(" | ".join(table[-1]), file=sys.stderr, flush=True)
    print(harness.table(HEADER, table))


if __name__ == "__main__":
    main()
