"""Layers of topkproofs, whose proofs are found by runs over batches, against runs of each row by itself."""

import itertools

import networkx as nx
import numpy as np
import pytest
import torch

import derivable as dv
from derivable.datalog.apm import run as apm_run
from derivable.nn.proof_search import GraphSearch, ProofSearch

TEXT = """type e(i32, i32), colour(i32, String)
rel p(x, y) = e(x, y) or (p(x, z) and e(z, y))
rel closed = {0.3::2, 0.2::1}
rel open(x) = e(_, x), not closed(x)
rel red(x) = colour(x, "red"), p(0, x), not open(x)
"""
EDGES = [(0, 1), (1, 2), (0, 2), (2, 0), (2, 3), (1, 3)]
COLOURS = [(2, "red"), (2, "blue"), (3, "red")]
OUTPUTS = {"p": [(0, 3), (0, 0), (3, 0)], "red": [(2,), (3,)]}


@pytest.mark.parametrize("k", [1, 3])
def test_rows_are_those_of_runs(k):
    rng = np.random.default_rng(k)
    edges, colours = rng.uniform(0.1, 0.9, (5, len(EDGES))), rng.dirichlet(np.ones(3), 5)
    inputs = {"e": dv.independent(EDGES), "colour": dv.categorical(COLOURS)}
    layer = dv.nn.Logic(TEXT, inputs, OUTPUTS, provenance="topkproofs", k=k)
    assert isinstance(layer.inference.search, ProofSearch)
    found = layer(e=torch.tensor(edges), colour=torch.tensor(colours))
    for row in range(5):
        facts = {"e": dv.independent(EDGES, edges[row]), "colour": dv.categorical(COLOURS, colours[row])}
        db = dv.Program(TEXT).run(facts, "topkproofs", k=k)
        for name, tuples in OUTPUTS.items():
            expected = [db[name].get(one, 0.0) for one in tuples]
            assert found[name][row].tolist() == pytest.approx(expected)


def test_gradients_are_those_of_the_proofs_to_the_second_order():
    inputs = {"e": dv.independent(EDGES), "colour": dv.categorical(COLOURS)}
    layer = dv.nn.Logic(TEXT, inputs, OUTPUTS, provenance="topkproofs", k=3)
    rng = np.random.default_rng(7)
    edges = torch.tensor(rng.uniform(0.2, 0.8, (2, len(EDGES))), requires_grad=True)
    colours = torch.tensor(rng.dirichlet(np.ones(3), 2))

    def function(edges):
        return torch.cat([*layer(e=edges, colour=colours).values()], -1)

    assert torch.autograd.gradcheck(function, edges)
    assert torch.autograd.gradgradcheck(function, edges)


def test_rules_that_make_random_facts_are_grounded():
    text = "type e(i32, i32)\nrel 0.5::p(x, y) = e(x, y)\nrel q(y) = p(_, y)"
    layer = dv.nn.Logic(text, {"e": dv.independent(EDGES)}, {"q": [(3,)]}, provenance="topkproofs", k=3)
    assert isinstance(layer.inference.search, GraphSearch)
    rows = torch.rand(3, len(EDGES), dtype=torch.float64)
    expected = 1 - (1 - 0.5 * rows[:, 4]) * (1 - 0.5 * rows[:, 5])
    torch.testing.assert_close(layer(e=rows)[:, 0], expected)


@pytest.mark.parametrize("k", [1, 3])
def test_a_device_finds_the_proofs_of_the_cpu(monkeypatch, k):
    """Torch on the CPU stands for the device of the probabilities."""
    inputs = {"e": dv.independent(EDGES), "colour": dv.categorical(COLOURS)}
    text, outputs = f"{TEXT}rel one_way(x, y) = e(x, y), not p(y, x)", OUTPUTS | {"one_way": EDGES}
    layer = dv.nn.Logic(text, inputs, outputs, provenance="topkproofs", k=k)
    rng = np.random.default_rng(k)
    # Few chances, so that proofs are equally probable.
    edges, colours = rng.choice([0.25, 0.5], (4, len(EDGES))), rng.dirichlet(np.ones(3), 4)
    fixed = np.broadcast_to([0.3, 0.2], (4, 2))
    rows = np.concatenate([edges, colours, fixed], 1)
    runs = []

    def run_on_device(*given):
        runs.append(given)
        return machine_run(*given)

    machine_run = apm_run.run_on_device
    monkeypatch.setattr(apm_run, "run_on_device", run_on_device)
    search = layer.inference.search
    on_device, on_host = search(rows, torch.device("cpu")), search(rows)
    assert len(runs) == 1
    for mine, other in zip(on_device, on_host):
        np.testing.assert_array_equal(mine, other)
    assert (on_device[2] < 0).any()


CLOSURE = """type e(i32, i32)
rel joined(a, b) = e(a, b) or e(b, a)
rel reached(b) = joined(0, b) or (reached(a), joined(a, b))
"""
GRID = [(c, c + 1) for c in range(9) if c % 3 < 2] + [(c, c + 3) for c in range(6)]


def closure_gradient(provenance: str, chances: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    layer = dv.nn.Logic(CLOSURE, {"e": dv.independent(GRID)}, {"reached": [8]}, provenance=provenance)
    chances = chances.clone().requires_grad_()
    probabilities = layer(e=chances)
    (gradient,) = torch.autograd.grad(probabilities.sum(), chances)
    return probabilities.detach(), gradient


def test_one_proof_of_a_path_is_its_best_derivation():
    rows = torch.rand(20, len(GRID), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(closure_gradient("top-1-proof", rows), closure_gradient("max_product", rows))


def test_of_equally_probable_proofs_the_fewest_and_then_the_first_facts_are_taken():
    graph = nx.Graph(GRID)
    paths = [
        sorted(GRID.index((min(pair), max(pair))) for pair in itertools.pairwise(nodes))
        for nodes in nx.all_simple_paths(graph, 0, 8)
    ]
    best = min(paths, key=lambda facts: (len(facts), [number not in facts for number in range(len(GRID))]))
    value, gradient = closure_gradient("top-1-proof", torch.ones(1, len(GRID)))
    assert value.tolist() == [[1.0]]
    assert np.flatnonzero(gradient.numpy()[0]).tolist() == best
