"""Where folds of elements are cut for threads, and what is done to whole arrays in parallel."""

from __future__ import annotations

import numpy as np

from derivable.device.cpu.memory import LINE_BYTES, empty
from derivable.device.cpu.threads import run_chunks
from derivable.parallel.streams import copy_lines, whole_lines

# A chunk of fewer numbers than this is not worth a thread.
MIN_CHUNK = 1 << 15
# Fewer columns than this are not worth cutting rows for: two threads would write to one cache line.
MIN_COLUMNS = 16
# A chunk of fewer numbers than this is not worth a thread for copying.
MIN_COPY = 1 << 18
# Arrays of more bytes are not expected in a cache, and are copied past all of them.
STREAMED_BYTES = 1 << 25


def smallest_chunk(num_items: int, num_numbers: int) -> int:
    """The smallest chunk of items, when all items together hold `num_numbers` numbers."""
    return max(1, MIN_CHUNK * num_items // max(1, num_numbers))


def is_wide(width: int) -> bool:
    """Whether columns can be cut."""
    return width >= 2 * MIN_COLUMNS


def narrowest_columns(width: int, num_numbers: int) -> int:
    """The smallest chunk of columns."""
    return max(MIN_COLUMNS, smallest_chunk(width, num_numbers))


def copy(target: np.ndarray, source: np.ndarray) -> np.ndarray:
    """All numbers of a C-contiguous array to another, in parallel."""
    if target.nbytes >= STREAMED_BYTES and target.dtype == source.dtype:
        _copy_past_caches(target, source)
        return target
    to, of = target.reshape(-1), source.reshape(-1)

    def chunk(start: int, stop: int) -> None:
        to[start:stop] = of[start:stop]

    run_chunks(chunk, to.size, MIN_COPY)
    return target


def _copy_past_caches(target: np.ndarray, source: np.ndarray) -> None:
    before, lines = whole_lines(target)
    to, of = target.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8)
    for end in (slice(0, before), slice(before + LINE_BYTES * lines, None)):
        to[end] = of[end]
    least = max(1, MIN_COPY * target.itemsize // LINE_BYTES)
    run_chunks(copy_lines, lines, least, to.ctypes.data + before, of.ctypes.data + before)


def clear(target: np.ndarray) -> np.ndarray:
    """Zeros to all numbers of a C-contiguous array, in parallel."""
    # NumPy fills bytes with the C library's memset, which does not read what it overwrites, and floats with a loop.
    octets = target.reshape(-1).view(np.uint8)

    def chunk(start: int, stop: int) -> None:
        octets[start:stop] = 0

    run_chunks(chunk, octets.size, MIN_COPY * target.itemsize)
    return target


def rows_apart(array: np.ndarray) -> np.ndarray:
    """The array [row, scalar] with two cache lines between its rows."""
    size = array.shape[1]
    apart = empty((len(array), size + 128 // array.itemsize), array.dtype)[:, :size]
    apart[...] = array
    return apart
