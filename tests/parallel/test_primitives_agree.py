"""Every primitive on every device against independent routes: NumPy, SciPy, torch, plain Python."""

import inspect
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from derivable.algebra import expr
from derivable.algebra.monoid import Monoid
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import LayoutError, ShapeError, UnsupportedError
from derivable.device import primitives as picked
from derivable.device.cpu import element_cuts, threads
from derivable.device.cpu import primitives as cpu
from derivable.parallel import reference
from derivable.parallel.primitives import PRIMITIVES

DEVICES = {"reference": reference, "cpu": cpu}
SOFT = Semiring("probabilistic_or", plus=lambda a, b: a + b - a * b, times=lambda a, b: a * b, zero=0.0, one=1.0)
FLOAT_OPERATORS = ["add", "mul", "min", "max", "logaddexp", SOFT]


@pytest.fixture(params=DEVICES)
def device(request):
    return DEVICES[request.param]


def plain(operator, a, b):
    if isinstance(operator, Semiring):
        return a + b - a * b
    return {
        "add": lambda: a + b,
        "mul": lambda: a * b,
        "min": lambda: min(a, b),
        "max": lambda: max(a, b),
        "logaddexp": lambda: np.logaddexp(a, b),
        "or": lambda: a or b,
        "and": lambda: a and b,
    }[operator]()


EMPTY = {"add": 0, "mul": 1, "min": math.inf, "max": -math.inf, "logaddexp": -math.inf, "or": False, "and": True}


def fold(operator, values):
    result = None
    for value in values:
        result = value if result is None else plain(operator, result, value)
    if result is None:
        return 0.0 if isinstance(operator, Semiring) else EMPTY[operator]
    return result


def name(operator):
    return operator if isinstance(operator, str) else operator.name


def values_for(operator, n, batch, seed, dtype="float64"):
    rng = np.random.default_rng(seed)
    # Few distinct values, so that ties and zeros are common.
    values = rng.choice([0.0, 0.25, 0.5, 0.5, 0.75, 1.0, 1.5], (n, *batch))
    if operator == "logaddexp":
        values = np.where(values == 0, -np.inf, values)
    return values.astype(dtype)


def test_signatures_are_those_of_the_reference():
    for offered in (cpu, picked):
        assert set(offered.__all__) == set(reference.__all__)
        for function in reference.__all__:
            assert inspect.signature(getattr(offered, function)) == inspect.signature(getattr(reference, function))


def test_rows_of_the_registry_are_complete():
    rows = [primitive for primitive in PRIMITIVES.values() if hasattr(reference, primitive.name)]
    assert {primitive.name for primitive in PRIMITIVES.values()} - {row.name for row in rows} == {"fold_levels"}
    for primitive in rows:
        assert primitive.reference is getattr(reference, primitive.name)
        assert primitive.reference.__doc__
        assert "Law" in primitive.reference.__doc__
        assert "Derivative" in primitive.reference.__doc__
        assert (primitive.vjp is None) == (primitive.jvp is None)
        if primitive.vjp is not None:
            assert primitive.vjp is getattr(reference, f"{primitive.name}_vjp")


@pytest.mark.parametrize("operator", [*FLOAT_OPERATORS, "or", "and"], ids=name)
@pytest.mark.parametrize("batch", [(), (3,), (2, 2), (0,)], ids=str)
def test_folds_against_plain_python(device, num_threads, operator, batch):
    n, buckets = 23, 6
    values = values_for(operator, n, batch, 1)
    if operator in ("or", "and"):
        values = values > 0.4
    rng = np.random.default_rng(2)
    indices = rng.integers(-1, buckets, n)
    offsets = np.array([0, 0, 4, 5, 5, 15, 23, 23])
    destination = values[:buckets]

    def column_fold(rows):
        rows = np.asarray(rows)
        flat = rows.reshape(len(rows), int(np.prod(batch)))
        return np.array([fold(operator, flat[:, j].tolist()) for j in range(flat.shape[1])]).reshape(batch)

    segments = device.segment_reduce(values, offsets, operator)
    assert segments.dtype == values.dtype
    assert segments.shape == PRIMITIVES["segment_reduce"].shape_rule(values.shape, offsets.shape)
    expected = [column_fold(values[a:b]) for a, b in itertools.pairwise(offsets)]
    np.testing.assert_allclose(segments, np.array(expected).reshape(segments.shape), rtol=1e-12)

    histogram = device.reduce_by_index(values, indices, buckets, operator)
    expected = [column_fold(values[indices == k]) for k in range(buckets)]
    np.testing.assert_allclose(histogram, np.array(expected).reshape(histogram.shape), rtol=1e-12)
    assert histogram.shape == PRIMITIVES["reduce_by_index"].shape_rule(values.shape, indices.shape, buckets)
    with_destination = device.reduce_by_index(values, indices, buckets, operator, destination=destination)
    expected = [column_fold(np.concatenate([destination[k : k + 1], values[indices == k]])) for k in range(buckets)]
    np.testing.assert_allclose(with_destination, np.array(expected).reshape(histogram.shape), rtol=1e-12)

    for exclusive in (False, True):
        prefixes = device.scan(values, operator, exclusive=exclusive)
        expected = [column_fold(values[: i + (not exclusive)]) for i in range(n)]
        np.testing.assert_allclose(prefixes, np.array(expected).reshape(values.shape), rtol=1e-12)


