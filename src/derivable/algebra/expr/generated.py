"""Generated Python modules: real files in a cache directory, named by their content.

Numba's on-disk cache needs functions that live in a file. A module's file name is the hash of its
text, so the same text gives the same file in every process, and a changed text a new one; files are
written atomically and only when missing (rewriting would change the time stamp that Numba checks).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import re
import sys
import threading
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from derivable.core.files import atomic_write
from derivable.core.forks import renew_in_children

_NAME = re.compile(r"derivable_\w+_[0-9a-f]{24}")
_modules: dict[str, ModuleType] = {}
_lock = threading.RLock()


renew_in_children(globals(), _lock=threading.RLock)


@cache
def cache_directory() -> Path:
    """Where generated modules and their compiled code are kept.

    DERIVABLE_CACHE_DIR if set, else `derivable` in the user's cache directory (XDG_CACHE_HOME, ~/.cache);
    where that cannot be written, a temporary directory of this process.
    """
    import shutil
    import tempfile

    chosen = os.environ.get("DERIVABLE_CACHE_DIR")
    if chosen:
        candidates = [Path(chosen)]
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        candidates = [Path(base) / "derivable"] if base else []
        # Without a home directory there is nothing to append.
        with contextlib.suppress(RuntimeError):
            candidates.append(Path.home() / ".cache" / "derivable")
    for candidate in candidates:
        try:
            candidate.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=candidate):
                return candidate
        except OSError:
            continue
    private, owner = tempfile.mkdtemp(prefix="derivable-"), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not a forked child
            shutil.rmtree(private, ignore_errors=True)

    atexit.register(remove)
    return Path(private)


def load_generated(source: str, stem: str = "generated") -> ModuleType:
    """The module with this text, imported from its file; the same text gives the same module.

    stem  start of the module's name, for people who read tracebacks

    Safe in several threads and processes.
    """
    import hashlib

    digest = hashlib.sha256(f"{stem}\0{source}".encode()).hexdigest()[:24]
    name = f"derivable_{stem}_{digest}"
    with _lock:
        if name in _modules:
            return _modules[name]
        path = cache_directory() / f"{name}.py"
        if not path.exists() or path.read_text(encoding="utf-8") != source:
            with atomic_write(path) as file:
                file.write(source)
        # Numba and pickle look functions up by their module's name.
        _modules[name] = importlib.import_module(name)
        return _modules[name]


class _Finder:
    """Finds generated modules by name, which compiled code in Numba's cache refers to.

    One that is gone is an OSError, because that tells Numba to compile the code again.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not _NAME.fullmatch(name):
            return None
        file = cache_directory() / f"{name}.py"
        if not file.exists():
            raise FileNotFoundError(f"the generated module {file} is gone")
        return importlib.util.spec_from_file_location(name, file)


sys.meta_path.append(_Finder)  # type: ignore[arg-type]
