"""Entries of compiled kernels: numbers and arrays that they take from Python, and what they give back."""

import gc
import math
import resource
import sys

import numpy as np
import pytest

from derivable.core import splitmix64
from derivable.device.cpu import cpython, linking, object_code
from derivable.device.cpu.building.entries import emitted
from derivable.device.cpu.building.numba_parts import type_of
from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import hash_word


@kernel
def twice(x):
    return 2 * x


@kernel("int32 int64 uint64 float64 uint8 float32")
def numbers(a, b, c, d, e, f):
    return a + twice(b), c, d * 0.5, e, f + np.float32(0.25)


@kernel("int8[] float32[,] bool[] (int64[] int64) int64")
def fill(counts, grid, flags, pair, offset):
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            grid[i, j] = np.float32(math.exp(np.float64(counts[i] + j)))
    for i in range(len(flags)):
        flags[i] = counts[i] > 1
    pair[0][0] += pair[1] + offset


@kernel("float64[] float64")
def is_found(values, number):
    found = False
    for value in values:
        found |= value == number
    return found


@kernel("uint64[]")
def largest(values):
    found = values[0]
    for value in values:
        found = max(found, value)
    return found


@kernel("int64[]")
def middle(values):
    return hash_word(values[len(values) // 2]) & np.int64(255)


@kernel("float64[]")
def ordered(values):
    found = np.empty(len(values))
    for i in range(len(values)):
        found[i] = values[len(values) - 1 - i]
    return found, found.sum() > 1.0


@kernel("int64")
def room(size):
    return np.zeros(size).sum()


@kernel("int64")
def raising(size):
    if size > 3:
        raise ValueError("too many")
    return size


@kernel("bool int64[]")
def denied(flag, out):
    out[0] = not flag


@pytest.fixture(scope="module")
def entry():
    """Compiles a kernel for its one signature."""
    known = {}
    object_code._add_symbols()

    def compiled(made):
        if made.__name__ not in known:
            kinds = object_code.parsed(*made.signatures)
            types = tuple(map(type_of, kinds))
            made.dispatcher.compile(types)
            symbol = object_code.symbol(made.py_func, kinds)
            code = emitted(made.dispatcher.overloads[types], symbol)
            known[made.__name__] = cpython.built_in(made.__name__, linking.link(symbol, code))
        return known[made.__name__]

    return compiled


def test_numbers(entry):
    arguments = np.int32(-3), 4, np.uint64(2**64 - 1), 2.5, np.uint8(200), np.float32(1.5)
    assert entry(numbers)(*arguments) == (5, 2**64 - 1, 1.25, 200, 1.75)
    for four in (np.int64(4), np.int32(4), np.uint8(4)):
        assert entry(numbers)(*arguments[:1], four, *arguments[2:3], np.float64(2.5), *arguments[4:])[0] == 5
    assert entry(raising)(-1) == -1
    for place, other in enumerate([4, 2.5, 7, 7, 7, 1.5]):
        assert entry(numbers)(*arguments[:place], other, *arguments[place + 1 :]) is NotImplemented
    assert entry(numbers)(*arguments[:1], 1 << 63, *arguments[2:]) is NotImplemented
    assert entry(numbers)(*arguments[:-1]) is NotImplemented


def test_arrays_and_tuples(entry):
    counts, grid, flags = np.arange(3, dtype=np.int8), np.zeros((3, 2), np.float32), np.zeros(3, bool)
    pair = np.ones(2, np.int64), 4
    assert entry(fill)(counts, grid, flags, pair, -2) is None
    np.testing.assert_allclose(grid, np.exp([[0, 1], [1, 2], [2, 3]]), rtol=1e-6)
    assert flags.tolist() == [False, False, True]
    assert pair[0].tolist() == [3, 1]
    for other in (np.zeros((2, 3), np.float32).T, np.zeros(6, np.float32), grid.astype(float), [[0.0]]):
        assert entry(fill)(counts, other, flags, pair, 0) is NotImplemented
    for other in (pair[:1], (*pair, 1), list(pair), (pair[0], "four")):
        assert entry(fill)(counts, grid, flags, other, 0) is NotImplemented
    assert pair[0].tolist() == [3, 1]


def test_results(entry):
    assert entry(is_found)(np.array([1.0, 2.0]), 2.0) is True
    assert entry(is_found)(np.array([1.0, 2.0]), 3.0) is False
    assert entry(largest)(np.array([3, 2**63 + 5], np.uint64)) == 2**63 + 5
    hashed = 9 * splitmix64.STEP % (1 << 64)
    assert entry(middle)(np.array([[7, 8], [9, 10]])[1:].ravel()[::-1].copy()) == (hashed ^ hashed >> 32) & 255
    found, is_large = entry(ordered)(np.arange(3.0))
    assert (found.tolist(), is_large) == ([2.0, 1.0, 0.0], True)
    out = np.zeros(1, np.int64)
    for flag, expected in ((True, 0), (np.bool_(False), 1)):
        entry(denied)(flag, out)
        assert out[0] == expected


def test_errors(entry):
    assert entry(room)(3) == 0.0
    with pytest.raises(ValueError, match="negative dimensions not allowed"):
        entry(room)(-3)
    assert entry(raising)(2) == 2
    with pytest.raises(ValueError, match="too many"):
        entry(raising)(np.int64(5))


def test_only_arrays_that_are_written_have_to_be_writeable(entry):
    arrays = [np.arange(3, dtype=np.int8), np.zeros((3, 2), np.float32), np.zeros(3, bool), np.ones(2, np.int64)]
    for array, may_be_read_only in zip(arrays, (True, False, False, False), strict=True):
        array.flags.writeable = False
        counts, grid, flags, first = arrays
        assert (entry(fill)(counts, grid, flags, (first, 4), 1) is None) is may_be_read_only
        array.flags.writeable = True


def test_entries_free_what_they_make_and_take(entry):
    """Objects and memory stay as many, whether arguments fit or not."""
    a, missing, pair = np.arange(1000.0), (np.ones(2, np.int64), "four"), (np.ones(2, np.int64), 4)
    counts, grid, flags = np.arange(3, dtype=np.int8), np.zeros((3, 2), np.float32), np.zeros(3, bool)
    reverse, write = entry(ordered), entry(fill)

    def look():
        for _ in range(20_000):
            reverse(a), reverse(7), write(counts, grid, flags, pair, 1)
            assert write(counts, grid, flags, missing, 1) is write(counts, grid, flags, pair, 1 << 70) is NotImplemented
        objects = a, 7, counts, grid, flags, pair, missing, None, NotImplemented, a.dtype, (1000,), True
        return [sys.getrefcount(x) for x in objects], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    gc.collect()
    (before, size), (after, later) = look(), look()
    assert max(abs(y - x) for x, y in zip(before, after)) < 100
    assert later - size < 4000  # kilobytes, of 160,000 if each array stayed


def test_what_only_numba_has_is_not_emitted():
    @kernel("int64")
    def printing(x):
        print(x)

    types = (type_of("int64"),)
    printing.dispatcher.compile(types)
    with pytest.raises(TypeError, match=r"printing calls .*Py"):
        emitted(printing.dispatcher.overloads[types], "printing")
