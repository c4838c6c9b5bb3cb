"""The operators of the reverse scan: folded one by one from right to left they are the chain rule."""

from __future__ import annotations

import numpy as np
import pytest

from derivable.algebra.expr import maximum, where
from derivable.algebra.monoids import NAMED, matrix_product, operator
from derivable.algebra.recurrence import recurrence_of
from derivable.algebra.typed import evaluate
from parallel.operator_cases import CASES, linear, linear_six, permuted

F = "float64"
ROWS = 9


def components(typed, leaves):
    return [leaf[:, 0, k] for leaf, size in zip(leaves, typed.leaf_sizes) for k in range(size)]


def chain_rule(case):
    """(values, results, adjoints of the results, r), each a list of [component] tuples by row."""
    typed = case.typed
    columns = components(typed, case.leaves(ROWS, 1, seed=3))
    values = [tuple(column[i] for column in columns) for i in range(ROWS)]
    results = [values[0]]
    for value in values[1:]:
        results.append(typed.apply(results[-1], value))
    rng = np.random.default_rng(4)
    adjoints = [tuple(dtype.type(rng.standard_normal()) for dtype in map(np.dtype, typed.dtypes)) for _ in range(ROWS)]
    r = [adjoints[-1]]
    for i in range(ROWS - 2, -1, -1):
        pulled, _ = typed.apply_vjp(results[i], values[i + 1], r[0])
        r.insert(0, tuple(mine + term for mine, term in zip(adjoints[i], pulled)))
    return values, results, adjoints, r


def floats(typed, rows):
    return np.array([[row[k] for k in typed.float_components] for row in rows])


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_recurrence_is_the_chain_rule(case):
    typed = case.typed
    values, results, adjoints, r = chain_rule(case)
    recurrence = recurrence_of(typed)
    size = len(recurrence.components)
    elements = []
    for i in range(ROWS):
        last = i == ROWS - 1
        arguments = {**dict(zip(typed.left, results[i])), **dict(zip(typed.right, values[0 if last else i + 1]))}
        start = evaluate(recurrence.entries, arguments)
        elements.append((*(adjoints[i][k] for k in recurrence.components), *start))
    total = recurrence.operator.neutral
    found = []
    for element in reversed(elements):
        total = recurrence.operator.apply(total, element)
        found.insert(0, total[:size])
    np.testing.assert_allclose(np.array(found), floats(typed, r), rtol=1e-5 if "precisions" in case.name else 1e-12)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_recurrence_is_associative_for_products_of_jacobians(case):
    """Any grouping of Jacobians gives the same: states that are left out or shared are so in all products."""
    recurrence = recurrence_of(case.typed)
    if not recurrence.entries:
        pytest.skip("has no entries")
    values, results, _, _ = chain_rule(case)
    typed = case.typed
    rng = np.random.default_rng(5)
    a, b, c = (
        (
            *(np.dtype(typed.dtypes[k]).type(rng.standard_normal()) for k in recurrence.components),
            *evaluate(
                recurrence.entries, {**dict(zip(typed.left, results[i])), **dict(zip(typed.right, values[i + 1]))}
            ),
        )
        for i in (0, 3, 6)
    )
    apply = recurrence.operator.apply
    rtol = 1e-5 if "precisions" in case.name else 1e-11
    np.testing.assert_allclose(apply(apply(a, b), c), apply(a, apply(b, c)), rtol=rtol, atol=1e-14)
    np.testing.assert_array_equal(apply(recurrence.operator.neutral, a), a)
    np.testing.assert_array_equal(apply(a, recurrence.operator.neutral), a)


def test_sums_have_no_entries():
    recurrence = recurrence_of(NAMED["add"].typed((F,)))
    assert recurrence.entries == ()
    assert recurrence.operator.special == "add"


