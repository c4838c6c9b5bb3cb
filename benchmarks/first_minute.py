"""How long the first answer takes: in a fresh process with empty caches, in the next one, and call by call after it.

    python benchmarks/first_minute.py [CASE ...] [--calls 40] [--repeats 1] [--json FILE]

Each case runs in two processes that share caches of their own, empty before the first; Python's bytecode is there, as
pip leaves it. "First" is the time from the start of what the case needs, PyTorch or JAX imported before and what that
left behind collected, and what its data are drawn with, to its first answer: building a layer or a program is part of
it. Behind it are the second call, the tenth, the worst of those after the first, and where it was. Times are wall
times, and of the processor in parentheses. A warm call is the median of those of the second process after the first
ten.
"""

from __future__ import annotations

import argparse
import compileall
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[[], object]
SUM = "rel sum_2(a + b) = digit_1(a), digit_2(b)"
CLOSURE = "type edge(a: usize, b: usize)\nrel path(a, b) = edge(a, b) or (path(a, c) and edge(c, b))\nquery path"
GRID = """
    type dash(a: i32, b: i32), dot(a: i32)
    rel joined(a, b) = dash(a, b) or dash(b, a)
    rel reached(a, b) = dot(a), joined(a, b)
    rel reached(a, b) = reached(a, c), joined(c, b)
    rel connected() = reached(a, b), dot(b), a != b
"""
BATCH, NODES = 8, 40


def readme() -> Call:
    import torch

    import derivable as dv

    digits = dv.categorical(range(10))
    layer = dv.nn.Logic(
        SUM, inputs={"digit_1": digits, "digit_2": digits}, outputs={"sum_2": range(19)}, provenance="exact"
    )
    first = torch.full((1, 10), 0.1, requires_grad=True)
    second = torch.full((1, 10), 0.1)
    return lambda: layer(digit_1=first, digit_2=second)[0, 7].backward()


def recursion(provenance: str) -> Call:
    import numpy as np

    import derivable as dv

    rng = np.random.default_rng(0)
    pairs = sorted(set(map(tuple, rng.integers(0, NODES, (60, 2)).tolist())))
    weights = rng.uniform(0.5, 0.9, len(pairs)).tolist()
    facts: list[Any] = pairs
    if provenance != "unit":
        facts = list(zip(weights, facts))
    program = dv.Program(CLOSURE)
    return lambda: program.run({"edge": facts}, provenance=provenance)


def grid(provenance: str, side: int = 6, varying: bool = False, **options: Any) -> Call:
    import torch

    import derivable as dv

    cells = range(side * side)
    dashes = [(c, c + 1) for c in cells if c % side < side - 1] + [(c, c + side) for c in cells if c + side < side**2]
    inputs = {"dash": dv.varying() if varying else dv.independent(dashes), "dot": dv.independent(list(cells))}
    layer = dv.nn.Logic(GRID, inputs=inputs, outputs={"connected": ()}, provenance=provenance, **options)
    generator = torch.Generator().manual_seed(0)
    dash = torch.rand(BATCH, len(dashes), generator=generator, requires_grad=True)
    dots = torch.full((BATCH, side * side), 0.01)
    dots[:, [0, side**2 - 1]] = 0.99
    if varying:
        one = torch.rand(len(dashes), generator=generator, requires_grad=True)
        return lambda: layer(dash=[(dashes, one)] * BATCH, dot=dots).sum().backward()
    return lambda: layer(dash=dash, dot=dots).sum().backward()


def circuit() -> Call:
    import numpy as np

    import derivable as dv

    variables = dv.circuit.variables("a b c d e f g h")
    formula = variables[0]
    for i in range(1, len(variables)):
        formula = (formula & variables[i]) | (~variables[i - 1] & variables[i])
    made = dv.circuit.compile(formula)
    weights = np.full((16, len(variables)), -0.7)
    return lambda: made.value_and_gradient(weights, None, "log")


def scan() -> Call:
    import torch

    import derivable as dv

    after = dv.parallel.operator(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), neutral=(1.0, 0.0))

    values = torch.linspace(0.5, 0.9, 100_000, requires_grad=True), torch.ones(100_000)
    return lambda: dv.parallel.scan(after, values)[1].sum().backward()


def jax_scan() -> Call:
    import jax
    import jax.numpy as jnp

    import derivable as dv

    after = dv.parallel.operator(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), neutral=(1.0, 0.0))
    values = jnp.linspace(0.5, 0.9, 100_000), jnp.ones(100_000)
    gradient = jax.jit(jax.grad(lambda first, second: dv.parallel.scan(after, (first, second))[1].sum()))
    return lambda: gradient(*values).block_until_ready()


def closure() -> Call:
    """Of a random graph in which most nodes reach most others: 47 million tuples."""
    import numpy as np

    import derivable as dv

    edges = np.random.default_rng(0).integers(0, 6_900, (41_000, 2)).astype(np.uint64)
    program = dv.Program(CLOSURE)
    return lambda: program.run({"edge": edges})["path"]


def many_rules() -> Call:
    from recursion_cases import many_rules as case

    import derivable as dv

    made = case(300, 60)
    program = dv.Program(made.text)
    return lambda: program.run(made.facts)


