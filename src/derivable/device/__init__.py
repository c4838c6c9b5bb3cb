"""What kernels stand on, on each device: memory, threads, compilers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from collections.abc import Callable

    from derivable.device.cpu.memory import empty_cache
    from derivable.device.cpu.threads import get_num_threads, set_num_threads

    explain: Callable[..., str]

__all__ = ["empty_cache", "explain", "get_num_threads", "set_num_threads"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "empty_cache": "derivable.device.cpu.memory",
        "get_num_threads": "derivable.device.cpu.threads",
        "set_num_threads": "derivable.device.cpu.threads",
    },
)
