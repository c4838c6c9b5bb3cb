"""A small thread pool that runs kernels on chunks of a range.

Numba's own `parallel=True` is not used: its portable threading layer must not be entered from two
threads, and the OpenMP one breaks in forked children. Kernels here are plain `nogil` functions of a
range `start, stop`; this module cuts the range and runs the pieces. The pool is made on first use,
made anew in a forked child, and never entered by its own workers, so it cannot wait for itself.

The cut depends only on the length, the smallest chunk and the number of threads. So a kernel that
combines per-chunk results in chunk order gives the same bits for the same input and thread count.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from derivable.core.diagnostics import DomainError

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_num_threads: int | None = None
_inside = threading.local()
# The team that has the pool's threads.
_team: Team | None = None
_TRIALS = 8
_RETRY = 16


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
    futures = []
    with _lock:
        pool = _current_pool()
        # Submitting under the lock keeps `set_num_threads` in another thread from closing the pool in between.
        futures = [pool.submit(_run_inside, function, bounds[c], bounds[c + 1], *args) for c in range(1, chunks)]
    first, failure = None, None
    try:
        first = _run_inside(function, bounds[0], bounds[1], *args)
    except BaseException as error:
        failure = error
    results = [first]
    for future in futures:
        try:
            results.append(future.result())
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return results


def team_size(wanted: int) -> int:
    """Members that a team made here may have: at most `wanted`, and 1 inside a chunk."""
    return 1 if getattr(_inside, "chunk", False) else max(1, min(wanted, get_num_threads()))


class Team:
    """Calls that threads of the pool may join while the calling thread works: a context, `with Team(follow, members)`.

    follow   called as follow(1) to follow(members - 1), each at most once, by threads that have time. A call may
             begin late, even after the block, or never, and nobody waits for it: it has to see for itself that
             there is nothing left to do. What it computes counts as inside a chunk.
    members  as `team_size` allows; only one team at a time gets threads, others work without
    """

    def __init__(self, follow: Callable[[int], Any], members: int):
        self._follow = follow
        self._members = members
        self._futures: list[Future] = []

    def __enter__(self) -> Team:
        global _team
        with _lock:
            if _team is None and self._members > 1:
                _team = self
                pool = _current_pool()
                self._futures = [pool.submit(_run_inside, self._follow, member) for member in range(1, self._members)]
        return self

    def __exit__(self, *_: object) -> None:
        global _team
        for future in self._futures:
            future.cancel()
        with _lock:
            if _team is self:
                _team = None


class Pace:
    """Whether something is faster with a team or without, by the clock.

    Members of a team wait for each other, also for one whose core the system has given to another process: where
    more threads want to run than there are cores, a team may be slower than one thread. So both ways are timed:
    in turn at first, then the slower one every `_RETRY` calls.
    """

    def __init__(self):
        self._calls = 0
        self._seconds = [math.inf, math.inf]

    def with_team(self) -> bool:
        """Whether the next call should have a team."""
        self._calls += 1
        if self._calls <= _TRIALS:
            return self._calls % 2 == 1
        better = self._seconds[True] <= self._seconds[False]
        return better if self._calls % _RETRY else not better

    def took(self, seconds: float, with_team: bool) -> None:
        """Note what a call took."""
        before = self._seconds[with_team]
        if self._calls <= _TRIALS or before == math.inf:
            # Kernels are loaded and buffers made the first time.
            self._seconds[with_team] = min(before, seconds)
        else:
            self._seconds[with_team] = min(0.75 * before + 0.25 * min(seconds, 4.0 * before), 1.25 * seconds)


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
        _pool = ThreadPoolExecutor(max(1, get_num_threads() - 1), thread_name_prefix="derivable")
    return _pool


def _after_fork() -> None:
    # The child has none of the parent's threads, and the lock may have been held by one of them.
    global _pool, _lock, _inside, _team
    _pool = None
    _team = None
    _lock = threading.Lock()
    _inside = threading.local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
