"""What a thread has spent on compiling kernels."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class _Spent(threading.local):
    seconds = 0.0


_spent = _Spent()


def seconds() -> float:
    """Seconds that this thread has spent on compiling kernels."""
    return _spent.seconds


@contextmanager
def counted() -> Iterator[None]:
    """Count what this block takes as compiling."""
    began = time.monotonic()
    try:
        yield
    finally:
        _spent.seconds += time.monotonic() - began
