"""Pointer analysis: to which objects may a variable of a program point?

    python examples/tasks/pointer_analysis.py --data FOLDER [--methods 3000]

Discrete reasoning: Andersen's analysis, field-sensitive, with a call graph that is found on the way. On the facts of a
Java program that Soufflé has as an example, with Soufflé's answers (`program_analysis/souffle-java-pointsto`), and on a
program of any size that is drawn at random, where a worklist in plain Python is the baseline of speed and of accuracy.
There is nothing to learn. The programs that other engines are measured on (httpd, Linux, PostgreSQL) are not here.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

import derivable as dv
from experiment import INK, figure, options, report_published, save, timed, timed_again

PROGRAM = """
    type AssignHeapAllocation(object: String, variable: String, method: String)
    type AssignLocal(from: String, to: String, method: String)
    type LoadInstanceFieldIndex(base: String, index: i32, to: String, method: String)
    type StoreInstanceFieldIndex(from: String, base: String, index: i32, method: String)
    type VarType(variable: String, class: String), DirectFieldIndexSignature(class: String, index: i32, field: String)
    type StaticMethodInvocationSignature(call: String, method: String)
    type SpecialMethodInvocationSignature(call: String, method: String)
    type SpecialMethodInvocationBase(call: String, variable: String)
    type VirtualMethodInvocationSignature(call: String, method: String)
    type VirtualMethodInvocationBase(call: String, variable: String)
    type ThisVar(method: String, variable: String), FormalParam(index: i32, method: String, variable: String)
    type ActualParam(index: i32, call: String, variable: String)
    type ReturnVar(variable: String, method: String), AssignReturnValue(call: String, variable: String)

    // What a call may run, once its receiver points to something.
    rel receiver(c, v) = SpecialMethodInvocationBase(c, v) or VirtualMethodInvocationBase(c, v)
    rel runs(c, m) = StaticMethodInvocationSignature(c, m) or SpecialMethodInvocationSignature(c, m)
    rel runs(c, m) = VirtualMethodInvocationSignature(c, m), VirtualMethodInvocationBase(c, v), points_to(v, _)

    // How values flow from variable to variable.
    rel flows(v, w) = AssignLocal(v, w, _)
    rel flows(v, w) = ActualParam(i, c, v), runs(c, m), FormalParam(i, m, w)
    rel flows(v, w) = AssignReturnValue(c, w), runs(c, m), ReturnVar(v, m)

    rel field(v, i, f) = VarType(v, t), DirectFieldIndexSignature(t, i, f)
    rel held(o, f, p) = StoreInstanceFieldIndex(v, w, i, _), field(w, i, f), points_to(w, o), points_to(v, p)
    rel points_to(v, o) = AssignHeapAllocation(o, v, _)
    rel points_to(v, o) = flows(w, v), points_to(w, o)
    rel read(o, f, v) = LoadInstanceFieldIndex(w, i, v, _), field(w, i, f), points_to(w, o)
    rel points_to(v, p) = read(o, f, v), held(o, f, p)
    rel points_to(this, o) = receiver(c, v), points_to(v, o), runs(c, m), ThisVar(m, this)
    query points_to
    query runs
"""
JAVA = "program_analysis/souffle-java-pointsto"
Facts = dict[str, list[tuple]]


def java(folder: Path, relations: tuple[str, ...]) -> tuple[dict[str, Path], set[tuple[str, ...]]]:
    """(facts, what Soufflé found) of the Java program."""
    with (folder / "VarPointsTo.csv").open(newline="") as file:
        found = {tuple(row) for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}
    return {name: folder / "facts" / f"{name}.facts" for name in relations}, found


def drawn(methods: int, seed: int, relations: tuple[str, ...]) -> Facts:
    """A program at random: each method has a few variables that call, copy, load, store and allocate."""
    rng = np.random.default_rng(seed)
    facts: Facts = {name: [] for name in relations}
    classes = max(1, methods // 10)
    facts["DirectFieldIndexSignature"] = [(f"C{c}", i, f"C{c}.f{i}") for c in range(classes) for i in range(3)]
    for number in range(methods):
        method = f"m{number}"
        names = [f"{method}/v{place}" for place in range(8)]
        facts["ThisVar"].append((method, names[0]))
        facts["FormalParam"] += [(0, method, names[1]), (1, method, names[2])]
        facts["ReturnVar"].append((names[7], method))
        facts["VarType"] += [(name, f"C{rng.integers(classes)}") for name in names]
        for place in range(2):
            facts["AssignHeapAllocation"].append((f"{method}/o{place}", names[3 + place], method))
        for _ in range(4):
            source, target = rng.choice(names, 2, replace=False)
            facts["AssignLocal"].append((source, target, method))
        for kind in ("Static", "Virtual"):
            call = f"{method}/{kind}"
            receiver, first, second, result = rng.choice(names, 4, replace=False)
            # Most calls are of methods nearby.
            callee = f"m{(number + int(rng.geometric(0.1))) % methods}"
            facts[f"{kind}MethodInvocationSignature"].append((call, callee))
            if kind == "Virtual":
                facts["VirtualMethodInvocationBase"].append((call, receiver))
            facts["ActualParam"] += [(0, call, first), (1, call, second)]
            facts["AssignReturnValue"].append((call, result))
        base, value, target = rng.choice(names, 3, replace=False)
        facts["StoreInstanceFieldIndex"].append((value, base, int(rng.integers(3)), method))
        facts["LoadInstanceFieldIndex"].append((base, int(rng.integers(3)), target, method))
    return facts


def worklist(facts: Facts) -> set[tuple[str, str]]:
    """The same analysis as a worklist of (variable, object), as textbooks have it."""
    fields = {(t, i): f for t, i, f in facts["DirectFieldIndexSignature"]}
    types = dict(facts["VarType"])
    after: dict[str, set[str]] = defaultdict(set)
    loads, stores, sources, calls = (defaultdict(list) for _ in range(4))
    for source, target, _ in facts["AssignLocal"]:
        after[source].add(target)
    for base, i, target, _ in facts["LoadInstanceFieldIndex"]:
        if (types[base], i) in fields:
            loads[base].append((fields[types[base], i], target))
    for source, base, i, _ in facts["StoreInstanceFieldIndex"]:
        if (types[base], i) in fields:
            stores[base].append((fields[types[base], i], source))
            sources[source].append((base, fields[types[base], i]))
    formals = {(m, i): v for i, m, v in facts["FormalParam"]}
    this, results, kept = dict(facts["ThisVar"]), defaultdict(list), dict(facts["AssignReturnValue"])
    for variable, method in facts["ReturnVar"]:
        results[method].append(variable)
    actuals = defaultdict(list)
    for i, call, variable in facts["ActualParam"]:
        actuals[call].append((i, variable))
    methods = dict(facts["VirtualMethodInvocationSignature"])
    for call, variable in facts["VirtualMethodInvocationBase"]:
        calls[variable].append((call, methods[call]))
    points: dict[str, set[str]] = defaultdict(set)
    held: dict[tuple[str, str], set[str]] = defaultdict(set)
    readers: dict[tuple[str, str], set[str]] = defaultdict(set)
    work = [(variable, thing) for thing, variable, _ in facts["AssignHeapAllocation"]]

    def flow(source: str, target: str) -> None:
        if target not in after[source]:
            after[source].add(target)
            work.extend((target, thing) for thing in points[source])

    def run(call: str, method: str) -> None:
        for i, variable in actuals[call]:
            if (method, i) in formals:
                flow(variable, formals[method, i])
        if call in kept:
            for variable in results[method]:
                flow(variable, kept[call])

    def hold(place: tuple[str, str], thing: str) -> None:
        if thing not in held[place]:
            held[place].add(thing)
            work.extend((target, thing) for target in readers[place])

    for call, method in facts["StaticMethodInvocationSignature"]:
        run(call, method)
    while work:
        variable, thing = work.pop()
        if thing in points[variable]:
            continue
        points[variable].add(thing)
        work += [(target, thing) for target in after[variable]]
        for name, target in loads[variable]:
            readers[thing, name].add(target)
            work += [(target, inner) for inner in held[thing, name]]
        for name, source in stores[variable]:
            for inner in list(points[source]):
                hold((thing, name), inner)
        for base, name in sources[variable]:
            for outer in list(points[base]):
                hold((outer, name), thing)
        for call, method in calls[variable]:
            run(call, method)
            work.append((this[method], thing))
    return {(variable, thing) for variable, things in points.items() for thing in things}


def main(arguments: list[str] | None = None) -> None:
    wanted = options(__doc__ or "", arguments, "pointer_analysis", files=[JAVA], methods=3000)
    program = dv.Program(PROGRAM)
    if wanted.data is not None:
        facts, answers = java(wanted.data / JAVA, program.inputs)
        found = set(program.run(facts)["points_to"])
        right = len(found & answers) / len(found | answers)
        print(f"Java: {len(found)} pairs of variable and object, {right:.1%} as Soufflé finds them")

    facts = drawn(wanted.methods, wanted.seed, program.inputs)
    database, seconds = timed_again(lambda: program.run(facts))
    pairs = len(database["points_to"])
    answers, plain = timed(lambda: worklist(facts))
    found = set(database["points_to"])
    right = len(found & answers) / len(found | answers)
    print(f"{wanted.methods:,} methods: {pairs:,} pairs in {seconds:.2f} s; a worklist in Python {plain:.2f} s")
    print(f"{wanted.methods:,} methods: {right:.1%} as the worklist finds them")

    program_of = "second program" if wanted.data else "program"
    report_published(
        "no figure for this program in Lobster's paper; Soufflé's answers for the Java program",
        f"the {program_of} is drawn at random; nothing to learn: all of the time is in the symbolic part, on one core",
    )

    variables, _ = database["points_to"].columns
    sizes = np.unique(variables, return_counts=True)[1]
    made, (axes,) = figure(1)
    axes.hist(sizes, bins=40, color=INK)
    axes.set_yscale("log")
    axes.set_xlabel("objects that a variable may point to")
    axes.set_ylabel("variables")
    save(made, wanted.picture)


if __name__ == "__main__":
    main()
