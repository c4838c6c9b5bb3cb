"""Every primitive on every device against independent routes: NumPy, SciPy, torch, plain Python."""

import functools
import inspect
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable.parallel
from derivable.algebra import expr
from derivable.algebra.monoid import Monoid
from derivable.algebra.monoids import resolve
from derivable.algebra.semiring import Semiring
from derivable.bridge.fold import Fold
from derivable.core.diagnostics import LayoutError, ShapeError, TypeMismatchError, UnsupportedError
from derivable.device.cpu import threads
from derivable.parallel import dispatch, element_cuts, reference
from derivable.parallel import order as order_of_rows
from derivable.parallel.table import PRIMITIVES

DEVICES = {"reference": reference, "cpu": dispatch}
SOFT = Semiring("probabilistic_or", plus=lambda a, b: a + b - a * b, times=lambda a, b: a * b, zero=0.0, one=1.0)
# name -> (operator, the same in Python, what it makes of nothing)
OPERATORS = {
    "add": ("add", lambda a, b: a + b, 0),
    "mul": ("mul", lambda a, b: a * b, 1),
    "min": ("min", min, math.inf),
    "max": ("max", max, -math.inf),
    "logaddexp": ("logaddexp", np.logaddexp, -math.inf),
    "soft or": (SOFT, lambda a, b: a + b - a * b, 0.0),
    "or": ("or", lambda a, b: a or b, False),
    "and": ("and", lambda a, b: a and b, True),
}


@pytest.fixture(params=DEVICES)
def device(request):
    return DEVICES[request.param]


def test_signatures_are_those_of_the_reference():
    for name in reference.__all__:
        found, expected = (
            list(inspect.signature(call).parameters.values())
            for call in (getattr(derivable.parallel, name), getattr(reference, name))
        )
        # What the faces take `axis` for is to say how another one than the first is folded.
        found = [p for p in found if p.name != "axis"]
        assert [(p.name, p.kind, p.default) for p in found] == [(p.name, p.kind, p.default) for p in expected]


def test_rows_of_the_registry_are_complete():
    assert set(PRIMITIVES) - set(dispatch.__all__) == {"fold_levels"}
    assert {name for name, row in PRIMITIVES.items() if row.fold} == set(reference.__all__)
    for name in set(PRIMITIVES) & set(dispatch.__all__):
        text = getattr(dispatch, name).__doc__
        assert "Law" in text
        assert "Derivative" in text


@pytest.mark.parametrize("name", OPERATORS)
def test_folds_against_plain_python(device, num_threads, name):
    for batch in ((), (3,), (2, 2), (0,)):
        folds_against_plain_python(device, *OPERATORS[name], batch)


def folds_against_plain_python(device, operator, function, neutral, batch):
    rng, n, buckets = np.random.default_rng(2), 23, 6
    # Few distinct values, so that ties and zeros are common.
    values = rng.choice([0.0, 0.25, 0.5, 0.5, 0.75, 1.0, 1.5], (n, *batch))
    values = values > 0.4 if operator in ("or", "and") else values
    if operator == "logaddexp":
        values = np.where(values == 0, -np.inf, values)
    indices, offsets = rng.integers(-1, buckets, n), np.array([0, 0, 4, 5, 5, 15, 23, 23])

    def check(found, groups):
        """One fold of each column for each group of rows."""
        columns = [rows.reshape(len(rows), int(np.prod(batch))).T.tolist() for rows in groups]
        expected = [[functools.reduce(function, column) if column else neutral for column in rows] for rows in columns]
        assert found.dtype == values.dtype
        assert found.shape == (len(groups), *batch)
        np.testing.assert_allclose(found, np.array(expected).reshape(found.shape), rtol=1e-12)

    check(device.segment_reduce(operator, values, offsets), [values[a:b] for a, b in itertools.pairwise(offsets)])
    for first, start in ((np.full((buckets, *batch), neutral, values.dtype), 0), (values[:buckets], 1)):
        groups = [np.concatenate([first[k : k + start], values[indices == k]]) for k in range(buckets)]
        check(device.reduce_by_index(first, operator, indices, values), groups)
    for exclusive in (False, True):
        prefixes = device.scan(operator, values, exclusive=exclusive)
        check(prefixes, [values[: i + (not exclusive)] for i in range(n)])
        backwards = device.scan(operator, values[::-1], exclusive=exclusive, reverse=True)
        np.testing.assert_allclose(backwards[::-1], prefixes, rtol=1e-12)


