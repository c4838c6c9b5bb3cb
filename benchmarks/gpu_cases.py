"""The cases of `gpu.py`, those with goals first."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu import Case, Group, Walk
from gpu_goals import BYTES, ROUNDS, Bound, Goal, replayed, seconds
from gpu_tensor_cases import Walks, close, fold_walks, on_device, tensor_walks, vector_walks

import derivable as dv

TEN_TIMES = Goal("ten times two threads", "CPU", 0.1)


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
        name: str,
        problem: Callable[[], tuple[str, Mapping[str, Any], str]],
        provenance: str = "unit",
        goals: tuple[Goal, ...] = (),
    ) -> Case:
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
                partial(run, None),
                partial(run, where),
                check,
                lambda found: f"{len(found[0]):,} tuples",
                read,
                transfers,
                bound=Bound(launches=None),
            )

        return Case(name, make, goals)

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
    goals = (TEN_TIMES,)
    yield walk(f"closure, {large:,} nodes", partial(closed, closure, large), goals=goals)
    count = 30 if is_small else 24_000
    yield walk(f"same generation, tree {count:,}", partial(same_generation, count), goals=goals)
    yield from batch_walks(device, is_small)
    for variables in (40,) if is_small else (256_000, 100_000):
        of_size = goals if variables > 100_000 or is_small else ()
        yield walk(f"points-to, {variables:,} variables", partial(points_to, variables), goals=of_size)
    for provenance in ("minmaxprob", "max_product"):
        yield walk(f"closure with {provenance}, {tagged_nodes:,} nodes", tagged, provenance)
    side = 4 if is_small else 100
    yield walk(f"closure, grid {side}", lambda: (closure, {"edge": cases.grid(side)}, "path"))
    yield walk(f"nonlinear closure, {large:,} nodes", partial(closed, nonlinear, large))
    if not is_small:
        yield walk(f"closure, {small:,} nodes", partial(closed, closure, small))
        yield walk("same generation, tree 12,000", partial(same_generation, 12_000))


def batch_walks(device: torch.device, is_small: bool) -> Walks:
    """Layers over samples that have facts of their own, the best proof of each output, with their gradients."""
    from proofs import TASKS

    def make(name: str, provenance: str, k: int, batch: int) -> Walk:
        samples = [TASKS[name][0](sample) for sample in range(batch)]
        text, first = samples[0]
        rules, _, output = text.rstrip().rpartition("\nquery ")
        static = {key: rows for key, rows in first.items() if not isinstance(rows[0][1], tuple)}
        names = [key for key in first if key not in static]
        varying = {key: dv.varying() for key in names}
        layer = dv.nn.Logic(rules, varying, {output: None}, provenance, k=k, facts=static)
        facts = {key: [[row for _, row in sample[key]] for _, sample in samples] for key in names}

        def columns() -> list[np.ndarray]:
            """What nobody can do without who takes lists of tuples."""
            return [np.array(rows) for of_name in facts.values() for rows in of_name]

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
            on(torch.device("cpu")),
            on(device),
            lambda ours, theirs: close()(ours, [x.cpu() for x in theirs]),
            lambda found: f"{len(found[0]):,} outputs",
            bound=Bound(launches=None, host=seconds(columns, torch.device("cpu"), ROUNDS)),
        )

    batch = 2 if is_small else 1_024
    tasks = [(task, "topkproofs", 1) for task in ("path6", "maze5", "kin3", "formula7x3")]
    for task, provenance, k in [*tasks, ("path6", "minmaxprob", 1), ("kin4", "topkproofs", 3)]:
        best = "the best proof" if k == 1 else f"the {k} best proofs"
        case = f"layer of {task}, {best} by {provenance}, batch {batch:,}"
        yield Case(case, partial(make, task, provenance, k, batch), (TEN_TIMES,) * (k == 1))


# Circuits


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


@dataclass(frozen=True)
class CircuitCase:
    """A circuit of a file in a semiring, and how many rows its weights have."""

    circuit: str
    path: Path
    variables: int
    ring: str
    batch: int

    @property
    def name(self) -> str:
        return f"{self.circuit}{'' if self.ring == 'log' else f' in {self.ring}'}, batch {self.batch:,}"

    @property
    def goals(self) -> tuple[Goal, ...]:
        ours, theirs = (f"{who}, CUDA graph" for who in ("derivable", "klay"))
        if self.ring != "log" or self.batch > 1_024:
            return ()
        if self.batch > 128:
            return (Goal("half of the bandwidth", BYTES, 2.0, ours),)
        return (Goal("five times klaycircuits", theirs, 0.2, ours),)

    def weights(self) -> torch.Tensor:
        found = torch.from_numpy(np.random.default_rng(0).uniform(0.05, 0.95, (self.batch, self.variables)))
        return found.log() if self.ring == "log" else found

    def load(self) -> tuple[Any, Any]:
        """The circuit and its module."""
        circuit = dv.circuit.load(self.path, num_variables=self.variables)
        return circuit, circuit.to_torch(self.ring)


def circuit_cases(folder: Path, is_small: bool, is_goals: bool = False) -> list[CircuitCase]:
    """By circuit, so that each is loaded once after another."""
    batches = [("log", batch) for batch in ((1, 4) if is_small else (1, 128, 1_024, 4_096))]
    batches += [(ring, 2 if is_small else 1_024) for ring in ("real", "max_product")]
    files = circuit_files(folder, is_small)
    cases = [CircuitCase(*file, ring, batch) for ring, batch in batches for file in files]
    return [case for case in cases if case.goals or not is_goals]


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
    def make(case: CircuitCase) -> Walk:
        circuit, module = case.load()
        weights = case.weights()

        def check(ours: Any, theirs: Any) -> None:
            exact = graded(module, weights)()
            close()(exact, [x.cpu() for x in on_device(graded(module, weights.to(device)), device)()])
            for found in (ours, theirs):
                close(2e-3, 2e-3)([x.float() for x in exact], [x.cpu() for x in found])

        return Walk(
            graded(module, weights.float()),
            on_device(graded(module, weights.float().to(device)), device),
            check,
            lambda _: f"{circuit.num_nodes:,} nodes, {circuit.num_edges:,} edges",
            # A node's value is written, read by the level above and again by the reverse pass; so is its adjoint.
            bound=Bound(5 * 4 * circuit.num_nodes * case.batch, steps=2 * circuit.num_levels),
        )

    with tempfile.TemporaryDirectory() as folder:
        for case in circuit_cases(Path(folder), is_small):
            yield Case(case.name, partial(make, case), case.goals)


def check_klay(found: list[torch.Tensor], case: CircuitCase) -> None:
    """Raise unless klaycircuits' values and gradients are those of the CPU's kernels."""
    expected = graded(case.load()[1], case.weights())()
    close(2e-3, 2e-3)([x.float() for x in expected], [x.cpu() for x in found])


def time_graphs(who: str, device: torch.device, is_small: bool, is_goals: bool) -> Iterator[tuple[str, str, float]]:
    """(case, column, seconds) of CUDA graphs of ours or of klaycircuits' torch back end."""
    import circuits

    def module(case: CircuitCase) -> Any:
        if who == "derivable":
            return case.load()[1]
        peer = circuits.klay_circuit(case.path).to_torch_module("log", compile=False).to(device)
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
        for case in circuit_cases(Path(folder), is_small, is_goals):
            if who == "klay" and case.ring != "log":
                continue
            call: Callable[[], Any] = graded(module(case), case.weights().float().to(device))
            if who == "klay":
                check_klay(call(), case)
            if device.type == "cuda":
                call = replayed(call)
            call()
            yield case.name, f"{who}, CUDA graph", seconds(call, device, 1 if is_small else ROUNDS)


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
