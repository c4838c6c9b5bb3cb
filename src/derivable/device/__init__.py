"""Floor 3: kernels per device, and the table that picks one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derivable.device import primitives
    from derivable.device.cpu.threads import get_num_threads, set_num_threads
    from derivable.device.table import explain

__all__ = ["explain", "get_num_threads", "primitives", "set_num_threads"]

_NAMES = {
    "explain": "derivable.device.table",
    "get_num_threads": "derivable.device.cpu.threads",
    "set_num_threads": "derivable.device.cpu.threads",
}


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if name in ("primitives", "table"):
        return importlib.import_module(f"derivable.device.{name}")
    raise AttributeError(f"module 'derivable.device' has no attribute {name!r}")
