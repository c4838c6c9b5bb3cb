"""Top-k proofs on ten programs of neurosymbolic tasks, against the times of Scallop's command line.

    python benchmarks/proofs.py [NAME ...] [--k 1 3] [--seconds S]

Each row has the processor time of a warm run on one thread, from facts as Python lists to probabilities, and Scallop's
(0.2.5, release build, one core, without the 5.5 ms of its start; measured once, on programs of the same description).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import harness

Facts = dict[str, list[Any]]

PATH = """type dash(u32, u32), dot(u32)
rel reach(a, b) = dash(a, b) or (reach(a, m) and dash(m, b))
rel linked() = dot(a), dot(b), reach(a, b), a != b
query linked
"""
MAZE = """type cell(i32, i32), actor(i32, i32), goal(i32, i32), enemy(i32, i32)
rel open(x, y) = cell(x, y), not enemy(x, y)
rel step(x, y, 0, x, y + 1) = open(x, y), open(x, y + 1)
rel step(x, y, 1, x + 1, y) = open(x, y), open(x + 1, y)
rel step(x, y, 2, x, y - 1) = open(x, y), open(x, y - 1)
rel step(x, y, 3, x - 1, y) = open(x, y), open(x - 1, y)
rel way(x, y, x, y) = cell(x, y)
rel way(x, y, u, v) = way(x, y, a, b), step(a, b, _, u, v)
rel act(d) = actor(x, y), step(x, y, d, a, b), way(a, b, u, v), goal(u, v)
query act
"""
FORMULA = """type symbol(usize, String)
rel digit = {("0", 0.0), ("1", 1.0), ("2", 2.0), ("3", 3.0), ("4", 4.0), ("5", 5.0), ("6", 6.0), ("7", 7.0),
           ("8", 8.0), ("9", 9.0)}
