"""Layers of more than a million nodes say so, with the rule and what to do."""

import warnings

import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import DerivableWarning
from derivable.datalog.exact import exact, size

TEXT = "type r(i32), s(i32)\nrel t(n) = r(n), s(n)\nrel q(n, m) = r(n), r(m), m < n\nrel u(n) = t(n)"


def notices(made):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        made()
    return [str(one.message) for one in seen if issubclass(one.category, DerivableWarning)]


def layer(n, provenance="exact", rows=None):
    inputs = {name: dv.independent(range(n)) for name in "rs"}
    return dv.nn.Logic(TEXT, inputs, {"q": rows or [(1, 0)]}, provenance)


def limit(monkeypatch, number):
    for module in (exact, size):
        monkeypatch.setattr(module, "MOST_NODES", number)


@pytest.mark.slow
def test_a_ground_program_of_a_million_nodes():
    """1,420 facts of r have 1,007,490 pairs."""
    (found,) = notices(lambda: layer(1420))
    assert "the ground program of the layer has 1,0" in found
    assert "rel q(n, m) = r(n), r(m), m < n" in found
    for way in ("fewer outputs", "@demand", 'provenance="topkproofs", k=3'):
        assert way in found
    assert not notices(lambda: layer(1400))


@pytest.mark.parametrize("provenance", ["exact", "addmultprob", "minmaxprob"])
def test_the_number_of_nodes_is_that_of_facts_tuples_and_derivations(provenance, monkeypatch):
    """Two constants, 2 * 10 facts, 45 pairs and 10 rows of t, the AND of two facts each; u is t."""
    limit(monkeypatch, 76)
    (found,) = notices(lambda: layer(10, provenance))
    assert "has 77 nodes" in found
    limit(monkeypatch, 77)
    assert not notices(lambda: layer(10, provenance))


def test_a_circuit_that_is_larger_than_its_derivations(monkeypatch):
    """Two conjunctions of disjunctions: what they are as decisions has more nodes."""
    text = "type e(i32, i32)\nrel p(a, b) = e(a, b)\nrel p(a, c) = p(a, b), e(b, c)\n"
    text += "rel q() = p(0, 3), p(1, 2), not p(2, 0)"
    edges = [(a, b) for a in range(4) for b in range(4) if a != b]

    def made():
        return dv.nn.Logic(text, {"e": dv.independent(edges)}, {"q": ()})

    nodes = made().circuit.num_nodes
    limit(monkeypatch, nodes - 1)
    (found,) = notices(made)
    assert f"the circuit of the layer has {nodes:,} nodes" in found
    assert "rel p(a, c) = p(a, b), e(b, c)" in found
    limit(monkeypatch, nodes)
    assert not notices(made)


def test_functions_of_jax_say_so(monkeypatch):
    pytest.importorskip("jax")
    limit(monkeypatch, 76)
    inputs = {name: dv.independent(range(10)) for name in "rs"}
    (found,) = notices(lambda: dv.nn.logic_function(TEXT, inputs, {"q": [(1, 0)]}))
    assert "has 77 nodes" in found


def test_a_sample_of_many_nodes_is_said_once(monkeypatch):
    limit(monkeypatch, 50)
    varying = dv.nn.Logic(TEXT, {"r": dv.varying()}, {"q": [(1, 0)]}, facts={"s": [0]})
    facts = list(range(10)), torch.full((10,), 0.5)
    (found,) = notices(lambda: [varying([facts, facts]) for _ in range(3)])
    assert "the ground program of each sample of the layer has 5" in found
    limit(monkeypatch, 60)
    varying = dv.nn.Logic(TEXT, {"r": dv.varying()}, {"q": [(1, 0)]}, facts={"s": [0]})
    assert not notices(lambda: varying([facts] * 4))
