"""The cases of `gpu.py`. A function of walks yields (the name of a case, what makes it)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu import ROUNDS, Group, Walk, seconds

import derivable as dv

Walks = Iterator[tuple[str, Callable[[], Walk]]]


def close(rtol: float = 1e-9, atol: float = 1e-9) -> Callable[[Any, Any], None]:
    def check(ours: Any, theirs: Any) -> None:
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(torch.as_tensor(other), torch.as_tensor(mine), rtol=rtol, atol=atol)

    return check


# Datalog


class Transfers:
    """The seconds that outputs take from the device to the host within a run."""

    def __init__(self, device: torch.device):
        from derivable.bridge.torch_columns import Torch

        self.seconds, plain = 0.0, Torch.rows_to_host

        def timed(arrays: Any, columns: Any) -> Any:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            began = time.perf_counter()
            found = plain(arrays, columns)
            self.seconds += time.perf_counter() - began
            return found

        Torch.rows_to_host = timed  # type: ignore[method-assign]

    def __call__(self) -> float:
        found, self.seconds = self.seconds, 0.0
        return found


def datalog_walks(device: torch.device, is_small: bool) -> Walks:
    import datalog_cases as cases

    where, transfers = "torch:cpu" if device.type == "cpu" else str(device), Transfers(device)

    def random_graph(nodes: int, edges: int) -> np.ndarray:
        return np.random.default_rng(0).integers(0, nodes, (edges, 2)).astype(np.uint32)

    def walk(
        name: str, problem: Callable[[], tuple[str, Mapping[str, Any], str]], provenance: str = "unit"
    ) -> tuple[str, Callable[[], Walk]]:
        """`problem` makes a program's text, its facts and the name of its output."""

        def read(view: Any) -> list[np.ndarray]:
            return [*view.columns, *([] if provenance == "unit" else [np.asarray(view.tags, np.float64)])]

        def check(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
            sums = [cases.fingerprint(columns) for columns in (ours, theirs)]
            np.testing.assert_allclose(sums[1], sums[0], rtol=1e-9)

        def make() -> Walk:
            text, facts, output = problem()
            program = dv.Program(text)

            def run(device: str | None) -> Any:
                view = program.run(facts, provenance=provenance, device=device)[output]
                len(view)
                return view

            return Walk(
                name,
                partial(run, None),
                partial(run, where),
                check,
                lambda found: f"{len(found[0]):,} tuples",
                read,
                transfers,
            )

        return name, make

    closure = cases.CLOSURE.format(step="edge")
    nonlinear = cases.CLOSURE.format(step="path")

    def closed(text: str, nodes: int) -> tuple[str, Mapping[str, Any], str]:
        return text, {"edge": random_graph(nodes, nodes * 2)}, "path"

    for nodes in (40,) if is_small else (3_000, 10_000):
        yield walk(f"closure, {nodes:,} nodes", partial(closed, closure, nodes))
        yield walk(f"nonlinear closure, {nodes:,} nodes", partial(closed, nonlinear, nodes))
    side = 4 if is_small else 100
    yield walk(f"closure, grid {side}", lambda: (closure, {"edge": cases.grid(side)}, "path"))

    def same_generation(count: int) -> tuple[str, Mapping[str, Any], str]:
        return cases.SAME_GENERATION, {"edge": cases.tree(count)}, "same"

    for count in (30,) if is_small else (12_000, 24_000):
        yield walk(f"same generation, tree {count:,}", partial(same_generation, count))

    def points_to(variables: int) -> tuple[str, Mapping[str, Any], str]:
        case = cases.points_to(variables)
        return case.text, case.facts, case.output

    for variables in (40,) if is_small else (100_000, 256_000):
        yield walk(f"points-to, {variables:,} variables", partial(points_to, variables))
    tagged_nodes = 20 if is_small else 2_000

    def tagged() -> tuple[str, Mapping[str, Any], str]:
        edges = np.unique(random_graph(tagged_nodes, tagged_nodes * 2), axis=0)
        chances = np.random.default_rng(1).uniform(0.1, 0.9, len(edges)).tolist()
        return closure, {"edge": dv.independent([tuple(edge) for edge in edges.tolist()], chances)}, "path"

    for provenance in ("minmaxprob", "max_product"):
        yield walk(f"closure with {provenance}, {tagged_nodes:,} nodes", tagged, provenance)


# Circuits


def replayed(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call as a CUDA graph: what it computes with, and its results, stay where they are."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def circuit_files(folder: Path, is_small: bool) -> list[tuple[str, Path, int]]:
    """(name, file, variables): what is in the folder of data, and what is made."""
    import circuits

    found = [(case.name, case.path, case.num_variables) for case in circuits.instances(folder, True, None)]
    made = [("balanced", 16, 4, True), ("deep", 12, 4, False)]
    if not is_small:
        made = [("balanced", 1024, 64, True), ("deep", 128, 32, False)]
    for shape, variables, modulus, is_balanced in made:
        path = folder / f"{shape}-{variables}-{modulus}.sdd"
        circuits.make_counting(path, variables, modulus, is_balanced)
        found.append((f"{shape} count of {variables:,} modulo {modulus}", path, variables))
    return found[:1] + found[-1:] if is_small else found


def circuit_cases(folder: Path, is_small: bool) -> Iterator[tuple[str, Path, int, int]]:
    """(name, file, variables, batch)"""
    for circuit, path, variables in circuit_files(folder, is_small):
        is_large = circuit.startswith("balanced")
        for batch in (1, 4) if is_small else (1, 128, 1024) if is_large else (1, 128, 1024, 4096):
            yield f"{circuit}, batch {batch:,}", path, variables, batch


def log_weights(variables: int, batch: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).uniform(0.05, 0.95, (batch, variables))).log()


def graded(module: Any, weights: torch.Tensor) -> Callable[[], list[torch.Tensor]]:
    x = weights.detach().clone().requires_grad_()

    def call() -> list[torch.Tensor]:
        x.grad = None
        value = module(x)
        value.sum().backward()
        assert x.grad is not None
        return [value.detach().reshape(len(x), -1), x.grad]

    return call


def circuit_walks(device: torch.device, is_small: bool) -> Walks:
    def make(name: str, path: Path, variables: int, batch: int) -> Walk:
        circuit = dv.circuit.load(path, num_variables=variables)
        module, weights = circuit.to_torch("log"), log_weights(variables, batch)

        def check(ours: Any, theirs: Any) -> None:
            exact = graded(module, weights)()
            close()(exact, [x.cpu() for x in graded(module, weights.to(device))()])
            for found in (ours, theirs):
                close(2e-3, 2e-3)([x.float() for x in exact], [x.cpu() for x in found])

        return Walk(
            name,
            graded(module, weights.float()),
            graded(module, weights.float().to(device)),
            check,
            lambda _: f"{circuit.num_nodes:,} nodes, {circuit.num_edges:,} edges",
            # A node's value is written, read by the level above and again by the reverse pass; so is its adjoint.
            traffic=5 * 4 * circuit.num_nodes * batch,
        )

    with tempfile.TemporaryDirectory() as folder:
        for name, path, variables, batch in circuit_cases(Path(folder), is_small):
            yield name, partial(make, name, path, variables, batch)


def circuit_graphs(device: torch.device, is_small: bool, limit: float) -> dict[str, dict[str, float]]:
    """Seconds of CUDA graphs of ours and of klaycircuits' torch back end, each in a process of its own: an error while
    one is recorded ends all work of a process with the device."""
    found: dict[str, dict[str, float]] = {}
    for who in ("derivable", "klay"):
        part = [sys.executable, __file__, who, str(device), str(int(is_small))]
        try:
            done = subprocess.run(part, capture_output=True, text=True, timeout=max(min(limit / 2, 60), 1), check=False)
            lines, errors = done.stdout, done.stderr if done.returncode else ""
        except subprocess.TimeoutExpired as late:
            lines, errors = (late.stdout or b"").decode(), "no time is left"
        for line in lines.splitlines():
            name, column, spent = json.loads(line)
            found.setdefault(name, {})[column] = spent
        if errors:
            print(f"{who} as CUDA graphs: {errors.strip().splitlines()[-1]}", file=sys.stderr, flush=True)
    return found


def check_klay(found: list[torch.Tensor], path: Path, variables: int, batch: int) -> None:
    """Raise unless klaycircuits' values and gradients are those of the CPU's kernels."""
    expected = graded(dv.circuit.load(path, num_variables=variables).to_torch("log"), log_weights(variables, batch))()
    close(2e-3, 2e-3)([x.float() for x in expected], [x.cpu() for x in found])


def time_graphs(who: str, device: torch.device, is_small: bool) -> None:
    """Print [case, column, seconds] for every case."""
    import circuits

    def module(path: Path, variables: int) -> Any:
        if who == "derivable":
            return dv.circuit.load(path, num_variables=variables).to_torch("log")
        peer = circuits.klay_circuit(path).to_torch_module("log", compile=False).to(device)
        units = torch.tensor([peer.zero, peer.one], device=device)

        def encoded(positive: torch.Tensor, _: Any = None) -> torch.Tensor:
            # As klaycircuits does it, whose constants come from the host, which no graph can record.
            pairs = torch.stack([positive, peer.negate(positive, 0)], -1).flatten(-2)
            return torch.cat([units.expand(len(positive), 2), pairs], -1).mT

        peer.encode_input = encoded
        return peer

    with tempfile.TemporaryDirectory() as folder:
        cases = list(circuit_cases(Path(folder), is_small))
        for is_recorded in (False, True):
            for name, path, variables, batch in cases:
                if who == "derivable" and not is_recorded:
                    continue
                call: Callable[[], Any] = graded(
                    module(path, variables), log_weights(variables, batch).float().to(device)
                )
                if is_recorded and device.type == "cuda":
                    call = replayed(call)
                if who == "klay" and not is_recorded:
                    check_klay(call(), path, variables, batch)
                call()
                spent = seconds(call, device, 1 if is_small else ROUNDS)
                column = f"{who}{', CUDA graph' * is_recorded}"
                print(json.dumps([name, column, spent]), flush=True)


# Folds, tensors and vectors: functions of tensors


def of_tensors(
    name: str,
    operands: Callable[[], list[torch.Tensor]],
    run: Callable[..., Any],
    note: Callable[[Any], str],
    device: torch.device,
    *,
    others: dict[str, Callable[..., Any]] | None = None,
    traffic: Callable[[list[torch.Tensor]], int] | None = None,
    tolerance: float = 2e-3,
) -> tuple[str, Callable[[], Walk]]:
    """A function of dense and sparse tensors, checked in float64 and in float32 and timed in float32.

    others   other functions of the same tensors on the device
    traffic  of the tensors in float32
    """

    def listed(found: Any) -> list[torch.Tensor]:
        parts = found if isinstance(found, (tuple, list)) else [found]
        return [x.detach().to_dense().cpu() for x in parts if x is not None]

    def single(x: torch.Tensor) -> torch.Tensor:
        return x.detach().float().requires_grad_(x.requires_grad) if x.is_floating_point() else x

    def make() -> Walk:
        given = operands()
        moved = [x.detach().to(device).requires_grad_(x.requires_grad) for x in given]
        here, there = [single(x) for x in given], [single(x) for x in moved]

        def check(ours: Any, theirs: Any) -> None:
            exact = listed(run(*given))
            close()(exact, listed(run(*moved)))
            scales = [float(x.abs().max()) + 1e-30 if x.numel() else 1.0 for x in exact]
            for found in (ours, theirs):
                pairs = list(zip(exact, listed(found), scales, strict=True))
                close(tolerance, tolerance)([(x / s).float() for x, _, s in pairs], [y / s for _, y, s in pairs])

        def checked(other: Callable[..., Any]) -> Callable[[], Any]:
            close(tolerance, tolerance * 10)(listed(run(*there)), listed(other(*there)))
            return partial(other, *there)

        return Walk(
            name,
            partial(run, *here),
            partial(run, *there),
            check,
            note,
            others={key: partial(checked, other) for key, other in (others or {}).items()},
            traffic=None if traffic is None else traffic(there),
        )

    return name, make


def with_gradients(run: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """The values, and the gradient of their sum by each tensor that has one."""

    def call(*operands: torch.Tensor) -> Any:
        asked = [x for x in operands if x.requires_grad]
        found = run(*operands)
        return [found, *torch.autograd.grad(found.sum(), asked)]

    return call


def fold_walks(device: torch.device, is_small: bool) -> Walks:
    count = 300 if is_small else 10_000_000
    rng = np.random.default_rng(0)
    linear = dv.parallel.operator(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), neutral=(1.0, 0.0))

    def numbers(leaves: int, is_graded: bool) -> list[torch.Tensor]:
        return [torch.from_numpy(rng.uniform(0.5, 1.0, count)).requires_grad_(is_graded) for _ in range(leaves)]

    def distinct(leaves: int, is_graded: bool) -> list[torch.Tensor]:
        """No two are equal, in float32 either: of equal numbers only one has the gradient."""
        places = rng.permutation(1 << 24)[:count]
        return [torch.from_numpy(places / (1 << 24)).requires_grad_(is_graded) for _ in range(leaves)]

    def note(_: Any) -> str:
        return f"{count:,} elements"

    scans: dict[str, tuple[Callable[..., Any], int, dict[str, Any]]] = {
        "add": (lambda x: dv.parallel.scan("add", x), 1, {"torch": lambda x: x.cumsum(0)}),
        "max": (lambda x: dv.parallel.scan("max", x), 1, {"torch": lambda x: x.cummax(0).values}),
        "linear": (lambda x, y: dv.parallel.scan(linear, (x, y))[1], 2, {}),
    }
    for name, (run, leaves, others) in scans.items():
        for is_graded in (False, True):
            call = with_gradients(run) if is_graded else run
            yield of_tensors(
                f"scan, {name}{', with gradient' * is_graded}",
                partial(distinct if name == "max" else numbers, leaves, is_graded),
                call,
                note,
                device,
                others={key: with_gradients(other) if is_graded else other for key, other in others.items()},
                traffic=lambda xs, k=3 if is_graded else 1: 2 * k * sum(x.nbytes for x in xs),
            )
    for buckets in (31, 1_023, 1_500_000):

        def by_index(op: str, x: torch.Tensor, where: torch.Tensor, buckets: int = buckets) -> torch.Tensor:
            return dv.parallel.reduce_by_index(x.new_zeros(buckets), op, where, x)

        def by_torch(x: torch.Tensor, where: torch.Tensor, buckets: int = buckets) -> torch.Tensor:
            return x.new_zeros(buckets).index_add_(0, where, x)

        for op in ("add", "max"):
            yield of_tensors(
                f"histogram, {op}, {buckets:,} buckets",
                lambda buckets=buckets: [*numbers(1, False), torch.from_numpy(rng.integers(0, buckets, count))],
                partial(by_index, op),
                note,
                device,
                others={"torch": by_torch} if op == "add" else {},
                traffic=lambda xs: sum(x.nbytes for x in xs),
            )


def random_matrix(rows: int, each: int, seed: int = 0) -> torch.Tensor:
    """A square matrix in CSR, float64, with at most `each` entries a row at random columns, and a few long rows."""
    rng = np.random.default_rng(seed)
    lengths = rng.poisson(each, rows)
    lengths[:: max(rows // 10, 1)] = min(rows, 100 * each)
    places = np.repeat(np.arange(rows) * rows, lengths) + rng.integers(0, rows, lengths.sum())
    places = np.unique(places)
    offsets = np.searchsorted(places, np.arange(rows + 1) * rows)
    values = torch.from_numpy(rng.uniform(0.5, 1.0, len(places)))
    parts = torch.from_numpy(offsets), torch.from_numpy(places % rows), values
    return torch.sparse_csr_tensor(*parts, (rows, rows), check_invariants=False)


def tensor_walks(device: torch.device, is_small: bool) -> Walks:
    from derivable.tensor.call import device_folds, gathers

    if is_small and device.type == "cpu":
        # Triton's interpreter is slow, and takes the smallest ones.
        gathers.has_kernels, device_folds.FEWEST = lambda _: True, 1  # type: ignore[assignment]
    rows, each = (8, 2) if is_small else (500_000, 20)
    rng = np.random.default_rng(0)
    vector = "sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }"
    matrix = "sum(<i, r> in A) { i -> sum(<j, a> in r) sum(<k, x> in X(j)) { k -> a * x } }"

    def parts_of(a: torch.Tensor, is_graded: bool) -> list[torch.Tensor]:
        return [a.crow_indices(), a.col_indices(), a.values().requires_grad_(is_graded)]

    for title, text, width in (("vector", vector, 0), ("64 columns", matrix, 64)):
        kernel = dv.tensor.compile(dv.tensor.parse(text, {"A": 2, "X": 2 if width else 1}), backend="torch")
        size = rows // 5 if width and not is_small else rows

        def product(
            offsets: torch.Tensor, columns: torch.Tensor, a: torch.Tensor, x: torch.Tensor, kernel: Any = kernel
        ) -> torch.Tensor:
            made = torch.sparse_csr_tensor(offsets, columns, a, (len(x), len(x)), check_invariants=False)
            found = kernel(A=made, X=x)
            return found.to_dense() if found.layout != torch.strided else found

        def by_torch(offsets: torch.Tensor, columns: torch.Tensor, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.sparse_csr_tensor(offsets, columns, a, (len(x), len(x)), check_invariants=False) @ x

        for is_graded in (False, True):

            def operands(is_graded: bool = is_graded, size: int = size, width: int = width) -> list[torch.Tensor]:
                x = torch.from_numpy(rng.random((size, width) if width else size)).requires_grad_(is_graded)
                return [*parts_of(random_matrix(size, each), is_graded), x]

            yield of_tensors(
                f"sparse matrix by {title}{', with gradients' * is_graded}",
                operands,
                with_gradients(product) if is_graded else product,
                lambda found, size=size: f"{size:,} rows, {each} nonzeros each",
                device,
                others={"torch.sparse": with_gradients(by_torch) if is_graded else by_torch},
                traffic=lambda xs, k=3 if is_graded else 1: k * sum(x.nbytes for x in xs) + k * xs[-1].nbytes,
            )


def vector_walks(device: torch.device, is_small: bool) -> Walks:
    rng = np.random.default_rng(0)
    for length in (16, 64) if is_small else (32, 256, 1_024, 10_000):
        for batch in (3,) if is_small else (1, 1_000):
            yield of_tensors(
                f"binding by convolution, batch {batch:,}, {length:,} places",
                lambda length=length, batch=batch: [torch.from_numpy(rng.normal(size=(batch, length))) for _ in "ab"],
                dv.vsa.convolve,
                lambda found: f"{found.numel():,} places",
                device,
                traffic=lambda xs: 3 * xs[0].nbytes,
            )


GROUPS = [
    Group(
        "Datalog",
        "Facts begin on the CPU. A run ends when the number of tuples is known; `reading` is the outputs' way to the\n"
        "host, as columns.",
        datalog_walks,
    ),
    Group(
        "Circuits",
        "Value and gradient through torch, float32, in the log semiring; weights and results are on the device. The\n"
        "bound counts each node's value and adjoint five times. CUDA graphs are of the same calls.",
        circuit_walks,
        circuit_graphs,
    ),
    Group("Folds", "Operands and results are on the device, float32.", fold_walks),
    Group(
        "Sparse tensors",
        "A matrix in CSR with a few long rows; operands and results are on the device, float32.",
        tensor_walks,
    ),
    Group("Vector-symbolic binding", "Operands and results are on the device, float32.", vector_walks),
]


if __name__ == "__main__":
    time_graphs(sys.argv[1], torch.device(sys.argv[2]), sys.argv[3] == "1")
