"""Scans and segments of sums, products and logarithms of sums, many rows at a time, against row by row in NumPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derivable.algebra.monoids import NAMED
from derivable.parallel import element_folds
from parallel.single_column import pull, scan

STEPS = {"add": np.add, "mul": np.multiply, "logaddexp": np.logaddexp}
NEUTRAL = {"add": 0.0, "mul": 1.0, "logaddexp": -np.inf}
DTYPES = ("float32", "float64")
DIRECTIONS = [(reverse, exclusive) for reverse in (False, True) for exclusive in (False, True)]


def segments(name, values, offsets):
    op = NAMED[name].typed((str(values.dtype),))
    return element_folds.segment_reduce(op, (values.reshape(-1, 1, 1),), offsets)[0].reshape(-1)


def pull_segments(name, adjoints, values, offsets):
    op = NAMED[name].typed((str(values.dtype),))
    given, rows = adjoints.reshape(-1, 1, 1), values.reshape(-1, 1, 1)
    return np.ravel(element_folds.segment_reduce_vjp(op, [given], [rows], offsets)[0])


def row_by_row(name, values, reverse=False, exclusive=False):
    """The scan in the dtype of the values, without an order of its own."""
    rows = values[::-1] if reverse else values
    step = STEPS[name]
    with np.errstate(all="ignore"):
        found = step.accumulate(rows)
    if exclusive:
        neutral = NEUTRAL[name]
        found = np.concatenate([[values.dtype.type(neutral)], found[:-1]])[: len(values)]
    return found[::-1] if reverse else found


def chain_rule(name, adjoints, values, reverse=False, exclusive=False):
    """Adjoints of the values, in float64 and by definition: the sum over the results of adjoint times derivative."""
    rows, seeds = (values[::-1], adjoints[::-1]) if reverse else (values, adjoints)
    rows, seeds = rows.astype(float), seeds.astype(float)
    found = np.zeros(len(rows))
    for i in range(len(rows)):
        for result in range(i + exclusive, len(rows)):
            end = result + 1 - exclusive
            if name == "add":
                found[i] += seeds[result]
            elif name == "mul":
                found[i] += seeds[result] * math.prod(rows[:i]) * math.prod(rows[i + 1 : end])
            elif end == 1:
                found[i] += seeds[result]  # the value itself, -inf too
            elif rows[i] != -np.inf:
                weights = np.exp(rows[:end] - rows[:end].max())
                found[i] += seeds[result] * weights[i] / weights.sum()
    return found[::-1] if reverse else found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("reverse", "exclusive"), DIRECTIONS)
@pytest.mark.parametrize("name", ["add", "mul"])
def test_sums_and_products_of_any_length(name, dtype, reverse, exclusive):
    for rows in (0, 1, 2, 7, 8, 9, 10, 16, 17, 18, 63, 65, 1000):
        values = np.random.default_rng(rows).uniform(0.8, 1.25, rows).astype(dtype)
        values[1::3] *= -1
        found = scan(name, values, reverse=reverse, exclusive=exclusive)
        assert found.dtype == dtype
        rtol, atol = (1e-4, 1e-4) if dtype == "float32" else (1e-12, 1e-12)
        np.testing.assert_allclose(found, row_by_row(name, values, reverse, exclusive), rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("reverse", "exclusive"), DIRECTIONS)
def test_logarithms_of_sums_of_any_length(dtype, reverse, exclusive):
    for rows in (0, 1, 2, 7, 8, 9, 10, 16, 17, 18, 63, 65, 1000):
        values = np.random.default_rng(rows).normal(0, 3, rows).astype(dtype)
        found = scan("logaddexp", values, reverse=reverse, exclusive=exclusive)
        assert found.dtype == dtype
        expected = row_by_row("logaddexp", values.astype(float), reverse, exclusive)
        np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == "float32" else 1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("reverse", "exclusive"), DIRECTIONS)
@pytest.mark.parametrize("name", list(STEPS))
def test_gradients_of_any_length(dtype, reverse, exclusive, name):
    for rows in (1, 2, 8, 9, 10, 17, 18, 40):
        rng = np.random.default_rng(rows)
        values = (rng.normal(0, 3, rows) if name == "logaddexp" else rng.uniform(0.8, 1.25, rows)).astype(dtype)
        adjoints = rng.normal(size=rows).astype(dtype)
        options = {"reverse": reverse, "exclusive": exclusive}
        found = pull(name, adjoints, values, scan(name, values, **options), **options)
        expected = chain_rule(name, adjoints, values, **options)
        tolerance = 3e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


# Results that leave the range of normal numbers, and values whose product does before it meets the prefix.
FACTORS = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-20, 1e20, 1e-38, 3e38, 1e-45, np.inf, -np.inf, np.nan, 1.0 + 1e-7]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(FACTORS), st.floats(0.5, 2, width=32)), min_size=1, max_size=70),
    st.sampled_from(DIRECTIONS),
)
def test_extreme_products_as_row_by_row(rows, direction):
    reverse, exclusive = direction
    values = np.array(rows, np.float32)
    found = scan("mul", values, reverse=reverse, exclusive=exclusive)
    expected = row_by_row("mul", values, reverse, exclusive)
    # Below the normal numbers a rounding is no relative error.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-43)
    normal = np.abs(expected) >= np.finfo(np.float32).tiny
    np.testing.assert_array_equal(np.sign(found[normal]), np.sign(expected[normal]))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.sampled_from([1e38, -1e38, 3e38, np.inf, -np.inf, np.nan]), st.floats(-2, 2, width=32))))
def test_extreme_sums_as_row_by_row(rows):
    values = np.array(rows, np.float32)
    found, expected = scan("add", values), row_by_row("add", values)
    # Of small numbers beside large ones little is left in either way.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e32 if np.any(np.abs(values) > 2) else 1e-4)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from([1e-300, 1e300, 1e-150, 1e150, 0.0, 5e-324, np.inf, np.nan]), st.floats(0.5, 2)),
        min_size=1,
        max_size=70,
    )
)
def test_extreme_products_in_double(rows):
    values = np.array(rows)
    np.testing.assert_allclose(scan("mul", values), row_by_row("mul", values), rtol=1e-13, atol=1e-320)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from([-np.inf, -800.0, -100.0, 0.0, 100.0, 800.0, 5000.0]), st.floats(-5, 5, width=32)),
        min_size=1,
        max_size=70,
    ),
    st.sampled_from(DIRECTIONS),
)
def test_extreme_sums(rows, direction):
    reverse, exclusive = direction
    values = np.array(rows)
    found = scan("logaddexp", values, reverse=reverse, exclusive=exclusive)
    expected = row_by_row("logaddexp", values, reverse, exclusive)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)
    adjoints = np.linspace(-1, 1, len(values))
    gradient = pull("logaddexp", adjoints, values, found, reverse=reverse, exclusive=exclusive)
    wanted = chain_rule("logaddexp", adjoints, values, reverse, exclusive)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 3, 20])
def test_infinite_values_and_nan_in_sums(bad, place):
    values = np.linspace(-1, 1, 40)
    values[place] = bad
    np.testing.assert_allclose(scan("logaddexp", values), row_by_row("logaddexp", values), rtol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zeros", [[0], [5], [17], [20, 21], [3, 60], list(range(70))])
def test_gradients_of_products_with_zeros(dtype, zeros):
    rng = np.random.default_rng(0)
    values = rng.uniform(0.7, 1.4, 70).astype(dtype)
    values[zeros] = 0
    adjoints = rng.normal(size=70).astype(dtype)
    found = pull("mul", adjoints, values, scan("mul", values))
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(found, chain_rule("mul", adjoints, values), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", list(STEPS))
@pytest.mark.parametrize(("reverse", "exclusive"), DIRECTIONS)
def test_segments(name, reverse, exclusive):
    rng = np.random.default_rng(1)
    offsets = np.array([0, 0, 1, 9, 9, 27, 28, 100, 140, 140])
    values, adjoints = rng.uniform(0.8, 1.25, (2, 140))
    options = {"reverse": reverse, "exclusive": exclusive}
    found = scan(name, values, offsets=offsets, **options)
    gradient = pull(name, adjoints, values, found, offsets=offsets, **options)
    for head, tail in itertools.pairwise(offsets):
        if tail > head:
            np.testing.assert_allclose(found[head:tail], row_by_row(name, values[head:tail], **options), rtol=1e-12)
            expected = chain_rule(name, adjoints[head:tail], values[head:tail], **options)
            np.testing.assert_allclose(gradient[head:tail], expected, rtol=1e-10, atol=1e-12)


def test_long_scans_in_single_precision_do_not_drift():
    """Row by row in float32 the sum stands still at 2^24 equal terms, and products drift."""
    rng = np.random.default_rng(0)
    values = (1 + 1e-3 * (rng.random(3_000_000) - 0.5)).astype(np.float32)
    exact = np.cumprod(values.astype(float))
    np.testing.assert_allclose(scan("mul", values), exact, rtol=2e-7)
    zeros, ones = np.zeros(20_000_000, np.float32), np.ones(20_000_000, np.float32)
    np.testing.assert_allclose(scan("logaddexp", zeros)[-1], math.log(len(zeros)), rtol=1e-7)
    np.testing.assert_array_equal(scan("add", ones)[-3:], np.arange(3, dtype=np.float32) + (len(ones) - 2))
    everything = np.array([0, len(ones)])
    np.testing.assert_allclose(segments("logaddexp", zeros, everything), math.log(len(zeros)), rtol=1e-7)
    np.testing.assert_array_equal(segments("add", ones, everything), len(ones))


def test_same_bits_for_the_same_input():
    values = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    for name in STEPS:
        assert scan(name, values).tobytes() == scan(name, values.copy()).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["add", "logaddexp"])
def test_segment_reduce(name, dtype):
    rng = np.random.default_rng(2)
    offsets = np.array([0, 0, 1, 3, 10, 10, 27, 44, 100, 1000, 1000])
    values, adjoints = rng.normal(0, 3, 1000).astype(dtype), rng.normal(size=10).astype(dtype)
    found, gradient = segments(name, values, offsets), pull_segments(name, adjoints, values, offsets)
    assert found.dtype == gradient.dtype == dtype
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for s, (head, tail) in enumerate(itertools.pairwise(offsets)):
        if tail == head:
            assert found[s] == NEUTRAL[name]
            continue
        mine = values[head:tail].astype(float)
        np.testing.assert_allclose(found[s], STEPS[name].reduce(mine), rtol=tolerance, atol=tolerance)
        weights = np.exp(mine - mine.max())
        share = weights / weights.sum() if name == "logaddexp" else np.ones(len(mine))
        np.testing.assert_allclose(gradient[head:tail], adjoints[s] * share, rtol=tolerance, atol=tolerance)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from([-np.inf, np.inf, -800.0, 800.0, 5000.0, np.nan]), st.floats(-5, 5)),
        min_size=1,
        max_size=50,
    )
)
def test_extreme_segments(rows):
    values, offsets = np.array(rows), np.array([0, len(rows)])
    for name in ("add", "logaddexp"):
        with np.errstate(all="ignore"):
            expected = STEPS[name].reduce(values)
        np.testing.assert_allclose(segments(name, values, offsets)[0], expected, rtol=1e-12, atol=1e-12)
    gradient = pull_segments("logaddexp", np.ones(1), values, offsets)
    if np.isnan(values).any():
        assert len(rows) == 1 or np.isnan(gradient).all()
    elif len(rows) > 1 and (values == -np.inf).all():
        np.testing.assert_array_equal(gradient, 0)
    else:
        np.testing.assert_allclose(gradient.sum(), 1, rtol=1e-12)
        largest = values == values.max()
        if values.max() == np.inf:
            np.testing.assert_array_equal(gradient[~largest], 0)
        elif len(rows) > 1:
            weights = np.exp(values - values.max())
            np.testing.assert_allclose(gradient, weights / weights.sum(), rtol=1e-10, atol=1e-300)
