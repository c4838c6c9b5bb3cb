"""For which devices Triton compiles kernels, and on which it launches them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any

# The compute capability that Triton needs.
_OLDEST = 8


def refusal(device: Any) -> str | None:
    """Why there are no kernels for a device of torch; None if there are."""
    import torch

    if device.type != "cuda":
        return f"there are no kernels for {device.type}"
    if not _has_triton():
        return "Triton is not installed"
    major, minor = torch.cuda.get_device_capability(device)
    if major < _OLDEST:
        return f"Triton compiles for compute capability {_OLDEST}.0 and later, {device} has {major}.{minor}"
    return None


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def current(device: Any) -> AbstractContextManager:
    """Have a device be the current one, on which Triton launches; there is nothing to do on the CPU."""
    import torch

    is_here = device.type != "cuda" or device.index == torch.cuda.current_device()
    return nullcontext() if is_here else torch.cuda.device(device)


@lru_cache(64)
def processors_of(device: Any) -> int:
    """Multiprocessors; of a CPU, which interprets kernels, as many as make more than one part of the work."""
    import torch

    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2
