"""Large arrays on large pages of memory.

Linux hands out memory page by page, as it is first touched: 4 KiB at a time for about 2 µs each, which is more than
many a kernel needs for what it writes there. NumPy asks for pages of 2 MiB for its larger arrays, and the system gives
them from the first whole one on: an array that starts anywhere pays for up to 512 small pages before it and as many
behind it. The arrays made here start and end with a large page. What is not touched takes no memory.
"""

from __future__ import annotations

import numpy as np

_PAGE = 1 << 21
_LARGE = 1 << 20  # bytes below which an array is NumPy's own
_ADVISED = 1 << 22  # bytes from which NumPy asks for large pages


def empty_pages(count: int, dtype: type) -> np.ndarray:
    """An uninitialised array [count]."""
    return _on_pages(np.empty, count, dtype)


def zero_pages(count: int, dtype: type) -> np.ndarray:
    """An array [count] of zeros."""
    return _on_pages(np.zeros, count, dtype)


def _on_pages(make, count: int, dtype: type) -> np.ndarray:
    size = count * np.dtype(dtype).itemsize
    if size < _LARGE:
        return make(count, dtype)
    raw = make(max(-(-size // _PAGE) * _PAGE + _PAGE, _ADVISED), np.uint8)
    start = -raw.ctypes.data % _PAGE
    return raw[start : start + size].view(dtype)
