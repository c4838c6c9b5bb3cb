"""Random NNF arrays and an obvious evaluation of them, independent of the builder and its kernels."""

import numpy as np

from derivable.circuit.graph.builder import CircuitBuilder
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE


def random_arrays(rng, num_variables, num_inner, max_children=4, constants=True, local=None):
    """kind, literal, offsets, children: all literals (and constants), then random inner nodes.

    `local` limits children to that many predecessors, which makes deep circuits.
    """
    kind, literal = [], []
    if constants:
        kind, literal = [FALSE, TRUE], [0, 0]
    for variable in range(1, num_variables + 1):
        kind += [LITERAL, LITERAL]
        literal += [variable, -variable]
    children = [[] for _ in kind]
    for _ in range(num_inner):
        low = 0 if local is None else max(0, len(kind) - local)
        children.append([int(rng.integers(low, len(kind))) for _ in range(rng.integers(0, max_children + 1))])
        kind.append(int(rng.integers(AND, OR + 1)))
        literal.append(0)
    offsets = np.cumsum([0] + [len(row) for row in children])
    return (
        np.array(kind, np.uint8),
        np.array(literal, np.int32),
        offsets.astype(np.int64),
        np.array([child for row in children for child in row], np.int32),
    )


def truth_tables(kind, literal, offsets, children, num_variables):
    """[node, world] bool over all 2^n worlds; bit v - 1 of the world's number is variable v."""
    worlds = np.arange(2**num_variables)
    table = np.zeros((len(kind), len(worlds)), bool)
    for node in range(len(kind)):
        row = children[offsets[node] : offsets[node + 1]]
        if kind[node] == TRUE:
            table[node] = True
        elif kind[node] == LITERAL:
            table[node] = ((worlds >> (abs(int(literal[node])) - 1)) & 1) == (literal[node] > 0)
        elif kind[node] == AND:
            table[node] = table[row].all(0)
        elif kind[node] == OR:
            table[node] = table[row].any(0)
    return table


def root_tables(circuit):
    """[root, world] bool of a Circuit."""
    arrays = circuit.kind, circuit.literal, circuit.offsets, circuit.children
    return truth_tables(*arrays, circuit.num_variables)[circuit.roots]


def circuit_arrays(circuit):
    return circuit.kind, circuit.literal, circuit.offsets, circuit.children


def assert_same_circuit(a, b):
    """The same arrays, roots and number of variables."""
    for name in ("kind", "literal", "offsets", "children", "level_offsets", "roots"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    assert a.num_variables == b.num_variables


def assert_same_structure(first, second):
    """One builder gives both the same root ids, whatever order their nodes have."""
    builder = CircuitBuilder()
    ids = [builder.add_nodes(*circuit_arrays(circuit))[circuit.roots] for circuit in (first, second)]
    np.testing.assert_array_equal(*ids)
