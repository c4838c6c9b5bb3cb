"""Layers over cyclic rules in semirings that choose: best derivations without unrolling, against networkx."""

import itertools
import math

import jax
import jax.numpy as jnp
import networkx
import numpy as np
import pytest
import torch

import derivable as dv
from derivable.circuit.fold.fixpoint import FixpointFold
from derivable.core.diagnostics import DomainError
from derivable.datalog.exact import ground_program

REACH = "rel path(a, b) = edge(a, b) or (path(a, c) and edge(c, b))"
SIDE = 4
NODES = SIDE * SIDE
TARGETS = [(0, NODES - 1), (5, 0), (0, 0)]


def grid():
    edges = []
    for a in range(NODES):
        row, column = divmod(a, SIDE)
        edges += [(a, a + 1), (a + 1, a)] * (column + 1 < SIDE) + [(a, a + SIDE), (a + SIDE, a)] * (row + 1 < SIDE)
    return edges


EDGES = grid()


def expected(weights):
    """(value [target], gradient [target, edge]) of the most probable path, by networkx."""
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from((a, b, -math.log(p)) for (a, b), p in zip(EDGES, weights))
    values, gradients = [], []
    for a, b in TARGETS:
        starts = [b] if a != b else [c for c, d in EDGES if d == b]
        paths = [networkx.dijkstra_path(graph, a, c) + ([b] if a == b else []) for c in starts]
        found = max(paths, key=lambda path: -sum(graph.edges[e]["weight"] for e in itertools.pairwise(path)))
        value = math.exp(-sum(graph.edges[e]["weight"] for e in itertools.pairwise(found)))
        values.append(value)
        used = set(itertools.pairwise(found))
        gradients.append([value / p if e in used else 0.0 for e, p in zip(EDGES, weights)])
    return np.array(values), np.array(gradients)


def fails(*arguments, **named):
    pytest.fail("a graph is unrolled")


@pytest.fixture
def weights():
    return np.random.default_rng(0).uniform(0.1, 0.99, (3, len(EDGES)))


def assert_best(call, weights):
    given = torch.tensor(weights, requires_grad=True)
    values = call(given)
    for row in range(len(weights)):
        numbers, gradients = expected(weights[row])
        np.testing.assert_allclose(values[row].detach(), numbers, rtol=1e-12)
        for target in range(len(TARGETS)):
            (gradient,) = torch.autograd.grad(values[row, target], given, retain_graph=True)
            np.testing.assert_allclose(gradient[row], gradients[target], rtol=1e-9, atol=1e-12)


def test_facts_of_each_sample(weights, monkeypatch):
    monkeypatch.setattr(ground_program, "unroll", fails)
    layer = dv.nn.Logic(REACH, {"edge": dv.varying()}, {"path": TARGETS}, "max_product")
    assert_best(lambda given: layer(edge=[(EDGES, row) for row in given]), weights)


def test_large_graphs_keep_their_cycles(weights, monkeypatch):
    monkeypatch.setattr(ground_program, "unroll", fails)
    monkeypatch.setattr(ground_program, "MOST_EDGES", 0)
    layer = dv.nn.Logic(REACH, {"edge": dv.independent(EDGES)}, {"path": TARGETS}, "max_product")
    assert_best(lambda given: layer(edge=given), weights)
    function = dv.nn.logic_function(REACH, {"edge": dv.independent(EDGES)}, {"path": TARGETS}, "max_product")
    given = jnp.asarray(weights, jnp.float32)
    np.testing.assert_allclose(function(edge=given), layer(edge=torch.tensor(weights)), rtol=1e-5)
    of_jax = jax.jit(jax.grad(lambda edge: function(edge=edge)[:, 0].sum()))(given)
    np.testing.assert_allclose(of_jax, [expected(row)[1][0] for row in weights], rtol=1e-4)


def test_small_graphs_are_unrolled(weights):
    layer = dv.nn.Logic(REACH, {"edge": dv.independent(EDGES)}, {"path": TARGETS}, "max_product")
    assert not any(isinstance(engine, FixpointFold) for engine in layer.inference.engines.values())
    assert_best(lambda given: layer(edge=given), weights)


def test_too_large_a_graph_without_cycles(weights, monkeypatch):
    monkeypatch.setattr(ground_program, "MOST_UNROLLED", 100)
    layer = dv.nn.Logic(REACH, {"edge": dv.independent(EDGES)}, {"path": TARGETS}, "max_product")
    assert any(isinstance(engine, FixpointFold) for engine in layer.inference.engines.values())
    assert_best(lambda given: layer(edge=given), weights)


def test_negation_of_a_recursion(monkeypatch):
    text = f"{REACH}\nrel far(a, b) = node(a), node(b), not path(a, b)\nrel node = {{0, 1, 2}}"
    edges = [(0, 1), (1, 2), (2, 0), (1, 0)]
    given = [[0.5, 0.25, 0.75, 0.125]]
    results = []
    for most in (0, 1 << 16):
        monkeypatch.setattr(ground_program, "MOST_EDGES", most)
        layer = dv.nn.Logic(text, {"edge": dv.independent(edges)}, {"far": [(0, 2), (2, 1)]}, "max_product")
        row = torch.tensor(given, dtype=torch.float64, requires_grad=True)
        values = layer(edge=row)
        values.sum().backward()
        results.append((values.tolist(), row.grad.tolist()))
    assert results[0] == results[1]
    # The best path from 0 to 2 is 0.5 * 0.25, that from 2 to 1 is 0.75 * 0.5.
    assert results[0] == ([[1 - 0.125, 1 - 0.375]], [[-0.25 - 0.75, -0.5, -0.5, 0.0]])


def test_costs_that_grow_in_a_cycle_are_an_error(monkeypatch):
    monkeypatch.setattr(ground_program, "MOST_EDGES", 0)
    layer = dv.nn.Logic(REACH, {"edge": dv.independent([(0, 1), (1, 0)])}, {"path": [(0, 1)]}, "max_plus")
    assert layer(edge=torch.tensor([[-1.0, -1.0]])).tolist() == [[-1.0]]
    with pytest.raises(DomainError, match="a cycle of tuples makes its values better for ever"):
        layer(edge=torch.tensor([[2.0, 1.0]]))
