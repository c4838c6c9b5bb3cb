"""What kernels run by: compiled code, unless a test hands over something that interprets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from derivable.core.lazy import later

if TYPE_CHECKING:
    import numpy as np

    from derivable.device.cpu import llvm_code
    from derivable.kernel import nodes as n
else:
    llvm_code = later("derivable.device.cpu.llvm_code")


class Kernels:
    """Makes functions of kernels by compiling them, and has those that it has made.

    made  what makes something, and its arguments -> what it has made
    """

    def __init__(self) -> None:
        self.made: dict[tuple, Any] = {}

    def function(self, kernel: n.Kernel) -> Callable:
        """What Python calls."""
        return llvm_code.compile_kernel(kernel)

    def packed(self, kernel: n.Kernel) -> llvm_code.Packed:
        """What a driver calls by its address."""
        return llvm_code.Packed(kernel)

    def function_of(self, make: Callable[..., n.Kernel], *arguments: Any) -> Callable:
        """The function of the kernel that `make` makes of these arguments."""
        key = make, *arguments
        known = self.made.get(key)
        if known is None:
            known = self.made[key] = self.function(make(*arguments))
        return known

    def address(self, array: np.ndarray) -> int:
        """Where a driver, and what it calls, finds an array."""
        return array.__array_interface__["data"][0]

    def drive(self, driver: Any, *arguments: Any) -> int:
        """Call a driver of a machine, whose memory is the first argument."""
        return driver(self.address(arguments[0]), *arguments)


COMPILED = Kernels()
