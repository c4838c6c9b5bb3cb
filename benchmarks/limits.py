"""Whether `time_limit` and `memory_limit` hold: hard work of each kind under a limit, each in a process of its own.

    python benchmarks/limits.py [--time 2 5] [--memory 300]

A row says how long the work took, by the clock and of processors, and the most memory that the process and those that
it started had at one time, beyond what it had before, as looks every hundredth of a second see it. Where other work
shares the machine, a look at the clock that is a tenth of a second of a processor late is later by the clock. Work that
ends before the limit says nothing about it.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import derivable as dv
from derivable.core.diagnostics import DerivableError

Work = Callable[..., Any]
CLOSURE = "type e(u32, u32)\nrel p(x, y) = e(x, y)\nrel p(x, z) = p(x, y), p(y, z)\nquery p\n"


def pairs(count: int, times: int) -> list[tuple[int, int]]:
    return [(random.randrange(count), random.randrange(count)) for _ in range(times * count)]


def clauses(count: int, number: int) -> list[list[int]]:
    """A random formula of three literals a clause."""
    drawn = [random.sample(range(1, count + 1), 3) for _ in range(number)]
    return [[variable * random.choice((1, -1)) for variable in clause] for clause in drawn]


def smokers(count: int, density: float, stress: str = "0.3", influence: str = "0.2") -> str:
    friends = [(a, b) for a in range(count) for b in range(count) if a != b and random.random() < density]
    return (
        f"type person(u32), friend(u32, u32)\nrel person = {{{', '.join(map(str, range(count)))}}}\n"
        f"rel friend = {{{', '.join(map(str, friends))}}}\nrel {stress}::stress(x) = person(x)\n"
        f"rel {influence}::influences(x, y) = friend(x, y)\nrel smokes(x) = stress(x)\n"
        "rel smokes(x) = influences(y, x), smokes(y)\nquery smokes\n"
    )


def recursion() -> Work:
    facts = {"e": pairs(6000, 6)}
    program = dv.Program(CLOSURE + "rel t(x, y, z) = p(x, y), p(y, z)\nquery t")
    return lambda **limits: program.run(facts, **limits)


def tagged() -> Work:
    facts = {"e": [(0.5, edge) for edge in pairs(400, 5)]}
    program = dv.Program(CLOSURE)
    return lambda **limits: program.run(facts, provenance="topkproofs", k=10, **limits)


def grounding() -> Work:
    facts = {"e": [(0.5, edge) for edge in pairs(900, 4)]}
    program = dv.Program(CLOSURE)
    return lambda **limits: program.run(facts, provenance="exact", **limits)


def exact() -> Work:
    program = dv.Program(smokers(18, 0.4))
    return lambda **limits: program.run(provenance="exact", **limits)


def approximate() -> Work:
    program = dv.Program(smokers(18, 0.4))
    return lambda **limits: program.run(approximate=1e-6, **limits)


def compiler(name: Any, count: int, number: int) -> Callable[[], Work]:
    def work() -> Work:
        formula = clauses(count, number)
        return lambda **limits: dv.circuit.compile(formula, name, **limits)

    return work


def elimination() -> Work:
    """A grid of nodes whose tables read the nodes to the left and above: wide, but not too wide."""
    size, lines = 15, list[str]()
    for i in range(size):
        for j in range(size):
            parents = [f"n{i - 1}_{j}"] * (i > 0) + [f"n{i}_{j - 1}"] * (j > 0)
            name, columns = f"n{i}_{j}", ", ".join(["u8"] * (len(parents) + 1))
            lines += [f"type {name}(u8)", f"type {name}_row({columns})"]
            for given in np.ndindex(*[3] * len(parents)):
                numbers = np.random.default_rng((i, j, *given)).dirichlet((1.0, 1.0, 1.0)).round(6)
                numbers[0] = 1.0 - numbers[1:].sum()
                rows = "; ".join(f"{p:.9f}::({', '.join(map(str, (*given, k)))})" for k, p in enumerate(numbers))
                lines.append(f"rel {name}_row = {{{rows}}}")
            atoms = [f"{parent}(v{k})" for k, parent in enumerate(parents)]
            values = ", ".join([*(f"v{k}" for k in range(len(parents))), "s"])
            lines.append(f"rel {name}(s) = {', '.join([*atoms, f'{name}_row({values})'])}")
    program = dv.Program("\n".join([*lines, f"query n{size - 1}_{size - 1}"]))
    return lambda **limits: program.run(provenance="exact", **limits)


def samples() -> Work:
    program = dv.Program(smokers(16, 0.35))
    return lambda **limits: program.sample(1000, evidence={"smokes": {(0,): True}}, **limits)


def best_world() -> Work:
    program = dv.Program(smokers(16, 0.35))
    return lambda **limits: program.most_probable(evidence={"smokes": {(0,): True}}, **limits)


def learning() -> Work:
    program = dv.Program(smokers(14, 0.3, "?", "?"))
    seen = [{"smokes": {(0,): True, (1,): False}}, {"smokes": {(2,): True}}]
    return lambda **limits: program.fit(seen, **limits)


def long_learning() -> Work:
    """Facts that are seen two at a time, each pair with a rate of its own: the likelihood gets better for long."""
    facts = " ".join(f"rel ?::a{i}()" for i in range(12))
    seen_pairs = [(i, j) for i in range(12) for j in range(i)]
    rules = " ".join(f"rel c{i}_{j}() = a{i}() or a{j}() query c{i}_{j}" for i, j in seen_pairs)
    program = dv.Program(f"{facts} {rules}")
    seen = [{f"c{i}_{j}": random.random() < (i * j % 7) / 7} for i, j in seen_pairs for _ in range(300)]
    return lambda **limits: program.fit(seen, method="gradient", steps=10**8, tolerance=0.0, **limits)


def reasons() -> Work:
    database = dv.Program(CLOSURE).run({"e": sorted(set(pairs(600, 4)))})
    row = max(database["p"])
    return lambda **limits: database.why("p", row, k=2000, **limits)


CASES: dict[str, Callable[[], Work]] = {
    "recursion without tags": recursion,
    "recursion, top proofs": tagged,
    "grounding of an exact run": grounding,
    "exact, smokers": exact,
    "approximate, smokers": approximate,
    "D4": compiler("d4", 250, 600),
    "SDD": compiler("sdd", 120, 300),
    "`auto`": compiler("auto", 300, 700),
    "elimination, a wide network": elimination,
    "samples under evidence": samples,
    "most probable world": best_world,
    "learning, its circuit": learning,
    "learning, its steps": long_learning,
    "`why`, 2,000 proofs": reasons,
}


class Peak(threading.Thread):
    """The most resident bytes of this process and its children together, from its start on.

    What the system says of a child that has ended counts what this process had when it started it.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.ends = 0, threading.Event()

    def run(self) -> None:
        while not self.ends.wait(0.01):
            self.most = max(self.most, resident())


