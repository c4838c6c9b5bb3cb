"""Large arrays on large pages of memory.

Linux hands out memory page by page, as it is first touched: 4 KiB at a time for about 2 µs each, which is more than
many a kernel needs for what it writes there. Arrays made here lie on pages of 2 MiB where the system has them, and
start with one. What is not touched takes no memory.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import Any

import numpy as np

from derivable.device.cpu.available import shown_bytes

PAGE = 1 << 21
_LARGE = 1 << 20  # bytes below which an array is NumPy's own


def empty_pages(count: int, dtype: Any) -> np.ndarray:
    """An uninitialised array [count]."""
    size = count * np.dtype(dtype).itemsize
    return np.empty(count, dtype) if size < _LARGE else np.frombuffer(pages(size), dtype, count)


def zero_pages(count: int, dtype: Any) -> np.ndarray:
    """An array [count] of zeros."""
    size = count * np.dtype(dtype).itemsize
    return np.zeros(count, dtype) if size < _LARGE else np.frombuffer(pages(size), dtype, count)


def pages(size: int) -> memoryview:
    """Zeroed memory of `size` bytes from the start of a large page on, given back when nobody refers to it.

    Raises MemoryError.
    """
    # Memory that is shared, which is what Python maps by default, would stay common to a process and its forks.
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        mapped = mmap.mmap(-1, size + PAGE, **private)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"an array of {shown_bytes(size)}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Kernels may be built without large pages.
        with contextlib.suppress(OSError):
            mapped.madvise(mmap.MADV_HUGEPAGE)
    start = -np.frombuffer(mapped, np.uint8).ctypes.data % PAGE
    return memoryview(mapped)[start : start + size]
