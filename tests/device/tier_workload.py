"""Prints what many kernels compute on small inputs, several times; test_tiers.py runs it in both tiers and compares.

With a number as argument, the clock by which kernels change from one tier to the other goes so many times as fast.
"""

import json
import sys

import numpy as np

import derivable as dv
from derivable.circuit.graph.builder import circuit_from_arrays


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
    for _ in range(2):
        circuit = random_circuit(rng)
        found.append([circuit.kind.tolist(), circuit.children.tolist()])
        for batch, dtype in ((1, "float64"), (3, "float64"), (17, "float64"), (1, "float32"), (17, "float32")):
            weights = rng.uniform(0.1, 0.9, (batch, 5)).astype(dtype)
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
    for provenance in ("minmaxprob", "exact", "addmultprob", "topkproofs"):
        result = rules.run(facts={"edge": weighted}, provenance=provenance)["path"]
        found.append(sorted([list(row), float(tag)] for row, tag in result.items()))
    return found


def folds(rng):
    joined = dv.parallel.operator(lambda a, b: a + b + a * b * dv.power(1.0 + dv.exp(-a), -1), neutral=0.0)
    values, found = rng.normal(size=(3, 21)), []
    for dtype in ("float64", "float32"):
        given = values.astype(dtype)
        for operator in ("add", "mul", "logaddexp", joined):
            found.append(np.asarray(dv.parallel.scan(operator, given[0])).tolist())
            found.append(np.asarray(dv.parallel.reduce(operator, given[1])).tolist())
    return found


def tensors(rng):
    a, b = rng.normal(size=(5, 4)) * (rng.random((5, 4)) < 0.5), rng.normal(size=4)
    return [np.asarray(dv.tensor.einsum("ij,j->i", a, b)).tolist()]


if __name__ == "__main__":
    if sys.argv[1:]:
        from time import perf_counter
        from types import SimpleNamespace

        from derivable.device.cpu import tiers

        tiers.time = SimpleNamespace(perf_counter=lambda: float(sys.argv[1]) * perf_counter())
    parts = (circuits, compiled_formulas, programs, folds, tensors)
    print(json.dumps([[part(np.random.default_rng(7)) for part in parts] for _ in range(2)]))
