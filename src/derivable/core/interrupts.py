"""Ctrl-C in the middle of what must not be left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deferred() -> Iterator[None]:
    """A Ctrl-C during the block comes after it. Blocks are short: nothing else ends them."""
    # Python runs handlers in the main thread alone, and only those that were set from Python.
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    caught: list[tuple] = []
    signal.signal(signal.SIGINT, lambda *details: caught.append(details))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if caught:
            before(*caught[0])
