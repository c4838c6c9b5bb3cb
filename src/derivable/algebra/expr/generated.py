"""Generated Python modules: real files in a cache directory, named by their content.

Numba's on-disk cache needs functions that live in a file. A module's file name is the hash of its
text, so the same text gives the same file in every process, and a changed text a new one; files are
written atomically and only when missing (rewriting would change the time stamp that Numba checks).
"""

from __future__ import annotations

import importlib.util
import re
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType

from derivable.core.cache import cache_directory
from derivable.core.files import atomic_write
from derivable.core.forks import renew_in_children

_NAME = re.compile(r"derivable_\w+_[0-9a-f]{24}")
_modules: dict[str, ModuleType] = {}
_lock = threading.RLock()


renew_in_children(globals(), _lock=threading.RLock)


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
