"""Random deterministic decomposable circuits, and answers to queries by listing all worlds.

Nothing here uses the code under test but `CircuitBuilder`, whose meaning its own tests check.
"""

import numpy as np

from circuit.random_circuits import root_tables
from derivable.circuit.graph.builder import CircuitBuilder


def random_node(builder, rng, variables, depth, kept=0.8):
    """A random decision diagram with decomposed conjunctions; leaves variables out, so it is not smooth."""
    variables = list(variables)
    if not variables or depth == 0:
        return builder.true()
    if len(variables) >= 2 and rng.random() < 0.4:
        cut = int(rng.integers(1, len(variables)))
        rng.shuffle(variables)
        return builder.conjunction(
            [
                random_node(builder, rng, variables[:cut], depth - 1, kept),
                random_node(builder, rng, variables[cut:], depth - 1, kept),
            ]
        )
    v, rest = variables[0], variables[1:]
    branches = []
    for literal in (v, -v):
        if rng.random() < kept:
            below = random_node(builder, rng, rest, depth - 1, kept)
            branches.append(builder.conjunction([builder.literal(literal), below]))
    return builder.disjunction(branches)


def random_circuit(seed, num_variables=6, num_roots=1, depth=6, origin=""):
    rng = np.random.default_rng(seed)
    builder = CircuitBuilder()
    roots = [
        random_node(builder, rng, rng.permutation(np.arange(1, num_variables + 1)), depth) for _ in range(num_roots)
    ]
    return builder.build(roots, num_variables=num_variables, origin=origin)


def satisfiable_circuit(seed, **options):
    """The first circuit from `seed` on whose roots all have models."""
    while True:
        circuit = random_circuit(seed, **options)
        if root_tables(circuit).any(axis=1).all():
            return circuit
        seed += 100_000


def all_worlds(num_variables):
    """[world, variable] bool; bit v - 1 of the world's number is variable v."""
    return (np.arange(2**num_variables)[:, None] >> np.arange(num_variables)) & 1 == 1


def world_weights(weights, negative_weights):
    """[world] product of literal weights."""
    worlds = all_worlds(len(weights))
    return np.where(worlds, weights, negative_weights).prod(axis=1)


def world_masses(circuit, weights, negative_weights):
    """[root, world] weight of each model, zero elsewhere."""
    return root_tables(circuit) * world_weights(weights, negative_weights)


def assert_close(actual, expected, rtol=1e-10, atol=1e-12):
    """Raise AssertionError unless equal up to rounding, shapes included."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"shape {actual.shape} is not {expected.shape}"
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)
