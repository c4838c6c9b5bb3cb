"""The reference folds of elements: against loops over Python elements and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from derivable.algebra.element import flatten, rebuild
from parallel import element_oracle as reference
from parallel.operator_cases import CASES, F

SMOOTH = [case for case in CASES if set(case.dtypes) == {F} and "ties" not in case.name]
ROWS = 7
OFFSETS = np.array([0, 3, 3, 4, 7])
INDICES = np.array([1, 0, -1, 1, 5, 1, 3])


def element(case, leaves, row, column):
    """One element as a user would write it."""
    nesting = case.operator.element
    made = [
        leaf[row, column, 0].item() if shape == () else leaf[row, column].reshape(shape)
        for leaf, shape in zip(leaves, nesting.leaf_shapes)
    ]
    return rebuild(nesting, case.operator.neutral, made) if nesting.shape is None else made[0]


def flat(case, value):
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in flatten(case.operator.element, value, "it")])


def check(case, found, expected):
    """found: leaves; expected: [row][column] elements."""
    made = np.concatenate([leaf.astype(float) for leaf in found], axis=-1)
    wanted = np.array([[flat(case, value) for value in row] for row in expected])
    np.testing.assert_allclose(made, wanted, rtol=1e-6 if "precisions" in case.name else 1e-12)


def neutral_of(case):
    typed = case.typed
    leaves = tuple(
        np.array(typed.neutral[start:stop]).reshape(1, 1, -1) for start, stop in zip(typed.starts, typed.starts[1:])
    )
    return element(case, leaves, 0, 0)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_against_a_loop_over_elements(case):
    leaves = case.leaves(ROWS, 2, seed=1)
    typed, op = case.typed, case.operator
    elements = [[element(case, leaves, i, j) for j in range(2)] for i in range(ROWS)]

    def fold(rows):
        total = elements[rows[0]]
        for i in rows[1:]:
            total = [op(a, b) for a, b in zip(total, elements[i])]
        return total

    neutral = [neutral_of(case)] * 2
    check(case, reference.scan(typed, leaves), [fold(range(i + 1)) for i in range(ROWS)])
    check(
        case,
        reference.scan(typed, leaves, exclusive=True),
        [neutral if i == 0 else fold(range(i)) for i in range(ROWS)],
    )
    check(
        case,
        reference.scan(typed, leaves, reverse=True),
        [fold(range(ROWS - 1, i - 1, -1)) for i in range(ROWS)],
    )
    check(
        case,
        reference.scan(typed, leaves, offsets=OFFSETS),
        [fold(rows) for rows in ([0], [0, 1], [0, 1, 2], [3], [4], [4, 5], [4, 5, 6])],
    )
    check(
        case,
        reference.scan(typed, leaves, offsets=OFFSETS, reverse=True, exclusive=True),
        [neutral if not rows else fold(rows) for rows in ([2, 1], [2], [], [], [6, 5], [6], [])],
    )
    check(
        case,
        reference.segment_reduce(typed, leaves, OFFSETS),
        [fold([0, 1, 2]), neutral, fold([3]), fold([4, 5, 6])],
    )
    # Buckets start with the last rows: bucket 0 with row 3 and so on.
    destination = tuple(leaf[3:] for leaf in leaves)
    found = reference.reduce_by_index(typed, destination, INDICES, leaves)
    check(case, found, [fold([3, 1]), fold([4, 0, 3, 5]), fold([5]), fold([6, 6])])


@pytest.mark.parametrize(
    # Two differences for each of many entries.
    "case",
    [pytest.param(case, marks=pytest.mark.slow) if case.name == "4x4 products" else case for case in SMOOTH],
    ids=repr,
)
def test_derivatives_by_finite_differences(case):
    typed = case.typed
    leaves = case.leaves(ROWS, 1, seed=2)
    rng = np.random.default_rng(3)

    def agree(function, pulled, arrays):
        """function: arrays -> leaves; pulled: adjoints of the results -> of the arrays."""
        adjoints = tuple(rng.standard_normal(leaf.shape) for leaf in function(arrays))
        found = pulled(adjoints)
        for k, array in enumerate(arrays):
            for place in np.ndindex(array.shape):
                sums = []
                for step in (1e-6, -1e-6):
                    moved = [other.copy() for other in arrays]
                    moved[k][place] += step
                    sums.append(
                        sum(np.sum(a * leaf) for a, leaf in zip(adjoints, function(moved)) if np.isfinite(leaf).all())
                    )
                np.testing.assert_allclose(found[k][place], (sums[0] - sums[1]) / 2e-6, rtol=2e-5, atol=2e-5)

    for options in ({}, {"reverse": True}, {"offsets": OFFSETS}):
        agree(
            lambda arrays, options=options: reference.scan(typed, arrays, **options),
            lambda adjoints, options=options: reference.scan_vjp(typed, adjoints, leaves, **options),
            leaves,
        )
    agree(
        lambda arrays: reference.segment_reduce(typed, arrays, OFFSETS[[0, 1, 3, 4]]),
        lambda adjoints: reference.segment_reduce_vjp(typed, adjoints, leaves, OFFSETS[[0, 1, 3, 4]]),
        leaves,
    )
    count = len(leaves)
    destination = case.leaves(4, 1, seed=4)
    agree(
        lambda arrays: reference.reduce_by_index(typed, arrays[:count], INDICES, arrays[count:]),
        lambda adjoints: [
            part
            for parts in reference.reduce_by_index_vjp(typed, adjoints, destination, INDICES, leaves)
            for part in parts
        ],
        (*destination, *leaves),
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_exclusive_derivatives_are_shifted_inclusive_ones(case, reverse):
    typed = case.typed
    leaves = case.leaves(ROWS, 2, seed=5)
    rng = np.random.default_rng(6)
    adjoints = [rng.standard_normal(leaf.shape) for leaf in leaves]
    found = reference.scan_vjp(typed, adjoints, leaves, exclusive=True, reverse=reverse)
    used, shifted = (slice(1, None), slice(0, -1)) if reverse else (slice(0, -1), slice(1, None))
    expected = reference.scan_vjp(
        typed, [adjoint[shifted] for adjoint in adjoints], [leaf[used] for leaf in leaves], reverse=reverse
    )
    for k, leaf in enumerate(found):
        if leaf is None:
            assert typed.leaf_dtypes[k] not in ("float32", "float64")
            continue
        np.testing.assert_array_equal(leaf[used], expected[k])
        assert not leaf[0 if reverse else -1].any()


def test_nothing_at_all():
    typed = CASES[0].typed
    empty = (np.zeros((0, 2, 1)),)
    assert reference.scan(typed, empty)[0].shape == (0, 2, 1)
    assert reference.scan_vjp(typed, empty, empty)[0].shape == (0, 2, 1)
    result = reference.segment_reduce(typed, empty, np.array([0, 0]))
    np.testing.assert_array_equal(result[0], np.zeros((1, 2, 1)))
