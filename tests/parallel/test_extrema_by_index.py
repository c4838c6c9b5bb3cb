"""Minima and maxima by index beside NumPy's `ufunc.at`: kernels of their own look at four rows at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import derivable as dv

UFUNCS = {"min": np.minimum, "max": np.maximum}
NUMBERS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]), st.floats(-2, 2, width=32))


def expected(name, destination, indices, values):
    result = destination.copy()
    inside = (indices >= 0) & (indices < len(destination))
    with np.errstate(invalid="ignore"):
        UFUNCS[name].at(result, indices[inside], values[inside])
    return result


@pytest.mark.parametrize("name", UFUNCS)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@given(data=st.data())
@settings(deadline=None)
def test_any_numbers(name, index_dtype, data):
    rows, buckets = data.draw(st.integers(0, 23)), data.draw(st.integers(1, 4))
    values = data.draw(hnp.arrays(np.float32, rows, elements=NUMBERS))
    destination = data.draw(hnp.arrays(np.float32, buckets, elements=NUMBERS))
    indices = data.draw(hnp.arrays(index_dtype, rows, elements=st.integers(-2, buckets + 1)))
    found = dv.parallel.reduce_by_index(destination, name, indices, values)
    np.testing.assert_array_equal(found, expected(name, destination, indices, values))


@pytest.mark.parametrize("name", UFUNCS)
@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
@pytest.mark.parametrize("rows", [96, 97, 98, 99])
def test_in_any_order(name, order, rows):
    rng = np.random.default_rng(rows)
    values = rng.normal(size=rows)
    if order != "random":
        values = np.sort(values)[:: 1 if order == "ascending" else -1]
    # The ends of int64 are as far outside as -1.
    indices = rng.integers(0, 3, rows)
    indices[[5, 40, 41, -1]] = [np.iinfo(np.int64).min, np.iinfo(np.int64).max, -1, 3]
    destination = np.full(3, -np.inf if name == "max" else np.inf)
    found = dv.parallel.reduce_by_index(destination, name, indices, values)
    np.testing.assert_array_equal(found, expected(name, destination, indices, values))