def dual(function, values, tangent):
    step = 1e-7
    with np.errstate(invalid="ignore"):  # empty segments of min and max are infinite
        return (function(values + step * tangent) - function(values - step * tangent)) / (2 * step)


@pytest.mark.parametrize("operator", FLOAT_OPERATORS, ids=name)
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_derivatives_against_finite_differences(device, num_threads, operator, batch):
    rng = np.random.default_rng(3)
    n, buckets = 19, 5
    values = rng.uniform(0.1, 2, (n, *batch))
    if operator == "mul":
        values[rng.random(values.shape) < 0.2] = 0
    destination = rng.uniform(0.1, 2, (buckets, *batch))
    indices = rng.integers(-1, buckets, n)
    offsets = np.array([0, 0, 4, 5, 5, 15, 19, 19])
    tangent = rng.normal(size=values.shape)
    destination_tangent = rng.normal(size=destination.shape)

    def check(forward, jvp, vjp, shape):
        adjoint = rng.normal(size=shape)
        slope = dual(forward, values, tangent)
        slope = np.where(np.isfinite(slope), slope, 0)
        np.testing.assert_allclose(jvp(), slope, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose((vjp(adjoint) * tangent).sum(), (adjoint * slope).sum(), rtol=1e-5, atol=1e-6)

    check(
        lambda v: device.segment_reduce(v, offsets, operator),
        lambda: device.segment_reduce_jvp(tangent, values, offsets, operator),
        lambda a: device.segment_reduce_vjp(a, values, offsets, operator),
        (7, *batch),
    )
    check(
        lambda v: device.reduce_by_index(v, indices, buckets, operator),
        lambda: device.reduce_by_index_jvp(tangent, values, indices, buckets, operator),
        lambda a: device.reduce_by_index_vjp(a, values, indices, buckets, operator)[0],
        (buckets, *batch),
    )
    for exclusive in (False, True):
        check(
            lambda v, e=exclusive: device.scan(v, operator, exclusive=e),
            lambda e=exclusive: device.scan_jvp(tangent, values, operator, exclusive=e),
            lambda a, e=exclusive: device.scan_vjp(a, values, operator, exclusive=e),
            values.shape,
        )
    adjoint = rng.normal(size=destination.shape)
    to_values, to_destination = device.reduce_by_index_vjp(
        adjoint, values, indices, buckets, operator, destination=destination
    )
    step = 1e-7
    moved = [
        device.reduce_by_index(
            values + s * tangent, indices, buckets, operator, destination=destination + s * destination_tangent
        )
        for s in (-step, step)
    ]
    slope = (moved[1] - moved[0]) / (2 * step)
    total = (to_values * tangent).sum() + (to_destination * destination_tangent).sum()
    np.testing.assert_allclose(total, (adjoint * slope).sum(), rtol=1e-5, atol=1e-6)
    forward = device.reduce_by_index_jvp(
        tangent,
        values,
        indices,
        buckets,
        operator,
        destination=destination,
        destination_tangent=destination_tangent,
    )
    np.testing.assert_allclose(forward, slope, rtol=1e-5, atol=1e-6)
    assert (to_values[indices < 0] == 0).all()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 40),
    st.integers(1, 6),
    st.sampled_from(FLOAT_OPERATORS),
    st.sampled_from([(), (2,)]),
    st.integers(0, 1000),
)
@example(6, 1, "min", (), 0)
def test_the_kernels_are_the_reference(n, buckets, operator, batch, seed):
    """Ties and -inf included: the same derivative of every element, not only the same sums."""
    values = values_for(operator, n, batch, seed)
    rng = np.random.default_rng(seed)
    indices = rng.integers(-1, buckets + 1, n)
    cuts = np.sort(rng.integers(0, n + 1, 4))
    offsets = np.concatenate([[0], cuts, [n]])
    destination = values_for(operator, buckets, batch, seed + 1)
    before, before_chunk = threads.get_num_threads(), element_cuts.MIN_CHUNK
    try:
        for count in (1, 3, 4):
            threads.set_num_threads(count)
            element_cuts.MIN_CHUNK = 2
            for start in (None, destination):
                adjoint = rng.normal(size=(buckets, *batch))
                pair = [
                    d.reduce_by_index_vjp(adjoint, values, indices, buckets, operator, destination=start)
                    for d in (reference, cpu)
                ]
                np.testing.assert_allclose(pair[1][0], pair[0][0], rtol=1e-9, atol=1e-12)
                if start is not None:
                    np.testing.assert_allclose(pair[1][1], pair[0][1], rtol=1e-9, atol=1e-12)
            adjoint = rng.normal(size=(5, *batch))
            a, b = (d.segment_reduce_vjp(adjoint, values, offsets, operator) for d in (reference, cpu))
            np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14)
            adjoint = rng.normal(size=values.shape)
            for exclusive in (False, True):
                a, b = (d.scan_vjp(adjoint, values, operator, exclusive=exclusive) for d in (reference, cpu))
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
            assert np.isfinite(a).all()
    finally:
        threads.set_num_threads(before)
        element_cuts.MIN_CHUNK = before_chunk


