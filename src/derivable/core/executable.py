"""The Python that other processes of this library are started with."""

from __future__ import annotations

import sys
from pathlib import Path


def python_executable() -> str | None:
    """The path of this Python; None where it is unknown or a part of another program, which that would start again."""
    return sys.executable if Path(sys.executable or "").name.lower().startswith("python") else None
