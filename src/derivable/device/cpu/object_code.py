"""Compiled kernels as object code on disk, which LLVM links in a tenth of a millisecond, without Numba.

To import Numba takes a fifth of a second, and to load a kernel from its cache some milliseconds: a small run would wait
for that longer than for its answer. So what Numba has compiled for a call from outside is written a second time, with
an entry that takes all arguments as words: numbers, and for an array the address of NumPy's object, from which the
entry reads where its numbers are and its shape, as NumPy's headers lay it out. Such code calls nothing of Python and
nothing of Numba's run time, and raises nothing; a kernel that does has a file without code.

The file of a kernel for arguments of some types says what it was made from: the text of the kernel's module and of
those whose kernels that calls, the installed Numba, and the processor. It is not used if these are others now.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from derivable.core.cache import cache_directory
from derivable.core.diagnostics import DerivableError
from derivable.core.files import atomic_write
from derivable.core.forks import renew_in_children
from derivable.core.interrupts import sigint_deferred
from derivable.device.cpu.intrinsics import Intrinsic

# Changes with what an entry is called with.
_FORMAT = 2
# Where an array's object has the address of its numbers, its axes, those of its shape, and its flags.
DATA, AXES, SHAPE, FLAGS = 16, 24, 32, 64
# What of the flags an entry needs: C order, aligned, may be written. Without them it returns REFUSED, and does nothing.
NEEDED, REFUSED = 0x1 | 0x100 | 0x400, -64
# Numba's settings that change nothing of what it compiles; with others, Numba itself loads kernels.
_HARMLESS = {"NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS"}
# How a number is in a word, by the kind of its dtype: narrow ones are widened.
_WORDS = {"i": "q", "u": "Q", "f": "d", "b": "q"}
# The numbers of NumPy's dtypes that entries take: bool to float64.
_LAST_DTYPE = np.dtype(np.float64).num
_lock = threading.Lock()
renew_in_children(globals(), _lock=threading.Lock)
# What is linked.
_addresses: dict[str, int] = {}

# The types of an argument: "int64" is a number, "int64[]" an array, "int64[,]" one with two axes; or those of a tuple.
Kind = str | tuple


# Which file


def has_code(function: FunctionType, kinds: Sequence[Kind]) -> bool:
    """Whether a kernel for arguments of these kinds is linked without Numba."""
    parts = _parts_of(function, kinds)
    return parts is not None and bool(parts[-1])


def only_numba(function: FunctionType, kinds: Sequence[Kind]) -> bool:
    """Whether only Numba loads a kernel for arguments of these kinds, now and ever."""
    parts = _parts_of(function, kinds)
    return _path(function, kinds) is None if parts is None else not parts[-1]


def has_file(function: FunctionType, kinds: Sequence[Kind]) -> bool:
    """Whether it has a file for this processor, with code or without; or there can be none."""
    parts = _parts_of(function, kinds)
    return _path(function, kinds) is None if parts is None else parts[0] == _processor()


def _parts_of(function: FunctionType, kinds: Sequence[Kind]) -> list[bytes] | None:
    """The processor, the functions of other libraries, the kind of result, and the code; None without a file."""
    path = _path(function, kinds)
    try:
        stamp, *parts = path.read_bytes().split(b"\n", 4) if path else (b"",)
    except OSError:
        return None
    return parts if len(parts) == 4 and stamp == _mark(function, parts) else None


def _mark(function: FunctionType, parts: Sequence[bytes]) -> bytes:
    """Of what a file is, and that it is whole."""
    return f"{_stamp(function)} {hashlib.sha256(b''.join(parts)).hexdigest()}".encode()


def _path(function: FunctionType, kinds: Sequence[Kind]) -> Path | None:
    """The file of a kernel; None where only Numba may compile and load it."""
    if function.__closure__ or not _is_plain():
        return None
    code = function.__code__
    key = code.co_filename, function.__qualname__, code.co_firstlineno, tuple(kinds)
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:24]
    return cache_directory() / "objects" / f"{function.__name__}-{digest}.o"


@cache
def _is_plain() -> bool:
    """Whether Numba compiles as it does by default, for processors that these files are for."""
    has_settings = any(name.startswith("NUMBA_") and name not in _HARMLESS for name in os.environ)
    is_usual = sys.byteorder == "little" and sys.maxsize > 1 << 32
    return is_usual and not has_settings


def _stamp(function: FunctionType) -> str:
    """What the code of a kernel is made from."""
    texts = sorted({function.__code__.co_filename, *paths_of(function.__module__)})
    return hashlib.sha256("\0".join([_installed(), *map(_digest, texts)]).encode()).hexdigest()


@cache
def paths_of(module: str) -> tuple[str, ...]:
    """The files of the modules that compiled kernels of a module call."""
    names, waiting = {module}, [module]
    while waiting:
        found = sys.modules.get(waiting.pop())
        fresh = {name for value in vars(found).values() for name in _modules_of(value)} - names if found else set()
        names |= fresh
        waiting += fresh
    return tuple(filter(None, map(_file_of, names - {"__main__"})))


@cache
def _file_of(module: str) -> str | None:
    spec = importlib.util.find_spec(module)
    return None if spec is None else spec.origin


def _modules_of(value: Any) -> Iterator[str]:
    from derivable.device.cpu.tiers import Compilable

    if isinstance(value, Compilable):
        yield value.__module__
    elif isinstance(value, Intrinsic):
        yield value.module
    elif isinstance(value, ModuleType) and value.__name__.startswith("derivable."):
        yield value.__name__


@cache
def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        # What has no text has none later either.
        return path


@cache
def _installed() -> str:
    """Which Numba compiles."""
    path = _file_of("numba")
    file = None if path is None else os.stat(path)
    return f"{_FORMAT} {file and (file.st_mtime_ns, file.st_size)}"


@cache
def _processor() -> bytes:
    from llvmlite import binding as llvm

    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}".encode()


# Linking and calling


class Linked:
    """A kernel at an address, for arguments of some kinds; called with their words."""

    def __init__(self, address: int, kinds: Sequence[Kind], result: str):
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)
        self.write = struct.Struct("".join(map(_form, kinds)))
        self.read = struct.Struct(result.strip("()?") + "q" * result.count("?"))
        self.result = result
        self.words = ctypes.c_int64 * max(1, (self.write.size + self.read.size) // 8)

    def __call__(self, words: Sequence[Any]) -> Any:
        """What the kernel returns; NotImplemented if an array is not in C order, aligned and writeable."""
        memory = self.words()
        self.write.pack_into(memory, 0, *words)
        status = self.entry(memory)
        if status:
            if status == REFUSED:
                return NotImplemented
            raise SystemError("a kernel that raises nothing has raised something")
        found = self.read.unpack_from(memory, self.write.size)
        if not self.result:
            return None
        return found if self.result[0] == "(" else found[0] if self.result != "?" else bool(found[0])


def _form(kind: Kind) -> str:
    """The words of an argument, as `struct` writes them."""
    if isinstance(kind, tuple):
        return "".join(map(_form, kind))
    return "q" if "[" in kind else _WORDS[np.dtype(kind).kind]


def linked(function: FunctionType, kinds: Sequence[Kind]) -> Linked | None:
    """The kernel for arguments of these kinds; None if only Numba has it."""
    found = _linked(function, kinds)
    return None if found is None else Linked(found[0], kinds, found[1])


def address(function: FunctionType) -> int | None:
    """The address of a function of C, `int64 f(int64, int64)`; None if only Numba has it."""
    found = _linked(function, PACKED)
    return None if found is None else found[0]


# What files of functions of C are found by.
PACKED = ("int64", "int64", "of C")


def _linked(function: FunctionType, kinds: Sequence[Kind]) -> tuple[int, str] | None:
    found = _parts_of(function, kinds)
    if found is None or not found[-1]:
        return None
    from llvmlite import binding as llvm

    processor, externals, result, code = found
    # Code that is linked twice after a Ctrl-C would have its name twice.
    with sigint_deferred(), _lock:
        engine = _engine()
        names = externals.decode().split()
        if engine is None or processor != _processor() or not all(map(llvm.address_of_symbol, names)):
            return None
        name = symbol(function, kinds)
        if name not in _addresses:
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            engine.finalize_object()
            _addresses[name] = engine.get_function_address(name)
        return _addresses[name], result.decode()


def symbol(function: FunctionType, kinds: Sequence[Kind]) -> str:
    """The name that the entry of a kernel has in its code."""
    path = _path(function, kinds)
    return "" if path is None else f"derivable_{path.stem.rpartition('-')[2]}"


@cache
def _engine() -> Any:
    """What links; None where Numba computes functions of lines by a library that LLVM must know of from the start, and
    where arrays are not laid out as entries read them.
    """
    if not _has_layout():
        return None
    from llvmlite import binding as llvm

    with suppress(RuntimeError):
        llvm.load_library_permanently(
            {"darwin": "libsvml.dylib", "win32": "svml_dispmd"}.get(sys.platform, "libsvml.so")
        )
        return None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def can_be_written() -> bool:
    """Whether the installed llvmlite is new enough for writing object code."""
    from llvmlite import binding as llvm

    return hasattr(llvm.ModulePassManager, "add_global_dead_code_eliminate_pass")


def refusal() -> str | None:
    """Why Numba has to load all kernels here; None if those that can be are linked without."""
    if not can_be_written():
        return "llvmlite is older than that of Numba 0.62"
    if not _is_plain():
        return "the environment or the processor has Numba compile otherwise than by default"
    return "Numba calls Intel's vector functions" if _engine() is None else None


def _has_layout() -> bool:
    """Whether arrays are laid out as entries read them: not where Python's objects begin otherwise."""
    probe = np.zeros((3, 5), np.int16)
    if sys.implementation.name != "cpython" or object.__basicsize__ != DATA:
        return False
    read = ctypes.c_int64.from_address
    shape = read(id(probe) + SHAPE).value
    return (
        read(id(probe) + DATA).value == probe.ctypes.data
        and ctypes.c_int.from_address(id(probe) + AXES).value == 2
        and [read(shape).value, read(shape + 8).value] == [3, 5]
        and ctypes.c_int.from_address(id(probe) + FLAGS).value == probe.flags.num
    )


