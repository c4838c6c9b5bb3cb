"""For which devices Triton compiles kernels, and on which it launches them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def are_aligned(tensors: Iterable[Any]) -> bool:
    """Whether the addresses of all are multiples of 16, for which Triton compiles a kernel of its own."""
    return not any(tensor.data_ptr() & 15 for tensor in tensors)


class Launches:
    """Launches of a kernel of `compile_triton` with the same numbers and types of tensors.

    Triton looks at all arguments of a launch, which takes about 50 us. The kernel that it finds for aligned tensors is
    kept, and is launched without that look from then on.
    """

    def __init__(self, launch: Callable):
        self.launch = launch
        self.kernel: Any = None

    def __call__(self, programs: tuple[int, ...], is_aligned: bool, *arguments: Any) -> None:
        if is_aligned and self.kernel is not None:
            self.kernel[(*programs, 1, 1)[:3]](*arguments)
            return
        found = self.launch(programs, *arguments)
        if is_aligned:
            self.kernel = found


class KeptKernels:
    """Launches of a `triton.jit` function whose numbers are not specialised: the second one and those after it go
    without Triton's look at all arguments.

    kept  what a kernel is compiled for -> the kernel: the device, types and alignment of tensors, sizes of numbers and
          flags. Other constants, which come in their places too, are the same in all launches.
    """

    def __init__(self, function: Any, warps: int = 4):
        self.function, self.warps = function, warps
        self.kept: dict[Any, Any] = {}

    def __call__(self, programs: tuple[int, ...], *arguments: Any) -> None:
        device = next(x.device for x in arguments if not isinstance(x, int))
        if device.type != "cuda":
            self.function[programs](*arguments, num_warps=self.warps)
            return
        key = (device, *map(_compiled_for, arguments))
        with current(device):
            if key in self.kept:
                self.kept[key][(*programs, 1, 1)[:3]](*arguments)
            else:
                self.kept[key] = self.function[programs](*arguments, num_warps=self.warps)


def _compiled_for(argument: Any) -> Any:
    if isinstance(argument, bool):
        return argument
    if isinstance(argument, int):
        return argument.bit_length() < 32
    return argument.dtype, argument.data_ptr() & 15 == 0
