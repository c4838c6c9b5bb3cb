"""What compiling kernels takes: said once to a person, as the first use on a machine takes a while, and counted.

It is said only where a person reads it, on a terminal or in a notebook, and when kernels of this library have been
compiling for `PATIENCE` seconds in all.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

NOTICE = "derivable: compiling kernels for this machine; they are cached for the next time (`derivable warm` does all)"
# Seconds of compiling before anything is said.
PATIENCE = 1.0
_timer: threading.Timer | None = None
_began, _spent, _is_said = 0.0, 0.0, False


class _Waits(threading.local):
    """Seconds that this thread has compiled kernels or waited for them, and whether it does now."""

    seconds, is_on = 0.0, False


_waits = _Waits()


def seconds() -> float:
    """Seconds that this thread has spent on compiling kernels, or on waiting for others that do."""
    return _waits.seconds


@contextmanager
def counted() -> Iterator[None]:
    """Count what this block takes as compiling."""
    if _waits.is_on:
        yield
        return
    began, _waits.is_on = time.monotonic(), True
    try:
        yield
    finally:
        _waits.seconds += time.monotonic() - began
        _waits.is_on = False


def begin() -> None:
    """A kernel is compiled now; others before `end` are compiled for it."""
    global _timer, _began
    if _timer is not None or _is_said or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        return
    _began = time.monotonic()
    _timer = threading.Timer(max(0.0, PATIENCE - _spent), _say)
    _timer.daemon = True
    _timer.start()


def end() -> None:
    """No kernel is compiled any more."""
    global _timer, _spent
    if _timer is not None:
        _timer.cancel()
        _timer = None
        _spent += time.monotonic() - _began


def _say() -> None:
    global _is_said
    if not _is_said:
        _is_said = True
        print(NOTICE, file=sys.stderr, flush=True)
