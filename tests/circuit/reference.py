"""Slow, obvious evaluation of circuits, as an independent route for tests."""

from fractions import Fraction

import numpy as np

from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE


def value_of_nodes(circuit: Circuit, weight_of) -> list:
    """[node] exact values; weight_of(signed variable) gives the weight of a literal."""
    values: list = []
    for node in range(circuit.num_nodes):
        row = [values[child] for child in circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]]]
        match int(circuit.kind[node]):
            case k if k == FALSE:
                value = Fraction(0)
            case k if k == TRUE:
                value = Fraction(1)
            case k if k == LITERAL:
                value = weight_of(int(circuit.literal[node]))
            case k if k == AND:
                value = Fraction(1)
                for one in row:
                    value *= one
            case k if k == OR:
                value = sum(row, Fraction(0))
        values.append(value)
    return values


def model_count(circuit: Circuit) -> int:
    """Exact, of a deterministic and decomposable circuit: free variables count a half and a half."""
    values = value_of_nodes(circuit, lambda literal: Fraction(1, 2))
    count = values[circuit.roots[0]] * 2**circuit.num_variables
    assert count.denominator == 1
    return int(count)


def weighted_count(circuit: Circuit, positive, negative) -> Fraction:
    """Exact; every variable has positive + negative > 0."""
    total = [Fraction(float(p)) + Fraction(float(n)) for p, n in zip(positive, negative)]

    def weight_of(literal: int) -> Fraction:
        side = positive if literal > 0 else negative
        return Fraction(float(side[abs(literal) - 1])) / total[abs(literal) - 1]

    result = value_of_nodes(circuit, weight_of)[circuit.roots[0]]
    for one in total:
        result *= one
    return result


def holds(circuit: Circuit, assignments: np.ndarray) -> np.ndarray:
    """[root, assignment] Boolean value of each root: assignments [assignment, variable] bool."""
    values = np.zeros((circuit.num_nodes, len(assignments)), dtype=bool)
    for node in range(circuit.num_nodes):
        row = values[circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]]]
        kind, literal = int(circuit.kind[node]), int(circuit.literal[node])
        if kind == LITERAL:
            values[node] = assignments[:, abs(literal) - 1] == (literal > 0)
        else:
            values[node] = row.all(axis=0) if kind == AND else row.any(axis=0) if kind == OR else kind == TRUE
    return values[circuit.roots]


def all_assignments(num_variables: int) -> np.ndarray:
    rows = (np.arange(2**num_variables)[:, None] >> np.arange(num_variables - 1, -1, -1)[None, :]) & 1
    return rows.astype(bool)
