"""`derivable warm`: compile the usual kernels beforehand, so that no later run waits for them.

Kernels that are generated are compiled at their first use and cached on disk. Each workload here uses a family of them
on small data, in a process of its own; what two families share is compiled by whoever comes first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.util import find_spec

import click

from derivable.cli.report import write_facts, write_json
from derivable.core.diagnostics import DerivableError
from derivable.core.progress import progress


def _circuits() -> None:
    import numpy as np

    import derivable as dv

    a, b, c = dv.circuit.variables("a b c")
    circuit = dv.circuit.compile((a & b) | (~a & c) | (b & ~c))
    for semiring, weight in (("real", 0.5), ("log", -0.7)):
        for dtype in (np.float32, np.float64):
            for batch in (1, 16):
                circuit.value_and_gradient(np.full((batch, 3), weight, dtype), None, semiring)
    circuit.model_count()
    circuit.marginals([0.5, 0.5, 0.5])
    circuit.most_probable([0.5, 0.4, 0.3])


def _layers() -> None:
    import torch

    import derivable as dv

    for provenance in ("exact", "minmaxprob", "addmultprob", "topkproofs"):
        layer = dv.nn.Logic(
            "rel sum_2(a + b) = digit_1(a), digit_2(b)",
            inputs={"digit_1": dv.categorical(range(3)), "digit_2": dv.categorical(range(3))},
            outputs={"sum_2": range(5)},
            provenance=provenance,
        )
        for batch in (1, 16):
            digits = torch.full((batch, 3), 1 / 3, requires_grad=True)
            layer(digit_1=digits, digit_2=digits.detach()).sum().backward()


def _programs() -> None:
    import derivable as dv

    program = dv.Program(
        "rel path(x, y) = edge(x, y)\nrel path(x, z) = path(x, y), edge(y, z)\n"
        "rel far(x, n) = n := count(y: path(x, y))\nrel wide(x, y, x + y) = path(x, y), not edge(x, y)"
    )
    edges = [(i, i + 1) for i in range(20)]
    program.run(facts={"edge": edges})
    weighted = dv.Program("rel path(x, y) = edge(x, y)\nrel path(x, z) = path(x, y), edge(y, z)")
    for provenance in ("minmaxprob", "addmultprob", "topkproofs", "exact"):
        weighted.run(facts={"edge": [(0.5, edge) for edge in edges[:6]]}, provenance=provenance)
    # Enough rows for rules to run as kernels of their own.
    chain = [(i, i + 1) for i in range(400)]
    for provenance in ("unit", "minmaxprob"):
        weighted.run(facts={"edge": chain}, provenance=provenance)
    # What calls kernels round after round, and stratum after stratum, whatever the rules are.
    dv.Program("type n(x: i64)\nrel n = {0}\nrel n(x + 1) = m(x)\nrel m(x + 1) = n(x), x < 200000").run()
    # Enough texts for an arena.
    dv.Program("type name(String)\nquery name").run({"name": [f"name {i}" for i in range(100_000)]})


def _folds() -> None:
    import torch

    import derivable as dv

    for dtype in (torch.float32, torch.float64):
        for operator in ("add", "mul", "max", "min"):
            x = torch.linspace(0.5, 1.5, 64, dtype=dtype, requires_grad=True)
            dv.parallel.scan(operator, x).sum().backward()
            dv.parallel.reduce_by_index(torch.ones(4, dtype=dtype), operator, torch.arange(64) % 4, x).sum().backward()


WORKLOADS: dict[str, Callable[[], None]] = {
    "circuits": _circuits,
    "layers": _layers,
    "programs": _programs,
    "folds": _folds,
}
OF_TORCH = "layers", "folds"


@click.command("warm")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes at a time. Default: one for each core.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the seconds of each family.")
def warm_command(jobs: int | None, as_json: bool) -> None:
    """Compile the usual kernels now, once on a machine, so that nothing later waits for them."""
    has_torch = find_spec("torch") is not None
    names = [name for name in WORKLOADS if has_torch or name not in OF_TORCH]
    seconds = _run(names, jobs or os.cpu_count() or 1)
    if as_json:
        write_json({"seconds": seconds})
        return
    write_facts((name, f"{taken:.1f} s") for name, taken in seconds.items())


def _run(names: list[str], jobs: int) -> dict[str, float]:
    seconds = {}
    with progress("compiling kernels", len(names)) as advance, ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(_seconds_of, name): name for name in names}
        try:
            for done in as_completed(running):
                seconds[running[done]] = done.result()
                advance(1, running[done])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {name: seconds[name] for name in names}


def _seconds_of(name: str) -> float:
    """The seconds that a workload takes in a process of its own. Raises DerivableError where it fails."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "derivable.cli.warm", name], capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise DerivableError(
            f"compiling the kernels of {name} failed: {said[-1] if said else 'it said nothing'}",
            hint=f"see the whole message with `python -m derivable.cli.warm {name}`",
        )
    return round(time.perf_counter() - begin, 2)


if __name__ == "__main__":
    WORKLOADS[sys.argv[1]]()
