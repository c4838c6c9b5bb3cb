"""Scans and segments of one column, many rows at a time: numbers out of range, infinite or none, and many rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.algebra.monoids import NAMED
from derivable.parallel import element_folds
from derivable.parallel.element_kernels import scan_schedule
from parallel import element_oracle as oracle
from parallel.operator_cases import linear

OPERATORS = {name: NAMED[name] for name in ("add", "mul", "logaddexp", "min", "max")}
OPERATORS |= {"linear": dv.parallel.operator(linear, neutral=(1.0, 0.0))}
EXTREMA = ("min", "max")
DIRECTIONS = [{"reverse": reverse, "exclusive": exclusive} for reverse in (False, True) for exclusive in (False, True)]


def leaves_of(arrays):
    return [array.reshape(-1, 1, 1) for array in arrays]


def typed(name, dtype):
    return OPERATORS[name].typed((str(dtype),) * len(OPERATORS[name].element.leaf_shapes))


def scan(name, values, **options):
    """[leaf] results of values [leaf], arrays [row]."""
    return [np.ravel(leaf) for leaf in element_folds.scan(typed(name, values[0].dtype), leaves_of(values), **options)]


def pull(name, adjoints, values, results, **options):
    groups = map(leaves_of, (adjoints, values, results))
    return [np.ravel(x) for x in element_folds.scan_vjp(typed(name, values[0].dtype), *groups, **options)]


def expected_scan(name, values, dtype=float, **options):
    """One row after the other in some type."""
    with np.errstate(all="ignore"):
        results = oracle.scan(typed(name, np.dtype(dtype)), leaves_of([x.astype(dtype) for x in values]), **options)
    return [np.ravel(leaf) for leaf in results]


def expected_pull(name, adjoints, values, **options):
    groups = (leaves_of([x.astype(float) for x in group]) for group in (adjoints, values))
    with np.errstate(all="ignore"):
        gradients = oracle.scan_vjp(typed(name, "float64"), *groups, **options)
    return [np.ravel(leaf) for leaf in gradients]


# Numbers that leave the range of their type, or are none.
INF, NAN = math.inf, math.nan
FACTORS = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-20, 1e20, 1e-38, 3e38, 1e-45, INF, -INF, NAN, 1.0 + 1e-7]
EXTREMES = {
    ("mul", "float32"): (FACTORS, st.floats(0.5, 2, width=32)),
    ("mul", "float64"): ([1e-300, 1e300, 1e-150, 1e150, 0.0, 5e-324, INF, NAN], st.floats(0.5, 2)),
    ("add", "float32"): ([1e38, -1e38, 3e38, INF, -INF, NAN], st.floats(-2, 2, width=32)),
    ("logaddexp", "float64"): ([-INF, -800.0, -100.0, 0.0, 100.0, 800.0, 5000.0], st.floats(-5, 5, width=32)),
    ("max", "float32"): ([0.0, -0.0, INF, -INF, NAN], st.integers(-3, 3).map(float)),
    ("min", "float32"): ([0.0, -0.0, INF, -INF, NAN], st.integers(-3, 3).map(float)),
}


def winners(name, values, reverse, exclusive):
    """[row] whose number each result is, the first of several; -1 where there is none before."""
    rows, best = np.full(len(values), -1), -1
    for row in range(len(values))[:: -1 if reverse else 1]:
        before, now, old = best, values[row], values[best]
        is_better = now != now or (now > old if name == "max" else now < old)
        best = row if best < 0 or (old == old and is_better) else best
        rows[row] = before if exclusive else best
    return rows


@pytest.mark.parametrize(("name", "dtype"), EXTREMES)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_extremes_as_row_by_row(name, dtype, data):
    extremes, others = EXTREMES[name, dtype]
    numbers = st.one_of(st.sampled_from(extremes), *[others] * (4 if name in EXTREMA else 1))
    values = np.array(data.draw(st.lists(numbers, min_size=1, max_size=80)), dtype)
    if name in EXTREMA and data.draw(st.booleans()):
        values = np.sort(values)[:: data.draw(st.sampled_from([-1, 1]))].copy()
    options = data.draw(st.sampled_from(DIRECTIONS))
    (results,), (expected,) = scan(name, [values], **options), expected_scan(name, [values], dtype, **options)
    if name in EXTREMA:
        np.testing.assert_array_equal(results, expected)
        # The very number: zeros have signs, which NumPy's extrema do not keep.
        won = winners(name, values, **options)
        np.testing.assert_array_equal(np.signbit(results[won >= 0]), np.signbit(values[won[won >= 0]]))
    elif name == "add":
        # Of small numbers and large ones together little is left in either way.
        np.testing.assert_allclose(results, expected, rtol=1e-5, atol=1e32 if np.any(np.abs(values) > 2) else 1e-4)
    else:
        # Below the normal numbers a rounding is no relative error.
        narrow = {"rtol": 1e-5, "atol": 1e-43}
        wide = {"rtol": 1e-13, "atol": 1e-320 if name == "mul" else 1e-13}
        np.testing.assert_allclose(results, expected, **(narrow if dtype == "float32" else wide))
        normal = np.abs(expected) >= np.finfo(dtype).tiny
        np.testing.assert_array_equal(np.sign(results[normal]), np.sign(expected[normal]))
    if name in ("logaddexp", *EXTREMA):
        adjoints = np.linspace(-1, 1, len(values)).astype(dtype)
        (mine,), (other,) = (
            pull(name, [adjoints], [values], [results], **options),
            expected_pull(name, [adjoints], [values], **options),
        )
        tolerance = 1e-6 if dtype == "float32" else 1e-10
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)


LINEAR_EXTREMES = [0.0, -0.0, 1.0, -1.0, 1e-20, 1e20, -3e38, 1e-45, INF, -INF, NAN]
NUMBERS = st.one_of(st.sampled_from(LINEAR_EXTREMES), *[st.floats(-2, 2, width=32)] * 6)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=50), st.sampled_from(DIRECTIONS))
def test_extreme_linear_functions_as_row_by_row(rows, options):
    values = list(np.array(rows, np.float32).T.copy())
    results, expected = scan("linear", values, **options), expected_scan("linear", values, **options)
    narrow = expected_scan("linear", values, np.float32, **options)
    size = expected_scan("linear", [np.abs(x) for x in values], **options)
    order = slice(None, None, -1 if options["reverse"] else 1)
    # What was below the normal numbers may have been lost, or not, before it grew.
    with np.errstate(all="ignore"):
        grown = 1e-37 * np.cumprod(np.fmax(np.abs(values[0][order]).astype(float), 1))[order]
    for mine, other, in_type, most in zip(results, expected, narrow, size):
        # Where nothing came near the ends of the type, of which both ways may fall on another side.
        inside = np.maximum.accumulate(most[order])[order] < 1e36
        inside &= np.isfinite(in_type)
        np.testing.assert_array_less(np.abs(mine[inside] - other[inside]), 2e-5 * most[inside] + grown[inside])
        # What is no number, or infinite, is that in either way.
        np.testing.assert_array_equal(np.isfinite(mine)[~np.isfinite(other)], False)


@pytest.mark.parametrize("bad", [INF, NAN])
@pytest.mark.parametrize("row", [0, 3, 20])
def test_infinite_values_and_nan_in_sums(bad, row):
    values = np.linspace(-1, 1, 40)
    values[row] = bad
    np.testing.assert_allclose(scan("logaddexp", [values]), expected_scan("logaddexp", [values]), rtol=1e-13)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from([-INF, INF, -800.0, 800.0, 5000.0, NAN]), st.floats(-5, 5)), min_size=1, max_size=50
    )
)
def test_extreme_segments(rows):
    values, offsets = np.array(rows), np.array([0, len(rows)])
    for name, ufunc in (("add", np.add), ("logaddexp", np.logaddexp)):
        with np.errstate(all="ignore"):
            expected = ufunc.reduce(values)
        (total,) = element_folds.segment_reduce(typed(name, "float64"), leaves_of([values]), offsets)
        np.testing.assert_allclose(total.item(), expected, rtol=1e-12, atol=1e-12)
    op = typed("logaddexp", "float64")
    gradient = np.ravel(element_folds.segment_reduce_vjp(op, [np.ones((1, 1, 1))], leaves_of([values]), offsets)[0])
    if np.isnan(values).any():
        assert len(rows) == 1 or np.isnan(gradient).all()
    elif len(rows) > 1 and (values == -INF).all():
        np.testing.assert_array_equal(gradient, 0)
    else:
        # Those that are infinite share alike.
        with np.errstate(all="ignore"):
            weights = (values == INF) if values.max() == INF else np.exp(values - values.max())
        expected = weights / weights.sum() if len(rows) > 1 else np.ones(1)
        np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-300)


def test_long_scans_in_single_precision_do_not_drift():
    """Row by row in float32 the sum stands still at 2^24 equal terms, and products drift."""
    rng = np.random.default_rng(0)
    values = (1 + 1e-3 * (rng.random(3_000_000) - 0.5)).astype(np.float32)
    np.testing.assert_allclose(scan("mul", [values])[0], np.cumprod(values.astype(float)), rtol=2e-7)
    zeros, ones = np.zeros(20_000_000, np.float32), np.ones(20_000_000, np.float32)
    np.testing.assert_allclose(scan("logaddexp", [zeros])[0][-1], math.log(len(zeros)), rtol=1e-7)
    np.testing.assert_array_equal(scan("add", [ones])[0][-3:], np.arange(3, dtype=np.float32) + (len(ones) - 2))
    everything = np.array([0, len(ones)])
    for name, column, expected in (("logaddexp", zeros, math.log(len(zeros))), ("add", ones, len(ones))):
        (total,) = element_folds.segment_reduce(typed(name, "float32"), leaves_of([column]), everything)
        np.testing.assert_allclose(total.item(), expected, rtol=1e-7)
    # The adjoints of a plateau of ties, which its first row gets.
    plateau = np.zeros(2**24 + 1000, np.float32)
    (gradient,) = pull("max", [np.ones_like(plateau)], [plateau], scan("max", [plateau]))
    assert gradient[0] == np.float32(len(plateau))
    assert not gradient[1:].any()


def test_long_decays():
    """Products that underflow, and many terms, which row by row in float32 lose four digits."""
    rng = np.random.default_rng(1)
    factors = np.full(3_000_000, 0.999, np.float32)
    terms = rng.normal(size=len(factors)).astype(np.float32)
    products, sums = scan("linear", [factors, terms])
    assert products[-1] == 0
    np.testing.assert_allclose(products[:5000], 0.999 ** np.arange(1, 5001), rtol=1e-4)
    scipy_signal = pytest.importorskip("scipy.signal")
    expected = scipy_signal.lfilter([1.0], [1.0, -float(factors[0])], terms.astype(float))
    np.testing.assert_allclose(sums, expected, rtol=1e-6, atol=1e-5)


def test_same_bits_for_the_same_input():
    values = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    for name in ("add", "mul", "logaddexp"):
        assert scan(name, [values])[0].tobytes() == scan(name, [values.copy()])[0].tobytes()


def test_infinite_adjoints_stay_with_their_rows():
    values, adjoints = np.arange(64.0) % 7, np.ones(64)
    adjoints[[3, 50]] = INF, -INF
    (gradient,) = pull("max", [adjoints], [values], scan("max", [values]))
    assert gradient[:7].tolist() == [1, 1, 1, INF, 1, 1, -INF]
    assert not gradient[7:].any()


@pytest.mark.parametrize(
    ("function", "neutral"),
    [
        (lambda f, g: (f[0] * g[0], f[0] * g[1] + f[1]), (1.0, 0.0)),  # the right one first
        (lambda f, g: (f[0] + g[0], f[1] + g[1]), (0.0, 0.0)),
        (lambda f, g: (f[0] * g[0], f[1] + g[1]), (1.0, 0.0)),
    ],
)
def test_other_compositions_go_by_lines_as_well(function, neutral):
    op = dv.parallel.operator(function, neutral=neutral).typed(("float64", "float64"))
    assert scan_schedule(op, single=True).lanes == scan_schedule(op, single=True, back=True).lanes == 8
    rng = np.random.default_rng(3)
    values, adjoints = tuple(rng.uniform(0.5, 1.5, (2, 40, 1, 1))), tuple(rng.normal(size=(2, 40, 1, 1)))
    results = element_folds.scan(op, values)
    gradients = element_folds.scan_vjp(op, adjoints, values, results)
    for mine, other in zip((*results, *gradients), (*oracle.scan(op, values), *oracle.scan_vjp(op, adjoints, values))):
        np.testing.assert_allclose(mine, other, rtol=1e-11)
