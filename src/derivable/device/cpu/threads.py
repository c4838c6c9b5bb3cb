"""A small thread pool that runs kernels on chunks of a range.

Numba's own `parallel=True` is not used: its portable threading layer must not be entered from two
threads, and the OpenMP one breaks in forked children. Kernels here are plain `nogil` functions of a
range `start, stop`; this module cuts the range and runs the pieces. The pool is made on first use,
made anew in a forked child, and never entered by its own workers, so it cannot wait for itself.

The cut depends only on the length, the smallest chunk and the number of threads. So a kernel that
combines per-chunk results in chunk order gives the same bits for the same input and thread count.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from derivable.core.diagnostics import DomainError
from derivable.core.forks import renew_in_children
from derivable.core.interrupts import sigint_deferred

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_num_threads: int | None = None
_inside = threading.local()


def available_cores() -> int:
    """Cores this process may run on (its affinity mask where the system has one)."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


def get_num_threads() -> int:
    """Threads that `run_chunks` uses: the last `set_num_threads`, else DERIVABLE_NUM_THREADS, else all cores."""
    global _num_threads
    if _num_threads is None:
        text = os.environ.get("DERIVABLE_NUM_THREADS", "").strip()
        if not text:
            _num_threads = available_cores()
        elif text.isdigit() and int(text) >= 1:
            _num_threads = int(text)
        else:
            raise DomainError(
                f"the environment variable DERIVABLE_NUM_THREADS is {text!r}", hint="set it to a positive integer"
            )
    return _num_threads


def set_num_threads(num_threads: int) -> None:
    """Use `num_threads` threads from now on, the calling thread included; 1 means no pool at all.

    Raises DomainError for anything but a positive integer.
    """
    global _num_threads, _pool
    if isinstance(num_threads, bool) or not isinstance(num_threads, int) or num_threads < 1:
        raise DomainError(f"the number of threads is {num_threads!r}", hint="give a positive integer")
    with _lock:
        if num_threads != _num_threads and _pool is not None:
            # Work already handed over still finishes: the old pool only takes nothing new.
            _pool.shutdown(wait=False)
            _pool = None
        _num_threads = num_threads


def chunk_bounds(n: int, min_chunk: int) -> list[int]:
    """Where `run_chunks` cuts range(n): chunk c is bounds[c]:bounds[c + 1].

    At most `get_num_threads()` chunks of nearly equal length, none shorter than `min_chunk` unless there
    is only one; n = 0 gives [0].
    """
    if n <= 0:
        return [0]
    chunks = max(1, min(get_num_threads(), n // max(1, min_chunk)))
    return [n * c // chunks for c in range(chunks + 1)]


def run_chunks(function: Callable[..., Any], n: int, min_chunk: int, *args: Any) -> list[Any]:
    """Call `function(start, stop, *args)` on consecutive chunks of range(n), in parallel.

    function   releases the GIL for its work, and writes only to places of its own chunk
    min_chunk  the length below which a chunk is not worth a thread (a hand-over costs about 20 microseconds)
    returns    the results in chunk order; [] for n = 0

    The calling thread takes the first chunk. A call made from inside a chunk runs its chunks one after
    the other. If chunks raise, all chunks are waited for, then the exception of the first one is raised.
    """
    if 0 < n < 2 * min_chunk:
        return [function(0, n, *args)]
    bounds = chunk_bounds(n, min_chunk)
    chunks = len(bounds) - 1
    if chunks <= 1 or getattr(_inside, "chunk", False):
        return [function(bounds[c], bounds[c + 1], *args) for c in range(chunks)]
    futures, results, failure = [], [], None
    # A Ctrl-C comes after all chunks: in between it could leave the lock of a future taken, for which its chunk waits.
    with sigint_deferred():
        try:
            with _lock:
                pool = _current_pool()
                # Submitting under the lock keeps `set_num_threads` in another thread from closing the pool in between.
                for c in range(1, chunks):
                    futures.append(pool.submit(_run_inside, function, bounds[c], bounds[c + 1], *args))
            results.append(_run_inside(function, bounds[0], bounds[1], *args))
        except BaseException as error:
            failure = error
        for future in futures:
            try:
                results.append(future.result())
            except BaseException as error:
                failure = failure or error
    if failure is not None:
        raise failure
    return results


def _run_inside(function: Callable[..., Any], *args: Any) -> Any:
    before = getattr(_inside, "chunk", False)
    _inside.chunk = True
    try:
        return function(*args)
    finally:
        _inside.chunk = before


def _current_pool() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        # Small runs never need it.
        from concurrent.futures import ThreadPoolExecutor

        _pool = ThreadPoolExecutor(max(1, get_num_threads() - 1), thread_name_prefix="derivable")
    return _pool


renew_in_children(globals(), _pool=lambda: None, _lock=threading.Lock, _inside=threading.local)
