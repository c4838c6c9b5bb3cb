"""Kernels that LLVM compiles from their text when they are used first, and that are on disk for later processes.

A file is found by what its code was made from: the text, the version of LLVM and the processor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property
from typing import Any

from derivable.core.cache import cache_directory
from derivable.core.diagnostics import DerivableError
from derivable.core.files import atomic_write
from derivable.core.interrupts import sigint_deferred
from derivable.device.cpu import compile_time, linking, llvm_calls
from derivable.device.cpu.llvm_calls import Signature, signature_of
from derivable.kernel import nodes as n
from derivable.kernel.emit_llvm import ENTRY, emit_llvm, emit_packed

# Changes with how code is made from text.
_FORMAT = 1
_SIZE = hashlib.sha256().digest_size
# By what code was made from: its address.
_addresses: dict[str, int] = {}
# By address and signature: what Python calls.
_functions: dict[tuple, Callable] = {}


def compile_kernel(kernel: n.Kernel, by_row: bool = False) -> Callable:
    """The function of a kernel: it takes numbers and arrays of NumPy, and runs without Python's lock.

    Arrays are aligned, in C order, and of the kernel's types, or else it raises TypeError.

    by_row  whether arrays of lines are [position], scalars in the place of lines, and not [position, lane]
    """
    return compile_with_digest(kernel, by_row)[0]


def compile_with_digest(kernel: n.Kernel, by_row: bool = False) -> tuple[Callable, str]:
    """The same, and what finds its code on disk."""
    text = emit_llvm(kernel, by_row)
    digest = _digest(text)
    function = _function(signature_of(kernel), _address(digest, text), lambda: (_Compiled, (kernel, by_row)))
    return function, digest


def function_on_disk(digest: str, signature: Signature, make: Callable[[], n.Kernel]) -> Callable | None:
    """The function of a kernel whose code is in this process or on disk, None else; to pickle it makes the kernel."""
    address = _address_on_disk(digest)
    return None if address is None else _function(signature, address, lambda: (_Compiled, (make(), False)))


def _function(signature: Signature, address: int, pickled: Callable[[], tuple]) -> Callable:
    key = address, signature
    function = _functions.get(key)
    if function is None:
        caller = address_of(llvm_calls.TEXT)
        function = _functions.setdefault(key, llvm_calls.function(signature, address, caller, pickled))
    return function


class _Compiled:
    """What has the function of a kernel under its name, as pickle looks for it."""

    def __init__(self, kernel: n.Kernel, by_row: bool):
        setattr(self, kernel.name, compile_kernel(kernel, by_row))


class Packed:
    """A kernel with packed arguments, see `kernel.emit_llvm.emit_packed`, which compiled code calls by its address. It
    is compiled when that is asked for.

    wanted  what it would have saved so far, in the measure of who calls it
    """

    def __init__(
        self, make: Callable[[], n.Kernel], digest: str | None = None, printed: Callable[[str], None] | None = None
    ):
        """digest   what finds its code on disk, "" if it has none there; None if its text is to say that
        printed  called with the digest when the text is printed
        """
        self.make, self.digest, self.printed, self.wanted = make, digest, printed, 0

    @cached_property
    def _text(self) -> str:
        text = emit_packed(self.make())
        if self.printed is not None:
            self.printed(_digest(text))
        return text

    @cached_property
    def address(self) -> int:
        address = _address_on_disk(self.digest) if self.digest else None
        return address_of(self._text) if address is None else address

    def link(self) -> None:
        """Compile it now."""
        _ = self.address

    @property
    def is_linked(self) -> bool:
        """Whether its address has been asked for."""
        return "address" in vars(self)

    @property
    def is_there(self) -> bool:
        """Whether its code is in this process or on disk; to look opens a file."""
        digest = _digest(self._text) if self.digest is None else self.digest
        return digest in _addresses or _path(digest).exists()


def _digest(text: str) -> str:
    return hashlib.sha256(f"{target()}\0{text}".encode()).hexdigest()[:40]


def _path(digest: str) -> Any:
    # To write a file looks through its folder.
    return cache_directory() / "objects" / digest[:2] / f"{digest[2:]}.o"


def address_of(text: str) -> int:
    """The address of the function `entry` of a module, which is compiled unless it is in this process or on disk."""
    return _address(_digest(text), text)


def _address(digest: str, text: str) -> int:
    address = _address_on_disk(digest)
    if address is not None:
        return address
    # A Ctrl-C would leave code linked that nothing knows of.
    with sigint_deferred(), linking.lock:
        if digest not in _addresses:
            with compile_time.counted():
                code, may_be_kept = _compiled(text.replace(f"@{ENTRY}(", f"@{_name(digest)}("))
            if may_be_kept:
                _keep(_path(digest), code)
            _addresses[digest] = linking.link(_name(digest), code)
        return _addresses[digest]


def _address_on_disk(digest: str) -> int | None:
    """The same of a module whose code is in this process or on disk, None else."""
    address = _addresses.get(digest)
    if address is not None:
        return address
    with sigint_deferred(), linking.lock:
        if digest not in _addresses:
            code = _read(_path(digest))
            if code is None:
                return None
            _addresses[digest] = linking.link(_name(digest), code)
        return _addresses[digest]


def _name(digest: str) -> str:
    return f"derivable_{digest}"


def _read(path: Any) -> bytes | None:
    """The code in a file that is whole; None without."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    code = found[_SIZE:]
    return code if found[:_SIZE] == hashlib.sha256(code).digest() else None


def _keep(path: Any, code: bytes) -> None:
    # Where nothing can be written, each process compiles anew.
    with suppress(OSError, DerivableError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # One cut short has another digest, and is made again.
        with atomic_write(path, "wb", is_durable=False) as file:
            file.write(hashlib.sha256(code).digest() + code)


def _compiled(text: str) -> tuple[bytes, bool]:
    """(object code, whether a process finds all that it calls without anything else that this one has loaded)"""
    from llvmlite import binding as llvm

    module = llvm.parse_assembly(text)
    declared = {function.name for function in module.functions}
    machine = _machine()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    # Where somebody has told LLVM of a library of vector functions, loops call those.
    called = {f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")}
    return machine.emit_object(module), called <= declared


@cache
def target() -> str:
    """What code is made by, and for which processor."""
    from llvmlite import binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    return f"{_FORMAT} {llvm.llvm_version_info} {llvm.get_host_cpu_name()} {features}"


@cache
def _machine() -> Any:
    """What makes code for this processor."""
    from llvmlite import binding as llvm

    linking.initialize()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )
