"""The folder of what the library has generated and compiled, which it imports and links in later processes.

Who can write there can have this process run code of theirs, so it is a folder that only its owner, this user, writes.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from derivable.core.diagnostics import warn

SOURCES = Path(__file__).parents[1]


def sources_digest(patterns: Iterable[str]) -> str:
    """A digest of the texts of all modules of the package whose paths fit a pattern, for names of files that hold what
    these modules make."""
    digest = hashlib.sha256()
    for path in (path for pattern in patterns for path in sorted(SOURCES.glob(pattern))):
        text = path.read_bytes()
        digest.update(f"\0{path.relative_to(SOURCES)} {len(text)}\0".encode())
        digest.update(text)
    return digest.hexdigest()


@cache
def cache_directory() -> Path:
    """The folder, which is there and can be written.

    DERIVABLE_CACHE_DIR if set, else `derivable` in the user's cache directory (XDG_CACHE_HOME, ~/.cache).
    Where that cannot be written, a temporary folder of this process. The same, with a warning, where another user
    owns it, or can write to it or replace it.
    """
    import shutil
    import tempfile

    for candidate in _candidates():
        try:
            candidate.mkdir(parents=True, exist_ok=True, mode=0o700)
            candidate = candidate.resolve()
            danger = _danger(candidate)
            if danger:
                warn(
                    f"compiled code is not cached in {candidate}: {danger}",
                    hint="set DERIVABLE_CACHE_DIR to a folder that only you may write",
                )
                continue
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


def _candidates() -> list[Path]:
    chosen = os.environ.get("DERIVABLE_CACHE_DIR")
    if chosen:
        return [Path(chosen)]
    base = os.environ.get("XDG_CACHE_HOME")
    candidates = [Path(base) / "derivable"] if base else []
    # Without a home directory there is nothing to append.
    with contextlib.suppress(RuntimeError):
        candidates.append(Path.home() / ".cache" / "derivable")
    return candidates


def _danger(folder: Path) -> str:
    """Who else could write into this folder, which has no links in its path; empty if nobody could."""
    state = folder.stat()
    if state.st_uid != os.geteuid():
        return f"it belongs to the user of number {state.st_uid}, this process is of number {os.geteuid()}"
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        if any(folder.iterdir()):
            return f"other users may write there (mode {stat.S_IMODE(state.st_mode):o})"
        folder.chmod(stat.S_IMODE(state.st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
    for parent in folder.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"other users may replace it, as they may write to {parent} (mode {stat.S_IMODE(mode):o})"
    return ""