def resident() -> int:
    """Bytes of this process and of its children."""
    pages, processes = 0, [os.getpid()]
    for process in processes:
        try:
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
            for task in Path(f"/proc/{process}/task").iterdir():
                processes += map(int, (task / "children").read_text().split())
        except (OSError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def spent() -> float:
    """Seconds of processors, of this process and of those that it has waited for."""
    parts = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in parts)


def measure(name: str, limits: dict[str, Any]) -> str:
    random.seed(1)
    work = CASES[name]()
    dv.Program("rel p = {0.5::1, 0.5::2} rel q() = p(1) or p(2) query q").run(provenance="exact")
    peak, before, start, used = Peak(), resident(), time.perf_counter(), spent()
    peak.start()
    try:
        work(**limits)
        how = "answered"
    except DerivableError as error:
        how = type(error).__name__
    took, used = time.perf_counter() - start, spent() - used
    peak.ends.set()
    return f"{took:.2f} s | {used:.2f} s | {max(0, peak.most - before) >> 20} MB | {how}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", type=float, nargs="*", default=[2.0, 5.0], help="limits in seconds")
    parser.add_argument("--memory", type=int, nargs="*", default=[300], help="limits in megabytes")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        limits: dict[str, Any] = {}
        if arguments.time:
            limits["time_limit"] = arguments.time[0]
        if arguments.memory:
            limits["memory_limit"] = arguments.memory[0] << 20
        print(measure(arguments.case, limits))
        return
    print("| work | limit | took | processor | memory | ended |\n| --- | ---: | ---: | ---: | ---: | --- |", flush=True)
    for name in CASES:
        rows = [(f"{s:g} s", ["--time", f"{s}", "--memory"]) for s in arguments.time]
        rows += [(f"{m} MB", ["--time", "60", "--memory", f"{m}"]) for m in arguments.memory]
        for shown, options in rows:
            command = [sys.executable, __file__, "--case", name, *options]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
            last = done.stdout.strip().split("\n")[-1] or done.stderr.strip().split("\n")[-1]
            print(f"| {name} | {shown} | {last} |", flush=True)


if __name__ == "__main__":
    main()
