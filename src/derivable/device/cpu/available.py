"""How much memory this process has in the machine, and how much more it can get.

What it can get is the least of what the machine, its control group (a container) and its own limit of addresses leave.
A process that takes more is ended by the system without a word, so those who may need much ask first.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident_bytes() -> int:
    """Bytes that lie in memory for this process now; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read().split()[1]) * _PAGE
    return 0


def available_bytes() -> int | None:
    """Bytes that this process can still get, None where the system does not say."""
    found = [left for left in (_machine(), *_groups(), _addresses()) if left is not None]
    return max(0, min(found)) if found else None


def has_limited_addresses() -> bool:
    """Whether the addresses of this process are limited (`ulimit -v`), so that those that are reserved are missing."""
    return _address_limit() is not None


def shown_bytes(count: float) -> str:
    """`1.5 GB`, three digits at most."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if abs(count) < 999.5 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError(count)


def _machine() -> int | None:
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo", "rb") as file:
        for line in file:
            if line.startswith(b"MemAvailable:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * _PAGE
    return None


def _groups() -> list[int]:
    """What each control group above the process leaves."""
    left = []
    for folder, limit, usage, inactive in _group_files():
        with contextlib.suppress(OSError, ValueError):
            most = int((folder / limit).read_text())
            if most < 1 << 60:
                used = int((folder / usage).read_text())
                # What was read from files and not looked at since goes before anything else does.
                for line in (folder / "memory.stat").read_text().splitlines():
                    if line.startswith(inactive):
                        used -= int(line.split()[1])
                left.append(most - used)
    return left


@cache
def _group_files() -> tuple[tuple[Path, str, str, str], ...]:
    """(folder, file of the limit, of the use, entry of idle file pages) of each control group that has a limit."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / "self/cgroup").read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            if not controllers:
                root, names = _CGROUPS, ("memory.max", "memory.current", "inactive_file ")
            elif "memory" in controllers.split(","):
                root = _CGROUPS / "memory"
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
            else:
                continue
            # In a container the group's own path may not be there, and the root stands for it.
            path = Path(place.lstrip("/"))
            for folder in dict.fromkeys((root / path, *(root / parent for parent in path.parents), root)):
                if (folder / names[0]).is_file():
                    found.append((folder, *names))
    return tuple(found)


def _address_limit() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _addresses() -> int | None:
    limit = _address_limit()
    if limit is None:
        return None
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb", buffering=0) as file:
        return limit - int(file.read().split()[0]) * _PAGE
    return None
