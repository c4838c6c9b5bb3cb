"""The kernels of folds against the oracle, for every kind of element, shape, direction and number of threads."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.algebra.expr import where
from derivable.algebra.monoids import NAMED
from derivable.device.cpu import threads
from derivable.parallel import element_by_index, element_cuts, element_folds
from parallel import element_oracle as oracle
from parallel.operator_cases import BY_NAME

pytestmark = pytest.mark.usefixtures("num_threads")
MIXED = dv.parallel.operator(
    lambda a, b: (where(b[1], a[0] + b[0], b[0]), a[1] & b[1], a[2] + b[2]), neutral=(0.0, True, 0)
)
SWAPPED = dv.parallel.operator(lambda f, g: (g[0] + g[1] * f[0], g[1] * f[1]), neutral=(0.0, 1.0))
# name -> (operator, dtypes)
OPERATORS = {
    **{name: (NAMED[name], ("float64",)) for name in ("add", "mul", "min", "max", "logaddexp")},
    **{f"{name} of float32": (NAMED[name], ("float32",)) for name in ("add", "mul", "logaddexp", "max")},
    **{f"{name} of integers": (NAMED[name], ("int64",)) for name in ("add", "min")},
    "or": (NAMED["or"], ("bool",)),
    "sum, product, largest": (BY_NAME["add, mul, max"].operator, ("float64", "float32", "float64")),
    "linear of float32": (BY_NAME["linear functions"].operator, ("float32", "float32")),
    "swapped": (SWAPPED, ("float64", "float64")),
    "mixed": (MIXED, ("float64", "bool", "int64")),
}
OF_TABLE = ["saturated add", "soft or", "argmax", "linear functions", "crossing", "2x2 products", "2x2 best paths"]
OF_TABLE += ["matrix and vector"]
OPERATORS |= {name: (BY_NAME[name].operator, BY_NAME[name].dtypes) for name in OF_TABLE}
# Elements of many components, of which the compiler takes seconds for some.
CHOSEN = ("permuted blocks", "two precisions", "linear functions in the plane", "semidirect in log space")
OF_MANY = {name: (BY_NAME[name].operator, BY_NAME[name].dtypes) for name in CHOSEN}
MANY = [pytest.param(name, marks=pytest.mark.slow if name in CHOSEN[2:] else ()) for name in OF_MANY]
ORDERED = {"linear functions", "linear of float32", "swapped", "2x2 products", "2x2 best paths", "matrix and vector"}
# An element comes from anywhere in its bucket, so what does not commute makes no sense by index.
COMMUTATIVE = [name for name in OPERATORS if name not in {*ORDERED, "mixed"}]
OF_LINES = [
    "add",
    "mul",
    "max",
    "add of float32",
    "mul of float32",
    "logaddexp of float32",
    "linear of float32",
    "swapped",
]
FLAGS = list(itertools.product([False, True], repeat=2))


@pytest.fixture(autouse=True)
def _few_columns(monkeypatch):
    monkeypatch.setattr(element_cuts, "MIN_COLUMNS", 2)


def typed(name):
    made, dtypes = (OPERATORS | OF_MANY)[name]
    return made.typed(dtypes)


def elements(op, rows, width, rng):
    """Of few rows few distinct values, so that ties and zeros are common; of many, such as keep products in range."""
    leaves = []
    # Saturated sums are associative without negative numbers; sums of quarters are never at their corner, where the
    # derivative is a matter of taste.
    low, signs = (0.25, [1]) if op.name == "saturated sum" else (0.0, [-1, 1, 1])
    for dtype, size in zip(op.leaf_dtypes, op.leaf_sizes):
        leaf = rng.choice([low, 0.25, 0.5, 0.5, 0.75, 1.0, 1.25], (rows, width, size))
        if rows > 20 and dtype in ("float32", "float64"):
            leaf = rng.uniform(0.8, 1.25, leaf.shape) * rng.choice(signs, leaf.shape)
            leaf[rng.random(leaf.shape) < rng.choice([0, 0.02])] = low
        leaves.append((leaf > 0.4 if dtype == "bool" else leaf * 8 if dtype == "int64" else leaf).astype(dtype))
    return tuple(leaves)


def adjoints_like(op, leaves, rng):
    return tuple(
        rng.normal(size=leaf.shape).astype(leaf.dtype) if k in op.float_leaves else None
        for k, leaf in enumerate(leaves)
    )


def exactly(name):
    """The operator in 64 bits where all of it has 32, in which one row after the other would drift."""
    made, dtypes = (OPERATORS | OF_MANY)[name]
    return made.typed(("float64",) * len(dtypes) if set(dtypes) == {"float32"} else dtypes)


def assert_same(op, got, expected, gradients=False):
    for leaf, (mine, other) in enumerate(zip(got, expected, strict=True)):
        if gradients and leaf not in op.float_leaves:
            assert mine is None
            continue
        assert mine.shape == other.shape
        assert mine.dtype == op.leaf_dtypes[leaf]
        # Of several precisions the parts of 64 bits may be computed from those of 32.
        tolerance = 3e-5 if "float32" in op.leaf_dtypes else 1e-10
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)


def in_types_of(op, leaves):
    return [None if leaf is None else leaf.astype(dtype) for leaf, dtype in zip(leaves, op.leaf_dtypes)]


def check_scan(name, values, rng, **options):
    op, exact = typed(name), exactly(name)
    adjoints = adjoints_like(op, values, rng)
    results = element_folds.scan(op, values, **options)
    assert_same(op, results, oracle.scan(exact, in_types_of(exact, values), **options))
    gradients = element_folds.scan_vjp(op, adjoints, values, results, **options)
    assert_same(
        op,
        gradients,
        oracle.scan_vjp(exact, in_types_of(exact, adjoints), in_types_of(exact, values), **options),
        gradients=True,
    )


# All directions of some kinds of element; the code that reads them is the same for all.
DIRECTED = [(name, *flags) for name in ("add", "mul", "max", "linear functions", "mixed") for flags in FLAGS[1:3]]


@pytest.mark.parametrize(
    ("name", "exclusive", "reverse"),
    [
        *((name, False, False) for name in OPERATORS),
        *((name, True, True) for name in OPERATORS),
        *DIRECTED,
        *(pytest.param(*name.values, *flags, marks=name.marks) for name in MANY for flags in FLAGS[::3]),
    ],
)
def test_scans_against_a_loop(name, exclusive, reverse, num_threads):
    """Of one column, for the kinds that differ there, every number of rows that is left beside whole lines."""
    op, rng = typed(name), np.random.default_rng(1)
    lines = (7, 8, 9, 16, 17, 18, 33, 34, 63, 65, 300) if name in OF_LINES and num_threads == 1 else (35,)
    for rows, width in (*((rows, 1) for rows in (0, 1, 2, 11, *lines)), (7, 3), (6, 9), (9, 150), (1, 2), (3, 0)):
        values = elements(op, rows, width, rng)
        cuts = np.array(sorted([0, 0, rows, *rng.integers(0, rows + 1, 3)]), np.int64)
        for offsets in (None, cuts):
            check_scan(name, values, rng, exclusive=exclusive, reverse=reverse, offsets=offsets)


@pytest.mark.parametrize("name", [*OPERATORS, *MANY])
def test_segments_against_a_loop(name):
    op, exact, rng = typed(name), exactly(name), np.random.default_rng(2)
    sizes = (13, 1, 5), (9, 3, 4), (9, 150, 3), (4, 1, 9), (20, 2, 1), (0, 1, 3), (0, 1, 0), (2, 0, 1)
    for rows, width, segments in (*sizes, *([(1000, 1, 9)] if name in OF_LINES else [])):
        values = elements(op, rows, width, rng)
        inner = np.sort(rng.integers(0, rows + 1, max(0, segments - 1)))
        offsets = np.array([0, *inner, rows] if segments else [0], np.int64)
        results = element_folds.segment_reduce(op, values, offsets)
        adjoints = adjoints_like(op, results, rng)
        gradients = element_folds.segment_reduce_vjp(op, adjoints, values, offsets)
        assert_same(op, results, oracle.segment_reduce(exact, in_types_of(exact, values), offsets))
        expected = oracle.segment_reduce_vjp(exact, in_types_of(exact, adjoints), in_types_of(exact, values), offsets)
        assert_same(op, gradients, expected, gradients=True)


@pytest.mark.parametrize("name", COMMUTATIVE)
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param([("int64", 1 << 20), ("int32", 0)], id="some"),
        pytest.param([("int64", 0), ("int32", 1 << 20)], id="others", marks=pytest.mark.slow),
    ],
)
def test_by_index_against_a_loop(name, kinds, monkeypatch):
    for index_dtype, far_bytes in kinds:
        # The source for many buckets too: it asks for them ahead.
        monkeypatch.setattr(element_by_index, "FAR_BYTES", far_bytes)
        by_index_against_a_loop(typed(name), index_dtype)


def by_index_against_a_loop(op, index_dtype):
    rng = np.random.default_rng(3)
    sizes = (40, 1, 3), (30, 3, 2), (12, 8, 4), (40, 8, 3), (5, 1, 9), (0, 1, 3), (6, 1, 0), (6, 2, 0), (4, 0, 2)
    for rows, width, buckets in sizes:
        check_by_index(op, rows, width, buckets, rng.integers(-2, buckets + 2, rows).astype(index_dtype), rng)


def check_by_index(op, rows, width, buckets, indices, rng):
    values, destination = elements(op, rows, width, rng), elements(op, buckets, width, rng)
    adjoints = adjoints_like(op, destination, rng)
    expected = oracle.reduce_by_index(op, destination, indices, values)
    of_firsts, of_values = oracle.reduce_by_index_vjp(op, adjoints, destination, indices, values)
    before = [leaf.copy() for leaf in destination]
    results = element_by_index.reduce_by_index(op, destination, indices, values)
    assert_same(op, results, expected)
    again, prefixes = element_by_index.reduce_by_index_keeping(op, destination, indices, values)
    assert [leaf.tobytes() for leaf in again] == [leaf.tobytes() for leaf in results]
    for known, kept in ((results, None), (None, None), (None, prefixes)):
        firsts, gradients = element_by_index.reduce_by_index_vjp(
            op, adjoints, destination, indices, values, known, kept=kept
        )
        assert_same(op, firsts, of_firsts, gradients=True)
        assert_same(op, gradients, of_values, gradients=True)
    assert_same(op, destination, before)


KEEPING = ["logaddexp", "saturated add", "soft or", "argmax", "sum, product, largest"]


@pytest.mark.parametrize("name", KEEPING)
def test_kept_prefixes_give_the_same_bits(name, num_threads):
    for rows, width, buckets in ((60, 1, 3), (60, 3, 2), (60, 8, 2), (12, 8, 4), (5, 1, 9), (5, 3, 40)):
        threads.set_num_threads(num_threads)
        kept_prefixes_give_the_same_bits(typed(name), rows, width, buckets, num_threads)


def kept_prefixes_give_the_same_bits(op, rows, width, buckets, num_threads):
    rng = np.random.default_rng(5)
    values, destination = elements(op, rows, width, rng), elements(op, buckets, width, rng)
    indices = rng.integers(-1, buckets + 1, rows)
    adjoints = adjoints_like(op, destination, rng)
    # The rows are cut, so the hand-off holds the parts beside the prefixes.
    cut = num_threads > 1 and rows == 60
    _, prefixes = element_by_index.reduce_by_index_keeping(op, destination, indices, values)
    assert prefixes is not None
    like = element_by_index.kept_leaves(op)
    assert len(prefixes) == len(like) - (0 if cut else len(values))
    assert [array.dtype for array in prefixes] == [values[leaf].dtype for leaf in like[: len(prefixes)]]
    before = [array.copy() for array in prefixes]
    expected = element_by_index.reduce_by_index_vjp(op, adjoints, destination, indices, values)
    # The number of threads may be another one by the time the gradient is asked for.
    for threads_then in (num_threads, 2, 1):
        threads.set_num_threads(threads_then)
        got = element_by_index.reduce_by_index_vjp(op, adjoints, destination, indices, values, kept=prefixes)
        for mine, other in zip((*got[0], *got[1]), (*expected[0], *expected[1]), strict=True):
            assert (mine is None) == (other is None)
            assert mine is None or mine.tobytes() == other.tobytes()
    for array, old in zip(prefixes, before):
        np.testing.assert_array_equal(array, old)


@pytest.mark.parametrize("name", ["add", "mul", "add of integers", "or"])
def test_rules_that_read_no_prefixes_get_none(name):
    op, rng = typed(name), np.random.default_rng(5)
    values, destination = elements(op, 40, 1, rng), elements(op, 3, 1, rng)
    results, prefixes = element_by_index.reduce_by_index_keeping(op, destination, rng.integers(0, 3, 40), values)
    assert prefixes is None
    assert results[0].shape == destination[0].shape


def test_products_keep_prefixes_where_dividing_is_slower(monkeypatch):
    op, rng = typed("mul"), np.random.default_rng(5)
    values, destination = elements(op, 40, 1, rng), elements(op, 3, 1, rng)
    indices = rng.integers(0, 3, 40)
    monkeypatch.setattr(element_by_index, "FAR_BYTES", 0)
    assert element_by_index.reduce_by_index_keeping(op, destination, indices, values)[1] is not None
    monkeypatch.setattr(element_by_index, "FAR_BYTES", 1 << 20)
    some = tuple(leaf[:8] for leaf in values)
    assert element_by_index.reduce_by_index_keeping(op, destination, indices[:8], some)[1] is not None


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(COMMUTATIVE), st.integers(0, 60), st.integers(0, 7), st.integers(0, 6), st.integers(0, 2**32 - 1)
)
def test_by_index_of_any_shape(name, rows, width, buckets, seed):
    rng = np.random.default_rng(seed)
    check_by_index(typed(name), rows, width, buckets, rng.integers(-1, buckets + 1, rows), rng)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(OPERATORS)), st.integers(0, 40), st.integers(0, 7), st.integers(0, 2**32 - 1))
def test_scans_of_any_shape(name, rows, width, seed):
    rng, is_both = np.random.default_rng(seed), bool(seed % 2)
    offsets = np.array(sorted([0, rows, *rng.integers(0, rows + 1, 4)]), np.int64)
    check_scan(name, elements(typed(name), rows, width, rng), rng, exclusive=is_both, reverse=is_both, offsets=offsets)


def column(values, dtype="float64"):
    return np.array(values, dtype).reshape(-1, 1, 1)


def test_products_that_leave_the_range():
    """The product overflows or underflows on its way: each derivative is still the product of the others."""
    op = NAMED["mul"].typed(("float32",))
    values = column([1e-30, 1e30, 1e30, 1e-30, 1e-22, 1e-22, 1e18, 1e18, 1e-42, 3.0], "float32")
    indices = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2])
    # Enough rows for the rule that divides, which has to leave some buckets to the other.
    values, indices = np.concatenate([values, values[:1].repeat(10, 0)]), np.concatenate([indices, np.full(10, -1)])
    destination = column([1, 1, 1], "float32")
    ones = np.ones_like(destination)
    (of_first,), (of_values,) = oracle.reduce_by_index_vjp(op, (ones,), (destination,), indices, (values,))
    (first,), (gradient,) = element_by_index.reduce_by_index_vjp(op, (ones,), (destination,), indices, (values,))
    np.testing.assert_allclose(gradient.ravel()[[0, 4, 8]], [1e30, 1e14, 3.0], rtol=1e-6)
    if threads.get_num_threads() == 1:
        np.testing.assert_allclose(gradient, of_values, rtol=1e-6)
        np.testing.assert_allclose(first, of_first, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("overflows", [False, True])
def test_products_of_vectors_whose_bound_is_out_of_range(dtype, overflows):
    """The largest factors of the rows multiplied overflow, those of a column only where `overflows`."""
    op, size = NAMED["mul"].typed((dtype,)), 1e10 if dtype == "float32" else 1e100
    values, indices = np.full((40, 8, 1), 0.5, dtype), np.arange(40) % 2
    columns = np.zeros(20, int) if overflows else np.arange(20) % 8
    values[0::2][np.arange(20), columns] = size
    values[0::2][:8][:, 5 * overflows] = 1 / size
    destination, adjoint = np.full((2, 8, 1), 1.5, dtype), np.ones((2, 8, 1), dtype)
    (first,), (gradient,) = element_by_index.reduce_by_index_vjp(op, (adjoint,), (destination,), indices, (values,))
    exact = values.astype("longdouble")
    for bucket in range(2):
        rows = np.flatnonzero(indices == bucket)
        for row in rows:
            others = np.prod(exact[rows[rows != row]], axis=0) * 1.5
            with np.errstate(over="ignore"):
                np.testing.assert_allclose(gradient[row], others.astype(dtype), rtol=1e-5)
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(first[bucket], np.prod(exact[rows], axis=0).astype(dtype), rtol=1e-5)


@pytest.mark.parametrize("name", ["add", "mul", "min", "max", "logaddexp"])
def test_nan_reaches_its_own_bucket_only(name):
    op = typed(name)
    values, indices = column([1, math.nan, 3, 4, 5, 6]), np.array([0, 0, 0, 1, 1, 1])
    (result,) = element_by_index.reduce_by_index(op, (column([1, 1]),), indices, (values,))
    assert np.isnan(result.ravel()).tolist() == [True, False]
    (scanned,) = element_folds.scan(op, (values,), offsets=np.array([0, 3, 6]))
    assert np.isnan(scanned.ravel()).tolist() == [False, True, True, False, False, False]
    _, (gradient,) = element_by_index.reduce_by_index_vjp(op, (column([1, 1]),), (column([1, 1]),), indices, (values,))
    assert np.isfinite(gradient.ravel()[3:]).all()


def test_dead_buckets_of_logaddexp_have_gradient_zero():
    op = typed("logaddexp")
    dead = -math.inf
    values, indices = column([dead, dead, 0.0, dead]), np.array([0, 0, 1, 1])
    (first,), (gradient,) = element_by_index.reduce_by_index_vjp(
        op, (column([1, 1]),), (column([dead, dead]),), indices, (values,)
    )
    assert first.ravel().tolist() == [0, 0]
    assert gradient.ravel().tolist() == [0, 0, 1, 0]
    results = element_folds.scan(op, (values,))
    (gradient,) = element_folds.scan_vjp(op, (column([1, 1, 1, 1]),), (values,), results)
    # The first prefix is the first element itself.
    assert gradient.ravel().tolist() == [1, 0, 2, 0]


def test_missing_adjoints_are_zeros():
    op, rng = typed("linear functions"), np.random.default_rng(8)
    values = elements(op, 9, 1, rng)
    results = element_folds.scan(op, values)
    adjoint = rng.normal(size=results[1].shape)
    short = element_folds.scan_vjp(op, (None, adjoint), values, results)
    full = element_folds.scan_vjp(op, (np.zeros_like(adjoint), adjoint), values, results)
    assert_same(op, short, full)
