"""Python's search for reference cycles, put off while something large is built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Inside, objects are freed when nothing refers to them, and cycles of references wait until the end.

    Building hundreds of thousands of objects that all stay, as the front end of a large program does, spends half of
    its time on looking for cycles among them.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
