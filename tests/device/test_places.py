"""Intrinsics of places in arrays."""

import numpy as np
from numba import njit

from derivable.circuit.fold.plan import aligned
from derivable.device.cpu.building.place_code import count_less
from derivable.device.cpu.building.pointers import pointer


def test_buffers_start_on_a_cache_line():
    for _ in range(5):
        assert aligned((3, 8), np.float64).ctypes.data % 64 == 0


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