def pull(kind, operator, adjoint, structure, *operands):
    """The adjoints of the operands: of the values, or of the destination and the values."""
    dtype = operands[0].dtype
    fold = Fold(kind, resolve(operator, dtype).typed((str(dtype),)))
    structure = None if structure is None else np.asarray(structure, np.int64)
    return fold.pull(structure, [np.asarray(adjoint)], operands, fold.apply(structure, operands))


def test_semirings_as_operators(device):
    assert device.segment_reduce("semiring:godel", np.array([0.5]), [0, 0, 1]).tolist() == [0.0, 0.5]
    assert device.segment_reduce("max", np.array([0.5]), [0, 0, 1]).tolist() == [-math.inf, 0.5]
    assert device.scan(SOFT, np.array([0.5, 0.5])).tolist() == [0.5, 0.75]
    times = SOFT.multiplication
    assert device.segment_reduce(times, np.array([0.5, 0.5]), [0, 0, 2]).tolist() == [1.0, 0.25]


def test_integers_and_float32(device):
    values = np.array([5, -3, 2**40])
    assert device.segment_reduce("min", values, [0, 3, 3]).tolist() == [-3, np.iinfo(np.int64).max]
    assert device.scan("add", values).dtype == np.int64
    half = np.array([1, 2, 3], np.float32)
    assert device.segment_reduce("mul", half, [0, 3]).dtype == np.float32
    assert pull("segment_reduce", "mul", np.ones(1, np.float32), [0, 3], half)[0].tolist() == [6, 3, 2]
    big = np.array([2**70, 3**50], dtype=object)
    assert dispatch.segment_reduce("add", big, [0, 2])[0] == 2**70 + 3**50
    assert dispatch.segment_reduce("semiring:counting", big, [0, 2, 2]).tolist() == [2**70 + 3**50, 0]


def test_out_is_written_and_checked():
    values = np.arange(6.0).reshape(3, 2)
    spread = np.full((3, 4), np.nan)[:, ::2]  # not contiguous
    assert dispatch.gather(values, [2, 0, 1], out=spread) is spread
    assert spread.tolist() == [[4, 5], [0, 1], [2, 3]]
    assert dispatch.gather_vjp(values, [2, 0, 2], 3, out=spread).tolist() == [[2, 3], [0, 0], [4, 6]]
    with pytest.raises(ShapeError, match=r"out is float64 \(3, 2\), the result is float64 \(1, 2\)"):
        dispatch.gather(values, [0], out=spread)


def test_bad_arguments(device):
    values = np.arange(3.0)
    with pytest.raises(LayoutError, match="offsets decrease at index 2: 2 is followed by 1"):
        device.segment_reduce("add", values, [0, 2, 1, 3])
    with pytest.raises(LayoutError, match="from 0 to 2, not from 0 to 3"):
        device.segment_reduce("add", values, [0, 2])
    with pytest.raises(LayoutError, match="index 3 at position 1 is not a row of 3"):
        dispatch.gather(values, [0, 3])
    with pytest.raises(LayoutError, match="index -1 at position 0"):
        dispatch.gather(values, [-1])
    with pytest.raises(UnsupportedError, match="did you mean 'logaddexp'"):
        device.scan("logadexp", values)
    with pytest.raises(UnsupportedError, match="or does not take float64"):
        device.scan("or", values)
    with pytest.raises(ShapeError, match="there are 2 indices for 3 values"):
        device.reduce_by_index(np.zeros(2), "add", [0, 1], values)
    with pytest.raises((ShapeError, TypeMismatchError), match="indices have"):
        dispatch.gather(values, [0.5])
    with pytest.raises(ShapeError, match=r"scalar|shape \(\)"):
        device.scan("add", np.float64(1))