def test_what_is_left_out_and_shared():
    def entries(function, neutral):
        typed = operator(function, neutral=neutral).typed((F,) * len(neutral))
        return recurrence_of(typed)

    # d (slope, offset) of g after f by f: both scale by g's slope.
    recurrence = entries(linear, (1.0, 0.0))
    assert recurrence.blocks == ((0,), (1,))
    assert [str(entry) for entry in recurrence.entries] == ["b_0"]
    # Three blocks, each the transposed matrix of g.
    recurrence = entries(linear_six, (0.0, 0.0, 1.0, 0.0, 0.0, 1.0))
    assert recurrence.blocks == ((0, 1), (2, 4), (3, 5))
    assert [str(entry) for entry in recurrence.entries] == ["b_2", "b_4", "b_3", "b_5"]
    # Blocks of sizes 1, 2, 2 and 1 in disorder; offset and slope scale alike.
    recurrence = entries(permuted, (0.0, 1.0, 0.0, 1.0, 1.0, -np.inf, 0.0))
    assert recurrence.blocks == ((0,), (1, 6), (2, 4), (3,), (5,))
    assert [str(entry) for entry in recurrence.entries] == [
        "b_3", "b_1", "b_6", "b_2", "b_4", "where(b_5 <= a_5 | a_5 != a_5, 1.0, 0.0)"
    ]  # fmt: skip
    # A triangular Jacobian of ones: products add up below the diagonal, which stays 1, and above it stays 0.
    recurrence = entries(lambda a, b: (a[0] + b[0], a[1] + b[1] + a[0] * b[0]), (0.0, 0.0))
    assert str(recurrence.matrix) == "((('constant', 1), ('state', 0)), (('constant', 0), ('constant', 1)))"
    assert str(recurrence.operator).splitlines()[1] == "  (b_d0 + a_d0 + b_c0 * a_d1, b_d1 + a_d1, a_c0 + b_c0)"


def test_signs_are_shared():
    """Products of complex numbers: the Jacobian is a complex number again."""
    typed = operator(lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]), neutral=(1.0, 0.0)).typed(
        (F, F)
    )
    recurrence = recurrence_of(typed)
    assert str(recurrence) == (
        "recurrence of lambda: 2 adjoints, 2 entries\n  block {0, 1}: [[c0, c1], [-c1, c0]]\n  (c0, c1) = (b_0, b_1)"
    )
    assert recurrence.operator.apply((0.0, 0.0, 3.0, 4.0), (0.0, 0.0, 5.0, 7.0)) == (0.0, 0.0, -13.0, 41.0)


def test_a_cycle_fills_zeros_and_moves_ones():
    """The derivative of b applied after a swap: zeros and ones of its Jacobian do not last in products."""
    typed = operator(lambda a, b: (a[1] + b[0], a[0] + b[1]), neutral=(0.0, 0.0)).typed((F, F))
    recurrence = recurrence_of(typed)
    assert recurrence.blocks == ((0, 1),)
    assert [str(entry) for entry in recurrence.entries] == ["0.0", "1.0"]
    swap = (0.0, 0.0, 0.0, 1.0)
    assert recurrence.operator.apply(swap, swap) == (0.0, 0.0, 1.0, 0.0)


def test_entries_that_start_equal_and_part_have_their_own_state():
    # Both off-diagonal entries start as b_2, but their products differ: C is ((b_0, b_2), (b_2, b_1)).
    typed = operator(
        lambda a, b: (a[0] * b[0] + a[1] * b[2], a[0] * b[2] + a[1] * b[1], b[2]), neutral=(0.0, 0.0, 0.0)
    ).typed((F, F, F))
    recurrence = recurrence_of(typed)
    assert len(recurrence.entries) == 4


def test_printed_form():
    assert str(recurrence_of(matrix_product(2).typed((F,)))) == (
        "recurrence of real product: 4 adjoints, 4 entries\n"
        "  block {0, 1}: [[c0, c1], [c2, c3]]\n"
        "  block {2, 3}: [[c0, c1], [c2, c3]]\n"
        "  (c0, c1, c2, c3) = (b_0, b_1, b_2, b_3)"
    )


def test_integers_ride_along():
    def best(a, b):
        first = b[0] <= a[0]
        return maximum(a[0], b[0]), where(first, a[1], b[1])

    typed = operator(best, neutral=(-np.inf, -1)).typed((F, "int64"))
    assert recurrence_of(typed).components == (0,)
