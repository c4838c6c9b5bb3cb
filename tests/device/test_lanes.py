"""Lanes: one source for scalars and cache lines; exp on lanes."""

import math

import numpy as np
import pytest
from numba import njit

from derivable.circuit.fold.plan import aligned
from derivable.device.cpu.lane_exp import exp_and_complement
from derivable.device.cpu.lanes import count_less, item, load, multiply_add, store
from derivable.device.cpu.pointers import pointer


@njit
def blend(out, a, b, rows):
    for k in range(rows.size):
        row = item(rows, k)
        store(out, row, multiply_add(load(a, row), load(b, row), load(out, row)))


@njit
def exponentials(x, values, complements):
    for row in range(x.shape[0]):
        value, complement = exp_and_complement(load(x, row))
        store(values, row, value)
        store(complements, row, complement)


@pytest.mark.parametrize(("shape", "dtype"), [((6,), "f8"), ((6, 8), "f8"), ((6,), "f4"), ((6, 16), "f4")])
def test_one_source_for_scalars_and_lines(shape, dtype):
    rng = np.random.default_rng(0)
    out, a, b = (rng.integers(-9, 9, shape).astype(dtype) for _ in range(3))
    expected = out.copy()
    rows = np.array([4, 0, 5], np.int32)
    expected[rows] += a[rows] * b[rows]
    blend(out, a, b, rows)
    np.testing.assert_array_equal(out, expected)


def test_lines_are_vector_code():
    blend(np.zeros((2, 8)), np.ones((2, 8)), np.ones((2, 8)), np.zeros(1, np.int32))
    signature = next(s for s in blend.signatures if s[0].ndim == 2 and s[0].dtype.bitwidth == 64)
    assert "<8 x double>" in blend.inspect_llvm(signature)


def test_buffers_start_on_a_cache_line():
    for _ in range(5):
        assert aligned((3, 8), np.float64).ctypes.data % 64 == 0


def test_exp_and_its_complement():
    rng = np.random.default_rng(1)
    x = np.concatenate([-rng.exponential(1, 400), -(10.0 ** rng.uniform(-300, 2.8, 400)), rng.uniform(-700, 700, 400)])
    x = np.concatenate([x, [0.0, -708.0, -709.0, -math.inf, -1e300, 709.0, -math.log(2), -5e-324]])
    x = np.resize(x, (len(x) // 8, 8))
    values, complements = np.empty_like(x), np.empty_like(x)
    exponentials(x, values, complements)
    inside = x >= -708
    np.testing.assert_allclose(values[inside], np.exp(x[inside]), rtol=4e-16)
    assert not values[~inside].any()
    low = x <= 0
    np.testing.assert_allclose(complements[low], -np.expm1(x[low]), rtol=4e-16, atol=0)


@njit
def smaller(row, start, number):
    return count_less(pointer(row), start, number)


def test_counting_smaller_numbers():
    rng = np.random.default_rng(0)
    for largest in (3, 40, 2**31 - 1):
        row = rng.integers(-largest, largest, 40).astype(np.int32)
        for start in range(25):
            part = row[start : start + 16]
            for number in (part[3], np.int32(0), np.int32(2**31 - 1), np.int32(-(2**31))):
                assert smaller(row, start, number) == (part < number).sum()
