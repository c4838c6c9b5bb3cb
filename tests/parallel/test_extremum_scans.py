"""Scans of minima and maxima, many rows at a time, against NumPy and against who wins by definition."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallel.single_column import pull, scan

UFUNCS = {"min": np.minimum, "max": np.maximum}
DIRECTIONS = [(reverse, exclusive) for reverse in (False, True) for exclusive in (False, True)]
NUMBERS = st.one_of(st.sampled_from([0.0, -0.0, np.inf, -np.inf, np.nan]), *[st.integers(-3, 3).map(float)] * 4)


def expected(name, values, reverse=False, exclusive=False):
    order = slice(None, None, -1 if reverse else 1)
    found = UFUNCS[name].accumulate(values[order])
    if exclusive:
        found = np.concatenate([values.dtype.type([-np.inf if name == "max" else np.inf]), found[:-1]])[: len(values)]
    return found[order]


def winners(name, values, reverse=False, exclusive=False):
    """[row] whose value each result has, the first of several; -1 where there is none before."""
    rows = range(len(values))[:: -1 if reverse else 1]
    found, best = np.full(len(values), -1), -1
    for row in rows:
        if exclusive:
            found[row] = best
        now, old = values[row], values[best]
        better = best < 0 or (old == old and (now != now or (now > old if name == "max" else now < old)))
        best = row if better else best
        if not exclusive:
            found[row] = best
    return found


def check(name, values, adjoints, tolerance, **options):
    results = scan(name, values, **options)
    assert results.dtype == values.dtype
    np.testing.assert_array_equal(results, expected(name, values, **options))
    won = winners(name, values, **options)
    inside = won >= 0
    # Not only equal but the very number: zeros have signs.
    np.testing.assert_array_equal(np.signbit(results[inside]), np.signbit(values[won[inside]]))
    gradient = np.zeros(len(values))
    np.add.at(gradient, won[inside], adjoints[inside].astype(float))
    found = pull(name, adjoints, values, results, **options)
    np.testing.assert_allclose(found, gradient, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("min", "float32"),
        ("max", "float32"),
        ("max", "float64"),
        # Four more kernels to compile, which differ from the others in nothing new.
        pytest.param("min", "float64", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("reverse", "exclusive"), DIRECTIONS)
def test_any_length(name, dtype, reverse, exclusive):
    for rows in (0, 1, 2, 8, 9, 16, 17, 18, 33, 34, 65, 300):
        for kind in ("random", "ties", "rising", "falling"):
            rng = np.random.default_rng(rows)
            values = rng.integers(0, 6, rows) / 2 if kind == "ties" else rng.normal(size=rows)
            values = np.sort(values) if kind == "rising" else np.sort(values)[::-1] if kind == "falling" else values
            values, adjoints = values.astype(dtype), rng.normal(size=rows).astype(dtype)
            tolerance = 1e-5 if dtype == "float32" else 1e-13
            check(name, values, adjoints, tolerance, reverse=reverse, exclusive=exclusive)


@settings(max_examples=300, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=90), st.sampled_from(["min", "max"]), st.sampled_from(DIRECTIONS))
def test_any_numbers(rows, name, direction):
    values = np.array(rows, np.float32)
    adjoints = np.arange(1, 1 + len(rows), dtype=np.float32)
    check(name, values, adjoints, 1e-6, reverse=direction[0], exclusive=direction[1])


def test_segments_do_not_meet():
    rng = np.random.default_rng(0)
    values, offsets = rng.normal(size=120), np.array([0, 0, 1, 40, 40, 57, 120])
    adjoints = rng.normal(size=120)
    results = scan("max", values, offsets=offsets)
    found = pull("max", adjoints, values, results, offsets=offsets)
    for a, b in itertools.pairwise(offsets):
        np.testing.assert_array_equal(results[a:b], np.maximum.accumulate(values[a:b]))
        expected = np.zeros(b - a)
        np.add.at(expected, winners("max", values[a:b]), adjoints[a:b])
        np.testing.assert_allclose(found[a:b], expected, rtol=1e-12, atol=1e-13)


def test_infinite_adjoints_stay_with_their_rows():
    values = np.arange(64.0) % 7
    adjoints = np.ones(64)
    adjoints[[3, 50]] = np.inf, -np.inf
    found = pull("max", adjoints, values, scan("max", values))
    assert found[:7].tolist() == [1, 1, 1, np.inf, 1, 1, -np.inf]
    assert not found[7:].any()


def test_a_long_plateau_loses_no_adjoint():
    values = np.zeros(2**24 + 1000, np.float32)
    found = pull("max", np.ones_like(values), values, scan("max", values))
    # In float32 the sum of ones stands still at 2^24.
    assert found[0] == np.float32(len(values))
    assert not found[1:].any()
