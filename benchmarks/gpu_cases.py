"""The cases of `gpu.py`. A function of walks yields (the name of a case, what makes it)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
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

    def same_generation(count: int) -> tuple[str, Mapping[str, Any], str]:
        return cases.SAME_GENERATION, {"edge": cases.tree(count)}, "same"

    def points_to(variables: int) -> tuple[str, Mapping[str, Any], str]:
        case = cases.points_to(variables)
        return case.text, case.facts, case.output

    tagged_nodes = 20 if is_small else 2_000

    def tagged() -> tuple[str, Mapping[str, Any], str]:
        edges = np.unique(random_graph(tagged_nodes, tagged_nodes * 2), axis=0)
        chances = np.random.default_rng(1).uniform(0.1, 0.9, len(edges)).tolist()
        return closure, {"edge": dv.independent([tuple(edge) for edge in edges.tolist()], chances)}, "path"

    large, small = (40, 40) if is_small else (10_000, 3_000)
    yield walk(f"closure, {large:,} nodes", partial(closed, closure, large))
    count = 30 if is_small else 24_000
    yield walk(f"same generation, tree {count:,}", partial(same_generation, count))
    for variables in (40,) if is_small else (256_000, 100_000):
        yield walk(f"points-to, {variables:,} variables", partial(points_to, variables))
    for provenance in ("minmaxprob", "max_product"):
        yield walk(f"closure with {provenance}, {tagged_nodes:,} nodes", tagged, provenance)
    yield from batch_walks(device, is_small)
    side = 4 if is_small else 100
    yield walk(f"closure, grid {side}", lambda: (closure, {"edge": cases.grid(side)}, "path"))
    yield walk(f"nonlinear closure, {large:,} nodes", partial(closed, nonlinear, large))
    if not is_small:
        yield walk(f"closure, {small:,} nodes", partial(closed, closure, small))
        yield walk("same generation, tree 12,000", partial(same_generation, 12_000))


def batch_walks(device: torch.device, is_small: bool) -> Walks:
    """Layers over samples that have facts of their own, the best proof of each output, with their gradients."""
    from proofs import TASKS

    def make(case: str, name: str, provenance: str, k: int, batch: int) -> Walk:
        samples = [TASKS[name][0](sample) for sample in range(batch)]
        text, first = samples[0]
        rules, _, output = text.rstrip().rpartition("\nquery ")
        static = {key: rows for key, rows in first.items() if not isinstance(rows[0][1], tuple)}
        names = [key for key in first if key not in static]
        varying = {key: dv.varying() for key in names}
        layer = dv.nn.Logic(rules, varying, {output: None}, provenance, k=k, facts=static)
        facts = {key: [[row for _, row in sample[key]] for _, sample in samples] for key in names}
        tags = {key: [[tag for tag, _ in sample[key]] for _, sample in samples] for key in names}

        def on(where: torch.device) -> Callable[[], list[torch.Tensor]]:
            given = {
                key: torch.tensor([tag for one in rows for tag in one], dtype=torch.float64, device=where)
                for key, rows in tags.items()
            }
            lengths = {key: [len(one) for one in rows] for key, rows in tags.items()}

            def call() -> list[torch.Tensor]:
                numbers = {key: x.detach().requires_grad_() for key, x in given.items()}
                inputs = {key: list(zip(facts[key], x.split(lengths[key]), strict=True)) for key, x in numbers.items()}
                values = torch.cat([found for _, found in layer(**inputs)])
                return [values.detach(), *torch.autograd.grad(values.square().sum(), list(numbers.values()))]

            return call

        return Walk(
            case,
            on(torch.device("cpu")),
            on(device),
            lambda ours, theirs: close()(ours, [x.cpu() for x in theirs]),
            lambda found: f"{len(found[0]):,} outputs",
        )

    batch = 2 if is_small else 1_024
    tasks = [("path6", "minmaxprob", 1), ("path6", "topkproofs", 1), ("kin4", "topkproofs", 3)]
    for task, provenance, k in tasks:
        best = "the best proof" if k == 1 else f"the {k} best proofs"
        case = f"layer of {task}, {best} by {provenance}, batch {batch:,}"
        yield case, partial(make, case, task, provenance, k, batch)


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
        made = [("balanced", 512, 64, True), ("deep", 128, 32, False)]
    for shape, variables, modulus, is_balanced in made:
        path = folder / f"{shape}-{variables}-{modulus}.sdd"
        circuits.make_counting(path, variables, modulus, is_balanced)
        found.append((f"{shape} count of {variables:,} modulo {modulus}", path, variables))
    return found[:1] + found[-1:] if is_small else found


def circuit_cases(folder: Path, is_small: bool) -> Iterator[tuple[str, Path, int, int]]:
    """(name, file, variables, batch)"""
    for circuit, path, variables in circuit_files(folder, is_small):
        for batch in (1, 4) if is_small else (1, 128, 1024):
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


def check_klay(found: list[torch.Tensor], path: Path, variables: int, batch: int) -> None:
    """Raise unless klaycircuits' values and gradients are those of the CPU's kernels."""
    expected = graded(dv.circuit.load(path, num_variables=variables).to_torch("log"), log_weights(variables, batch))()
    close(2e-3, 2e-3)([x.float() for x in expected], [x.cpu() for x in found])


def time_graphs(who: str, device: torch.device, is_small: bool) -> Iterator[tuple[str, str, float]]:
    """(case, column, seconds) of CUDA graphs of ours or of klaycircuits' torch back end."""
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

    if who == "klay" and find_spec("klay") is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, path, variables, batch in circuit_cases(Path(folder), is_small):
            call: Callable[[], Any] = graded(module(path, variables), log_weights(variables, batch).float().to(device))
            if who == "klay":
                check_klay(call(), path, variables, batch)
            if device.type == "cuda":
                call = replayed(call)
            call()
            yield name, f"{who}, CUDA graph", seconds(call, device, 1 if is_small else ROUNDS)


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
        parts = [x.detach() for x in (found if isinstance(found, (tuple, list)) else [found])]
        return [(x.values() if x.layout == torch.sparse_csr else x).cpu() for x in parts]

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
            # Of the values only: torch's gradient of a sparse matrix is dense.
            ours, theirs = listed(run(*there))[:1], listed(other(*there))[:1]
            scale = float(ours[0].abs().max()) + 1e-30
            close(tolerance, tolerance)([ours[0] / scale], [theirs[0] / scale])
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
    sizes = {"scan": 300 if is_small else 50_000_000, "histogram": 300 if is_small else 10_000_000}
    sizes["max"] = sizes["histogram"]
    rng = np.random.default_rng(0)
    linear = dv.parallel.operator(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), neutral=(1.0, 0.0))

    def numbers(leaves: int, is_graded: bool, count: int = sizes["scan"]) -> list[torch.Tensor]:
        return [torch.from_numpy(rng.uniform(0.5, 1.0, count)).requires_grad_(is_graded) for _ in range(leaves)]

    def distinct() -> list[torch.Tensor]:
        """No two are equal, in float32 either: of equal numbers only one has the gradient."""
        return [torch.from_numpy(rng.permutation(1 << 24)[: sizes["max"]] / (1 << 24))]

    def note(of: str) -> Callable[[Any], str]:
        return lambda _: f"{sizes[of]:,} elements"

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
                (lambda g=is_graded: [x.requires_grad_(g) for x in distinct()])
                if name == "max"
                else partial(numbers, leaves, is_graded),
                call,
                note("max" if name == "max" else "scan"),
                device,
                others={key: with_gradients(other) if is_graded else other for key, other in others.items()},
                traffic=lambda xs, k=3 if is_graded else 1: 2 * k * sum(x.nbytes for x in xs),
            )
    for buckets in (31, 1_023, 1_500_000):

        def by_index(op: str, x: torch.Tensor, where: torch.Tensor, buckets: int = buckets) -> torch.Tensor:
            return dv.parallel.reduce_by_index(x.new_zeros(buckets), op, where, x)

        def by_torch(x: torch.Tensor, where: torch.Tensor, buckets: int = buckets) -> torch.Tensor:
            return x.new_zeros(buckets).index_add_(0, where, x)

        for op in ("add", "max") if buckets == 1_023 else ("add",):
            yield of_tensors(
                f"histogram, {op}, {buckets:,} buckets",
                lambda buckets=buckets: [
                    *numbers(1, False, sizes["histogram"]),
                    torch.from_numpy(rng.integers(0, buckets, sizes["histogram"])),
                ],
                partial(by_index, op),
                note("histogram"),
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
    rng = np.random.default_rng(0)
    vector = "sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }"
    matrix = "sum(<i, r> in A) { i -> sum(<j, a> in r) sum(<k, x> in X(j)) { k -> a * x } }"
    rows, each = ((8, 8), 2) if is_small else ((200_000, 50_000), 20)
    for (title, text, width), size in zip((("vector", vector, 0), ("64 columns", matrix, 64)), rows):
        program = dv.tensor.parse(text, {"A": 2, "X": 2 if width else 1})
        here = dv.tensor.compile(program, output="torch")
        there = dv.tensor.compile(program, output="torch", backend="torch")

        def product(a: torch.Tensor, x: torch.Tensor, here: Any = here, there: Any = there) -> torch.Tensor:
            return (here if x.is_cpu and not is_small else there)(A=a, X=x)

        for is_graded in (False, True):

            def operands(is_graded: bool = is_graded, size: int = size, width: int = width) -> list[torch.Tensor]:
                x = torch.from_numpy(rng.random((size, width) if width else size)).requires_grad_(is_graded)
                return [random_matrix(size, each).requires_grad_(is_graded), x]

            yield of_tensors(
                f"sparse matrix by {title}{', with gradients' * is_graded}",
                operands,
                with_gradients(product) if is_graded else product,
                lambda found, size=size: f"{size:,} rows, {each} nonzeros each",
                device,
                others={"torch.sparse": with_gradients(torch.matmul) if is_graded else torch.matmul},
                traffic=lambda xs, k=3 if is_graded else 1: k * sum(map(size_of, (*xs, xs[1]))),
            )


def size_of(x: torch.Tensor) -> int:
    """In bytes."""
    parts = (x.crow_indices(), x.col_indices(), x.values()) if x.layout == torch.sparse_csr else (x,)
    return sum(part.nbytes for part in parts)


def vector_walks(device: torch.device, is_small: bool) -> Walks:
    rng = np.random.default_rng(0)
    sizes = [(16, 3, 3), (64, 3, 1)] if is_small else [(1_024, 1_000, 1_000), (10_000, 1_000, 1_000)]
    if not is_small:
        sizes += [(length, 65_536, shared) for length in (16, 32, 64, 128) for shared in (1, 65_536)]
    for length, batch, shared in sizes:

        def operands(length: int = length, batch: int = batch, shared: int = shared) -> list[torch.Tensor]:
            return [torch.from_numpy(rng.normal(size=(count, length))) for count in (batch, shared)]

        paths = {
            path: partial(dv.vsa.convolve, path=path)
            for path in ("fft", "direct")
            if path == "fft" or shared * length <= 1 << 23
        }
        yield of_tensors(
            f"{batch:,} rows of {length:,} places by {'one' if shared == 1 else 'as many'}",
            operands,
            dv.vsa.convolve,
            lambda found: f"{found.numel():,} places",
            device,
            others=paths,
            traffic=lambda xs: 2 * xs[0].nbytes + xs[1].nbytes,
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
        {who: partial(time_graphs, who) for who in ("derivable", "klay")},
    ),
    Group("Folds", "Operands and results are on the device, float32.", fold_walks),
    Group(
        "Sparse tensors",
        "A matrix in CSR with a few long rows; operands and results are on the device, float32.",
        tensor_walks,
    ),
    Group("Vector-symbolic binding", "Operands and results are on the device, float32.", vector_walks),
]
