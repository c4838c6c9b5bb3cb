"""How scans of one column are lowered, and what that must not change: numbers that regrouping would lose."""

import numpy as np
import pytest

from derivable.algebra import expr
from derivable.algebra.monoids import NAMED, operator
from derivable.parallel import element_folds
from derivable.parallel.element_kernels import scan_schedule
from parallel.operator_cases import BY_NAME


def test_the_schedule_follows_from_the_expressions():
    def schedules(made, *dtypes):
        op = made.typed(dtypes)
        return [str(scan_schedule(op, True, back)) for back in (False, True)]

    wide = "lanes 8 in float64, guarded"
    for name, dtype in (("saturated add", "float32"), ("linear functions", "float64"), ("add, mul, max", "float32")):
        op = BY_NAME[name].operator
        assert schedules(op, *[dtype] * len(op.element.leaf_shapes)) == [wide, wide]
    # Nothing is computed, so nothing is rounded; adjoints are added up.
    assert schedules(NAMED["max"], "float32") == ["lanes 16, guarded", "lanes 16, carried in float64, guarded"]
    assert schedules(NAMED["logaddexp"], "float32") == ["lanes 8 in float64"] * 2
    assert str(scan_schedule(NAMED["add"].typed(("float32",)), single=False)) == "row by row"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_users_operators_are_guarded_like_ours(dtype):
    """A user's own product and maximum, on numbers that regrouping would lose, give what NumPy gives row by row."""
    mine = operator(lambda a, b: (a[0] * b[0], expr.where(a[1] < b[1], b[1], a[1])), neutral=(1.0, -np.inf))
    op = mine.typed((dtype, dtype))
    rng = np.random.default_rng(0)
    factors = rng.choice([1e-30, 1e30, 1.0, 0.5, 2.0], 200).astype(dtype)
    numbers = rng.normal(size=200).astype(dtype)
    numbers[[0, 90]] = np.nan
    found = element_folds.scan(op, tuple(leaf.reshape(-1, 1, 1) for leaf in (factors, numbers)))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found[0].ravel(), np.multiply.accumulate(factors), rtol=1e-5, atol=1e-43)
    expected, best = [], numbers[0]
    for number in numbers:
        best = number if best < number else best
        expected.append(best)
    np.testing.assert_array_equal(found[1].ravel(), expected)


def test_sums_that_saturate_do_not_drift():
    """In float32 a sum of ones stands still at 2^24."""
    op = operator(lambda a, b: expr.minimum(a + b, 3e7), neutral=0.0).typed(("float32",))
    ones = np.ones((20_000_000, 1, 1), np.float32)
    (found,) = element_folds.scan(op, (ones,))
    np.testing.assert_array_equal(found[[0, 2**24 + 1, -1], 0, 0], np.float32([1, 2**24 + 2, 2e7]))