def seen(arguments: Any, words: list[Any]) -> tuple | None:
    """What arguments, a tuple, are, for `kinds_of`, with their words appended; None where one is for Numba alone."""
    key: list[Any] = []
    for argument in arguments:
        of = type(argument)
        if of is np.ndarray:
            dtype, axes = argument.dtype, argument.ndim
            number = dtype.num
            if number > _LAST_DTYPE or not axes or not dtype.isnative:
                return None
            key.append(number * _AXES + axes)
            words.append(id(argument))
        elif (of is int and -(1 << 63) <= argument < 1 << 63) or of is float or of is bool:
            key.append(of)
            words.append(argument)
        elif isinstance(argument, np.generic) and argument.dtype.num <= _LAST_DTYPE:
            key.append(argument.dtype.num * _AXES)
            words.append(argument.item())
        elif of is tuple and argument and (parts := seen(argument, words)) is not None:
            key.append(parts)
        else:
            return None
    return tuple(key)


# More than an array has axes.
_AXES = 128
_NAMES = {np.dtype(char).num: np.dtype(char).name for char in "?bhilqBHILQfd"}


def kinds_of(key: tuple) -> tuple[Kind, ...]:
    """The kinds of arguments that `seen` has seen."""
    return tuple(map(_kind_of, key))


def _kind_of(key: Any) -> Kind:
    if isinstance(key, tuple):
        return kinds_of(key)
    if not isinstance(key, int):
        return {int: "int64", float: "float64", bool: "bool"}[key]
    number, axes = divmod(key, _AXES)
    return _NAMES[number] + (f"[{',' * (axes - 1)}]" if axes else "")


# Writing


def keep(function: FunctionType, kinds: Sequence[Kind], result: str, externals: Sequence[str], code: bytes) -> None:
    """Write the file of a kernel; one without code says that only Numba loads it."""
    path = _path(function, kinds)
    if path is None:
        return
    parts = _processor(), " ".join(externals).encode(), result.encode(), code
    # Where nothing can be written, Numba loads it.
    with suppress(OSError, DerivableError):
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path, "wb") as file:
            file.write(b"\n".join([_mark(function, parts), *parts]))
