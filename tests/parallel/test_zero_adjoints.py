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


def prefixes_back(case, rows, seeds):
    """The adjoints of rows from those of their prefixes, both lists of tuples."""
    made = [rows[0]]
    for row in rows[1:]:
        made.append(case.join(made[-1], row))
    found, r = [None] * len(rows), tuple(seeds[-1])
    for k in range(len(rows) - 1, 0, -1):
        left, found[k] = case.pull(made[k - 1], rows[k], r)
        r = tuple(a + b for a, b in zip(seeds[k - 1], left))
    found[0] = r
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


def compare(case, library, program, values, seeds, expected):
    with np.errstate(all="ignore"):
        found = library.pull(program, values, seeds)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)


def back_by_columns(case, values, seeds, bounds):
    """[leaf][row, column] adjoints of values from those of their prefixes, each segment on its own."""
    found = [np.zeros_like(leaf) for leaf in values]
    for start, stop in itertools.pairwise(bounds):
        for column in range(values[0].shape[1]) if stop > start else ():
            rows = [tuple(float(leaf[k, column]) for leaf in values) for k in range(start, stop)]
            given = [tuple(float(leaf[k, column]) for leaf in seeds) for k in range(start, stop)]
            for k, row in enumerate(prefixes_back(case, rows, given)):
                for leaf, adjoint in zip(found, row):
                    leaf[start + k, column] = adjoint
    return found


def packed(leaves):
    return leaves[0] if len(leaves) == 1 else tuple(leaves)


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize(("rows", "columns", "dtype"), [(5, 1, "float64"), (40, 1, "float32"), (6, 3, "float64")])
def test_scans(library, make, rows, columns, dtype):
    case, rng = make(), np.random.default_rng(rows)
    for reverse in (False, True):
        values = drawn(case, rng, rows, columns, dtype)
        seeds = [sparse(rng, (rows, columns), dtype) for _ in values]
        step = -1 if reverse else 1
        expected = back_by_columns(case, [x[::step] for x in values], [x[::step] for x in seeds], [0, rows])
        shown = (lambda x: x[:, 0]) if columns == 1 else (lambda x: x)
        compare(
            case,
            library,
            lambda *x, reverse=reverse: P.scan(case.op, packed(x), reverse=reverse),
            [shown(x) for x in values],
            [shown(x) for x in seeds],
            [shown(x[::step]) for x in expected],
        )


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize("columns", [1, 3])
def test_segments(library, make, columns):
    case, rng, rows = make(), np.random.default_rng(columns), 12
    bounds = np.array([0, 4, 4, 5, 12])
    ends = bounds[1:][np.diff(bounds) > 0] - 1
    for is_scan in (False, True):
        values = drawn(case, rng, rows, columns, "float64")
        seeds = [sparse(rng, (rows if is_scan else 4, columns), "float64") for _ in values]
        at_rows = seeds
        if not is_scan:
            at_rows = [np.zeros((rows, columns)) for _ in values]
            for row, seed in zip(at_rows, seeds):
                row[ends] = seed[np.diff(bounds) > 0]
        fold = P.segmented_scan if is_scan else P.segment_reduce
        compare(
            case,
            library,
            lambda *x, fold=fold: fold(case.op, packed(x), library.array(bounds)),
            values,
            seeds,
            back_by_columns(case, values, at_rows, bounds),
        )


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("make", [case for case in CASES if case.commutes])
@pytest.mark.parametrize(("rows", "columns"), [(9, 1), (60, 1), (9, 3)])
def test_buckets(library, make, rows, columns):
    case, rng, buckets = make(), np.random.default_rng(rows), 3
    indices = rng.integers(0, buckets, rows)
    values = drawn(case, rng, rows, columns, "float64")
    first = [np.full((buckets, columns), neutral) for neutral in case.neutral]
    seeds = [sparse(rng, (buckets, columns), "float64") for _ in values]
    expected = [np.zeros((buckets, columns)) for _ in values] + [np.zeros((rows, columns)) for _ in values]
    for bucket in range(buckets):
        mine = np.flatnonzero(indices == bucket)
        elements = [np.concatenate([start[bucket : bucket + 1], leaf[mine]]) for start, leaf in zip(first, values)]
        at_rows = [np.zeros_like(leaf) for leaf in elements]
        for row, seed in zip(at_rows, seeds):
            row[-1] = seed[bucket]
        found = back_by_columns(case, elements, at_rows, [0, len(mine) + 1])
        for k, leaf in enumerate(found):
            expected[k][bucket], expected[case.leaves + k][mine] = leaf[0], leaf[1:]
    count = case.leaves
    compare(
        case,
        library,
        lambda *x: P.reduce_by_index(packed(x[:count]), case.op, library.array(indices), packed(x[count:])),
        [*first, *values],
        seeds,
        expected,
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
