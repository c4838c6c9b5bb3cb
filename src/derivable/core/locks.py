"""Locks that objects hold."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any


class OwnLock:
    """A lock of one object, which a thread may take again that has it: `with self._lock:`.

    A copy or pickle of the object gets a lock of its own, and so does the object in a forked child, where the thread
    that held the lock does not exist.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()

    def __reduce__(self) -> Any:
        return OwnLock, ()


_locks: weakref.WeakSet[OwnLock] = weakref.WeakSet()


def _renew() -> None:
    for lock in list(_locks):
        lock._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
