"""An adjoint of 0 contributes 0 even where what it is multiplied by is infinite or no number.

Expected values come from the chain rule by hand, row by row, in plain Python.
"""

import itertools
import math

import numpy as np
import pytest

import derivable as dv
from derivable.algebra.expr import where

from .array_libraries import LIBRARIES

P = dv.parallel
INF, NAN = math.inf, math.nan


def times(adjoint, factor):
    return 0.0 if adjoint == 0 else adjoint * factor


class Product:
    leaves, neutral, op, commutes = 1, (1.0,), "mul", True

    def join(self, a, b):
        return (a[0] * b[0],)

    def pull(self, a, b, r):
        return (times(r[0], b[0]),), (times(r[0], a[0]),)


class Either(Product):
    neutral, op = (0.0,), P.operator(lambda x, y: x + y - x * y, neutral=0.0, commutative=True)

    def join(self, a, b):
        return (a[0] + b[0] - a[0] * b[0],)

    def pull(self, a, b, r):
        return (times(r[0], 1 - b[0]),), (times(r[0], 1 - a[0]),)


class Linear:
    leaves, neutral, commutes = 2, (1.0, 0.0), False
    op = P.operator(lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1]), neutral=(1.0, 0.0), commutative=False)

    def join(self, a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    def pull(self, a, b, r):
        return (times(r[0], b[0]), times(r[1], b[0])), (times(r[0], a[0]) + times(r[1], a[1]), r[1])


class Pairs(Linear):
    commutes = True
    op = P.operator(lambda x, y: (x[0] * y[0], x[1] + y[1]), neutral=(1.0, 0.0), commutative=True)

    def join(self, a, b):
        return a[0] * b[0], a[1] + b[1]

    def pull(self, a, b, r):
        return (times(r[0], b[0]), r[1]), (times(r[0], a[0]), r[1])


class Restarted(Linear):
    """A product that begins again where a flag is set, so that the last result does not show what was infinite."""

    neutral = (1.0, 0.0)
    op = P.operator(
        lambda x, y: (where(y[1] > 0, y[0], x[0] * y[0]), where(y[1] > 0, y[1], x[1])),
        neutral=neutral,
        commutative=False,
    )

    def join(self, a, b):
        return b if b[1] > 0 else (a[0] * b[0], a[1])

    def pull(self, a, b, r):
        if b[1] > 0:
            return (r[0] * 0.0, r[1] * 0.0), r
        return (times(r[0], b[0]), r[1]), (times(r[0], a[0]), 0.0)


CASES = [Product, Either, Linear, Pairs, Restarted]


def chain_rule(case, values, seeds, chains):
    """[leaf][row, column] adjoints of values from those of the prefixes of chains, which are lists of rows."""
    found = [np.zeros_like(leaf) for leaf in values]
    for chain, column in itertools.product(filter(None, chains), range(values[0].shape[1])):
        rows, at_rows = (
            [tuple(float(leaf[k, column]) for leaf in leaves) for k in chain] for leaves in (values, seeds)
        )
        prefixes = list(itertools.accumulate(rows, case.join))
        r = at_rows[-1]
        for position in range(len(chain) - 1, -1, -1):
            adjoint = r
            if position:
                left, adjoint = case.pull(prefixes[position - 1], rows[position], r)
                r = tuple(a + b for a, b in zip(at_rows[position - 1], left))
            for leaf, number in zip(found, adjoint):
                leaf[chain[position], column] = number
    return found


def drawn(case, rng, rows, columns, dtype):
    """Values [leaf][row, column] of which a few are not finite."""
    values = []
    for _ in range(case.leaves):
        leaf = rng.choice([0.5, 2.0, 1.0, 0.0, -1.5], size=(rows, columns))
        leaf[rng.random((rows, columns)) < 2 / rows] = rng.choice([INF, -INF, NAN])
        values.append(leaf.astype(dtype))
    if isinstance(case, Restarted):
        values[1] = (rng.random((rows, columns)) < 0.3).astype(dtype)
    return values


def sparse(rng, shape, dtype):
    return np.where(rng.random(shape) < 0.3, rng.choice([1.0, -2.0], size=shape), 0.0).astype(dtype)


def compare(library, program, values, seeds, expected):
    shown = (lambda x: x[:, 0]) if values[0].shape[1] == 1 else (lambda x: x)
    with np.errstate(all="ignore"):
        found = library.pull(program, list(map(shown, values)), list(map(shown, seeds)))
    for one, other in zip(found, map(shown, expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)


def packed(leaves):
    return leaves[0] if len(leaves) == 1 else tuple(leaves)


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize(("rows", "columns", "dtype"), [(5, 1, "float64"), (40, 1, "float32"), (6, 3, "float64")])
def test_scans(library, make, rows, columns, dtype):
    case, rng = make(), np.random.default_rng(rows)
    bounds, order = np.array([0, 2, 2, 3, rows]), list(range(rows))
    parts = [order[start:stop] for start, stop in itertools.pairwise(bounds)]
    for chains, fold in (
        ([order], lambda *x: P.scan(case.op, packed(x))),
        ([order[::-1]], lambda *x: P.scan(case.op, packed(x), reverse=True)),
        (parts, lambda *x: P.segmented_scan(case.op, packed(x), library.array(bounds))),
    ):
        values = drawn(case, rng, rows, columns, dtype)
        seeds = [sparse(rng, (rows, columns), dtype) for _ in values]
        compare(library, fold, values, seeds, chain_rule(case, values, seeds, chains))


def pulled_from_ends(case, values, seeds, chains):
    """The same from one adjoint for each chain, that of its last prefix."""
    at_rows = [np.zeros_like(leaf) for leaf in values]
    for row, seed in zip(at_rows, seeds):
        for number, chain in enumerate(chains):
            row[chain[-1:]] = seed[number]
    return chain_rule(case, values, at_rows, chains)


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize("columns", [1, 3])
def test_segments(library, make, columns):
    case, rng, bounds = make(), np.random.default_rng(columns), np.array([0, 4, 4, 5, 12])
    values = drawn(case, rng, 12, columns, "float64")
    seeds = [sparse(rng, (4, columns), "float64") for _ in values]
    chains = [list(range(start, stop)) for start, stop in itertools.pairwise(bounds)]
    compare(
        library,
        lambda *x: P.segment_reduce(case.op, packed(x), library.array(bounds)),
        values,
        seeds,
        pulled_from_ends(case, values, seeds, chains),
    )


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("make", [case for case in CASES if case.commutes])
@pytest.mark.parametrize(("rows", "columns"), [(9, 1), (60, 1), (9, 3)])
def test_buckets(library, make, rows, columns):
    case, rng, buckets = make(), np.random.default_rng(rows), 3
    indices, values = rng.integers(0, buckets, rows), drawn(case, rng, rows, columns, "float64")
    first = [np.full((buckets, columns), neutral) for neutral in case.neutral]
    seeds = [sparse(rng, (buckets, columns), "float64") for _ in values]
    together = [np.concatenate(pair) for pair in zip(first, values)]
    leaves, op = case.leaves, case.op
    chains = [[bucket, *(buckets + np.flatnonzero(indices == bucket))] for bucket in range(buckets)]
    adjoints = pulled_from_ends(case, together, seeds, chains)
    compare(
        library,
        lambda *x: P.reduce_by_index(packed(x[:leaves]), op, library.array(indices), packed(x[leaves:])),
        [*first, *values],
        seeds,
        [*(leaf[:buckets] for leaf in adjoints), *(leaf[buckets:] for leaf in adjoints)],
    )


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
def test_by_hand(library):
    def second(a, b):
        return P.scan(Linear.op, (a, b))[1]

    (first, other) = library.pull(second, [np.array([INF, 0.0]), np.array([1.0, 2.0])], [np.ones(2)])
    assert first.tolist() == [0.0, 1.0]
    assert other.tolist() == [1.0, 1.0]
    (found,) = library.pull(lambda x: P.scan("logaddexp", x), [np.array([1.0, INF, NAN])], [np.array([1.0, 0.0, 0.0])])
    assert found.tolist() == [1.0, 0.0, 0.0]
    (found,) = library.pull(lambda x: P.reduce("logaddexp", x), [np.array([1.0, INF, NAN])], [np.array(0.0)])
    assert found.tolist() == [0.0, 0.0, 0.0]
