"""What a GPU of torch gives: every case is checked against the CPU's kernels, then timed beside them.

    python benchmarks/gpu.py --out docs/benchmarks/gpu.md
    python benchmarks/gpu.py --dry                 small cases by torch on the CPU, to see that all of them run

A time is that of a warm call, facts and weights on the CPU, outputs back on the CPU where users read them there.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import harness

THREADS = 2
CALLS = 3


@dataclass(frozen=True)
class Walk:
    """One case.

    name     a row of the table
    cpu      computes by the CPU's kernels
    device   computes on the device, its work done when it returns
    check    (of the CPU, of the device) -> raises unless they are equal
    note     what was computed, from the result
    """

    name: str
    cpu: Callable[[], object]
    device: Callable[[], object]
    check: Callable[[object, object], None]
    note: Callable[[object], str]


def datalog_walks(device: str, is_small: bool) -> Iterator[Callable[[], Walk]]:
    import datalog_cases as cases
    import numpy as np

    import derivable as dv

    def random_graph(nodes: int, edges: int) -> np.ndarray:
        return np.random.default_rng(0).integers(0, nodes, (edges, 2)).astype(np.uint32)

    def same(ours: object, theirs: object) -> None:
        for mine, other in zip(ours, theirs, strict=True):  # type: ignore[call-overload]
            np.testing.assert_allclose(other, mine, rtol=1e-9)

    def walk(name: str, text: str, facts: dict, output: str, provenance: str = "unit") -> Walk:
        program = dv.Program(text)

        def run(where: str | None) -> list:
            view = program.run(facts, provenance=provenance, device=where)[output]
            tags = [] if provenance == "unit" else [float(np.sum(np.asarray(view.tags, np.float64)))]
            return [*cases.fingerprint(view.columns), *tags]

        return Walk(name, lambda: run(None), lambda: run(device), same, lambda found: f"{found[0]:,.0f} tuples")  # type: ignore[index]

    closure = cases.CLOSURE.format(step="edge")
    nonlinear = cases.CLOSURE.format(step="path")
    for nodes in (300,) if is_small else (3_000, 10_000):
        facts = {"edge": random_graph(nodes, nodes * 2)}
        yield lambda facts=facts, nodes=nodes: walk(f"closure, {nodes:,} nodes", closure, facts, "path")
        yield lambda facts=facts, nodes=nodes: walk(f"nonlinear closure, {nodes:,} nodes", nonlinear, facts, "path")
    side = 12 if is_small else 100
    yield lambda: walk(f"closure, grid {side}", closure, {"edge": cases.grid(side)}, "path")
    count = 300 if is_small else 12_000
    yield lambda: walk(f"same generation, tree {count:,}", cases.SAME_GENERATION, {"edge": cases.tree(count)}, "same")
    variables = 200 if is_small else 100_000
    points = cases.points_to(variables)
    yield lambda: walk(f"points-to, {variables:,} variables", points.text, points.facts, points.output)
    nodes = 100 if is_small else 2_000
    edges = np.unique(random_graph(nodes, nodes * 2), axis=0)
    chances = np.random.default_rng(1).uniform(0.1, 0.9, len(edges))
    tagged = {"edge": dv.independent([tuple(edge) for edge in edges.tolist()], chances)}
    for provenance in ("minmaxprob", "max_product"):
        yield lambda p=provenance: walk(f"closure with {p}, {nodes:,} nodes", closure, tagged, "path", p)


def circuit_walks(device: str, is_small: bool) -> Iterator[Callable[[], Walk]]:
    import torch

    import derivable as dv

    def walk(batch: int) -> Walk:
        names = [dv.circuit.variables(f"v{k}")[0] for k in range(12 if is_small else 40)]
        formula = dv.circuit.conjunction(
            [dv.circuit.exactly_one(names[k : k + 4]) | names[k - 1] for k in range(0, len(names) - 3, 3)]
        )
        circuit = dv.circuit.compile(formula)
        module = circuit.to_torch(semiring="log")
        where = torch.device(device.removeprefix("torch:"))
        weights = torch.rand(batch, circuit.num_variables, dtype=torch.float64).log()

        def run(on: torch.device) -> torch.Tensor:
            x = weights.detach().clone().to(on).requires_grad_()
            value = module(x)
            value.sum().backward()
            assert x.grad is not None
            return torch.cat([value.detach().reshape(batch, -1), x.grad], 1).cpu()

        return Walk(
            f"circuit forward and backward, batch {batch:,}",
            lambda: run(torch.device("cpu")),
            lambda: run(where),
            lambda a, b: torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9),
            lambda _: f"{len(circuit.kind):,} nodes",
        )

    for batch in (4,) if is_small else (1, 128, 4096):
        yield lambda batch=batch: walk(batch)


def tensor_walks(device: str, is_small: bool) -> Iterator[Callable[[], Walk]]:
    import numpy as np
    import torch

    import derivable as dv

    def walk(size: int) -> Walk:
        rng = np.random.default_rng(0)
        entries = size * 20
        indices = np.stack([rng.integers(0, size, entries), rng.integers(0, size, entries)])
        matrix = torch.sparse_coo_tensor(torch.from_numpy(indices), torch.from_numpy(rng.random(entries)), (size, size))
        matrix = matrix.coalesce()
        x = torch.from_numpy(rng.random(size))
        text = "sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }"
        program = dv.tensor.parse(text, {"A": 2, "X": 1})
        kernel = dv.tensor.compile(program, backend="torch")
        where = torch.device(device.removeprefix("torch:"))
        moved = matrix.to(where), x.to(where)

        def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return kernel(A=a, X=b).cpu()

        return Walk(
            f"sparse matrix by vector, {size:,} rows",
            lambda: run(matrix, x),
            lambda: run(*moved),
            lambda a, b: torch.testing.assert_close(b, a),
            lambda _: f"{matrix._nnz():,} nonzeros",
        )

    yield lambda: walk(100 if is_small else 100_000)


def seconds(call: Callable[[], object], calls: int) -> float:
    found = []
    for _ in range(calls):
        gc.collect()
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def measured(walk: Walk, calls: int) -> list[str]:
    from derivable.core.diagnostics import LimitError

    ours = walk.cpu()
    try:
        theirs = walk.device()
    except LimitError as error:
        return [walk.name, walk.note(ours), harness.duration(seconds(walk.cpu, calls)), f"refused: {error.message}", ""]
    walk.check(ours, theirs)
    device, cpu = seconds(walk.device, calls), seconds(walk.cpu, calls)
    return [walk.name, walk.note(ours), harness.duration(cpu), harness.duration(device), f"{cpu / device:.2f}"]


def report(device: str, is_small: bool, until: float) -> tuple[str, int]:
    """The page, and the number of cases that failed."""
    import torch

    rows: list[list[str]] = []
    failures = 0
    for walks in (datalog_walks, circuit_walks, tensor_walks):
        for make in walks(device, is_small):
            if time.monotonic() > until:
                print("left out: no time is left", flush=True)
                continue
            try:
                rows.append(measured(make(), 1 if is_small else CALLS))
                print(" | ".join(rows[-1]), flush=True)
            except Exception:
                failures += 1
                traceback.print_exc()
    name = torch.cuda.get_device_name() if device.startswith("cuda") else device
    header = ["case", "size", f"CPU, {THREADS} threads", name, "times as fast"]
    text = (
        "# On a GPU\n\n"
        "`benchmarks/gpu.py` checks each case against the CPU's kernels and times warm calls in turn; facts and\n"
        "weights begin on the CPU and results end there. Datalog runs as a column program by torch, circuits in\n"
        "rounds of torch operations, tensors as gathers and sums.\n\n"
        f"{harness.machine()} {name}.\n\n{harness.table(header, rows)}\n"
    )
    return text, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="small cases by torch on the CPU")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="write the page there")
    parser.add_argument("--seconds", type=float, default=420, help="no case begins after that")
    given = parser.parse_args()
    harness.use_threads(THREADS)
    sys.path.insert(0, str(Path(__file__).parent))
    device = "torch:cpu" if given.dry else given.device
    text, failures = report(device, given.dry, time.monotonic() + given.seconds)
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
