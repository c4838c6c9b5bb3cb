"""Datalog beside DuckDB's SQL and SciPy: seconds, memory, and whether all find the same tuples.

    python benchmarks/datalog.py [--full] [--cases WORD ...] [--threads N ...] [--beside NAME ...]
                                [--limit SECONDS] [--json FILE]

Every contestant runs in a process of its own, which loads the facts from NumPy arrays each time; the best of the runs
counts, so kernels are compiled. Seconds are those of the clock and those of the processors, which waiting for other
programs does not lengthen. Fingerprints (the number of tuples and the sums of their columns) must agree.
DuckDB says "loop" where a recursive query of SQL cannot say the rules (`sql_loop.py`). `--scaling` measures ten times
the facts instead.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from copy import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import datalog_cases
import harness
import numpy as np
import recursion_cases
from datalog_cases import JOIN, Case, Fingerprint, fingerprint, random_pairs

OURS, DUCKDB = "derivable", "DuckDB"
CASES = datalog_cases.CASES | recursion_cases.CASES
# DuckDB by a loop of statements (`sql_loop.py`).
LOOP = "DuckDB, loop"
# Seconds of the processors after which nothing is run again.
ENOUGH = 4.0
# A contestant gets at least so many seconds, with what it needs to start, and so many times those that ours takes.
LEAST, TIMES = 10.0, 6


def call_of(
    case: Case, contestant: str, threads: int, computed: Callable[[], Any] = lambda: None
) -> Callable[[], Fingerprint]:
    """What is timed: from arrays to the fingerprint. Ours calls `computed` before it reads columns."""
    if contestant == OURS:
        return ours(case, computed)
    if contestant == DUCKDB:
        return by_sql(case, threads)
    if contestant == LOOP:
        return by_loop(case, threads)
    return lambda: case.routes[contestant](case.facts)


def contestants(case: Case, chosen: list[str] | None = None) -> list[str]:
    found = [OURS, *([DUCKDB] if case.sql else []), *([LOOP] if case.loops else []), *case.routes]
    return found if chosen is None else [name for name in found if name == OURS or name in chosen]


def ours(case: Case, computed: Callable[[], Any]) -> Callable[[], Fingerprint]:
    import derivable as dv

    program = dv.Program(case.text)

    def call() -> Fingerprint:
        answer = program.run(facts=case.facts if case.run is None else case.run, provenance=case.provenance or "unit")
        computed()
        found = answer[case.output]
        return fingerprint([*found.columns, *([found.tags] if case.with_tags else [])])

    return call


def by_sql(case: Case, threads: int) -> Callable[[], Fingerprint]:
    import duckdb
    import pyarrow

    def call() -> Fingerprint:
        with duckdb.connect() as connection:
            connection.execute(f"set threads = {threads}")
            for name, rows in case.facts.items():
                columns = {"abcd"[c]: np.ascontiguousarray(rows[:, c]) for c in range(rows.shape[1])}
                connection.register("given", pyarrow.table(columns))
                connection.execute(f"create table {name} as select * from given")
            return [float(number or 0) for number in connection.execute(case.sql).fetchone()]

    return call


def by_loop(case: Case, threads: int) -> Callable[[], Fingerprint]:
    import duckdb
    import sql_loop

    import derivable as dv

    rules = dv.Program(case.text).explain("desugar")

    def call() -> Fingerprint:
        with duckdb.connect() as connection:
            connection.execute(f"set threads = {threads}")
            return [float(number or 0) for number in sql_loop.run(connection, rules, case.facts, case.output)]

    return call


def run_one(title: str, contestant: str, threads: int) -> dict[str, Any]:
    """In a process of its own: the best seconds of up to three runs, the tuples and the memory."""
    from derivable.device.cpu.threads import set_num_threads

    set_num_threads(threads)
    peaks: list[int] = []
    call = call_of(CASES[title][1](), contestant, threads, lambda: peaks.append(harness.peak_memory_bytes()))
    taken: list[float] = []
    busy: list[float] = []
    found: Fingerprint = []
    while len(taken) < 3 and sum(busy) < ENOUGH:
        start = time.perf_counter(), time.process_time()
        found = call()
        taken.append(time.perf_counter() - start[0])
        busy.append(time.process_time() - start[1])
    best = {"seconds": min(taken), "processor": min(busy), "fingerprint": found}
    # Columns that were read are memory that a later run has at hand.
    return best | {"bytes": harness.peak_memory_bytes(), "unread": (peaks or [0])[0]}


def child(title: str, contestant: str, threads: int, limit: float) -> dict[str, Any] | None:
    """What `run_one` gives in a child; None if it took too long."""
    command = [sys.executable, __file__, "--child", title, contestant, str(threads)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise SystemExit(f"{title}, {contestant}:\n{done.stderr}")
    return json.loads(done.stdout)


def agree(a: Fingerprint, b: Fingerprint) -> bool:
    # Routes without tags, or without the values of a column, say less.
    return all(math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-6) for x, y in zip(a, b))


def measure(title: str, threads: int, limit: float, chosen: list[str] | None) -> dict[str, Any]:
    case = CASES[title][1]()
    found: dict[str, dict[str, Any] | None] = {}
    over: dict[str, float] = {}
    for contestant in contestants(case, chosen):
        first = found.get(OURS)
        own = limit if first is None else min(limit, max(LEAST, TIMES * first["seconds"]))
        found[contestant] = child(title, contestant, threads, own)
        if found[contestant] is None:
            over[contestant] = own
    first = found[OURS]
    for contestant, result in found.items():
        if result is not None and first is not None and not agree(first["fingerprint"], result["fingerprint"]):
            raise SystemExit(f"{title}: {first['fingerprint']}, but {contestant}: {result['fingerprint']}")
    return {"case": title, "threads": threads, "found": found, "over": over, "souffle": case.souffle}


def row_of(result: dict[str, Any]) -> list[str]:
    found, over = result["found"], result["over"]
    ours, sql = found[OURS], LOOP if LOOP in found else DUCKDB

    def cells(name: str) -> list[str]:
        if name not in found:
            return ["", "", ""]
        if found[name] is None:
            return [f"over {over[name]:.0f} s", "", ""]
        times = [harness.duration(found[name][clock]) for clock in ("seconds", "processor")]
        return [*times, f"{found[name]['bytes'] / 1e6:,.0f}"]

    others = [f"{cells(name)[0]} ({name})" for name in found if name not in (OURS, DUCKDB, LOOP)]
    ratios = ["", ""]
    if ours is not None and found.get(sql):
        ratios = [f"{found[sql][clock] / ours[clock]:.1f}" for clock in ("seconds", "processor")]
    elif ours is not None and sql in found:
        ratios[0] = f"over {over[sql] / ours['seconds']:.1f}"
    tuples = f"{ours['fingerprint'][0]:,.0f}" if ours else ""
    by_sql = [f"{time} (loop)" if number == 0 and sql == LOOP else time for number, time in enumerate(cells(sql))]
    souffle = "" if result["souffle"] is None else harness.duration(result["souffle"])
    unread = "" if ours is None else f"{ours['unread'] / 1e6:,.0f}"
    shown = [*cells(OURS), unread, *by_sql, *ratios, ", ".join(others), souffle]
    return [result["case"], str(result["threads"]), tuples, *shown]


_TIMES = ["processor", "MB"]
HEADER = ["case", "threads", "tuples", OURS, *_TIMES, "MB before columns are read", DUCKDB, *_TIMES, "ratio"]
HEADER += ["of processors", "another route", "Soufflé, published"]

# Ten times the facts


# Runs follow one another until they have taken so many seconds; and how many there are at least and at most.
REPEATED, RUNS = 0.5, (3, 7)


def scaling_times(count: int, words: list[str]) -> dict[str, tuple[float, float]]:
    """Seconds of the processors for what a program with so many facts goes through: the first time, in memory that the
    process has not used before, and the best of those that follow at once; for titles with one of these words."""
    import derivable as dv

    def is_wanted(*names: str) -> bool:
        return any(word in name for word in words for name in names)

    facts = {"r": random_pairs(count, 0), "s": random_pairs(count, 1)}
    in_tuples = is_wanted("loading tuples of Python", "parsing facts in text")
    tuples = list(map(tuple, facts["r"].tolist())) if in_tuples else []
    loading, counting = dv.Program("type r(u32, u32)\nquery r"), dv.Program(JOIN)
    running = dv.Program(JOIN.replace("query counted", "query t"))
    texts = dv.Program('type s(String)\nrel t($string_concat(x, "a")) = s(x)\nquery t')
    found: dict[str, tuple[float, float]] = {}

    def timed(name: str, call: Callable[..., Any], *given: Any) -> None:
        if not is_wanted(name):
            return
        taken: list[float] = []
        made = None
        while len(taken) < RUNS[0] or (sum(taken) < REPEATED and len(taken) < RUNS[1]):
            del made
            start = time.process_time()
            made = call(*given)
            taken.append(time.process_time() - start)
        found[name] = taken[0], min(taken[1:])

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "r.csv"
        if is_wanted("loading a file"):
            np.savetxt(file, facts["r"], fmt="%d", delimiter=",")
        timed("loading arrays", loading.run, {"r": facts["r"]}, "unit")
        timed("loading tuples of Python", loading.run, {"r": tuples}, "unit")
        timed("loading a file", loading.run, {"r": file}, "unit")
    timed("loading arrays, joining and counting", counting.run, facts, "unit")
    timed("loading arrays and joining", running.run, facts, "unit")
    if is_wanted("reading columns", "to Arrow, in order", "to tuples of Python"):
        joined = running.run(facts, "unit")["t"]
        # A view keeps what it has read.
        timed("reading columns", lambda view: fingerprint(copy(view).columns), joined)
        timed("to Arrow, in order", lambda view: copy(view).to_arrow(), joined)
        timed("to tuples of Python", lambda view: list(copy(view)), joined)
        del joined
    text = f"rel r = {{{', '.join(map(str, tuples))}}}"
    del facts, tuples
    timed("parsing facts in text", dv.Program, text)
    del text
    texts_wanted = is_wanted("loading texts, and `$string_concat`")
    named = [f"text {number}" for number in range(count)] if texts_wanted else []
    timed("loading texts, and `$string_concat`", texts.run, {"s": named}, "unit")
    return found


def scaling_child(count: int, words: list[str]) -> dict[str, Any]:
    """Times and peak memory, with the kernels compiled or read before."""
    scaling_times(10_000, words)
    return {"times": scaling_times(count, words), "bytes": harness.peak_memory_bytes()}


def scaling(counts: list[int], words: list[str]) -> list[list[str]]:
    """Rows of a table, each number of facts in a process of its own."""
    results = []
    for count in counts:
        command = [sys.executable, __file__, "--child", "scaling", str(count), "1", "--cases", *words]
        results.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    return scaling_rows(results)


def scaling_rows(results: list[dict[str, Any]]) -> list[list[str]]:
    """A row for each thing that is timed, and one for memory."""
    rows = []
    for name in results[0]["times"]:
        found = [result["times"][name] for result in results]
        steps = [", ".join(f"{b[k] / a[k]:.1f}" for a, b in pairwise(found)) for k in (1, 0)]
        rows.append([name, *(harness.duration(t[1]) for t in found), *steps])
    peaks = [result["bytes"] for result in results]
    steps = [f"{b / a:.1f}" for a, b in pairwise(peaks)]
    return [*rows, ["peak memory", *(f"{peak / 1e9:.2f} GB" for peak in peaks), ", ".join(steps), ""]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all cases, on one and two threads")
    parser.add_argument("--cases", nargs="+", help="those whose title has one of these words")
    parser.add_argument("--threads", nargs="+", type=int)
    parser.add_argument("--beside", nargs="+", help=f"contestants: {DUCKDB}, {LOOP!r}, SciPy, ...; all, if not given")
    parser.add_argument("--limit", type=float, help="seconds of a contestant")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        title, contestant, threads = options.child
        if title == "scaling":
            print(json.dumps(scaling_child(int(contestant), options.cases)))
            return
        print(json.dumps(run_one(title, contestant, int(threads))))
        return
    print(harness.machine(("numpy", "numba", "scipy", "duckdb")), end="\n\n")
    if options.scaling:
        counts = [100_000, 1_000_000, *([10_000_000] if options.full else [])]
        titles = ["", *(f"{count:,} facts" for count in counts), "ten times", "ten times, the first time"]
        print(harness.table(titles, scaling(counts, options.cases or [""])))
        return
    limit = options.limit or (120.0 if options.full else 20.0)
    words = options.cases or [""]
    chosen = [
        t for t, (quick, _) in CASES.items() if (options.full or options.cases or quick) and any(w in t for w in words)
    ]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    results = []
    for title in chosen:
        for threads in options.threads or ([1, 2] if options.full and cores > 1 else [min(2, cores)]):
            results.append(measure(title, threads, limit, options.beside))
            print(" | ".join(row_of(results[-1])), file=sys.stderr, flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    print(harness.table(HEADER, [row_of(result) for result in results]))


if __name__ == "__main__":
    main()
