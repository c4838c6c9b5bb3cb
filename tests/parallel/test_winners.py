"""The rows that win a minimum or maximum by index, which its forward pass hands to the gradient, beside a loop."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from derivable.algebra.monoids import NAMED
from derivable.device.cpu import threads
from derivable.parallel import element_by_index, element_cuts

pytestmark = pytest.mark.usefixtures("num_threads")
UFUNCS = {"min": np.minimum, "max": np.maximum}
NUMBERS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]), st.floats(-2, 2, width=32))


@pytest.fixture(autouse=True)
def _few_columns(monkeypatch):
    monkeypatch.setattr(element_cuts, "MIN_COLUMNS", 2)


def typed(name, dtype="float64"):
    return NAMED[name].typed((dtype,))


def winners_of(name, destination, indices, values):
    """[bucket, column, 1], one number after the other in Python."""
    found = np.full(destination.shape, -1)
    for bucket, column, _ in np.ndindex(destination.shape):
        best = float(destination[bucket, column, 0])
        for row in np.flatnonzero(indices == bucket):
            number = float(values[row, column, 0])
            better = number > best if name == "max" else number < best
            if best == best and (better or number != number):
                best, found[bucket, column, 0] = number, row
    return found


def spread(winners, adjoints, rows):
    """(adjoints of the destination, adjoints of the values) for the winners."""
    firsts, answers = np.zeros_like(adjoints), np.zeros((rows, *adjoints.shape[1:]), adjoints.dtype)
    for place in np.ndindex(adjoints.shape):
        row = winners[place]
        if row < 0:
            firsts[place] = adjoints[place]
        else:
            answers[(row, *place[1:])] = adjoints[place]
    return firsts, answers


def check(name, destination, indices, values, adjoints):
    op = typed(name, values.dtype.name)
    expected = winners_of(name, destination, indices, values)
    results, kept = element_by_index.reduce_by_index_keeping(op, (destination,), indices, (values,), whole=True)
    (plain,) = element_by_index.reduce_by_index(op, (destination,), indices, (values,))
    assert plain.tobytes() == results[0].tobytes()
    columns = np.arange(destination.shape[1])
    best, inside = destination.copy(), (indices >= 0) & (indices < len(destination))
    with np.errstate(invalid="ignore"):
        UFUNCS[name].at(best[..., 0], (indices[inside, None], columns), values[inside, :, 0])
    np.testing.assert_array_equal(plain, best)
    assert kept is not None
    # Of far more buckets than rows only those that have rows are looked at.
    is_read = np.isin(np.arange(len(destination)), indices) | (
        len(destination) <= element_by_index.SPARSE * len(values)
    )
    np.testing.assert_array_equal(kept[0][is_read], expected[is_read])
    first, gradient = spread(expected, adjoints, len(values))
    for handed in (kept, None):
        (mine,), (other,) = element_by_index.reduce_by_index_vjp(
            op, (adjoints,), (destination,), indices, (values,), kept=handed
        )
        np.testing.assert_array_equal(mine, first)
        np.testing.assert_array_equal(other, gradient)


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("far", [False, True])
def test_any_numbers(name, far, monkeypatch):
    if far:
        monkeypatch.setattr(element_by_index, "FAR_BYTES", 0)

    @given(data=st.data())
    @settings(deadline=None, max_examples=25)
    def hold(data):
        rows, buckets = data.draw(st.integers(0, 29)), data.draw(st.sampled_from([1, 2, 3, 4, 40]))
        width = data.draw(st.sampled_from([1, 1, 2, 5]))
        values = data.draw(hnp.arrays(np.float32, (rows, width, 1), elements=NUMBERS))
        destination = data.draw(hnp.arrays(np.float32, (buckets, width, 1), elements=NUMBERS))
        indices = data.draw(hnp.arrays(np.int32, rows, elements=st.integers(-2, buckets + 1)))
        adjoints = np.arange(1, 1 + destination.size, dtype=np.float32).reshape(destination.shape)
        check(name, destination, indices, values, adjoints)

    hold()


# Each is compiled anew, but for the first two, whose kernels other tests have.
KINDS = [("min", "float32", "int32"), ("max", "float32", "int32"), ("max", "float64", "int64")]


@pytest.mark.parametrize(
    ("name", "dtype", "index_dtype"),
    [
        pytest.param(*kind, marks=() if kind in KINDS else pytest.mark.slow)
        for kind in itertools.product(["min", "max"], ["float32", "float64"], ["int32", "int64"])
    ],
)
@pytest.mark.parametrize("order", ["tied", "ascending", "descending"])
def test_many_rows(name, dtype, index_dtype, order, monkeypatch):
    """So many that buckets are asked for ahead, in both loops; near extrema are compared four rows at a time."""
    if order == "descending":
        monkeypatch.setattr(element_by_index, "FAR_BYTES", 0)
        monkeypatch.setattr(element_by_index, "FARTHER_BYTES", 0)
    sizes = (4000, 1, 7), (1500, 1, 300), (300, 40, 3), (400, 33, 150), (40, 33, 500), (90, 1, 800)
    for rows, width, buckets in (*sizes, *((rows, 1, 3) for rows in (96, 97, 98, 99))):
        rng = np.random.default_rng(rows)
        values = (rng.integers(0, 12, (rows, width, 1)) / 8).astype(dtype)
        if order != "tied":
            values = np.sort(rng.normal(size=values.shape).astype(dtype), axis=0)
            values = values[:: 1 if order == "ascending" else -1].copy()
        destination = (rng.integers(4, 13, (buckets, width, 1)) / 8).astype(dtype)
        values[rows // 2, 0] = np.nan if rows > 100 else values[rows // 2, 0]
        indices = rng.integers(-1, buckets + 1, rows).astype(index_dtype)
        # The ends of the type are as far outside as -1.
        indices[[5, 30, 31]] = [np.iinfo(index_dtype).min, np.iinfo(index_dtype).max, -1]
        check(name, destination, indices, values, rng.normal(size=destination.shape).astype(dtype))


@pytest.mark.parametrize("name", ["min", "max"])
def test_threads_may_change_before_the_gradient(name, num_threads):
    rng = np.random.default_rng(1)
    values, destination = rng.integers(0, 5, (60, 1, 1)) / 4, rng.integers(0, 5, (3, 1, 1)) / 4
    indices, adjoints, op = rng.integers(-1, 4, 60), rng.normal(size=(3, 1, 1)), typed(name)
    _, kept = element_by_index.reduce_by_index_keeping(op, (destination,), indices, (values,))
    assert kept is not None
    assert kept[0].dtype == np.int32
    first, gradient = spread(winners_of(name, destination, indices, values), adjoints, 60)
    before = kept[0].copy()
    for threads_then in (num_threads, 2, 1):
        threads.set_num_threads(threads_then)
        (mine,), (other,) = element_by_index.reduce_by_index_vjp(
            op, (adjoints,), (destination,), indices, (values,), kept=kept
        )
        np.testing.assert_array_equal(mine, first)
        np.testing.assert_array_equal(other, gradient)
    np.testing.assert_array_equal(kept[0], before)


def test_most_buckets_without_a_row_keep_their_adjoint():
    destination, values, indices = np.zeros((50, 1, 1)), np.ones((5, 1, 1)), np.arange(5) * 7
    adjoints = np.arange(50.0).reshape(50, 1, 1)
    (first,), (gradient,) = element_by_index.reduce_by_index_vjp(
        typed("max"), (adjoints,), (destination,), indices, (values,)
    )
    assert gradient.ravel().tolist() == [0, 7, 14, 21, 28]
    assert not first.ravel()[indices].any()
    assert first.sum() == adjoints.sum() - gradient.sum()


def test_integers_keep_nothing():
    destination, values = np.zeros((2, 1, 1), np.int64), np.ones((9, 1, 1), np.int64)
    made = element_by_index.reduce_by_index_keeping(typed("max", "int64"), (destination,), np.zeros(9, int), (values,))
    assert made[1] is None
    assert made[0][0].ravel().tolist() == [1, 0]
