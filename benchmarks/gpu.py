"""What a GPU gives: every case is checked against the CPU, in float64 where it has numbers, then both are timed.

    python benchmarks/gpu.py --out docs/benchmarks/gpu.md    all of it, in eight minutes
    python benchmarks/gpu.py --goals --out FILE              cases that have goals only, in about three
    python benchmarks/gpu.py --warm                          first, where kernels are not compiled yet: all cases once
    python benchmarks/gpu.py --only closure --only circuit   cases whose names contain one of these
    python benchmarks/gpu.py --dry                           small cases on the CPU, Triton's kernels in its interpreter

The cases are in `gpu_cases.py`, goals and bounds in `gpu_goals.py`. The page is written again after each case, so that
a run that is cut off leaves one.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import math
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import harness
from gpu_goals import DEVICE, ROUNDS, Bound, Costs, Found, Goal, seconds, section, synchronise, work_of

THREADS = 2
# The parts of the page in the order of their worth: a group, what of it has a process of its own, and its seconds.
ORDER = (
    (0, None, 120.0),
    (1, None, 45.0),
    (1, "derivable", 30.0),
    (1, "klay", 35.0),
    (2, None, 120.0),
    (3, None, 70.0),
    (4, None, 40.0),
)
INTRODUCTION = """\
`python benchmarks/gpu.py` checks each case against the CPU and then times warm calls: medians of three rounds, or one
call that takes longer than 0.4 s. A time ends when the device has nothing left to do. "Share of the bandwidth" compares
the bytes that have to move at least with what a copy moves in that time; it may be more than one where data stay in the
cache.
"""


@dataclass(frozen=True)
class Walk:
    """What is computed in a case.

    cpu      computes by the CPU's kernels
    device   computes on the device; what it returns may still be there
    read     (a result of either) -> what users read, on the host
    check    (of the CPU, of the device), as read -> raises unless they are equal
    note     of what size it was, from the CPU's result as read
    inside   a call that returns the seconds for which `device` has moved results to the host, and resets them
    others   other programs for the same thing, by name: each makes its call when it is its turn
    bound    what has to be done at least; None where it is not known
    """

    cpu: Callable[[], Any]
    device: Callable[[], Any]
    check: Callable[[Any, Any], None]
    note: Callable[[Any], str]
    read: Callable[[Any], Any] | None = None
    inside: Callable[[], float] = lambda: 0.0
    others: Mapping[str, Callable[[], Callable[[], Any]]] = field(default_factory=dict)
    bound: Bound | None = None


@dataclass(frozen=True)
class Case:
    """A row: its name, what makes its walk, and what was promised of it."""

    name: str
    make: Callable[[], Walk]
    goals: tuple[Goal, ...] = ()


@dataclass(frozen=True)
class Group:
    """Cases of one table.

    text    what to know about it
    walks   (device, whether only small ones) -> the cases, those with goals first
    others  by name: (device, whether only small ones, whether only goals) -> (case, column, seconds), for what has a
            process of its own, as an error there ends all work of a process with the device
    """

    title: str
    text: str
    walks: Callable[[Any, bool], Iterator[Case]]
    others: Mapping[str, Callable[[Any, bool, bool], Iterator[tuple[str, str, float]]]] = field(default_factory=dict)


def shown(spent: float) -> str:
    return "" if math.isnan(spent) else harness.duration(spent)


def ratio(slow: float, fast: float) -> str:
    return "" if math.isnan(slow / fast) else f"{slow / fast:.3g}"


def measured(case: Case, device: Any, is_small: bool, costs: Costs) -> tuple[dict[str, str], Found]:
    """A row of its table, by column, and the times in it; small cases are called once."""
    import torch

    from derivable.core.diagnostics import DerivableError

    def per_call(call: Callable[[], Any], where: Any, inside: Callable[[], float] | None = None) -> float:
        return math.nan if is_small else seconds(call, where, ROUNDS, inside)

    walk = case.make()
    bound = walk.bound or Bound()
    read = walk.read or (lambda found: found)
    began = time.perf_counter()
    ours = walk.cpu()
    cpu = time.perf_counter() - began
    ours = read(ours)
    row, times = {"case": case.name, "size": walk.note(ours)}, {}
    # The first call loads kernels too, which counts little where it is that long.
    if cpu < 2.0 or is_small:
        cpu = per_call(walk.cpu, torch.device("cpu"))
    row["CPU"], times["CPU"] = shown(cpu), cpu
    try:
        theirs = walk.device()
        synchronise(device)
    except DerivableError as error:
        return row | {DEVICE: f"refused: {error.message}"}, Found(case.goals, times, bound)
    walk.check(ours, read(theirs))
    del ours, theirs
    spent = times[DEVICE] = per_call(walk.device, device, walk.inside)
    row |= {DEVICE: shown(spent), "times as fast": ratio(cpu, spent)}
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
            row[f"times {name}"], times[name] = ratio(there, spent), there
        except ModuleNotFoundError:
            continue
        except Exception as error:
            row[name] = f"{type(error).__name__}"
            print(f"{case.name}: {name}: {error}", file=sys.stderr, flush=True)
    if bound.bytes:
        row["share of the bandwidth"] = ratio(bound.bytes * costs.byte, spent)
    launches, busy = work_of(walk.device, device) if case.goals and not is_small else (0, math.nan)
    return row, Found(case.goals, times, bound, launches, busy)


def page(tables: Sequence[Mapping[str, Any]]) -> str:
    """The page of tables: "title", "text", "device", "machine", "costs", "rows" and "found" of each."""
    first: Any = tables[0] if tables else {"machine": "", "device": ""}
    parts = ["# On a GPU", INTRODUCTION.strip(), first["machine"]]
    if "costs" in first:
        found = [(case, of) for table in tables for case, of in table["found"].items()]
        parts += section(Costs(**first["costs"]), found)
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
        """A head ("title", ...), a row and what was found, or (case, column, seconds) of a row."""
        head = {"title": "", "text": "", "device": "", "machine": ""}
        table = self.found.setdefault(number, {**head, "rows": [], "found": {}})
        if "row" in message:
            table["rows"].append(message["row"])
            table["found"][message["row"]["case"]] = Found.of(message["found"])
        elif "case" in message:
            for row in table["rows"]:
                if row["case"] == message["case"]:
                    row[message["column"]] = harness.duration(message["seconds"])
                    table["found"][row["case"]].seconds[message["column"]] = message["seconds"]
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
    is_goals: bool,
    part: Sequence[int] | None,
    take: Callable[[Mapping[str, Any]], None],
) -> int:
    """Run the cases of a group, or what has a process of its own; how many failed or had no time left.

    only      texts of which the name of a case has one; and `is_goals` leaves out those without goals
    part      (k, n): only cases k, k + n, k + 2 n, ..., each once, for what is compiled
    """
    import gpu_cases
    import torch

    group = gpu_cases.GROUPS[number]
    if other is not None:
        for case, column, spent in group.others[other](device, is_small, is_goals):
            take({"case": case, "column": column, "seconds": spent})
            if time.monotonic() > until:
                return 1
        return 0
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"torch on the {device.type.upper()}"
    costs = Costs.of(device, is_small)
    machine = harness.machine(("numpy", "numba", "torch", "triton"))
    said = f"{machine} {name}; a copy moves {1 / costs.byte / 1e9:,.0f} GB/s."
    take({"title": group.title, "text": group.text, "device": name, "machine": said, "costs": asdict(costs)})
    failures = 0
    for place, case in enumerate(group.walks(device, is_small)):
        is_other = part is not None and (place + number) % part[1] != part[0]
        is_left = only and not any(text in f"{group.title}: {case.name}" for text in only)
        if is_other or is_left or (is_goals and not case.goals):
            continue
        if time.monotonic() > until:
            failures += 1
            print(f"{case.name}: left out, no time is left", file=sys.stderr, flush=True)
            continue
        began = time.monotonic()
        try:
            row, found = measured(case, device, is_small or part is not None, costs)
            take({"row": row, "found": found.message()})
            print(*(f"{key} {value} |" for key, value in row.items()), end=" ", file=sys.stderr)
        except Exception:
            failures += 1
            traceback.print_exc()
            print(f"{case.name}: failed", end=" ", file=sys.stderr)
        print(f"[{time.monotonic() - began:.1f} s]", file=sys.stderr, flush=True)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return failures


def in_processes(device: str, until: float, only: Sequence[str], is_goals: bool, out: Path | None) -> int:
    """A process for each part of the page, all of which begin to import at once and work one after the other; how many
    did not end well."""
    rest = [sys.executable, __file__, "--device", device, *(x for text in only for x in ("--only", text))]
    rest += ["--goals"] * is_goals
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


def child(number: int, other: str | None, device: Any, only: Sequence[str], is_goals: bool) -> int:
    """One process of `in_processes`: it imports, waits for the seconds that it may take, and prints what it finds."""
    import gpu_cases  # noqa: F401
    import torch

    torch.zeros(1, device=device)
    until = float(sys.stdin.readline()) + time.monotonic()
    return work(
        number, other, device, False, until, only, is_goals, None, lambda said: print(json.dumps(said), flush=True)
    )


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
    parser.add_argument("--goals", action="store_true", help="cases that have goals only")
    parser.add_argument("--out", type=Path, help="write the page there")
    parser.add_argument("--seconds", type=float, default=460, help="no case begins after that")
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
        return in_processes(given.device, until, given.only, given.goals, given.out)
    if given.dry:
        os.environ["TRITON_INTERPRET"] = "1"
    sys.path.insert(0, str(Path(__file__).parent))
    import torch

    torch.set_num_threads(THREADS)
    device = torch.device("cpu" if given.dry else given.device)
    if given.group is not None:
        return 1 if child(given.group, given.other, device, given.only, given.goals) else 0
    tables, failures = Tables(given.out), 0
    for number, other, _ in ORDER:
        if not (given.only and other) and not (given.part and other):
            take = functools.partial(tables.take, number)
            failures += work(number, other, device, given.dry, until, given.only, given.goals, given.part, take)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
