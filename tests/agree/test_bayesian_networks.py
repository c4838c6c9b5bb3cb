"""Posteriors of published Bayesian networks, against numbers made with pyAgrum.

The reference numbers were computed from tables in single precision, so they agree to about 1e-6.
"""

import json
import math

import numpy as np
import pytest

import derivable as dv
from agree.bayesian_networks import Network, read_bif, relation_of, to_clauses, to_factors, to_program
from data import data_path

SMALL = ["asia", "cancer", "earthquake", "survey"]
LARGER = ["sachs", "alarm"]


def case(name: str) -> tuple[Network, dict, dict[str, str]]:
    network = read_bif(data_path(f"bayesnets/{name}.bif.gz"))
    reference = json.loads(data_path("bayesnets/reference_posteriors.json").read_text())[name]
    evidence = {node: network.states[node][index] for node, index in reference["evidence_state_index"].items()}
    assert {node: sorted(network.states[node]) for node in reference["states"]} == {
        node: sorted(states) for node, states in reference["states"].items()
    }
    return network, reference, evidence


@pytest.mark.parametrize("name", SMALL + LARGER)
def test_clauses(name):
    """The network as weighted clauses: P(evidence) is a weighted count, posteriors are marginals."""
    if name in LARGER:
        pytest.importorskip("py_d4")
    network, reference, evidence = case(name)
    encoding = to_clauses(network)
    circuit = dv.circuit.compile(encoding.clauses, compiler="d4" if name in LARGER else "sdd")
    weights, negative = np.array(encoding.weights), np.ones(len(encoding.weights))
    np.testing.assert_allclose(circuit.weighted_count(weights, negative), 1.0, rtol=1e-6)

    observed = weights.copy()
    for node, state in evidence.items():
        for other in network.states[node]:
            if other != state:
                observed[encoding.indicator[node, other] - 1] = 0.0
    np.testing.assert_allclose(circuit.weighted_count(observed, negative), reference["p_evidence"], rtol=2e-6)
    conditioned = circuit.condition({encoding.indicator[pair]: True for pair in evidence.items()})
    np.testing.assert_allclose(conditioned.weighted_count(weights, negative), reference["p_evidence"], rtol=2e-6)

    for which, numbers in (("prior", weights), ("posterior", observed)):
        marginals = np.ravel(circuit.marginals(numbers, negative))
        for node, expected in reference[which].items():
            found = [marginals[encoding.indicator[node, state] - 1] for state in reference["states"][node]]
            np.testing.assert_allclose(found, expected, atol=2e-6, err_msg=f"{which} of {node}")


@pytest.mark.parametrize("name", [*SMALL, *LARGER, "insurance", "hailfinder", "win95pts"])
def test_tables(name):
    """The network as tables, by variable elimination."""
    network, reference, evidence = case(name)
    circuit = dv.circuit.from_factors(*to_factors(network))
    indicators = [(node, state) for node, states in network.states.items() for state in states]
    place = {pair: column for column, pair in enumerate(indicators)}
    weights, negative = circuit.weights
    observed = weights.copy()
    for (node, state), column in place.items():
        if evidence.get(node, state) != state:
            observed[column] = 0.0
    np.testing.assert_allclose(circuit.evaluate(observed, negative), reference["p_evidence"], rtol=2e-6)
    for which, numbers in (("prior", weights), ("posterior", observed)):
        marginals = circuit.marginals(numbers, negative)
        for node, expected in reference[which].items():
            found = [marginals[place[node, state]] for state in reference["states"][node]]
            np.testing.assert_allclose(found, expected, atol=2e-6, err_msg=f"{which} of {node}")


@pytest.mark.parametrize("name", [*SMALL, "alarm", "insurance", "win95pts"])
def test_datalog(name):
    """The network as a Datalog program with exclusive facts, exact provenance."""
    network, reference, evidence = case(name)
    database = dv.Program(to_program(network, evidence)).run(provenance="exact")
    assert math.exp(database.log_evidence) == pytest.approx(reference["p_evidence"], rel=2e-6)
    for node, expected in reference["posterior"].items():
        posterior = database[relation_of(node)]
        shares = dict(zip(posterior, posterior.tag_list()))
        found = [shares.get((state,), 0.0) for state in reference["states"][node]]
        np.testing.assert_allclose(found, expected, atol=2e-6, err_msg=node)
