"""What a GPU gives: every case is checked against the CPU, in float64 where it has numbers, then both are timed.

    python benchmarks/gpu.py --out docs/benchmarks/gpu.md --seconds 150
    python benchmarks/gpu.py --warm                          first, where kernels are not compiled yet: all cases once
    python benchmarks/gpu.py --only closure --only circuit   cases whose names contain one of these
    python benchmarks/gpu.py --dry                           small cases on the CPU, Triton's kernels in its interpreter

The cases are in `gpu_cases.py`. The page is written again after each of them, so that a run that is cut off leaves one.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import threading
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
# The parts of the page in the order of their worth: a group, what of it has a process of its own, and its seconds.
ORDER = (
    (0, None, 40.0),
    (1, None, 14.0),
    (1, "derivable", 9.0),
    (1, "klay", 10.0),
    (2, None, 13.0),
    (3, None, 12.0),
    (4, None, 6.0),
)
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

    text    what to know about it
    walks   (device, whether only small ones) -> what makes each case, by name
    others  by name: (device, whether only small ones) -> (case, column, seconds), for what has a process of its own, as
            an error there ends all work of a process with the device
    """

    title: str
    text: str
    walks: Callable[[Any, bool], Iterator[tuple[str, Callable[[], Walk]]]]
    others: Mapping[str, Callable[[Any, bool], Iterator[tuple[str, str, float]]]] = field(default_factory=dict)


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
    began = time.perf_counter()
    ours = walk.cpu()
    cpu = time.perf_counter() - began
    ours = read(ours)
    row = {"case": walk.name, "size": walk.note(ours)}
    # The first call loads kernels too, which counts little where it is that long.
    if cpu < 2.0 or is_small:
        cpu = per_call(walk.cpu, torch.device("cpu"))
    row["CPU"] = shown(cpu)
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


def page(tables: Sequence[Mapping[str, Any]]) -> str:
    """The page of tables: "title", "text", "device", "machine" and "rows" of each."""
    first = next(iter(tables), {"machine": "", "device": ""})
    parts = ["# On a GPU", INTRODUCTION.strip(), first["machine"]]
    for table in tables:
        rows = table["rows"]
        if not rows:
            continue
        columns = list(dict.fromkeys(column for row in rows for column in row))
        titles = {"CPU": f"CPU, {THREADS} threads", "device": first["device"]}
        cells = [[row.get(column, "") for column in columns] for row in rows]
        parts += [f"## {table['title']}", table["text"], harness.table([titles.get(c, c) for c in columns], cells)]
    return "\n\n".join(parts) + "\n"


@dataclass
class Tables:
    """What is found, by number of the group, written after each case."""

    out: Path | None
    found: dict[int, dict[str, Any]] = field(default_factory=dict)

    def take(self, number: int, message: Mapping[str, Any]) -> None:
        """A head ("title", ...), a row, or (case, column, seconds) of a row."""
        table = self.found.setdefault(number, {"title": "", "text": "", "device": "", "machine": "", "rows": []})
        if "row" in message:
            table["rows"].append(message["row"])
        elif "case" in message:
            for row in table["rows"]:
                if row["case"] == message["case"]:
                    row[message["column"]] = harness.duration(message["seconds"])
        else:
            table.update(message)
        if self.out is not None:
            self.out.write_text(page([self.found[k] for k in sorted(self.found)]), encoding="utf-8")