rel factor(b, b + 1, v) = symbol(b, s), digit(s, v)
rel term(b, e, v) = factor(b, e, v)
rel term(b, e, x * y) = term(b, m, x), symbol(m, "*"), factor(m + 1, e, y)
rel term(b, e, x / y) = term(b, m, x), symbol(m, "/"), factor(m + 1, e, y), y != 0.0
rel total(b, e, v) = term(b, e, v)
rel total(b, e, x + y) = total(b, m, x), symbol(m, "+"), term(m + 1, e, y)
rel total(b, e, x - y) = total(b, m, x), symbol(m, "-"), term(m + 1, e, y)
rel result(v) = total(0, LENGTH, v)
query result
"""
KIN = """type said(usize, u32, u32), compose(usize, usize, usize)
rel kin(r, a, b) = said(r, a, b)
rel kin(r, a, c) = kin(p, a, b), said(q, b, c), compose(p, q, r), a != c
rel answer(r) = kin(r, 0, LAST)
query answer
"""
RELATIONS = 20
# What the seeds of the samples of a task differ by.
SAMPLE = 1 << 20


def path(size: int, sample: int = 0) -> tuple[str, Facts]:
    """A grid whose edges run both ways, each with a probability, and dots."""
    rng = random.Random(size + SAMPLE * sample)
    cells = [(x, y) for x in range(size) for y in range(size)]
    edges = [((x, y), near) for x, y in cells for near in ((x + 1, y), (x, y + 1)) if max(near) < size]
    both = [(a, b) for edge in edges for a, b in (edge, edge[::-1])]
    number = {cell: i for i, cell in enumerate(cells)}
    return PATH, {
        "dash": [(rng.uniform(0.05, 0.95), (number[a], number[b])) for a, b in both],
        "dot": [(rng.uniform(0.05, 0.95), (i,)) for i in number.values()],
    }


def maze(size: int, sample: int = 0) -> tuple[str, Facts]:
    """A square of cells with three cells each where an actor or its goal may be, and seven for enemies."""
    rng = random.Random(size + SAMPLE * sample)
    cells = [(x, y) for x in range(size) for y in range(size)]
    chosen = rng.sample(cells, 13)
    places = {"actor": chosen[:3], "goal": chosen[3:6], "enemy": chosen[6:]}
    facts: Facts = {name: [(rng.uniform(0.1, 0.9), cell) for cell in found] for name, found in places.items()}
    return MAZE, facts | {"cell": [(0.99, cell) for cell in cells]}


def formula(length: int, symbols: int, sample: int = 0) -> tuple[str, Facts]:
    """What is read at each place: what makes a formula there, and other symbols."""
    rng = random.Random(100 * length + symbols + SAMPLE * sample)
    read = []
    for place in range(length):
        right = rng.choice("0123456789" if place % 2 == 0 else "+-*/")
        others = rng.sample([symbol for symbol in "0123456789+-*/" if symbol != right], symbols - 1)
        read += [(rng.uniform(0.05, 0.95), (place, symbol)) for symbol in (right, *others)]
    return FORMULA.replace("LENGTH", str(length)), {"symbol": read}


def kin(people: int, sample: int = 0) -> tuple[str, Facts]:
    """A chain of people; neighbours say all relations of one another, of which a quarter can be composed."""
    rng = random.Random(people + SAMPLE * sample)
    pairs = [(a, b) for a in range(people - 1) for b in (a + 1,)]
    both = [ends for a, b in pairs for ends in ((a, b), (b, a))]
    said = [(rng.uniform(0.01, 0.3), (r, a, b)) for a, b in both for r in range(RELATIONS)]
    known = rng.sample([(p, q) for p in range(RELATIONS) for q in range(RELATIONS)], RELATIONS**2 // 4)
    compose = [(p, q, rng.randrange(RELATIONS)) for p, q in known]
    return KIN.replace("LAST", str(people - 1)), {"said": said, "compose": compose}


# Each makes a sample of its number; Scallop's milliseconds for k of 1, 3 and 10.
TASKS: dict[str, tuple[Callable[..., tuple[str, Facts]], dict[int, float]]] = {
    "path6": (lambda sample=0: path(6, sample), {1: 10.3, 3: 30.8, 10: 237.6}),
    "path12": (lambda sample=0: path(12, sample), {1: 491.1, 3: 1504.2, 10: 6903.5}),
    "maze5": (lambda sample=0: maze(5, sample), {1: 6.5, 3: 14.1, 10: 57.2}),
    "maze15": (lambda sample=0: maze(15, sample), {1: 1176.7, 3: 1996.0, 10: 4647.3}),
    "formula7x3": (lambda sample=0: formula(7, 3, sample), {1: 2.6, 3: 3.4, 10: 31.3}),
    "formula7x7": (lambda sample=0: formula(7, 7, sample), {1: 22.4, 3: 53.5}),
    "formula13x3": (lambda sample=0: formula(13, 3, sample), {1: 23.9, 3: 54.8, 10: 31667.1}),
    "kin3": (lambda sample=0: kin(3, sample), {1: 21.1, 3: 48.0, 10: 476.9}),
    "kin4": (lambda sample=0: kin(4, sample), {1: 60.3, 3: 165.9, 10: 4018.2}),
    "kin6": (lambda sample=0: kin(6, sample), {1: 175.1, 3: 499.1, 10: 25782.2}),
}


@dataclass(frozen=True)
class Row:
    """What a task has taken, in milliseconds."""

    name: str
    k: int
    ours: float
    theirs: float | None
    answers: int
    best: float


def timed(call: Callable[[], Any], seconds: float) -> float:
    """The least processor time of a warm call, in milliseconds."""
    end = time.process_time() + 2 * harness.WARM_SECONDS
    while time.process_time() < end:
        call()
    best, end = float("inf"), time.process_time() + seconds
    while time.process_time() < end:
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return 1e3 * best


def rows_of(name: str, ks: Sequence[int], seconds: float) -> list[Row]:
    import derivable as dv

    make, theirs = TASKS[name]
    text, facts = make()
    program = dv.datalog.Program(text)
    found = []
    for k in ks:

        def call(k: int = k) -> Any:
            return next(iter(program.run(facts, "topkproofs", k=k).values()))

        answers = [float(p) for _, p in call().items()]
        best = max(answers, default=0.0)
        found.append(Row(name, k, timed(call, seconds), theirs.get(k), len(answers), best))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="tasks; all without")
    parser.add_argument("--k", type=int, nargs="*", default=[1, 3])
    parser.add_argument("--seconds", type=float, default=0.3, help="of a row")
    options = parser.parse_args(arguments)
    harness.use_threads(1)
    rows = [row for name in options.names or TASKS for row in rows_of(name, options.k, options.seconds)]
    print(harness.machine())
    header = ["task", "k", "ours, ms", "Scallop, ms", "times", "answers", "best"]
    cells = []
    for r in rows:
        ratio = "" if r.theirs is None else f"{r.theirs / r.ours:.1f}"
        theirs = "" if r.theirs is None else f"{r.theirs:,.1f}"
        cells.append([r.name, r.k, f"{r.ours:,.2f}", theirs, ratio, r.answers, f"{r.best:.4g}"])
    print(harness.table(header, cells))
    for k in options.k:
        ratios = [r.theirs / r.ours for r in rows if r.k == k and r.theirs is not None]
        if ratios:
            print(f"k = {k}: {harness.geometric_mean(ratios):.1f} times Scallop's speed, {min(ratios):.1f} at least")


if __name__ == "__main__":
    main()
