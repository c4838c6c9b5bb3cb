"""Numba, ready to compile: what compiles kernels imports it from here, and small runs never do.

Numba caches beside the source, else in the user's cache directory. Where neither can be written (an
installation by root, an account without a home) its decorator raises; kernels are then cached in a
private temporary directory that goes with the process.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from numba import njit
from numba.core import config

from derivable.device.cpu import compile_notice

__all__ = ["njit"]


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


_find_place_for_cache()
compile_notice.install()