def work(
    number: int,
    other: str | None,
    device: Any,
    is_small: bool,
    until: float,
    only: Sequence[str],
    part: Sequence[int] | None,
    take: Callable[[Mapping[str, Any]], None],
) -> int:
    """Run the cases of a group, or what has a process of its own; how many failed or had no time left.

    part  (k, n): only cases k, k + n, k + 2 n, ..., each once, for what is compiled
    """
    import gpu_cases
    import torch

    group = gpu_cases.GROUPS[number]
    if other is not None:
        for case, column, spent in group.others[other](device, is_small):
            take({"case": case, "column": column, "seconds": spent})
            if time.monotonic() > until:
                return 1
        return 0
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"torch on the {device.type.upper()}"
    bandwidth = copied_bytes_per_second(device, is_small)
    machine = harness.machine(("numpy", "numba", "torch", "triton"))
    said = f"{machine} {name}; a copy moves {bandwidth / 1e9:,.0f} GB/s."
    take({"title": group.title, "text": group.text, "device": name, "machine": said})
    failures = 0
    for place, (case, make) in enumerate(group.walks(device, is_small)):
        is_other = part is not None and (place + number) % part[1] != part[0]
        if is_other or (only and not any(text in f"{group.title}: {case}" for text in only)):
            continue
        if time.monotonic() > until:
            failures += 1
            print(f"{case}: left out, no time is left", file=sys.stderr, flush=True)
            continue
        began = time.monotonic()
        try:
            row = measured(make(), device, is_small or part is not None, bandwidth)
            take({"row": row})
            print(*(f"{key} {value} |" for key, value in row.items()), end=" ", file=sys.stderr)
        except Exception:
            failures += 1
            traceback.print_exc()
            print(f"{case}: failed", end=" ", file=sys.stderr)
        print(f"[{time.monotonic() - began:.1f} s]", file=sys.stderr, flush=True)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return failures


def in_processes(device: str, until: float, only: Sequence[str], out: Path | None) -> int:
    """A process for each part of the page, all of which begin to import at once and work one after the other; how many
    did not end well."""
    rest = [sys.executable, __file__, "--device", device, *(x for text in only for x in ("--only", text))]
    parts = [(k, other, limit) for k, other, limit in ORDER if not (only and other)]
    running = []
    for number, other, _ in parts:
        options = ["--group", str(number), *(["--other", other] if other else [])]
        running.append(subprocess.Popen([*rest, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    tables, failures = Tables(out), 0
    for (number, _, limit), process in zip(parts, running):
        left = min(limit, until - time.monotonic())
        if left <= 0:
            process.kill()
            failures += 1
            continue
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(left + 15, process.kill)
        late.start()
        try:
            process.stdin.write(f"{left}\n")
            process.stdin.close()
            for line in process.stdout:
                tables.take(number, json.loads(line))
        except (BrokenPipeError, ValueError) as error:
            print(f"part {number}: {error}", file=sys.stderr, flush=True)
        failures += process.wait() != 0
        late.cancel()
    return failures


def child(number: int, other: str | None, device: Any, only: Sequence[str]) -> int:
    """One process of `in_processes`: it imports, waits for the seconds that it may take, and prints what it finds."""
    import gpu_cases  # noqa: F401
    import torch

    torch.zeros(1, device=device)
    until = float(sys.stdin.readline()) + time.monotonic()
    return work(number, other, device, False, until, only, None, lambda said: print(json.dumps(said), flush=True))


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
    parser.add_argument("--group", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--other", help=argparse.SUPPRESS)
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    if given.warm:
        return warm(given.device, given.seconds)
    harness.use_threads(THREADS)
    os.environ["DERIVABLE_NUM_THREADS"] = str(THREADS)
    if not given.dry and given.part is None and given.group is None:
        return in_processes(given.device, until, given.only, given.out)
    if given.dry:
        os.environ["TRITON_INTERPRET"] = "1"
    sys.path.insert(0, str(Path(__file__).parent))
    import torch

    torch.set_num_threads(THREADS)
    device = torch.device("cpu" if given.dry else given.device)
    if given.group is not None:
        return 1 if child(given.group, given.other, device, given.only) else 0
    tables, failures = Tables(given.out), 0
    for number, other, _ in ORDER:
        if not (given.only and other) and not (given.part and other):
            take = functools.partial(tables.take, number)
            failures += work(number, other, device, given.dry, until, given.only, given.part, take)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
