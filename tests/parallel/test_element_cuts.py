"""Copies in chunks and past the caches: every byte of every alignment, and no other one."""

import numpy as np
import pytest

from derivable.device.cpu import threads
from derivable.parallel import element_cuts
from derivable.parallel.streams import whole_lines


@pytest.fixture(params=[(1, 0), (3, 0), (3, 1 << 25)], autouse=True, ids=str)
def _small_chunks(request, monkeypatch):
    before = threads.get_num_threads()
    number, streamed = request.param
    threads.set_num_threads(number)
    monkeypatch.setattr(element_cuts, "STREAMED_BYTES", streamed)
    monkeypatch.setattr(element_cuts, "MIN_COPY", 16)
    yield
    threads.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
@pytest.mark.parametrize("size", [0, 1, 7, 15, 16, 17, 31, 64, 100, 1000])
def test_every_alignment(dtype, size):
    rng = np.random.default_rng(size)
    for start, start_of_source in ((0, 0), (1, 0), (3, 5), (16, 9), (17, 16), (40, 63)):
        memory = rng.integers(0, 2, size + 64).astype(dtype)
        source = rng.integers(0, 2, size + 64).astype(dtype)[start_of_source : start_of_source + size]
        expected = memory.copy()
        expected[start : start + size] = source
        source.flags.writeable = False
        assert element_cuts.copy(memory[start : start + size], source).size == size
        np.testing.assert_array_equal(memory, expected)


def test_a_copy_may_convert():
    target = np.empty((40, 3))
    element_cuts.copy(target, np.arange(120).reshape(40, 3))
    np.testing.assert_array_equal(target, np.arange(120).reshape(40, 3))


def test_clear():
    for start, size in ((0, 0), (1, 5), (3, 100), (8, 1000)):
        memory = np.ones(1100, np.float32)
        element_cuts.clear(memory[start : start + size])
        assert not memory[start : start + size].any()
        assert memory.sum() == 1100 - size


def test_lines_are_whole():
    memory = np.empty(1000, np.uint8)
    for start in range(70):
        for size in (0, 1, 63, 64, 65, 200):
            before, lines = whole_lines(memory[start : start + size])
            assert (memory.ctypes.data + start + before) % 64 == 0 or before == size
            assert size - 64 < before + 64 * lines <= size or lines == 0
