"""Ctrl-C in the middle of what must not be left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


@contextmanager
def sigint_deferred() -> Iterator[None]:
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


def waiter(process: subprocess.Popen) -> threading.Thread:
    """A started thread that ends when the process does: to be joined in place of `process.wait`.

    `wait` takes a lock and gives it back. Ctrl-C in the main thread between the two leaves the lock taken for ever, and
    the next `wait`, after the process was killed, hangs. Ctrl-C does not come to other threads.
    """
    thread = threading.Thread(target=process.wait, name="derivable-waiter", daemon=True)
    thread.start()
    return thread


def end(process: subprocess.Popen) -> None:
    """Kill a process that still runs, and wait until it is gone."""
    if process.poll() is None:
        process.kill()
        process.wait()
