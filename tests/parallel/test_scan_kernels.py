"""The lowering of scans, by the interpreter of the loop IR: lines and rows, without a compiler."""

import numpy as np
import pytest

from derivable.algebra import expr
from derivable.algebra.monoids import NAMED, operator
from derivable.kernel.check import check
from derivable.kernel.interpret import interpret
from derivable.kernel.schedule import Schedule
from derivable.parallel import element_folds
from derivable.parallel.element_kernels import scan_schedule
from derivable.parallel.scan_kernels import scan_back_kernel, scan_kernel
from parallel import element_oracle as reference

OFFSETS = np.array([0, 0, 1, 18, 20, 53, 70])
OPERATORS = {
    "add": (NAMED["add"], ("float32",)),
    "max": (NAMED["max"], ("float64",)),
    "satadd": (operator(lambda a, b: expr.minimum(a + b, 1e3), neutral=0.0), ("float32",)),
    "linear": (operator(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), neutral=(1.0, 0.0)), ("float64",) * 2),
    "add, mul, max": (
        operator(lambda a, b: (a[0] + b[0], a[1] * b[1], expr.maximum(a[2], b[2])), neutral=(0.0, 1.0, -np.inf)),
        ("float32",) * 3,
    ),
    "sums between marks": (
        operator(lambda a, b: (a[0] & b[0], expr.where(b[0], a[1] + b[1], b[1])), neutral=(True, 0)),
        ("bool", "int64"),
    ),
}


def case(name):
    made, dtypes = OPERATORS[name]
    op, rng = made.typed(dtypes), np.random.default_rng(len(name))
    values = tuple(
        (rng.uniform(0.5, 1.5, (70, 1, 1)) * (8 if dtype == "int64" else 1)).astype(dtype)
        if dtype != "bool"
        else rng.random((70, 1, 1)) < 0.8
        for dtype in dtypes
    )
    adjoints = tuple(
        rng.normal(size=leaf.shape).astype(leaf.dtype) if k in op.float_leaves else None
        for k, leaf in enumerate(values)
    )
    return op, values, adjoints


def flat(leaves):
    return [leaf.reshape(-1) for leaf in leaves if leaf is not None]


def assert_close(found, expected):
    for mine, other in zip(found, flat(expected), strict=True):
        tolerance = 1e-5 if mine.dtype == "float32" else 1e-12
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", list(OPERATORS))
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("how", ["cpu", "rows"])
def test_lowered_scans_against_the_reference(name, reverse, how):
    op, values, adjoints = case(name)
    results = reference.scan(op, values, reverse=reverse, offsets=OFFSETS)
    gradients = reference.scan_vjp(op, adjoints, values, reverse=reverse, offsets=OFFSETS)
    other = {"rows": Schedule()}
    out = [np.zeros_like(leaf) for leaf in flat(values)]
    kernel = scan_kernel(op, other.get(how) or scan_schedule(op, True), single=True, reverse=reverse)
    check(kernel)
    start = [0, len(OFFSETS) - 1, 0, 1, 1, 0]
    interpret(kernel, *start, OFFSETS, *flat(values), *out)
    assert_close(out, results)
    if op.float_leaves:
        back = scan_back_kernel(op, other.get(how) or scan_schedule(op, True, back=True), single=True, reverse=reverse)
        answers = [np.zeros_like(leaf) for leaf in flat(adjoints)]
        check(back)
        interpret(back, *start, OFFSETS, *flat(adjoints), *flat(values), *flat(results), *answers)
        assert_close(answers, gradients)


def test_the_schedule_follows_from_the_expressions():
    def schedules(made, *dtypes):
        op = made.typed(dtypes)
        return [str(scan_schedule(op, True, back)) for back in (False, True)]

    wide = "lanes 8 in float64, guarded"
    for name in ("satadd", "linear", "add, mul, max"):
        assert schedules(*OPERATORS[name][:1], *OPERATORS[name][1]) == [wide, wide]
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
