"""What folds of elements mean: the oracle beside Python's own loops over elements, and beside finite differences."""

from __future__ import annotations

from functools import reduce
from itertools import accumulate, pairwise

import numpy as np
import pytest

from derivable.algebra.element import flatten, rebuild
from derivable.algebra.monoid_laws import check_laws
from parallel import element_oracle as oracle
from parallel.operator_cases import CASES, F

ROWS = 7
OFFSETS = np.array([0, 3, 3, 4, 7])
INDICES = np.array([1, 0, -1, 1, 5, 1, 3])
DIRECTIONS = [{"exclusive": exclusive, "reverse": reverse} for exclusive in (False, True) for reverse in (False, True)]


def element(case, leaves, row):
    """One element as a user would write it."""
    nesting = case.operator.element
    made = [
        leaf[row, 0, 0].item() if shape == () else leaf[row, 0].reshape(shape)
        for leaf, shape in zip(leaves, nesting.leaf_shapes)
    ]
    return rebuild(nesting, case.operator.neutral, made) if nesting.shape is None else made[0]


def check(case, leaves, expected):
    """leaves [row, column, size] beside a list of elements."""
    found = np.concatenate([leaf[:, 0].astype(float) for leaf in leaves], axis=-1)
    scalars = [[np.ravel(np.asarray(x, float)) for x in flatten(case.operator.element, e, "it")] for e in expected]
    tolerance = 1e-6 if "precisions" in case.name else 1e-12
    np.testing.assert_allclose(found, [np.concatenate(row) for row in scalars], rtol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_operators_keep_their_laws_on_what_is_drawn(case):
    """Otherwise results depend on how a fold groups its elements, and no two devices agree."""

    def drawn(rng):
        return element(case, case.leaves(1, 1, seed=int(rng.integers(1 << 32))), 0)

    assert check_laws(case.operator, case.typed.leaf_dtypes, drawn) == case.commutes


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_against_a_loop_over_elements(case):
    leaves, op, neutral = case.leaves(ROWS, 1, seed=1), case.operator, case.operator.neutral
    elements = [element(case, leaves, row) for row in range(ROWS)]

    def scanned(rows, exclusive, reverse):
        if exclusive:
            rows = rows[1:] if reverse else rows[:-1]
        found = list(accumulate(rows[::-1] if reverse else rows, op))
        found = [neutral, *found] if exclusive else found
        return found[::-1] if reverse else found

    segments = [elements[start:stop] for start, stop in pairwise(OFFSETS)]
    for options in DIRECTIONS:
        check(case, oracle.scan(case.typed, leaves, **options), scanned(elements, **options))
        expected = [row for part in segments if part for row in scanned(part, **options)]
        check(case, oracle.scan(case.typed, leaves, offsets=OFFSETS, **options), expected)
    expected = [reduce(op, part) if part else neutral for part in segments]
    check(case, oracle.segment_reduce(case.typed, leaves, OFFSETS), expected)
    # Buckets start with the last rows: bucket 0 with row 3 and so on.
    destination = tuple(leaf[3:] for leaf in leaves)
    members = [[elements[row] for row in rows] for rows in ([3, 1], [4, 0, 3, 5], [5], [6, 6])]
    found = oracle.reduce_by_index(case.typed, destination, INDICES, leaves)
    check(case, found, [reduce(op, rows) for rows in members])


# Two differences for each of many entries are slow.
SMOOTH = [case for case in CASES if set(case.dtypes) == {F} and "ties" not in case.name]
SMOOTH = [pytest.param(case, marks=pytest.mark.slow if case.name == "4x4 products" else ()) for case in SMOOTH]


@pytest.mark.parametrize("case", SMOOTH, ids=repr)
def test_derivatives_by_finite_differences(case):
    typed, leaves, first = case.typed, case.leaves(ROWS, 1, seed=2), case.leaves(4, 1, seed=4)
    rng, count = np.random.default_rng(3), len(leaves)

    def agree(function, pulled, arrays):
        """function: arrays -> leaves; pulled: adjoints of the results -> of the arrays."""
        adjoints = tuple(rng.standard_normal(leaf.shape) for leaf in function(arrays))
        found = pulled(adjoints)
        for k, array in enumerate(arrays):
            for entry in np.ndindex(array.shape):
                sums = []
                for step in (1e-6, -1e-6):
                    moved = [other.copy() for other in arrays]
                    moved[k][entry] += step
                    results = [np.where(np.isinf(leaf), 0, leaf) for leaf in function(moved)]
                    sums.append(sum(np.sum(a * leaf) for a, leaf in zip(adjoints, results)))
                np.testing.assert_allclose(found[k][entry], (sums[0] - sums[1]) / 2e-6, rtol=2e-5, atol=2e-5)

    for options in (*DIRECTIONS, {"offsets": OFFSETS}):
        agree(
            lambda x, options=options: oracle.scan(typed, x, **options),
            lambda adjoints, options=options: oracle.scan_vjp(typed, adjoints, leaves, **options),
            leaves,
        )
    agree(
        lambda x: oracle.segment_reduce(typed, x, OFFSETS),
        lambda adjoints: oracle.segment_reduce_vjp(typed, adjoints, leaves, OFFSETS),
        leaves,
    )
    agree(
        lambda x: oracle.reduce_by_index(typed, x[:count], INDICES, x[count:]),
        lambda adjoints: sum(oracle.reduce_by_index_vjp(typed, adjoints, first, INDICES, leaves), ()),
        (*first, *leaves),
    )
