"""Whether Triton compiles kernels for a device."""

from __future__ import annotations

from functools import cache
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
