"""Circuits with decimals of 60 digits, and as sums of products with fractions: oracles for any range of weights."""

import decimal
import math
from collections import Counter
from fractions import Fraction

import numpy as np

from derivable.circuit.graph.builder import circuit_from_arrays
from derivable.core.and_or import AND, FALSE, LITERAL, TRUE

CONTEXT = decimal.Context(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def random_circuit(rng, num_variables=4, num_inner=15, num_roots=1, widest=4):
    """Any NNF, deterministic or not, decomposable or not; no constants among the children."""
    kind, literal = [LITERAL] * (2 * num_variables), [s * v for v in range(1, num_variables + 1) for s in (1, -1)]
    rows = [[] for _ in kind]
    for _ in range(num_inner):
        low = 0 if rng.random() < 0.3 else max(0, len(kind) - 10)
        rows.append(rng.integers(low, len(kind), rng.integers(2, widest + 1)).tolist())
        kind.append(int(rng.integers(3, 5)))
        literal.append(0)
    roots = [len(kind) - 1, *rng.integers(0, len(kind), num_roots - 1).tolist()]
    return circuit_from_arrays(
        np.array(kind, np.uint8),
        np.array(literal, np.int32),
        np.cumsum([0, *map(len, rows)]).astype(np.int64),
        np.array([child for row in rows for child in row], np.int32),
        roots,
        num_variables,
    )


def log_value_and_gradient(circuit, weights, negative_weights=None):
    """Roots in nats, and for each root the gradients for weights and negative weights: [root], 2 x [root, variable].

    For one row of weights; a root of -inf has the gradient zero. Without negative weights the last array is the
    size of the two parts whose difference the gradient is.
    """
    with decimal.localcontext(CONTEXT):
        positive = [_exp(w) for w in weights]
        if negative_weights is None:
            negative = [1 - p for p in positive]
        else:
            negative = [_exp(w) for w in negative_weights]
        children = [
            circuit.children[circuit.offsets[n] : circuit.offsets[n + 1]].tolist() for n in range(circuit.num_nodes)
        ]
        values = []
        for node, row in enumerate(children):
            kind, literal = int(circuit.kind[node]), int(circuit.literal[node])
            if kind == LITERAL:
                values.append(positive[literal - 1] if literal > 0 else negative[-literal - 1])
            elif kind in (FALSE, TRUE):
                values.append(decimal.Decimal(kind == TRUE))
            else:
                total = decimal.Decimal(kind == AND)
                for child in row:
                    total = total * values[child] if kind == AND else total + values[child]
                values.append(total)
        logs = [float(values[root].ln()) if values[root] else -np.inf for root in circuit.roots]
        gradients = np.zeros((2, circuit.num_roots, circuit.num_variables))
        for place, root in enumerate(circuit.roots):
            if not values[root]:
                continue
            adjoints = [decimal.Decimal(0)] * circuit.num_nodes
            adjoints[root] = 1 / values[root]
            for node in range(circuit.num_nodes - 1, -1, -1):
                literal = int(circuit.literal[node])
                if literal:
                    v = abs(literal) - 1
                    if negative_weights is None:
                        part = float(adjoints[node] * positive[v])
                        gradients[0, place, v] += part if literal > 0 else -part
                        gradients[1, place, v] += part
                    else:
                        part = adjoints[node] * (positive[v] if literal > 0 else negative[v])
                        gradients[int(literal < 0), place, v] += float(part)
                for child in children[node]:
                    factor = adjoints[node]
                    if int(circuit.kind[node]) == AND:
                        for other in children[node]:
                            if other != child:
                                factor = factor * values[other]
                    adjoints[child] += factor
    return np.array(logs), gradients[0], gradients[1]


def _exp(weight):
    return decimal.Decimal(0) if weight == -np.inf else decimal.Decimal(float(weight)).exp()


def log_of_expansion(circuit, weights, negative_weights):
    """As `log_value_and_gradient`, for any finite weights or -inf: the circuit is multiplied out, one row of weights.

    The log weights of products are exact fractions, of which only differences become floats.
    """
    logs = [*weights, *negative_weights]
    polynomials = []
    for node in range(circuit.num_nodes):
        kind, literal = int(circuit.kind[node]), int(circuit.literal[node])
        children = circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]].tolist()
        nothing = (0,) * len(logs)
        if kind == LITERAL:
            place = abs(literal) - 1 + (literal < 0) * len(weights)
            polynomials.append(Counter({tuple(int(k == place) for k in range(len(logs))): 1}))
        elif kind in (FALSE, TRUE):
            polynomials.append(Counter({nothing: 1} if kind == TRUE else {}))
        else:
            total = Counter({nothing: 1}) if kind == AND else Counter()
            for child in children:
                if kind == AND:
                    product = Counter()
                    for a, m in total.items():
                        for b, n in polynomials[child].items():
                            product[tuple(i + j for i, j in zip(a, b))] += m * n
                    total = product
                else:
                    total.update(polynomials[child])
            polynomials.append(total)
    values, gradients = [], np.zeros((2, circuit.num_roots, len(weights)))
    for place, root in enumerate(circuit.roots):
        sizes = {
            powers: sum(Fraction(float(logs[k])) * power for k, power in enumerate(powers) if power)
            for powers in polynomials[root]
            if not any(power and logs[k] == -math.inf for k, power in enumerate(powers))
        }
        if not sizes:
            values.append(-math.inf)
            continue
        top = max(sizes.values())
        shares = {p: polynomials[root][p] * math.exp(max(size - top, -1000)) for p, size in sizes.items()}
        total = math.fsum(shares.values())
        values.append(float(top + Fraction(math.log(total))))
        for powers, share in shares.items():
            gradients[:, place] += np.reshape(powers, (2, -1)) * (share / total)
    return np.array(values), gradients[0], gradients[1]
