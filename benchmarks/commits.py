"""Two commits beside each other: the rows of circuits.py, parallel.py and datalog.py, ours only.

    git worktree add --detach ../before COMMIT
    python benchmarks/commits.py ../before . --write docs/benchmarks/commits.md

Each row is measured in a process of its own for each of the two checkouts, in turn, with the cases of that checkout's
own benchmarks; a ratio is after / before. A row that comes out above 1.1 is measured in two more pairs of processes,
and the median of its three ratios stands: a phase in which the machine is slow must not look like a slower commit.
Times are the processor's on one thread and the wall's on several.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness

OURS = ("ours", "ours, 32-bit indices", "autograd")
NUMBERS = 10_000_000
DOUBTFUL = 1.1
Rows = Iterator[tuple[str, float]]


def circuit_rows(name: str, threads: int, rounds: int) -> Rows:
    """Values with gradients, from arrays and through torch."""
    import derivable as dv

    circuits = importlib.import_module("circuits")
    (instance,) = (one for one in circuits.instances(_cache(), False, name) if one.name == name)
    circuit = dv.circuit.load(instance.path, num_variables=instance.num_variables)
    for semiring in ("log", "real"):
        for batch in circuits.BATCHES:
            arrays = circuits.weights_for(circuit, semiring, batch)
            calls = {
                "arrays": circuits.numpy_call(circuit, semiring, arrays),
                "torch": circuits.torch_call(circuit.to_torch(semiring), arrays),
            }
            for who, seconds in _medians(calls, threads, rounds).items():
                yield f"{name}, {semiring}, batch {batch}, {who}", seconds


def fold_rows(group: str, threads: int, rounds: int) -> Rows:
    """Folds forward, forward and backward, and through torch."""
    parallel = importlib.import_module("parallel")
    for fold, name, buckets in parallel.names():
        if f"{fold} {name}" != group:
            continue
        case = parallel.index_case(name, buckets, NUMBERS) if buckets else parallel.scan_case(name, NUMBERS)
        calls = {
            f"{who} {way}": call
            for way, of in (("forward", case.forward), ("both", case.both))
            for who, call in of.items()
            if who in OURS
        }
        title = f"{group}, {buckets:,} buckets" if buckets else group
        for who, seconds in _medians(calls, threads, rounds).items():
            yield f"{title}, {who}", seconds


def datalog_rows(title: str, threads: int, rounds: int) -> Rows:
    """The best of some runs of a case, as benchmarks/datalog.py reports it."""
    cases: Any = importlib.import_module("datalog").CASES
    if title not in cases:
        # The earlier checkout may not have it.
        return
    case = cases[title][1]()
    call = importlib.import_module("datalog").ours(case, lambda: None)
    clock = time.process_time if threads == 1 else time.perf_counter
    call()
    yield title, min(harness.seconds_per_call(call, 1, clock) for _ in range(rounds))


def _medians(calls: dict[str, Callable[[], object]], threads: int, rounds: int) -> dict[str, float]:
    clock = time.process_time if threads == 1 else time.perf_counter
    timing = harness.paired(calls, rounds=rounds, slice_seconds=0.04, untimed=1, clock=clock)
    return {who: timing.median(who) for who in calls}


def _cache() -> Path:
    folder = Path.home() / ".cache" / "derivable" / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


PARTS: dict[str, Callable[[str, int, int], Rows]] = {
    "circuits": circuit_rows,
    "parallel": fold_rows,
    "datalog": datalog_rows,
}


def groups(benchmark: str) -> list[str]:
    """What is measured in a process of its own: a circuit, a fold with an operator, a case of Datalog."""
    cases: Any = importlib.import_module(benchmark)
    if benchmark == "circuits":
        return [instance.name for instance in cases.instances(_cache(), False, None)]
    if benchmark == "parallel":
        return list(dict.fromkeys(f"{fold} {name}" for fold, name, _ in cases.names()))
    return [title for title, (is_quick, _) in importlib.import_module("datalog").CASES.items() if is_quick]


def measure(checkout: Path, benchmark: str, group: str, threads: int, rounds: int) -> dict[str, float]:
    """Seconds by row, measured in a fresh process with the library and the cases of a checkout."""
    # malloc keeps what is freed: the first touch of fresh pages is measured by parallel.py --processes.
    kept = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 28)}
    paths = os.pathsep.join([str(checkout / "benchmarks"), str(checkout / "src")])
    # Kernels are compiled before anything is measured, not while other ways serve.
    compiled = {"DERIVABLE_TIER": "compiled", "PYTHONPATH": paths}
    environment = {**os.environ, **(kept if benchmark == "parallel" else {}), **compiled}
    part = [sys.executable, "-P", __file__, "--part", benchmark, group, str(threads), str(rounds)]
    done = subprocess.run(part, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return dict(json.loads(line) for line in done.stdout.splitlines())


def run_part(benchmark: str, group: str, threads: int, rounds: int) -> None:
    harness.use_threads(threads)
    os.environ["DERIVABLE_NUM_THREADS"] = str(threads)
    import torch

    torch.set_num_threads(threads)
    for row in PARTS[benchmark](group, threads, rounds):
        print(json.dumps(row), flush=True)


def compare(before: Path, after: Path, benchmark: str, threads: int, rounds: int, only: str) -> list[dict[str, Any]]:
    """One dictionary a row: its name, the seconds of both and the ratios of the pairs."""
    found: dict[str, dict[str, Any]] = {}
    for group in groups(benchmark):
        if only not in group:
            continue
        for again in range(3):
            old = measure(before, benchmark, group, threads, rounds)
            new = measure(after, benchmark, group, threads, rounds)
            for name in old:
                row = found.setdefault(name, {"name": name, "before": [], "after": []})
                row["before"].append(old[name])
                row["after"].append(new[name])
            if not again and all(_ratio(found[name]) <= DOUBTFUL for name in old):
                break
        for name in old:
            print(f"{threads} threads, {name}: {_ratio(found[name]):.2f}", file=sys.stderr)
    return list(found.values())


def _ratio(row: dict[str, Any]) -> float:
    return statistics.median(new / old for old, new in zip(row["before"], row["after"]))


def report(benchmark: str, threads: int, rows: list[dict[str, Any]]) -> str:
    ratios = [_ratio(row) for row in rows]
    cells = [
        [row["name"], *(harness.duration(statistics.median(row[who])) for who in ("before", "after")), f"{ratio:.2f}"]
        for row, ratio in zip(rows, ratios)
    ]
    title = f"## {benchmark}.py, {threads} thread{'s' * (threads > 1)}"
    summary = (
        f"{len(rows)} rows, geometric mean {harness.geometric_mean(ratios):.2f}, largest {max(ratios):.2f}, "
        f"{sum(ratio > 1.15 for ratio in ratios)} above 1.15."
    )
    return f"{title}\n\n{summary}\n\n{harness.table(['row', 'before', 'after', 'ratio'], cells)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path, nargs="?", help="a checkout of the earlier commit")
    parser.add_argument("after", type=Path, nargs="?", help="a checkout of the later commit")
    parser.add_argument("--benchmarks", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="circuits, folds or cases whose name contains this")
    parser.add_argument("--write", type=Path, help="write the tables to this Markdown file")
    parser.add_argument("--part", nargs=4, metavar=("BENCHMARK", "GROUP", "THREADS", "ROUNDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        benchmark, group, threads, rounds = options.part
        run_part(benchmark, group, int(threads), int(rounds))
        return
    if options.before is None or options.after is None:
        parser.error("two checkouts are needed, the earlier one first")
    before, after = options.before.resolve(), options.after.resolve()
    named = [_commit(checkout) for checkout in (before, after)]
    parts = []
    for benchmark in options.benchmarks:
        for threads in options.threads:
            rows = compare(before, after, benchmark, threads, options.rounds, options.only)
            if rows:
                parts.append(report(benchmark, threads, rows))
                print(parts[-1], flush=True)
    if options.write:
        machine = harness.machine(("numpy", "numba", "torch", "jax"))
        which = f"`python benchmarks/commits.py`: {named[0]} (before) and {named[1]} (after)."
        head = f"# Two commits\n\n{which} {machine}\n"
        introduction = (__doc__ or "").split("\n\n", 2)[2]
        options.write.write_text(f"{head}\n{introduction}\n\n" + "\n".join(parts))


def _commit(checkout: Path) -> str:
    asked = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
