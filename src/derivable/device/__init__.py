"""Floor 3: kernels per device, and the table that picks one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.device import primitives
    from derivable.device.cpu.memory import empty_cache
    from derivable.device.cpu.threads import get_num_threads, set_num_threads
    from derivable.device.table import explain

__all__ = ["empty_cache", "explain", "get_num_threads", "primitives", "set_num_threads"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "empty_cache": "derivable.device.cpu.memory",
        "explain": "derivable.device.table",
        "get_num_threads": "derivable.device.cpu.threads",
        "set_num_threads": "derivable.device.cpu.threads",
    },
    ("primitives", "table"),
)
