"""Scans of linear functions, many rows at a time, against row by row in Python and derivatives by definition."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.parallel import element_folds
from derivable.parallel.element_kernels import scan_schedule
from parallel import element_oracle as reference

P = dv.parallel
LINEAR = P.operator(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), neutral=(1.0, 0.0))
SWAPPED = P.operator(lambda f, g: (g[0] + g[1] * f[0], g[1] * f[1]), neutral=(0.0, 1.0))
DIRECTIONS = [(reverse, exclusive) for reverse in (False, True) for exclusive in (False, True)]
KINDS = [
    pytest.param(LINEAR, "float32", id="linear-float32"),
    pytest.param(LINEAR, "float64", id="linear-float64"),
    pytest.param(SWAPPED, "float64", id="swapped-float64"),
    # Compiled anew for each direction, and the same but for the order of the numbers.
    pytest.param(SWAPPED, "float32", id="swapped-float32", marks=pytest.mark.slow),
]
LENGTHS = [0, 1, 2, 7, 8, 9, 10, 16, 17, 18, 63, 65, 500]


def scan(op, factors, terms, **options):
    """(products, sums) of either operator."""
    typed = op.typed((str(factors.dtype),) * 2)
    leaves = [array.reshape(-1, 1, 1) for array in (factors, terms)]
    found = [np.ravel(leaf) for leaf in element_folds.scan(typed, leaves[:: 1 if op is LINEAR else -1], **options)]
    return found[:: 1 if op is LINEAR else -1]


def pull(op, adjoints, factors, terms, results, **options):
    typed, order = op.typed((str(factors.dtype),) * 2), 1 if op is LINEAR else -1
    groups = [[a.reshape(-1, 1, 1) for a in group[::order]] for group in (adjoints, (factors, terms), results)]
    return [np.ravel(leaf) for leaf in element_folds.scan_vjp(typed, *groups, **options)][::order]


def row_by_row(factors, terms, reverse=False, exclusive=False):
    """In the arrays' type, one operation after the other."""
    zero = factors.dtype.type(0)
    product, total, found = zero + 1, zero, []
    with np.errstate(all="ignore"):
        for factor, term in list(zip(factors, terms))[:: -1 if reverse else 1]:
            before = product, total
            # The first element is taken as it is: 0 * inf would be no number.
            first = not found
            product, total = (factor, term) if first else (product * factor, total * factor + term)
            found.append(before if exclusive else (product, total))
    columns = np.array(found, factors.dtype).reshape(-1, 2)[:: -1 if reverse else 1]
    return columns[:, 0], columns[:, 1]


def chain_rule(adjoints, factors, terms, reverse=False, exclusive=False):
    """By definition, in float64: what a change of one row does to every later result."""
    order = slice(None, None, -1 if reverse else 1)
    factors, terms = factors[order].astype(float), terms[order].astype(float)
    to_products, to_sums = (a[order].astype(float) for a in adjoints)
    products, sums = row_by_row(factors, terms)
    to_factors, to_terms = np.zeros(len(factors)), np.zeros(len(factors))
    for i in range(len(factors)):
        product, total = (products[i - 1], sums[i - 1]) if i else (1.0, 0.0)
        after = 1.0
        for result in range(i + exclusive, len(factors)):
            end = result - exclusive
            if end > i:
                after *= factors[end]
            to_factors[i] += after * (to_products[result] * product + to_sums[result] * total)
            to_terms[i] += after * to_sums[result]
    return to_factors[order], to_terms[order]


def near_one(rng, rows, dtype):
    factors = rng.uniform(0.7, 1.2, rows).astype(dtype)
    factors[2::5] *= -1
    factors[11::13] = 0
    return factors, rng.normal(size=rows).astype(dtype)


@pytest.mark.parametrize(("op", "dtype"), KINDS)
@pytest.mark.parametrize(("reverse", "exclusive"), DIRECTIONS)
def test_any_length(op, dtype, reverse, exclusive):
    for rows in LENGTHS:
        factors, terms = near_one(np.random.default_rng(rows), rows, dtype)
        options = {"reverse": reverse, "exclusive": exclusive}
        expected = row_by_row(factors.astype("longdouble"), terms.astype("longdouble"), **options)
        tolerance = 1e-6 if dtype == "float32" else 1e-13
        for mine, other in zip(scan(op, factors, terms, **options), expected):
            assert mine.dtype == dtype
            np.testing.assert_allclose(mine, other.astype(dtype), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("op", "dtype"), KINDS)
@pytest.mark.parametrize(("reverse", "exclusive"), DIRECTIONS)
def test_gradients_of_any_length(op, dtype, reverse, exclusive):
    for rows in LENGTHS[:-1]:
        rng = np.random.default_rng(rows)
        factors, terms = near_one(rng, rows, dtype)
        adjoints = [rng.normal(size=rows).astype(dtype) for _ in range(2)]
        options = {"reverse": reverse, "exclusive": exclusive}
        found = pull(op, adjoints, factors, terms, scan(op, factors, terms, **options), **options)
        tolerance = 2e-5 if dtype == "float32" else 1e-12
        for mine, other in zip(found, chain_rule(adjoints, factors, terms, **options)):
            assert mine.dtype == dtype
            np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)