def test_empty_input(device):
    none = np.empty((0, 2))
    assert device.segment_reduce("add", none, [0]).shape == (0, 2)
    assert device.segment_reduce("mul", none, [0, 0]).tolist() == [[1, 1]]
    assert device.scan("add", none, exclusive=True).shape == (0, 2)
    assert pull("scan", "add", none, None, none)[0].shape == (0, 2)
    ones = np.ones((2, 2))
    assert device.reduce_by_index(ones, "max", [], none).tolist() == [[1, 1]] * 2
    assert pull("reduce_by_index", "max", ones, [], ones, none)[1].shape == (0, 2)
    assert dispatch.gather(np.ones((3, 2)), []).shape == (0, 2)
    assert dispatch.gather_vjp(none, [], 3).tolist() == [[0, 0]] * 3
    empty = (np.array([], np.int64),)
    assert dispatch.sort(empty)[1].shape == (0,)
    assert dispatch.unique(empty)[1].tolist() == [0]
    assert dispatch.join(empty, empty)[0].shape == (0,)


def test_gather_and_its_transpose():
    rng = np.random.default_rng(9)
    values, indices = rng.normal(size=(5, 2)), rng.integers(0, 5, 8)
    np.testing.assert_array_equal(dispatch.gather(values, indices), values[indices])
    adjoint = rng.normal(size=(8, 2))
    v = torch.tensor(values, requires_grad=True)
    v[torch.tensor(indices)].backward(torch.tensor(adjoint))
    np.testing.assert_allclose(dispatch.gather_vjp(adjoint, indices, 5), v.grad.numpy(), rtol=1e-12)
    np.testing.assert_array_equal(dispatch.gather_jvp(values, indices), values[indices])


KEYS = st.sampled_from(
    [
        (np.int64, st.integers(-3, 3)),
        (np.int64, st.sampled_from([-(2**63), -1, 0, 1, 2**62, 2**63 - 1])),
        (np.int32, st.integers(-2, 2)),
        (np.uint8, st.integers(0, 3)),
        (np.bool_, st.booleans()),
        (np.float64, st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1e-300, 2.0, math.inf, math.nan])),
        (np.float32, st.sampled_from([-1.5, 0.0, 2.0, math.nan])),
    ]
)


@st.composite
def tables(draw, sides=1):
    kinds = draw(st.lists(KEYS, min_size=1, max_size=3))
    result = []
    for _ in range(sides):
        n = draw(st.integers(0, 12))
        result.append(tuple(np.array(draw(st.lists(v, min_size=n, max_size=n)), d) for d, v in kinds))
    return result


def python_key(columns, row):
    return tuple(
        (1, 0.0) if isinstance(v, float) and math.isnan(v) else (0, v) for v in (c[row].item() for c in columns)
    )


@settings(max_examples=150, deadline=None)
@given(tables(), st.sampled_from([0, order_of_rows.MANY]))
def test_sort_and_unique_against_python(table, many):
    with pytest.MonkeyPatch.context() as patch:
        # Few rows too are sorted by digits.
        patch.setattr(order_of_rows, "MANY", many)
        _sort_and_unique(table)


def _sort_and_unique(table):
    (columns,) = table
    n = len(columns[0])
    expected = sorted(range(n), key=lambda row: python_key(columns, row))
    groups = sorted({python_key(columns, row) for row in range(n)})
    ordered, order = dispatch.sort(columns)
    assert order.tolist() == expected
    assert order.dtype == np.int64
    for before, after in zip(columns, ordered):
        np.testing.assert_array_equal(after, before[expected])
        assert after.dtype == before.dtype
    distinct, offsets = dispatch.unique(ordered)
    assert [python_key(distinct, g) for g in range(len(offsets) - 1)] == groups
    for column, one in zip(ordered, distinct):
        np.testing.assert_array_equal(np.repeat(one, np.diff(offsets)), column)


@settings(max_examples=150, deadline=None)
@given(tables(2))
def test_join_against_nested_loops(table):
    left, right = (dispatch.sort(columns)[0] for columns in table)
    expected = [
        (i, j) for i in range(len(left[0])) for j in range(len(right[0])) if python_key(left, i) == python_key(right, j)
    ]
    a, b = dispatch.join(left, right)
    assert list(zip(a.tolist(), b.tolist())) == expected
    assert a.dtype == b.dtype == np.int64


def test_a_large_sort_is_numpys():
    rng = np.random.default_rng(10)
    columns = (rng.integers(0, 50, 20000), rng.normal(size=20000), rng.integers(-(2**62), 2**62, 20000))
    np.testing.assert_array_equal(dispatch.sort(columns)[1], np.lexsort(columns[::-1]))


def test_rows_carry_adjoints():
    values = np.array([3.0, 1.0, 3.0])
    (ordered,), order = dispatch.sort((values,))
    adjoint = np.array([10.0, 20.0, 30.0])
    (back,) = dispatch.sort_vjp((adjoint,), order)
    assert back.tolist() == [20, 10, 30]
    assert dispatch.sort_jvp((back, None), order)[0].tolist() == adjoint.tolist()
    assert dispatch.sort_vjp((None,), order) == (None,)
    _, offsets = dispatch.unique((ordered,))
    assert dispatch.unique_vjp((np.array([1.0, 2.0]), None), offsets)[0].tolist() == [1, 2, 0]
    assert dispatch.unique_jvp((adjoint,), offsets)[0].tolist() == [10, 20]


def test_bad_columns():
    with pytest.raises(LayoutError, match="row 2 is smaller than row 1"):
        dispatch.unique((np.array([1, 3, 2]),))
    with pytest.raises(ShapeError, match="is empty, so the number of rows is unknown"):
        dispatch.sort(())
    with pytest.raises(ShapeError, match="column 1 of columns has 2 rows, column 0 has 3"):
        dispatch.sort((np.arange(3), np.arange(2)))
    with pytest.raises(ShapeError, match="one array"):
        dispatch.sort(np.arange(3))
    with pytest.raises(ShapeError, match="int64 on the left and float64 on the right"):
        dispatch.join((np.arange(3),), (np.arange(3.0),))
    with pytest.raises(ShapeError, match="1 key columns, the right side 2"):
        dispatch.join((np.arange(3),), (np.arange(3), np.arange(3)))


def test_the_same_bits_again(monkeypatch):
    """For one input and number of threads, whatever the scheduling."""
    monkeypatch.setattr(element_cuts, "MIN_CHUNK", 100)
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(4)
        rng = np.random.default_rng(11)
        values, indices = rng.normal(size=(5000, 2)), rng.integers(0, 9, 5000)
        zeros = np.full((9, 2), -np.inf)
        first = dispatch.reduce_by_index(zeros, "logaddexp", indices, values)
        adjoint = rng.normal(size=first.shape)
        first_adjoint = pull("reduce_by_index", "logaddexp", adjoint, indices, zeros, values)[1]
        for _ in range(10):
            assert np.array_equal(dispatch.reduce_by_index(zeros, "logaddexp", indices, values), first)
            again = pull("reduce_by_index", "logaddexp", adjoint, indices, zeros, values)[1]
            assert np.array_equal(again, first_adjoint)
    finally:
        threads.set_num_threads(before)


def test_an_operator_of_ones_own():
    bounded = Monoid("bounded_add", lambda a, b: expr.minimum(a + b, 1.0), "f", 0.0)
    values = np.array([0.3, 0.4, 0.5, 0.1])
    for device in DEVICES.values():
        np.testing.assert_allclose(device.scan(bounded, values), [0.3, 0.7, 1.0, 1.0])
    assert pull("segment_reduce", bounded, np.ones(1), [0, 4], values)[0].tolist() == [0, 0, 0, 0]
    assert pull("segment_reduce", bounded, np.ones(2), [0, 2, 4], values)[0].tolist() == [1, 1, 1, 1]
