"""The slow and obvious meaning of clauses, circuits and weights: go through all worlds."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.graph.circuit import Circuit


def worlds(num_variables: int) -> np.ndarray:
    """[world, variable] bool, all 2^n of them."""
    numbers = np.arange(2**num_variables)[:, None]
    return (numbers >> np.arange(num_variables)) & 1 == 1


def random_clauses(rng, num_variables: int, num_clauses: int, width: int = 3) -> list[list[int]]:
    return [
        [
            int(v) * int(rng.choice([-1, 1]))
            for v in rng.choice(np.arange(1, num_variables + 1), min(width, num_variables), False)
        ]
        for _ in range(num_clauses)
    ]


def satisfied(clauses: list[list[int]], num_variables: int) -> np.ndarray:
    """[world] bool: which worlds are models of the clauses."""
    table = worlds(num_variables)
    true = np.ones(len(table), bool)
    for clause in clauses:
        columns = [table[:, abs(literal) - 1] == (literal > 0) for literal in clause]
        true &= reduce(np.logical_or, columns, np.zeros(len(table), bool))
    return true


def world_weights(weights, negative_weights) -> np.ndarray:
    """[world]: the product of the weights of each world's literals."""
    weights, negative_weights = np.asarray(weights, float), np.asarray(negative_weights, float)
    return np.where(worlds(len(weights)), weights, negative_weights).prod(axis=1)


def semiring_sum(models: np.ndarray, weights, negative_weights, plus, times, zero, one):
    """The semiring sum over models of the semiring product over literals, with plain Python functions."""
    table = worlds(len(weights))
    terms = [
        reduce(times, (float(weights[v] if bit else negative_weights[v]) for v, bit in enumerate(row)), one)
        for row in table[models]
    ]
    return reduce(plus, terms, zero)


def log_add(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def decision_circuit(rng, num_variables: int, num_roots: int = 1, sharing: float = 0.3) -> Circuit:
    """A random smooth, deterministic, decomposable circuit: every or-node decides a variable.

    All roots mention all variables. Some are false somewhere, since a branch may be dropped.
    """
    builder = CircuitBuilder()
    pool: dict[int, list[int]] = {0: [builder.true()]}
    for variable in range(1, num_variables + 1):
        made = []
        for _ in range(3):
            branches = []
            for sign in (1, -1):
                below = int(rng.choice(pool[variable - 1]))
                branches.append(builder.conjunction([builder.literal(sign * variable), below]))
            if variable > 1 and rng.random() < sharing:
                branches.pop(int(rng.integers(2)))
            made.append(builder.disjunction(branches))
        pool[variable] = made
    roots = [pool[num_variables][number % 3] for number in range(num_roots)]
    return builder.build(roots, num_variables=num_variables)


def truth(circuit: Circuit) -> np.ndarray:
    """[root, world] bool, by visiting the nodes one by one."""
    table = worlds(circuit.num_variables)
    value = np.zeros((circuit.num_nodes, len(table)), bool)
    for node in range(circuit.num_nodes):
        row = circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]]
        literal = int(circuit.literal[node])
        match int(circuit.kind[node]):
            case 1:
                value[node] = True
            case 2:
                value[node] = table[:, abs(literal) - 1] == (literal > 0)
            case 3:
                value[node] = value[row].all(axis=0)
            case 4:
                value[node] = value[row].any(axis=0)
    return value[circuit.roots]
