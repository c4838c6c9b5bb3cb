"""What kernels run by: compiled code, unless a test hands over something that interprets them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from derivable.core.lazy import later

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from derivable.device.cpu import kernel_files, llvm_calls, llvm_code
    from derivable.device.cpu.kernel_files import KernelFiles
    from derivable.kernel import nodes as n
else:
    llvm_code, llvm_calls = later("derivable.device.cpu.llvm_code"), later("derivable.device.cpu.llvm_calls")
    kernel_files = later("derivable.device.cpu.kernel_files")

# What kernels are built and printed by, and what says how they are called.
MODULES = (
    *(f"{folder}/**/*.py" for folder in ("core", "algebra", "kernel")),
    *(f"datalog/{folder}/**/*.py" for folder in ("fused", "kernels", "shortcuts")),
    *("datalog/policy/kernels.py", "datalog/tables/packing.py", "datalog/tables/trie.py", "device/cpu/llvm_calls.py"),
)


@dataclass(frozen=True)
class Built:
    """A kernel, whether it has packed arguments, and what its maker notes of it: numbers, texts and lists of these."""

    kernel: n.Kernel
    is_packed: bool = False
    notes: Any = None


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
        return llvm_code.Packed(lambda: kernel)

    def of(self, key: tuple, build: Callable[[], Built]) -> tuple[Any, Any]:
        """(function, notes) of a kernel that is built of what `key` has, a function or class and its arguments."""
        built = build()
        return (self.packed if built.is_packed else self.function)(built.kernel), built.notes

    def function_of(self, make: Callable[..., n.Kernel], *arguments: Any) -> Callable:
        """The function of the kernel that `make` makes of these arguments."""
        return self._made(make, arguments, False)

    def packed_of(self, make: Callable[..., n.Kernel], *arguments: Any) -> llvm_code.Packed:
        """The same for a driver."""
        return self._made(make, arguments, True)

    def _made(self, make: Callable[..., n.Kernel], arguments: tuple, is_packed: bool) -> Any:
        key = make, *arguments
        if key not in self.made:
            self.made[key], _ = self.of(key, lambda: Built(make(*arguments), is_packed))
        return self.made[key]

    def address(self, array: np.ndarray) -> int:
        """Where a driver, and what it calls, finds an array."""
        return array.__array_interface__["data"][0]

    def drive(self, driver: Any, *arguments: Any) -> int:
        """Call a driver of a machine, whose memory is the first argument."""
        return driver(self.address(arguments[0]), *arguments)


class StoredKernels(Kernels):
    """The same by what is on disk: a kernel of what another process has made one of is neither built nor printed."""

    @cached_property
    def files(self) -> KernelFiles:
        return kernel_files.KernelFiles(MODULES)

    def of(self, key: tuple, build: Callable[[], Built]) -> tuple[Any, Any]:
        path = self.files.path(key)
        if path is None:
            return super().of(key, build)
        content = self.files.read(path)
        if content is not None:
            digest, notes = content["code"], content["notes"]
            if content["signature"] is None:
                return llvm_code.Packed(lambda: build().kernel, digest, partial(self._write, path, None, notes)), notes
            name, kinds, results = content["signature"]
            signature = llvm_calls.Signature(name, tuple(kinds), tuple(results))
            function = llvm_code.function_on_disk(digest, signature, lambda: build().kernel)
            if function is not None:
                return function, notes
        built = build()
        kernel, notes = built.kernel, built.notes
        if built.is_packed:
            # Its text is printed when its code is first wanted, if ever.
            self._write(path, None, notes, "")
            return llvm_code.Packed(lambda: kernel, None, partial(self._write, path, None, notes)), notes
        function, digest = llvm_code.compile_with_digest(kernel)
        self._write(path, astuple(llvm_calls.signature_of(kernel)), notes, digest)
        return function, notes

    def _write(self, path: Path, signature: tuple | None, notes: Any, digest: str) -> None:
        self.files.write(path, {"signature": signature, "notes": notes, "code": digest})


COMPILED = StoredKernels()