@pytest.mark.parametrize(("operator", "peer"), [("add", "sum"), ("mul", "prod"), ("max", "amax"), ("min", "amin")])
def test_histogram_and_gradient_against_torch(device, operator, peer):
    rng = np.random.default_rng(5)
    values = rng.permutation(np.linspace(-2, 2, 50))  # distinct: torch splits ties
    values[7] = 0
    indices = rng.integers(0, 7, 50)
    destination = rng.uniform(-1, 1, 7)
    adjoint = rng.normal(size=7)
    v, d = torch.tensor(values, requires_grad=True), torch.tensor(destination, requires_grad=True)
    result = d.scatter_reduce(0, torch.tensor(indices), v, peer)
    result.backward(torch.tensor(adjoint))
    ours = device.reduce_by_index(values, indices, 7, operator, destination=destination)
    np.testing.assert_allclose(ours, result.detach().numpy(), rtol=1e-12)
    grads = device.reduce_by_index_vjp(adjoint, values, indices, 7, operator, destination=destination)
    np.testing.assert_allclose(grads[0], v.grad.numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(grads[1], d.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_scans_against_numpy_and_torch(device):
    values = np.random.default_rng(6).uniform(-1, 1, (40, 3))
    np.testing.assert_allclose(device.scan(values, "add"), np.cumsum(values, 0), rtol=1e-12)
    np.testing.assert_allclose(device.scan(values, "mul"), np.cumprod(values, 0), rtol=1e-12)
    np.testing.assert_array_equal(device.scan(values, "max"), np.maximum.accumulate(values, 0))
    v = torch.tensor(values, requires_grad=True)
    result = torch.logcumsumexp(v, 0)
    adjoint = np.random.default_rng(7).normal(size=values.shape)
    result.backward(torch.tensor(adjoint))
    np.testing.assert_allclose(device.scan(values, "logaddexp"), result.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(device.scan_vjp(adjoint, values, "logaddexp"), v.grad.numpy(), rtol=1e-9, atol=1e-12)
    zeros = values.copy()
    zeros[[5, 9]] = 0
    v = torch.tensor(zeros, requires_grad=True)
    torch.cumprod(v, 0).backward(torch.tensor(adjoint))
    np.testing.assert_allclose(device.scan_vjp(adjoint, zeros, "mul"), v.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_logsumexp_of_segments(device):
    values = np.random.default_rng(8).normal(size=(30,)) * 300
    values[10:14] = -np.inf
    values[3] = -np.inf
    offsets = np.array([0, 8, 10, 14, 14, 30])
    result = device.segment_reduce(values, offsets, "logaddexp")
    expected = [logsumexp(values[a:b]) if b > a else -np.inf for a, b in itertools.pairwise(offsets)]
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    gradient = device.segment_reduce_vjp(np.ones(5), values, offsets, "logaddexp")
    shares = [np.exp(values[a:b] - r) for a, b, r in zip(offsets, offsets[1:], result) if np.isfinite(r)]
    np.testing.assert_allclose(gradient[:10], np.concatenate(shares[:2]), rtol=1e-9, atol=1e-300)
    assert (gradient[10:14] == 0).all()


def test_ties_go_to_the_smallest_index(device):
    values = np.array([1.0, 3.0, 3.0, 2.0, 3.0])
    assert device.segment_reduce_vjp(np.ones(1), values, [0, 5], "max").tolist() == [0, 1, 0, 0, 0]
    assert device.segment_reduce_vjp(np.ones(1), -values, [0, 5], "min").tolist() == [0, 1, 0, 0, 0]
    assert device.scan_vjp(np.array([0, 0, 0, 0, 1.0]), values, "max").tolist() == [0, 1, 0, 0, 0]
    ones = np.ones(5, int) * 0
    assert device.reduce_by_index_vjp(np.ones(1), values, ones, 1, "max")[0].tolist() == [0, 1, 0, 0, 0]
    with_destination = device.reduce_by_index_vjp(np.ones(1), values, ones, 1, "max", destination=np.array([3.0]))
    assert with_destination[0].tolist() == [0] * 5
    assert with_destination[1].tolist() == [1]
    lowest = np.full(3, -np.inf)
    assert device.segment_reduce_vjp(np.ones(1), lowest, [0, 3], "max").tolist() == [1, 0, 0]
    assert device.reduce_by_index_vjp(np.ones(1), lowest, [0, 0, 0], 1, "max")[0].tolist() == [1, 0, 0]


def test_semirings_as_operators(device):
    assert device.segment_reduce(np.array([0.5]), [0, 0, 1], "semiring:godel").tolist() == [0.0, 0.5]
    assert device.segment_reduce(np.array([0.5]), [0, 0, 1], "max").tolist() == [-math.inf, 0.5]
    assert device.scan(np.array([0.5, 0.5]), SOFT).tolist() == [0.5, 0.75]
    times = SOFT.multiplication
    assert device.segment_reduce(np.array([0.5, 0.5]), [0, 0, 2], times).tolist() == [1.0, 0.25]


def test_integers_and_float32(device):
    values = np.array([5, -3, 2**40])
    assert device.segment_reduce(values, [0, 3, 3], "min").tolist() == [-3, np.iinfo(np.int64).max]
    assert device.scan(values, "add").dtype == np.int64
    half = np.array([1, 2, 3], np.float32)
    assert device.segment_reduce(half, [0, 3], "mul").dtype == np.float32
    assert device.segment_reduce_vjp(np.ones(1), half, [0, 3], "mul").tolist() == [6, 3, 2]
    big = np.array([2**70, 3**50], dtype=object)
    assert picked.segment_reduce(big, [0, 2], "add")[0] == 2**70 + 3**50
    assert picked.segment_reduce(big, [0, 2, 2], "semiring:counting").tolist() == [2**70 + 3**50, 0]


def test_out_is_written_and_checked(device):
    values = np.arange(6.0).reshape(3, 2)
    out = np.full((2, 2), np.nan)
    assert device.segment_reduce(values, [0, 1, 3], "add", out=out) is out
    assert out.tolist() == [[0, 1], [6, 8]]
    spread = np.full((3, 4), np.nan)[:, ::2]  # not contiguous
    assert device.scan(values, "add", out=spread) is spread
    assert spread.tolist() == [[0, 1], [2, 4], [6, 9]]
    assert device.gather(values, [2, 0, 1], out=spread).tolist() == [[4, 5], [0, 1], [2, 3]]
    with pytest.raises(ShapeError, match=r"out is float64 \(2, 2\), the result is float64 \(1, 2\)"):
        device.segment_reduce(values, [0, 3], "add", out=out)


def test_bad_arguments(device):
    values = np.arange(3.0)
    with pytest.raises(LayoutError, match="offsets decrease at index 2: 2 is followed by 1"):
        device.segment_reduce(values, [0, 2, 1, 3], "add")
    with pytest.raises(LayoutError, match="from 0 to 2, not from 0 to 3"):
        device.segment_reduce(values, [0, 2], "add")
    with pytest.raises(LayoutError, match="index 3 at position 1 is not a row of 3"):
        device.gather(values, [0, 3])
    with pytest.raises(LayoutError, match="index -1 at position 0"):
        device.gather(values, [-1])
    with pytest.raises(UnsupportedError, match="did you mean 'logaddexp'"):
        device.scan(values, "logadexp")
    with pytest.raises(UnsupportedError, match="or does not take float64"):
        device.scan(values, "or")
    with pytest.raises(UnsupportedError, match="has no derivative"):
        device.scan_vjp(np.ones(3, bool), np.ones(3, bool), "or")
    with pytest.raises(UnsupportedError, match="has no derivative"):
        device.segment_reduce_vjp(np.ones(1), np.arange(3), [0, 3], "add")
    with pytest.raises(ShapeError, match="3 values and 2 indices"):
        device.reduce_by_index(values, [0, 1], 2, "add")
    with pytest.raises(ShapeError, match=r"adjoint has shape \(2,\), not \(1,\)"):
        device.segment_reduce_vjp(np.ones(2), values, [0, 3], "add")
    with pytest.raises(ShapeError, match="indices have shape"):
        device.gather(values, [0.5])
    with pytest.raises(ShapeError, match="scalar"):
        device.scan(np.float64(1), "add")


def test_empty_input(device):
    none = np.empty((0, 2))
    assert device.segment_reduce(none, [0], "add").shape == (0, 2)
    assert device.segment_reduce(none, [0, 0], "mul").tolist() == [[1, 1]]
    assert device.scan(none, "add", exclusive=True).shape == (0, 2)
    assert device.scan_vjp(none, none, "add").shape == (0, 2)
    assert device.reduce_by_index(none, [], 2, "max").tolist() == [[-math.inf] * 2] * 2
    assert device.reduce_by_index_vjp(np.ones((2, 2)), none, [], 2, "max")[0].shape == (0, 2)
    assert device.gather(np.ones((3, 2)), []).shape == (0, 2)
    assert device.gather_vjp(none, [], 3).tolist() == [[0, 0]] * 3
    empty = (np.array([], np.int64),)
    assert device.sort(empty)[1].shape == (0,)
    assert device.unique(empty)[1].tolist() == [0]
    assert device.join(empty, empty)[0].shape == (0,)


def test_gather_and_its_transpose(device):
    rng = np.random.default_rng(9)
    values, indices = rng.normal(size=(5, 2)), rng.integers(0, 5, 8)
    np.testing.assert_array_equal(device.gather(values, indices), values[indices])
    adjoint = rng.normal(size=(8, 2))
    v = torch.tensor(values, requires_grad=True)
    v[torch.tensor(indices)].backward(torch.tensor(adjoint))
    np.testing.assert_allclose(device.gather_vjp(adjoint, indices, 5), v.grad.numpy(), rtol=1e-12)
    np.testing.assert_array_equal(device.gather_jvp(values, indices), values[indices])


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
@given(tables())
def test_sort_and_unique_against_python(table):
    (columns,) = table
    n = len(columns[0])
    expected = sorted(range(n), key=lambda row: python_key(columns, row))
    groups = sorted({python_key(columns, row) for row in range(n)})
    for device in DEVICES.values():
        ordered, order = device.sort(columns)
        assert order.tolist() == expected
        assert order.dtype == np.int64
        for before, after in zip(columns, ordered):
            np.testing.assert_array_equal(after, before[expected])
            assert after.dtype == before.dtype
        distinct, offsets = device.unique(ordered)
        assert [python_key(distinct, g) for g in range(len(offsets) - 1)] == groups
        for column, one in zip(ordered, distinct):
            np.testing.assert_array_equal(np.repeat(one, np.diff(offsets)), column)


@settings(max_examples=150, deadline=None)
@given(tables(2), st.integers(1, 3))
def test_join_against_nested_loops(table, num_threads):
    left, right = (reference.sort(columns)[0] for columns in table)
    expected = [
        (i, j) for i in range(len(left[0])) for j in range(len(right[0])) if python_key(left, i) == python_key(right, j)
    ]
    from derivable.device.cpu import rows

    before, before_chunk = threads.get_num_threads(), rows.MIN_CHUNK
    try:
        threads.set_num_threads(num_threads)
        rows.MIN_CHUNK = 2
        for device in DEVICES.values():
            a, b = device.join(left, right)
            assert list(zip(a.tolist(), b.tolist())) == expected
    finally:
        threads.set_num_threads(before)
        rows.MIN_CHUNK = before_chunk


def test_a_large_sort_is_numpys():
    rng = np.random.default_rng(10)
    columns = (rng.integers(0, 50, 20000), rng.normal(size=20000), rng.integers(-(2**62), 2**62, 20000))
    np.testing.assert_array_equal(cpu.sort(columns)[1], np.lexsort(columns[::-1]))


def test_rows_carry_adjoints(device):
    values = np.array([3.0, 1.0, 3.0])
    (ordered,), order = device.sort((values,))
    adjoint = np.array([10.0, 20.0, 30.0])
    (back,) = device.sort_vjp((adjoint,), order)
    assert back.tolist() == [20, 10, 30]
    assert device.sort_jvp((back, None), order)[0].tolist() == adjoint.tolist()
    assert device.sort_vjp((None,), order) == (None,)
    _, offsets = device.unique((ordered,))
    assert device.unique_vjp((np.array([1.0, 2.0]), None), offsets)[0].tolist() == [1, 2, 0]
    assert device.unique_jvp((adjoint,), offsets)[0].tolist() == [10, 20]


def test_bad_columns(device):
    with pytest.raises(LayoutError, match="row 2 is smaller than row 1"):
        device.unique((np.array([1, 3, 2]),))
    with pytest.raises(ShapeError, match="is empty, so the number of rows is unknown"):
        device.sort(())
    with pytest.raises(ShapeError, match="column 1 of columns has 2 rows, column 0 has 3"):
        device.sort((np.arange(3), np.arange(2)))
    with pytest.raises(ShapeError, match="one array"):
        device.sort(np.arange(3))
    with pytest.raises(ShapeError, match="int64 on the left and float64 on the right"):
        device.join((np.arange(3),), (np.arange(3.0),))
    with pytest.raises(ShapeError, match="1 key columns, the right side 2"):
        device.join((np.arange(3),), (np.arange(3), np.arange(3)))


def test_the_same_bits_again(monkeypatch):
    """For one input and number of threads, whatever the scheduling."""
    monkeypatch.setattr(element_cuts, "MIN_CHUNK", 100)
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(4)
        rng = np.random.default_rng(11)
        values, indices = rng.normal(size=(5000, 2)), rng.integers(0, 9, 5000)
        first = cpu.reduce_by_index(values, indices, 9, "logaddexp")
        adjoint = rng.normal(size=first.shape)
        first_adjoint = cpu.reduce_by_index_vjp(adjoint, values, indices, 9, "logaddexp")[0]
        for _ in range(10):
            assert np.array_equal(cpu.reduce_by_index(values, indices, 9, "logaddexp"), first)
            again = cpu.reduce_by_index_vjp(adjoint, values, indices, 9, "logaddexp")[0]
            assert np.array_equal(again, first_adjoint)
    finally:
        threads.set_num_threads(before)


def test_an_operator_of_ones_own():
    bounded = Monoid("bounded_add", lambda a, b: expr.minimum(a + b, 1.0), "f", 0.0)
    values = np.array([0.3, 0.4, 0.5, 0.1])
    for device in DEVICES.values():
        np.testing.assert_allclose(device.scan(values, bounded), [0.3, 0.7, 1.0, 1.0])
        assert device.segment_reduce_vjp(np.ones(1), values, [0, 4], bounded).tolist() == [0, 0, 0, 0]
        assert device.segment_reduce_vjp(np.ones(2), values, [0, 2, 4], bounded).tolist() == [1, 1, 1, 1]
