"""Prints what many kernels compute on small inputs; test_tiers.py runs it in both tiers and compares."""

import json

import numpy as np

import derivable as dv
from derivable.circuit.builder import circuit_from_arrays


def random_circuit(rng, variables=5, inner=40):
    kind, literal, children = [0, 1], [0, 0], [[], []]
    for variable in range(1, variables + 1):
        for sign in (1, -1):
            kind.append(2)
            literal.append(sign * variable)
            children.append([])
    for _ in range(inner):
        count = int(rng.integers(1, 5))
        kind.append(int(rng.integers(3, 5)))
        literal.append(0)
        children.append(rng.choice(len(kind) - 1, count, replace=False).tolist())
    offsets = np.cumsum([0, *map(len, children)])
    flat = [child for below in children for child in below]
    return circuit_from_arrays(kind, literal, offsets, flat, [len(kind) - 1, len(kind) - 2], variables)


def circuits(rng):
    found = []
    for _ in range(4):
        circuit = random_circuit(rng)
        found.append([circuit.kind.tolist(), circuit.children.tolist()])
        for batch in (1, 3, 17):
            weights = rng.uniform(0.1, 0.9, (batch, 5))
            for semiring in ("real", "log", "max_product", "godel"):
                given = np.log(weights) if semiring == "log" else weights
                values, gradient, _ = circuit.value_and_gradient(given, None, semiring)
                found.append([values.tolist(), gradient.tolist()])
            found.append(circuit.evaluate(weights > 0.5, None, "boolean").tolist())
    return found


def compiled_formulas(rng):
    a, b, c, d = dv.circuit.variables("a b c d")
    circuit = dv.circuit.compile((a & b) | (~a & (c ^ d)) | (b & ~c & d))
    marginals = circuit.marginals([0.2, 0.4, 0.6, 0.7])
    return [circuit.model_count(), np.asarray(marginals).tolist(), str(circuit.most_probable([0.2, 0.4, 0.6, 0.7]))]


def programs(rng):
    program = dv.Program(
        "rel path(x, y) = edge(x, y)\nrel path(x, z) = path(x, y), edge(y, z)\n"
        "rel out(x, n) = n := count(y: path(x, y))"
    )
    edges = [tuple(edge) for edge in rng.integers(0, 7, (12, 2)).tolist()]
    found = [sorted(program.run(facts={"edge": edges})["out"])]
    weighted = [(float(p), edge) for p, edge in zip(rng.uniform(0.2, 0.9, 7), edges)]
    rules = dv.Program("rel path(x, y) = edge(x, y)\nrel path(x, z) = path(x, y), edge(y, z)")
    for provenance in ("minmaxprob", "exact"):
        result = rules.run(facts={"edge": weighted}, provenance=provenance)["path"]
        found.append(sorted([list(row), round(float(tag), 12)] for row, tag in result.items()))
    return found


if __name__ == "__main__":
    print(json.dumps([part(np.random.default_rng(7)) for part in (circuits, compiled_formulas, programs)]))
