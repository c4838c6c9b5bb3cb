"""What every benchmark here shares: paired timing, ratios, tables, a description of the machine.

Contestants are timed in turn, round after round, so that a slow phase of the machine hits all of them; a ratio is
the median over rounds of the ratio within a round.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# More than Python spends on a kernel before it is compiled, and what allocators take until they reuse all they have.
WARM_SECONDS = 0.3
WARM_CALLS = 5


@dataclass(frozen=True)
class Timing:
    """Seconds per call of each contestant, one number a round: `seconds[name][round]`."""

    seconds: dict[str, list[float]]
    calls: dict[str, int] = field(default_factory=dict)

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def best(self, name: str) -> float:
        return min(self.seconds[name])

    def ratio(self, slow: str, fast: str) -> float:
        """How many times longer `slow` takes than `fast`: the median of the ratios of the rounds."""
        return statistics.median(a / b for a, b in zip(self.seconds[slow], self.seconds[fast], strict=True))

    def fastest(self, names: Sequence[str]) -> str:
        return min(names, key=self.median)


def seconds_per_call(call: Callable[[], object], calls: int, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    for _ in range(calls):
        call()
    return (clock() - start) / calls


def paired(
    contestants: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 7,
    slice_seconds: float = 0.05,
    untimed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time zero-argument calls in turn, in another order each round: nobody always comes after the same one.

    untimed  calls before each slice, for what the others left behind in caches and memory

    Each is called `WARM_CALLS` times and for `WARM_SECONDS` first (compilation, caches); then each round repeats a call
    until it has taken about `slice_seconds`. On a machine that others use too, `clock=time.process_time` with one
    thread a contestant takes the processor's time, which waiting does not lengthen.
    """
    calls = {}
    for name, call in contestants.items():
        first, warm = 0, time.perf_counter() + WARM_SECONDS
        while first < WARM_CALLS or time.perf_counter() < warm:
            call()
            first += 1
        calls[name] = max(1, min(100_000, math.ceil(slice_seconds / max(seconds_per_call(call, 1, clock), 1e-9))))
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    order = list(contestants.items())
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name, call in order:
            for _ in range(untimed):
                call()
            seconds[name].append(seconds_per_call(call, calls[name], clock))
    return Timing(seconds, calls)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def use_threads(threads: int) -> None:
    """Give every library the same number of threads. Call it before any of them is imported."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[variable] = str(threads)
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'} "
        f"intra_op_parallelism_threads={threads}"
    ).strip()


def peak_memory_bytes() -> int:
    """The largest resident size that this process ever had."""
    import resource
    import sys

    # Of a child `getrusage` says at least what its parent had when it began.
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine(packages: Sequence[str] = ("numpy", "numba", "torch")) -> str:
    """One paragraph for the head of a report: processor, cores, Python, versions. No names, no paths."""
    versions = []
    for package in packages:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} absent")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{processor()}, {cores} cores; Python {platform.python_version()}, {', '.join(versions)}."


def duration(seconds: float) -> str:
    """`0.0000123` as `12.3 µs`."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers are aligned right."""
    texts = [[str(cell) for cell in row] for row in rows]
    right = [
        all(row[column][:1].isdigit() for row in texts if row[column]) and bool(texts) for column in range(len(header))
    ]
    rule = ["---:" if is_right else "---" for is_right in right]
    return "\n".join("| " + " | ".join(row) + " |" for row in [list(header), rule, *texts])