def test_segments_do_not_meet():
    rng = np.random.default_rng(0)
    factors, terms = near_one(rng, 90, "float64")
    offsets = np.array([0, 0, 1, 20, 20, 29, 60, 90])
    adjoints = [rng.normal(size=90) for _ in range(2)]
    for reverse, exclusive in DIRECTIONS:
        options = {"reverse": reverse, "exclusive": exclusive}
        results = scan(LINEAR, factors, terms, offsets=offsets, **options)
        found = pull(LINEAR, adjoints, factors, terms, results, offsets=offsets, **options)
        for a, b in itertools.pairwise(offsets):
            part = slice(a, b)
            for mine, other in zip(results, row_by_row(factors[part], terms[part], **options)):
                np.testing.assert_allclose(mine[part], other, rtol=1e-12, atol=1e-13)
            expected = chain_rule([x[part] for x in adjoints], factors[part], terms[part], **options)
            for mine, other in zip(found, expected):
                np.testing.assert_allclose(mine[part], other, rtol=1e-11, atol=1e-12)


EXTREMES = [0.0, -0.0, 1.0, -1.0, 1e-20, 1e20, -3e38, 1e-45, np.inf, -np.inf, np.nan]
NUMBERS = st.one_of(st.sampled_from(EXTREMES), *[st.floats(-2, 2, width=32)] * 6)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=50), st.sampled_from(DIRECTIONS))
def test_extremes_as_row_by_row(rows, direction):
    factors, terms = np.array(rows, np.float32).T.copy()
    options = {"reverse": direction[0], "exclusive": direction[1]}
    found = scan(LINEAR, factors, terms, **options)
    with np.errstate(all="ignore"):
        expected = row_by_row(factors.astype(float), terms.astype(float), **options)
        narrow = row_by_row(factors, terms, **options)
        size = row_by_row(np.abs(factors).astype(float), np.abs(terms).astype(float), **options)
        order = slice(None, None, -1 if direction[0] else 1)
        # What was below the normal numbers may have been lost, or not, before it grew.
        grown = 1e-37 * np.cumprod(np.fmax(np.abs(factors[order]).astype(float), 1))[order]
    for mine, other, own, most in zip(found, expected, narrow, size):
        # Where nothing came near the ends of the type, of which both ways may fall on another side.
        inside = np.maximum.accumulate(most[order])[order] < 1e36
        inside &= np.isfinite(own)
        np.testing.assert_array_less(np.abs(mine[inside] - other[inside]), 2e-5 * most[inside] + grown[inside])
        # What is no number, or infinite, is that in either way.
        np.testing.assert_array_equal(np.isfinite(mine)[~np.isfinite(other)], False)


def test_long_decays():
    """Products that underflow, and 10 million terms, which row by row in float32 lose four digits."""
    rng = np.random.default_rng(1)
    factors = np.full(3_000_000, 0.999, np.float32)
    terms = rng.normal(size=len(factors)).astype(np.float32)
    products, sums = scan(LINEAR, factors, terms)
    assert products[-1] == 0
    np.testing.assert_allclose(products[:5000], 0.999 ** np.arange(1, 5001), rtol=1e-4)
    scipy_signal = pytest.importorskip("scipy.signal")
    expected = scipy_signal.lfilter([1.0], [1.0, -float(factors[0])], terms.astype(float))
    np.testing.assert_allclose(sums, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "neutral"),
    [
        (lambda f, g: (f[0] * g[0], f[0] * g[1] + f[1]), (1.0, 0.0)),  # the right one first
        (lambda f, g: (f[0] + g[0], f[1] + g[1]), (0.0, 0.0)),
        (lambda f, g: (f[0] * g[0], f[1] + g[1]), (1.0, 0.0)),
    ],
)
def test_other_compositions_go_by_lines_as_well(function, neutral):
    op = P.operator(function, neutral=neutral).typed(("float64", "float64"))
    assert scan_schedule(op, single=True).lanes == scan_schedule(op, single=True, back=True).lanes == 8
    rng = np.random.default_rng(3)
    values = tuple(rng.uniform(0.5, 1.5, (2, 40, 1, 1)))
    adjoints = tuple(rng.normal(size=(2, 40, 1, 1)))
    results = element_folds.scan(op, values)
    expected = reference.scan(op, values)
    found = element_folds.scan_vjp(op, adjoints, values, results)
    for mine, other in zip((*results, *found), (*expected, *reference.scan_vjp(op, adjoints, values))):
        np.testing.assert_allclose(mine, other, rtol=1e-11)
