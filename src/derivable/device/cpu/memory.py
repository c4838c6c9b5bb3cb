"""Arrays on memory that was used before, so that nobody waits for its pages again.

What a training step makes and drops, the next one makes anew. Memory that goes back to the system in between costs a
page fault for each 4 KiB at its next first touch, ten times what filling them takes. So what large arrays leave behind
is kept here for the next ones.

Arrays whose length nobody knows yet take `longer`: they get longer where they are, on addresses that were reserved, so
that a log of a gigabyte is neither copied nor there twice.

What is kept and what is in use together never exceed what was in use at once lately, by more than a quarter; "lately"
is the last 10 to 20 seconds. DERIVABLE_MEMORY_CACHE limits the bytes that are kept (0 keeps none), and
`empty_cache` gives them back.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

from derivable.core.diagnostics import DomainError
from derivable.device.cpu.available import available_bytes, has_limited_addresses, shown_bytes
from derivable.device.cpu.pages import PAGE, pages

# Of a cache line.
LINE_BYTES = 64
# Arrays of fewer bytes are NumPy's own: malloc serves them from memory that it keeps.
SMALLEST = 1 << 15
_FEW = SMALLEST >> 4
# Arrays from this size on, in bytes, reserve addresses to get longer on, as many times their bytes as the system lends.
# An address costs nothing on Linux before it is touched.
_RESERVING = 1 << 22
_RESERVES = (1024, 64, 4) if sys.platform == "linux" else ()
# From this size on, in bytes, memory is taken only if the system says that it is available: it lends more than it has,
# and ends the process that touches it.
_ASKING = 1 << 26
# Memory that is always allowed to stay, whatever the use was.
_FLOOR = 1 << 25
_SECONDS = 10.0
# Checks the limits of the work on time and memory: called with a number of bytes before a large array of that size is
# made, and with 0 between parts of a long pass over one. It raises what ends the work.
expect_bytes: ContextVar[Callable[[int], Any] | None] = ContextVar("expect_bytes", default=None)


# Which arrays a block is for: its bytes, and if it has addresses to spare the type of a row, since arrays of different
# types need different numbers of them.
_Key = tuple[int, tuple | None]


class _Block:
    """Memory, of which the first `used` bytes have been lent; the rest was never touched and holds zeros."""

    __slots__ = ("key", "used", "view")

    def __init__(self, key: _Key, view: memoryview, used: int):
        self.key, self.view, self.used = key, view, used


class _Lease(weakref.ref):
    """Tells when the array on a block has gone, with all its views."""

    __slots__ = ("block",)
    block: _Block


# Arrays die in any thread and at any moment, also while this one holds the lock. So they only leave their leases in
# `_returned`, and whoever asks for memory next sorts their blocks in.
_lock = threading.Lock()
_leases: dict[int, _Lease] = {}
_returned: deque[_Lease] = deque()
_free: dict[_Key, deque[tuple[float, _Block]]] = {}
_in_use = _kept = _peak = _last_peak = 0
_window = 0.0
_limit: int | None = None


def expect(size: int) -> None:
    """Check the limits before an array of `size` bytes is made, if it is large. All of it is touched before the next
    check, such as a hash that doubles or all rows of a set."""
    if size >= _RESERVING:
        look(size)


def look(size: int = 0) -> None:
    """Check the limits of the work before `size` bytes are made, or between parts of a pass over a large array."""
    if (expected := expect_bytes.get()) is not None:
        expected(size)


def empty(shape: int | Sequence[int], dtype: Any) -> np.ndarray:
    """`np.empty` in C order."""
    # No scalar has more than 16 bytes; looking at the type takes longer than all the rest.
    if isinstance(shape, int):
        if shape < _FEW:
            return np.empty(shape, dtype)
        shape = (shape,)
    shape = tuple(shape)
    count = math.prod(shape)
    if count < _FEW:
        return np.empty(shape, dtype)
    dtype = np.dtype(dtype)
    if count * dtype.itemsize >= 1 << 63:
        # NumPy calls this a wrong size.
        raise MemoryError(f"an array of {count} values")
    if count * dtype.itemsize < SMALLEST or dtype.hasobject:
        return np.empty(shape, dtype)
    expect(count * dtype.itemsize)
    size = _rounded(count * dtype.itemsize)
    array = _leased(_take((size, None), size), dtype, count)
    return array if len(shape) == 1 else array.reshape(shape)


def maker(shape: Sequence[int], dtype: Any) -> Callable[[], np.ndarray]:
    """A function that makes arrays of one form: small ones by NumPy, larger ones as `empty` does."""
    return partial(np.empty if math.prod(shape) < _FEW else empty, tuple(shape), np.dtype(dtype))


def copied(array: np.ndarray) -> np.ndarray:
    """A copy in C order."""
    if array.size < _FEW:
        return array.copy()
    made = empty(array.shape, array.dtype)
    made[...] = array
    return made


def longer(array: np.ndarray, count: int, kept: int, cleared: bool = False) -> np.ndarray:
    """An array of `count` rows, at least len(array), which begins with the first `kept` rows of `array`.

    cleared  whether the other rows are zeros; those of `array` must be already
    It may lie on the memory of `array`, which nobody else is to use any more.
    """
    shape = (count, *array.shape[1:])
    number, itemsize = math.prod(shape), array.itemsize
    if array.dtype.hasobject or number * itemsize < _RESERVING:
        made = (zeros if cleared else empty)(shape, array.dtype)
        made[:kept] = array[:kept]
        return made
    root = array if array.base is None else array.base
    lease = next((ref for ref in weakref.getweakrefs(root) if isinstance(ref, _Lease)), None)
    if lease is None or root.dtype != array.dtype or root.size < number:  # type: ignore[union-attr]
        _ask(number * itemsize)
        block = _reserved(number * itemsize, (array.dtype, shape[1:]))
        used = block.used
        root = _leased(block, array.dtype, block.view.nbytes // itemsize)
        made = root[:number].reshape(shape)
        made[:kept] = array[:kept]
        start = kept
    else:
        block, start = lease.block, len(array)
        used = block.used
        _ask(number * itemsize - used)
        made = root[:number].reshape(shape)  # type: ignore[index]
    if cleared:
        row = itemsize * math.prod(shape[1:])
        dirty = min(-(-used // row), count)
        made[start:dirty].reshape(-1).view(np.uint8).fill(0)
    _use(block, number * itemsize)
    return made


def next_length(length: int, least: int = 0) -> int:
    """The rows to make an array of `length` rows longer by `longer` to: twice as many, of large ones a quarter more."""
    return max(least, 2 * length if length < _RESERVING else length + length // 4)


def _leased(block: _Block, dtype: Any, count: int) -> np.ndarray:
    """The array on a block; the block comes back when it has gone."""
    # NumPy lets every view refer to this array, since what it lies on is none, so it lives as long as the last of them.
    array = np.frombuffer(block.view, dtype, count)
    # A callback in Python would be where a Ctrl-C is noticed, now and then, and ignored.
    lease = _Lease(array, _returned.append)
    lease.block = block
    _leases[id(lease)] = lease
    return array


def _reserved(size: int, row: tuple) -> _Block:
    """A block that has room for many times `size` bytes, if the system lends those addresses."""
    for factor in () if has_limited_addresses() else _RESERVES:
        try:
            return _take((_rounded(size * factor), row), 0)
        except MemoryError:
            continue
    return _take((_rounded(size), None), size)


def _use(block: _Block, used: int) -> None:
    global _in_use, _peak
    with _lock:
        if used > block.used:
            _in_use += used - block.used
            _peak = max(_peak, _in_use)
            block.used = used


def empty_like(array: np.ndarray) -> np.ndarray:
    """`empty` of the shape and dtype of another array."""
    return empty(array.shape, array.dtype)


def full(shape: int | Sequence[int], value: Any, dtype: Any) -> np.ndarray:
    """`np.full` in C order."""
    array = empty(shape, dtype)
    array.fill(value)
    return array


def zeros(shape: int | Sequence[int], dtype: Any) -> np.ndarray:
    """`np.zeros`. Clearing memory takes a tenth of the time of the page faults that `np.zeros` leaves to its users."""
    array = empty(shape, dtype)
    # NumPy fills bytes with the C library's memset, and other types with a slower loop.
    array.reshape(-1).view(np.uint8).fill(0)
    return array


def contiguous(array: Any, dtype: Any = None) -> np.ndarray:
    """`np.asarray`, aligned and in C order, for kernels to read: the array itself if it is that already, and of this
    dtype. Nobody writes to what this returns.
    """
    if type(array) is not np.ndarray:
        array = np.asarray(array)
    if dtype is None or array.dtype == dtype:
        flags = array.flags
        return array if flags.c_contiguous and flags.aligned else copied(array)
    made = empty(array.shape, dtype)
    np.copyto(made, array, casting="unsafe")
    return made


def empty_cache() -> int:
    """Give the memory back to the system that freed arrays left behind; returns how many bytes that were.

    Arrays that are in use are not touched. What the C library holds of other freed memory goes back too, uncounted.
    """
    with _lock:
        _sort_in()
        before = _kept
        _evict(0)
        released = before - _kept
    # Blocks of less than some megabytes are the C library's.
    trim()
    return released


def trim() -> None:
    """Give the memory back to the system that the C library holds for allocations to come, where it can (glibc)."""
    release = getattr(ctypes.pythonapi, "malloc_trim", None)
    if release is not None:
        release(ctypes.c_size_t(0))


def kept_bytes() -> int:
    """Bytes of memory that is kept for arrays to come."""
    with _lock:
        _sort_in()
        return _kept


def _rounded(size: int) -> int:
    """Four sizes for each doubling, so that arrays of nearly equal sizes can follow one another."""
    step = 1 << max(12, (size - 1).bit_length() - 3)
    return -(-size // step) * step


def _take(key: _Key, used: int) -> _Block:
    """A block, the first `used` bytes of which are lent now."""
    global _in_use, _kept, _peak
    limit = _most_kept()
    with _lock:
        if len(_returned) == 1 and time.monotonic() - _window <= _SECONDS:
            # Mostly what came back is what the last round of a loop made, and this round makes the same.
            block = _returned[0].block
            if block.key == key and used <= block.used <= limit:
                del _leases[id(_returned.popleft())]
                return block
        _sort_in()
        found = _free.get(key)
        block = found.pop()[1] if found else None
        if block is not None:
            _kept -= block.used
            block.used = max(block.used, used)
        _in_use += used if block is None else block.used
        _peak = max(_peak, _in_use)
        if block is not None:
            return block
    try:
        _ask(used)
        return _Block(key, _made(key[0]), used)
    except MemoryError:
        if not used:
            raise
        empty_cache()
    try:
        _ask(used)
        return _Block(key, _made(key[0]), used)
    except MemoryError:
        with _lock:
            _in_use -= used
        raise


def _ask(size: int) -> None:
    """Raise MemoryError if the system has fewer bytes."""
    if size >= _ASKING:
        left = available_bytes()
        if left is not None and left < size:
            left += empty_cache()
            if left < size:
                raise MemoryError(f"an array of {shown_bytes(size)} where {shown_bytes(left)} are left")


def _made(size: int) -> memoryview:
    if size >= 2 * PAGE:
        return pages(size)
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw.data[start : start + size]


def _sort_in() -> None:
    """Under the lock: keep what was returned, as far as the limits allow."""
    global _in_use, _kept, _peak, _last_peak, _window
    if not _returned:
        return
    now = time.monotonic()
    while _returned:
        lease = _returned.popleft()
        block = lease.block
        _leases.pop(id(lease), None)
        _in_use -= block.used
        _kept += block.used
        _free.setdefault(block.key, deque()).append((now, block))
    if now - _window > _SECONDS:
        _window, _last_peak, _peak = now, _peak, _in_use
    allowed = max(_peak, _last_peak)
    _evict(min(_most_kept(), allowed + allowed // 4 + _FLOOR - _in_use))


def _evict(limit: int) -> None:
    """Under the lock: drop what was not used for longest until at most `limit` bytes are kept."""
    global _kept
    while _kept > limit:
        oldest = min((blocks for blocks in _free.values() if blocks), key=lambda blocks: blocks[0][0])
        _kept -= oldest.popleft()[1].used


def _most_kept() -> int:
    global _limit
    if _limit is None:
        text = os.environ.get("DERIVABLE_MEMORY_CACHE", "").strip()
        if text and not text.isdigit():
            raise DomainError(
                f"the environment variable DERIVABLE_MEMORY_CACHE is {text!r}", hint="set it to a number of bytes"
            )
        _limit = int(text) if text else 1 << 62
    return _limit


def _after_fork() -> None:
    # The lock may have been held by a thread that the child has not; writing to kept memory would copy its pages.
    global _lock, _kept, _in_use
    _lock, _kept = threading.Lock(), 0
    while _returned:
        _leases.pop(id(_returned.popleft()), None)
    _free.clear()
    _in_use = sum(lease.block.used for lease in _leases.values())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
# Arrays that die while the interpreter is taken apart find nothing to hand their memory to.
atexit.register(_leases.clear)
