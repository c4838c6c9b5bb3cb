"""Exact inference: networks, cyclic reachability, smokers; compared with pyAgrum and ProbLog where installed.

    python benchmarks/inference.py FOLDER [--seconds S]

FOLDER has networks as `NAME.bif.gz`. Each number is in seconds of processor time, which other work on the machine
disturbs least; with OMP_NUM_THREADS=1 it is that of one thread. It is the first answer from tables, clauses or a
program to all posteriors, and a later one of the same model. Kernels are warm, as in any process but the first.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import derivable as dv
from derivable.circuit.compilation.planner import made_of
from derivable.core.diagnostics import CompileTimeout

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from agree.bayesian_networks import read_bif, to_clauses, to_factors, to_program


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def best(call: Callable[[], object], rounds: int = 3) -> float:
    return min(seconds(call) for _ in range(rounds))


def shown(number: float | None) -> str:
    return "" if number is None else f"{number:.4f}" if number < 0.01 else f"{number:.2f}"


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def agrum(path: Path) -> tuple[float | None, float | None]:
    """Reading the file, and the first posteriors by lazy propagation."""
    try:
        import pyagrum
    except ImportError:
        return None, None
    import gzip
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".bif") as file:
        file.write(gzip.decompress(path.read_bytes()))
        file.flush()
        try:
            network = pyagrum.loadBN(file.name)
        except pyagrum.FatalError:  # it reads some dialects of the format
            return None, None
        reading = best(lambda: pyagrum.loadBN(file.name), 2)

    def answer() -> None:
        inference = pyagrum.LazyPropagation(network)
        inference.makeInference()
        for name in network.names():
            inference.posterior(name)

    return reading, best(answer)


def networks(folder: Path, limit: float) -> None:
    row(
        *("network", "tables, first", "later", "clauses, first", "later", "circuit", "text", "Datalog, first", "later"),
        *("pyAgrum, file", "first"),
    )
    row("---", *["---:"] * 10)
    for path in sorted(folder.glob("*.bif.gz")):
        network = read_bif(path)
        factors, clauses = to_factors(network), to_clauses(network)
        circuit = dv.circuit.from_factors(*factors)
        first = best(lambda f=factors: dv.circuit.from_factors(*f).marginals(), 2)
        later = best(circuit.marginals, 10)
        weights = np.array(clauses.weights), np.ones(len(clauses.weights))
        by_clauses = best(lambda c=clauses, w=weights: dv.circuit.compile(c.clauses, "auto").marginals(*w), 2)
        compiled = dv.circuit.compile(clauses.clauses, "auto")
        clauses_later = best(lambda c=compiled, w=weights: c.marginals(*w), 10)
        leaf = [node for node in network.states if all(node not in parents for parents, _ in network.tables.values())]
        text = to_program(network, {leaf[0]: network.states[leaf[0]][0]})
        reading = best(lambda t=text: dv.Program(t), 2)
        programs = [dv.Program(text), dv.Program(text)]
        by_rules = min(seconds(lambda p=p: p.run(provenance="exact", time_limit=limit)) for p in programs)
        rules_later = best(lambda p=programs[0]: p.run(provenance="exact"), 10)
        numbers = (first, later, by_clauses, clauses_later)
        more = (reading, by_rules, rules_later, *agrum(path))
        row(path.name.split(".")[0], *map(shown, numbers), made_of(circuit), *map(shown, more))


def grid(size: int, is_directed: bool) -> str:
    cells = [(i, j) for i in range(size) for j in range(size)]
    edges = [(i * size + j, (i + a) * size + j + b) for i, j in cells for a, b in ((0, 1), (1, 0))
             if i + a < size and j + b < size]  # fmt: skip
    facts = ", ".join(f"0.5::{edge}" for edge in edges)
    back = "" if is_directed else "rel link(a, b) = edge(b, a)\n"
    return (
        f"type edge(u32, u32)\nrel edge = {{{facts}}}\nrel link(a, b) = edge(a, b)\n{back}"
        f"rel reach(0)\nrel reach(y) = reach(x), link(x, y)\nrel goal() = reach({size**2 - 1})\nquery goal\n"
    )


def smokers(count: int, friends: int) -> tuple[str, str]:
    """The program in this library's language, and in ProbLog's."""
    rnd = random.Random(count)
    pairs = set[tuple[int, int]]()
    while len(pairs) < friends:
        a, b = rnd.randrange(count), rnd.randrange(count)
        if a != b:
            pairs.add((a, b))
    ours = (
        f"type person(u32), friend(u32, u32)\nrel person = {{{', '.join(map(str, range(count)))}}}\n"
        f"rel friend = {{{', '.join(map(str, sorted(pairs)))}}}\n"
        "rel 0.3::stress(x) = person(x)\nrel 0.2::influences(x, y) = friend(x, y)\nrel smokes(x) = stress(x)\n"
        "rel smokes(x) = influences(y, x), smokes(y)\nrel 0.4::asthma(x) = smokes(x)\nquery smokes\nquery asthma\n"
    )
    theirs = "".join(f"person({n}).\n" for n in range(count)) + "".join(f"friend({a},{b}).\n" for a, b in sorted(pairs))
    theirs += (
        "0.3::stress(X) :- person(X).\n0.2::influences(X,Y) :- friend(X,Y).\nsmokes(X) :- stress(X).\n"
        "smokes(X) :- influences(Y,X), smokes(Y).\n0.4::asthma(X) :- smokes(X).\n"
        "query(smokes(X)) :- person(X).\nquery(asthma(X)) :- person(X).\n"
    )
    return ours, theirs


def family(generations: int, size: int) -> str:
    """Blood types over a random pedigree, in ProbLog's language: chromosomes of founders are drawn, others come from a
    mother and a father of the generation before."""
    rnd, types = random.Random(1), ("a", "b", "null")
    lines = [f"0.29::{c}(P,a); 0.07::{c}(P,b); 0.64::{c}(P,null) :- founder(P)." for c in ("mother_s", "father_s")]
    for chromosome, parent in (("mother_s", "mother"), ("father_s", "father")):
        body = f"{parent}(M,P), mother_s(M,X), father_s(M,Y)"
        lines.append(f"0.5::{chromosome}(P,X); 0.5::{chromosome}(P,Y) :- {body}.")
    for one in types:
        for other in types:
            shown = {one, other} - {"null"}
            likely = "ab" if len(shown) == 2 else min(shown, default="null")
            heads = [f"{0.91 if kind == likely else 0.03}::blood(P,{kind})" for kind in (*types, "ab")]
            lines.append(f"{'; '.join(heads)} :- mother_s(P,{one}), father_s(P,{other}).")
    before = [f"p0_{number}" for number in range(size)]
    lines += [f"founder({person})." for person in before]
    for generation in range(1, generations):
        people = [f"p{generation}_{number}" for number in range(size)]
        for person in people:
            mother, father = rnd.sample(before, 2)
            lines += [f"mother({mother},{person}).", f"father({father},{person})."]
        before = people
    return "\n".join([*lines, *(f"query(blood({person},_))." for person in before)])


def problog(text: str, kind: str | None = None) -> float | None:
    try:
        from problog import get_evaluatable
        from problog.program import PrologString
    except ImportError:
        return None
    return seconds(lambda: get_evaluatable(kind).create_from(PrologString(text)).evaluate())


def programs(limit: float) -> None:
    row("program", "first", "ProbLog")
    row("---", "---:", "---:")

    def run(text: str) -> str:
        try:
            return shown(best(lambda: dv.Program(text).run(provenance="exact", time_limit=limit)))
        except CompileTimeout:
            return "late"

    for size in (4, 6, 8):
        row(f"directed grid {size}x{size}", run(grid(size, True)), "")
    for size in (4, 5, 6, 8):
        row(f"undirected grid {size}x{size}", run(grid(size, False)), "")
    for count, friends in ((20, 40), (40, 60)):
        ours, theirs = smokers(count, friends)
        row(f"smokers, {count} persons, {friends} friends", run(ours), shown(problog(theirs) if count < 40 else None))
    for generations, size in ((2, 2), (2, 3), (3, 2), (3, 4), (5, 8)):
        text = family(generations, size)
        first = best(lambda t=text: dv.Program.from_problog(t).run(provenance="exact", time_limit=limit))
        theirs = problog(text, "ddnnf") if generations * size < 8 else None
        row(f"blood types, {generations} generations of {size}", shown(first), shown(theirs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=30.0, help="limit of a program")
    arguments = parser.parse_args()
    dv.Program("rel p = {0.5::1, 0.5::2} rel q() = p(1) or p(2) query q").run(provenance="exact")
    networks(arguments.folder, arguments.seconds)
    print()
    programs(arguments.seconds)


if __name__ == "__main__":
    main()
