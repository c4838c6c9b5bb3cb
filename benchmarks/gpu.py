"""What a GPU gives: every case is checked against the CPU, in float64 where it has numbers, then timed beside it.

    python benchmarks/gpu.py --out docs/benchmarks/gpu.md --seconds 150
    python benchmarks/gpu.py --warm                          first, where kernels are not compiled yet: all cases once
    python benchmarks/gpu.py --only closure --only circuit   cases whose names contain one of these
    python benchmarks/gpu.py --dry                           small cases on the CPU, Triton's kernels in its interpreter

The cases are in `gpu_cases.py`. The page is written anew after each of them, so that a run that is cut off leaves one.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness

THREADS = 2
ROUNDS = 3
# A round repeats calls that are shorter than that.
ROUND_SECONDS = 0.03
# A call that is longer is timed once.
LONG_SECONDS = 0.4
INTRODUCTION = """\
`python benchmarks/gpu.py` checks each case against the CPU and then times warm calls: medians of three rounds, or one
call that takes longer than 0.4 s. A time ends when the device has nothing left to do. "Share of the bandwidth" compares
the bytes that have to move at least with what a copy moves in that time; it may be more than one where data stay in the
cache.
"""


@dataclass(frozen=True)
class Walk:
    """One case.

    name     of its row
    cpu      computes by the CPU's kernels
    device   computes on the device; what it returns may still be there
    read     (a result of either) -> what users read, on the host
    check    (of the CPU, of the device), as read -> raises unless they are equal
    note     of what size it was, from the CPU's result as read
    inside   a call that returns the seconds for which `device` has moved results to the host, and resets them
    others   other programs for the same thing, by name: each makes its call when it is its turn
    traffic  bytes that have to be read or written at least; None where no bound is known
    """

    name: str
    cpu: Callable[[], Any]
    device: Callable[[], Any]
    check: Callable[[Any, Any], None]
    note: Callable[[Any], str]
    read: Callable[[Any], Any] | None = None
    inside: Callable[[], float] = lambda: 0.0
    others: Mapping[str, Callable[[], Callable[[], Any]]] = field(default_factory=dict)
    traffic: int | None = None


@dataclass(frozen=True)
class Group:
    """Cases of one table.

    text   what to know about it
    walks  (device, whether only small ones) -> what makes each case, by name
    after  (device, whether only small ones, seconds that it may take) -> columns of cases that other
           processes measure, by case, in seconds; what they do to a device's state ends with them
    """

    title: str
    text: str
    walks: Callable[[Any, bool], Iterator[tuple[str, Callable[[], Walk]]]]
    after: Callable[[Any, bool, float], dict[str, dict[str, float]]] | None = None


def synchronise(device: Any) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def seconds(call: Callable[[], Any], device: Any, rounds: int, inside: Callable[[], float] | None = None) -> float:
    """Per call, the median of rounds; `inside` is what does not count."""

    def timed(calls: int) -> float:
        synchronise(device)
        if inside is not None:
            inside()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        synchronise(device)
        spent = time.perf_counter() - began
        return (spent - (inside() if inside is not None else 0.0)) / calls

    gc.collect()
    once = timed(1)
    if rounds == 1 or once > LONG_SECONDS:
        return once
    calls = max(1, min(300, math.ceil(ROUND_SECONDS / max(once, 1e-9))))
    first = [once] if calls == 1 else [timed(calls)]
    return statistics.median(first + [timed(calls) for _ in range(rounds - 1)])


def copied_bytes_per_second(device: Any, is_small: bool) -> float:
    import torch

    source = torch.ones(1 << (20 if is_small else 30), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * source.nbytes / seconds(lambda: target.copy_(source), device, ROUNDS)


def shown(spent: float) -> str:
    return "" if math.isnan(spent) else harness.duration(spent)


def ratio(slow: float, fast: float) -> str:
    return "" if math.isnan(slow / fast) else f"{slow / fast:.3g}"


def measured(walk: Walk, device: Any, is_small: bool, bandwidth: float) -> dict[str, str]:
    """A row of its table, by column; small cases are called once."""
    import torch

    from derivable.core.diagnostics import DerivableError

    def per_call(call: Callable[[], Any], where: Any, inside: Callable[[], float] | None = None) -> float:
        return math.nan if is_small else seconds(call, where, ROUNDS, inside)

    read = walk.read or (lambda found: found)
    ours = read(walk.cpu())
    row = {"case": walk.name, "size": walk.note(ours)}
    row["CPU"] = shown(cpu := per_call(walk.cpu, torch.device("cpu")))
    try:
        theirs = walk.device()
        synchronise(device)
    except DerivableError as error:
        return row | {"device": f"refused: {error.message}"}
    walk.check(ours, read(theirs))
    del ours, theirs
    spent = per_call(walk.device, device, walk.inside)
    row |= {"device": shown(spent), "times as fast": ratio(cpu, spent)}
    if walk.read is not None and not is_small:
        walk.inside()
        found = walk.device()
        moved = walk.inside()
        row["reading"] = shown(max(moved + seconds(lambda: read(found), device, 1), 1e-9))
        del found
    for name, make in walk.others.items():
        try:
            other = make()
            other()
            row[name] = shown(there := per_call(other, device))
            row[f"times {name}"] = ratio(there, spent)
        except ModuleNotFoundError:
            continue
        except Exception as error:
            row[name] = f"{type(error).__name__}"
            print(f"{walk.name}: {name}: {error}", file=sys.stderr, flush=True)
    if walk.traffic is not None:
        row["share of the bandwidth"] = ratio(walk.traffic / bandwidth, spent)
    return row


def page(name: str, bandwidth: float, groups: Sequence[tuple[Group, list[dict[str, str]]]]) -> str:
    machine = (
        f"{harness.machine(('numpy', 'numba', 'torch', 'triton'))} {name}; a copy moves {bandwidth / 1e9:,.0f} GB/s."
    )
    parts = ["# On a GPU", INTRODUCTION.strip(), machine]
    for group, rows in groups:
        if not rows:
            continue
        columns = list(dict.fromkeys(column for row in rows for column in row))
        titles = {"CPU": f"CPU, {THREADS} threads", "device": name}
        cells = [[row.get(column, "") for column in columns] for row in rows]
        table = harness.table([titles.get(column, column) for column in columns], cells)
        parts += [f"## {group.title}", group.text, table]
    return "\n\n".join(parts) + "\n"


def report(
    device: Any, is_small: bool, until: float, only: Sequence[str], out: Path | None, part: tuple[int, int] | None
) -> int:
    """Print the cases, write the page; the number of cases that failed or had no time left.

    part  (k, n): only cases k, k + n, k + 2 n, ... of all, each once, for what is compiled
    """
    import gpu_cases
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"torch on the {device.type.upper()}"
    bandwidth = copied_bytes_per_second(device, is_small)
    found: list[tuple[Group, list[dict[str, str]]]] = [(group, []) for group in gpu_cases.GROUPS]
    failures, number = 0, -1

    def write() -> None:
        if out is not None:
            out.write_text(page(name, bandwidth, found), encoding="utf-8")

    for group, rows in found:
        for case, make in group.walks(device, is_small):
            number += 1
            if part is not None and number % part[1] != part[0]:
                continue
            if only and not any(part in f"{group.title}: {case}" for part in only):
                continue
            if time.monotonic() > until:
                failures += 1
                print(f"{case}: left out, no time is left", flush=True)
                continue
            began = time.monotonic()
            try:
                rows.append(measured(make(), device, is_small or part is not None, bandwidth))
                print(" | ".join(f"{key} {value}" for key, value in rows[-1].items()), end="")
            except Exception:
                failures += 1
                traceback.print_exc()
                print(f"{case}: failed", end="")
            print(f" [{time.monotonic() - began:.1f} s]", flush=True)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
            write()
    for group, rows in found:
        if group.after is None or not rows or part is not None:
            continue
        more = group.after(device, is_small, until - time.monotonic())
        for row in rows:
            for column, spent in more.get(row["case"], {}).items():
                row[column] = harness.duration(spent)
                print(f"{row['case']}: {column} {row[column]}", flush=True)
        write()
    return failures


def warm(device: str, limit: float) -> int:
    """Run every case once, in as many processes as there are cores, so that kernels are compiled; the number that did
    not end well."""
    count = max(len(os.sched_getaffinity(0)) - 1, 1)
    rest = [sys.executable, __file__, "--device", device, "--seconds", str(limit)]
    running = [subprocess.Popen([*rest, "--part", str(k), str(count)], stdout=subprocess.DEVNULL) for k in range(count)]
    return sum(process.wait() != 0 for process in running)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="small cases on the CPU")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", action="append", default=[], help='cases with this in "table: name"')
    parser.add_argument("--out", type=Path, help="write the page there")
    parser.add_argument("--seconds", type=float, default=420, help="no case begins after that")
    parser.add_argument("--warm", action="store_true", help="run every case once, side by side")
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.warm:
        return warm(given.device, given.seconds)
    harness.use_threads(THREADS)
    os.environ["DERIVABLE_NUM_THREADS"] = str(THREADS)
    if given.dry:
        os.environ["TRITON_INTERPRET"] = "1"
    sys.path.insert(0, str(Path(__file__).parent))
    import torch

    torch.set_num_threads(THREADS)
    device = torch.device("cpu" if given.dry else given.device)
    until = time.monotonic() + given.seconds
    return 1 if report(device, given.dry, until, given.only, given.out, given.part and tuple(given.part)) else 0


if __name__ == "__main__":
    sys.exit(main())
