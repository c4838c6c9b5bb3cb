"""Associative operators made at random: scalar monoids, sparse matrices, products of both, other bases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from derivable.algebra.expr import exp, log, logaddexp, maximum, minimum, sqrt
from derivable.algebra.monoid import Monoid as Operator
from derivable.algebra.monoids import operator


@dataclass(frozen=True)
class Monoid:
    """An operation on lists of `size` scalars, associative where it is defined: on positive ones at least."""

    name: str
    size: int
    combine: Callable[[list, list], list]
    neutral: list[float]


def quaternion_product(a: list, b: list) -> list:
    return [
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    ]


SCALARS = [
    Monoid("add", 1, lambda a, b: [a[0] + b[0]], [0.0]),
    Monoid("mul", 1, lambda a, b: [a[0] * b[0]], [1.0]),
    Monoid("max", 1, lambda a, b: [maximum(a[0], b[0])], [-np.inf]),
    Monoid("min", 1, lambda a, b: [minimum(a[0], b[0])], [np.inf]),
    Monoid("logaddexp", 1, lambda a, b: [logaddexp(a[0], b[0])], [-np.inf]),
    # Addition and multiplication through phi: phi^-1(phi(a) + phi(b)).
    Monoid("hypotenuse", 1, lambda a, b: [sqrt(a[0] * a[0] + b[0] * b[0])], [0.0]),
    Monoid("parallel resistors", 1, lambda a, b: [a[0] * b[0] / (a[0] + b[0])], [np.inf]),
    Monoid("compound", 1, lambda a, b: [a[0] + b[0] + a[0] * b[0]], [0.0]),
    Monoid("log of sums", 1, lambda a, b: [log(exp(a[0]) + exp(b[0]) - 1.0)], [0.0]),
    Monoid("affine", 2, lambda a, b: [a[0] * b[0], a[1] * b[0] + b[1]], [1.0, 0.0]),
    Monoid("log affine", 2, lambda a, b: [a[0] + b[0], logaddexp(a[1], a[0] + b[1])], [0.0, -np.inf]),
    Monoid("complex", 2, lambda a, b: [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]], [1.0, 0.0]),
    Monoid("quaternions", 4, lambda a, b: quaternion_product(a, b), [1.0, 0.0, 0.0, 0.0]),
    Monoid("earlier of two", 2, lambda a, b: [minimum(a[0], b[0]), a[1] + b[1]], [np.inf, 0.0]),
]


@st.composite
def matrices(draw) -> Monoid:
    """Products of matrices whose pattern is closed under multiplication; the diagonal may be ones."""
    size = draw(st.integers(2, 3))
    edges = draw(st.sets(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=4))
    closed = np.eye(size, dtype=bool)
    for i, j in edges:
        closed[i, j] = True
    for _ in range(size):
        closed |= (closed.astype(int) @ closed.astype(int)) > 0
    unit = draw(st.booleans()) and not np.any(closed & closed.T & ~np.eye(size, dtype=bool))
    free = [(i, j) for i in range(size) for j in range(size) if closed[i, j] and not (unit and i == j)]
    if not free:
        return SCALARS[0]
    order = draw(st.permutations(free))

    def combine(a: list, b: list) -> list:
        left, right = dict(zip(order, a)), dict(zip(order, b))
        if unit:
            left.update(((i, i), 1.0) for i in range(size))
            right.update(((i, i), 1.0) for i in range(size))
        return [
            sum((left[i, k] * right[k, j] for k in range(size) if (i, k) in left and (k, j) in right), 0.0)
            for i, j in order
        ]

    return Monoid(f"matrices {order} unit={unit}", len(order), combine, [float(i == j) for i, j in order])


@st.composite
def monoids(draw) -> Monoid:
    """Up to three of the above side by side, in any order of components, maybe seen in another basis."""
    parts = draw(st.lists(st.one_of(st.sampled_from(SCALARS), matrices()), min_size=1, max_size=3))
    size = sum(part.size for part in parts)
    places = draw(st.permutations(range(size)))
    basis = None
    if size <= 4 and all(np.isfinite(part.neutral).all() for part in parts) and draw(st.booleans()):
        # Positive, so positive elements stay positive, and far from singular.
        entries = draw(st.lists(st.integers(0, 2), min_size=size * size, max_size=size * size))
        basis = np.eye(size) + np.array(entries).reshape(size, size) / (4 * size)
        inverse = np.linalg.inv(basis)

    def combine(a: list, b: list) -> list:
        a, b = [a[k] for k in places], [b[k] for k in places]
        if basis is not None:
            a, b = ([sum(w * x for w, x in zip(row, v)) for row in basis.tolist()] for v in (a, b))
        result, position = [], 0
        for part in parts:
            stop = position + part.size
            result += part.combine(a[position:stop], b[position:stop])
            position = stop
        if basis is not None:
            result = [sum(w * x for w, x in zip(row, result)) for row in inverse.tolist()]
        return [result[places.index(k)] for k in range(size)]

    neutral = [value for part in parts for value in part.neutral]
    if basis is not None:
        neutral = (inverse @ neutral).tolist()
    name = " x ".join(part.name for part in parts)
    name += f" at {places}" + ("" if basis is None else f" in the basis {basis.tolist()}")
    return Monoid(name, size, combine, [neutral[places.index(k)] for k in range(size)])


def operator_of(monoid: Monoid) -> Operator:
    """On plain tuples; always tuples, of one component too."""
    return operator(
        lambda a, b: tuple(monoid.combine(list(a), list(b))), neutral=tuple(monoid.neutral), name=monoid.name
    )
