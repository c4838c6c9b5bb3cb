"""Copies of memory past the caches, for arrays that do not fit them.

A processor reads a line before it writes to it, unless it is told that the line will not be needed soon: a copy then
moves two thirds of the bytes. Functions take addresses, not arrays, since lines are the same for all types.
"""

from __future__ import annotations

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.memory import LINE_BYTES
from derivable.device.cpu.places import fence, stream


@kernel("int64 int64 int64 int64")
def copy_lines(start, stop, target, source):
    """Lines start..stop of the memory at address `source` to that at `target`, a multiple of a line's size."""
    for line in range(start, stop):
        stream(target + LINE_BYTES * line, source + LINE_BYTES * line)
    fence()


def whole_lines(array: np.ndarray) -> tuple[int, int]:
    """(bytes before the first whole line of a contiguous array's memory, number of whole lines)"""
    before = min(-array.ctypes.data % LINE_BYTES, array.nbytes)
    return before, (array.nbytes - before) // LINE_BYTES