def scallopy_sum() -> Call:
    """A network's two digits in, their sum out: the module of Scallop's examples at a batch of 64."""
    import torch

    from derivable.compat import scallopy

    context = scallopy.ScallopContext(provenance="difftopkproofs", k=3)
    for name in ("digit_1", "digit_2"):
        context.add_relation(name, int, input_mapping=list(range(10)))
    context.add_rule("sum_2(a + b) = digit_1(a), digit_2(b)")
    forward = context.forward_function("sum_2", output_mapping=list(range(19)))
    first, second = (torch.rand(64, 10).softmax(1).requires_grad_() for _ in range(2))
    return lambda: forward(digit_1=first, digit_2=second).sum().backward()


def einsum() -> Call:
    import torch

    import derivable as dv

    a, b = (torch.rand(64, 64, requires_grad=True) for _ in range(2))
    return lambda: dv.tensor.einsum("ij,jk->ik", a, b, semiring="max_product").sum().backward()


PROVENANCES = ("unit", "minmaxprob", "addmultprob", "topkproofs", "exact")
CASES: dict[str, Callable[[], Call]] = {
    "README, exact": readme,
    **{f"recursion, {p}": lambda p=p: recursion(p) for p in PROVENANCES},
    "grid 6x6, topkproofs 1": lambda: grid("topkproofs", k=1),
    "grid 6x6, topkproofs 3": lambda: grid("topkproofs", k=3),
    "grid 3x3, exact": lambda: grid("exact", side=3),
    "grid 6x6, topkproofs, varying": lambda: grid("topkproofs", varying=True),
    "circuit, log": circuit,
    "scan, own operator": scan,
    "scan, own operator, JAX": jax_scan,
    "einsum, max_product": einsum,
    "closure, 47 million": closure,
    "600 rules": many_rules,
    "scallopy, MNIST sum": scallopy_sum,
}


def measure(name: str, calls: int) -> None:
    """Print the wall and processor seconds of the first answer and of each call after it."""
    # What cases draw their data with: numpy.unique imports masked arrays, 5 ms each.
    import numpy.ma
    import numpy.random  # noqa: F401
    import recursion_cases  # noqa: F401
    import torch  # noqa: F401

    if "JAX" in name:
        import jax  # noqa: F401
    # PyTorch leaves 170,000 objects, which Python's collector goes over once 10,000 more are made by anyone: 0.09 s.
    gc.collect()
    clocks, seconds = (time.perf_counter, time.process_time), []
    begin = [clock() for clock in clocks]
    call = CASES[name]()
    for _ in range(calls):
        call()
        end = [clock() for clock in clocks]
        seconds.append([b - a for a, b in zip(begin, end)])
        begin = [clock() for clock in clocks]
    print(json.dumps(seconds))


def measured(name: str, calls: int) -> dict[str, list[list[float]]]:
    """process -> call -> (wall, processor) seconds"""
    with tempfile.TemporaryDirectory() as caches:
        environment = {**os.environ, "DERIVABLE_CACHE_DIR": caches, "PYTHONDONTWRITEBYTECODE": ""}
        command = [sys.executable, __file__, name, "--calls", str(calls), "--measure"]
        found = {}
        for process in ("fresh", "second"):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{name}: {done.stderr.strip().splitlines()[-1]}")
            found[process] = json.loads(done.stdout.splitlines()[-1])
    return found


def least(tries: list[list[list[float]]]) -> list[list[float]]:
    """call -> the least wall and processor seconds of the tries: others may use the machine too."""
    return [[min(clock) for clock in zip(*call)] for call in zip(*tries)]


def shown(seconds: list[float]) -> str:
    return f"{1e3 * seconds[0]:.1f} ({1e3 * seconds[1]:.1f})"


def row(name: str, process: str, calls: list[list[float]], warm: float) -> str:
    worst = max(range(1, len(calls)), key=lambda i: calls[i][0])
    cells = [shown(calls[0]), shown(calls[1]), shown(calls[9]), f"{shown(calls[worst])} at {worst + 1}"]
    return f"| {name} | {process} | {' | '.join(cells)} | {1e3 * warm:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=1, help="of each call the least of several stands")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.calls < 11:
        parser.error("warm calls are those after the first ten")
    if given.measure:
        return measure(given.cases[0], given.calls)
    print("| case, milliseconds | process | first | 2nd | 10th | worst after the first | warm |")
    print("|---|---|---:|---:|---:|---:|---:|")
    package = importlib.util.find_spec("derivable")
    assert package is not None
    compileall.compile_dir(Path(str(package.origin)).parent, quiet=1)
    everything = {}
    for name in given.cases:
        tries = [measured(name, given.calls) for _ in range(given.repeats)]
        found = everything[name] = {process: least([one[process] for one in tries]) for process in tries[0]}
        warm = statistics.median(wall for wall, _ in found["second"][10:])
        for process, calls in found.items():
            print(row(name, process, calls, warm), flush=True)
    if given.json:
        given.json.write_text(json.dumps(everything))
    return None


if __name__ == "__main__":
    main()
