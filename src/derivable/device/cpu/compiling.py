"""Numba, ready to compile: what compiles kernels imports it from here, and small runs never do.

Numba caches beside the source, else in the user's cache directory. Where neither can be written (an
installation by root, an account without a home) its decorator raises; kernels are then cached in a
private temporary directory that goes with the process.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
import threading
from typing import Any

import numba
from numba.core import config, event

from derivable.core.interrupts import deferred
from derivable.device.cpu import compile_notice

__all__ = ["njit"]


def njit(**options: Any) -> Any:
    """Numba's decorator, without the form of a function that C would call: making it takes a twentieth of the time."""
    decorate: Any = numba.njit
    return decorate(no_cfunc_wrapper=True, **options)


def _probe() -> None:
    """Never compiled: Numba looks for a place to cache when a function is decorated."""


def _find_place_for_cache() -> None:
    try:
        njit(cache=True)(_probe)
    except RuntimeError:
        folder = tempfile.mkdtemp(prefix="derivable-kernels-")
        os.environ["NUMBA_CACHE_DIR"] = folder
        config.reload_config()
        atexit.register(_remove, folder, os.getpid())


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)


class Undisturbed(event.Listener):
    """A Ctrl-C while Numba compiles or loads a kernel comes after it: a kernel that is half done fails ever after."""

    def __init__(self) -> None:
        self.depth = 0
        self.block: Any = None

    def on_start(self, event: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if not self.depth:
            block = deferred()
            block.__enter__()
            self.block = block
        self.depth += 1

    def on_end(self, event: Any) -> None:
        if threading.current_thread() is not threading.main_thread() or not self.depth:
            return
        self.depth -= 1
        if not self.depth:
            block, self.block = self.block, None
            block.__exit__(None, None, None)


class Uncollected(event.Listener):
    """No garbage is collected while Numba compiles: it makes many cycles, and looking for them took an eighth of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.was_enabled = False

    def on_start(self, event: Any) -> None:
        with self.lock:  # several threads may wait for the compiler
            self.depth += 1
            if self.depth == 1:
                self.was_enabled = gc.isenabled()
                gc.disable()

    def on_end(self, event: Any) -> None:
        with self.lock:
            self.depth -= 1
            if not self.depth and self.was_enabled:
                gc.enable()


_find_place_for_cache()
compile_notice.install()
event.register("numba:compiler_lock", Undisturbed())
event.register("numba:compiler_lock", Uncollected())
