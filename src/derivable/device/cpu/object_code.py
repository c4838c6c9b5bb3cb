"""Compiled kernels as object code on disk, which LLVM links in a tenth of a millisecond, without Numba.

To import Numba takes a fifth of a second, and to compile a kernel from tenths of a second to many. So what Numba has
compiled is written with an entry that Python calls as a built-in function: it reads numbers and arrays as Python's and
NumPy's headers lay them out, and calls nothing of Numba's run time.

Kernels written by hand are compiled when the package is built (`build_kernels`), all into one file for a kind of
processor; generated ones, and those whose text has changed since, when they are first used, each into a file of its own
in the user's cache. Code is used only if what it was made from is as it was: the text of the kernel's module and of
those whose kernels that calls, with their constants, and in the user's cache the installed Numba.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import os
import pickle
import platform
import re
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
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

# Changes with how entries are called, and with the files.
_FORMAT = 3
# Numba's settings that change nothing of what it compiles; with others, Numba itself loads kernels.
_HARMLESS = {"NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS"}
_lock = threading.Lock()
renew_in_children(globals(), _lock=threading.Lock)
# What is linked, by symbol; definitions of built-in functions, which must stay.
_addresses: dict[str, int] = {}
_definitions: list[Any] = []

# The types of an argument: "int64" is a number, "int64[]" an array, "int64[,]" one with two axes, "const int64[]" one
# that is only read; or those of a tuple.
Kind = str | tuple


@cache
def parsed(signature: str) -> tuple[Kind, ...]:
    """The kinds of arguments in a text, as in "int64 (int64[,] const uint8[])": a number, and a tuple of two arrays."""
    open_tuples: list[list[Kind]] = [[]]
    for word in re.findall(r"[()]|(?:const )?[^()\s]+", signature):
        if word == "(":
            open_tuples.append([])
        elif word == ")":
            last = tuple(open_tuples.pop())
            open_tuples[-1].append(last)
        else:
            open_tuples[-1].append(word)
    (kinds,) = open_tuples
    return tuple(kinds)


# Which code


def has_code(function: FunctionType, kinds: Sequence[Kind]) -> bool:
    """Whether a kernel for arguments of these kinds is linked without Numba."""
    found = _found(function, kinds)
    return found is not None and bool(found[1])


def has_file(function: FunctionType, kinds: Sequence[Kind]) -> bool:
    """Whether it has code for this processor, or a file that says that there is none; or there can be none."""
    return _found(function, kinds) is not None or _path(function, kinds) is None


def _found(function: FunctionType, kinds: Sequence[Kind]) -> tuple[list[str], bytes] | None:
    """The functions of other libraries that a kernel calls, and its code, empty if it has none; None if not known."""
    if not _is_plain() or function.__closure__:
        return None
    return _from_package(function, kinds) or _from_cache(function, kinds)


@cache
def _is_plain() -> bool:
    """Whether Numba compiles as it does by default, and objects are laid out as entries read them."""
    has_settings = any(name.startswith("NUMBA_") and name not in _HARMLESS for name in os.environ)
    return not has_settings and _has_layout()


def symbol(function: FunctionType, kinds: Sequence[Kind]) -> str:
    """The name that the entry of a kernel has in its code."""
    key = repr((function.__module__, function.__qualname__, tuple(kinds)))
    return f"derivable_{hashlib.sha256(key.encode()).hexdigest()[:24]}"


# What code is made from


@cache
def stamp(module: str) -> str:
    """Of the texts of a module and of those whose kernels that calls, and of the constants that are known there."""
    digest, names = hashlib.sha256(f"{_FORMAT}".encode()), _modules(module)
    if any(name.startswith("=") for name in names):
        names |= _OF_INTRINSICS
    for name in sorted(names):
        path = _file_of(name.removeprefix("="))
        digest.update(f"{name} {path and _digest(path)} {_constants(name)}".encode())
    return digest.hexdigest()


def _constants(module: str) -> list[tuple[str, str]]:
    known = vars(sys.modules[module]) if module in sys.modules else {}
    return sorted((name, repr(x)) for name, x in known.items() if _is_constant(x) and not name.startswith("__"))


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, (int, float, str, np.generic))


def paths_of(module: str) -> list[str]:
    """The files of the modules that compiled kernels of a module call."""
    return [path for name in _modules(module) if (path := _file_of(name.removeprefix("=")))]


@cache
def _modules(module: str) -> frozenset[str]:
    names, waiting = {module}, [module]
    while waiting:
        known = sys.modules.get(waiting.pop())
        called = {name for value in vars(known).values() for name in _modules_of(value)} if known else set()
        waiting += called - names
        names |= called
    return frozenset(names)


# The modules of intrinsics, which call each other's.
_OF_INTRINSICS = {f"=derivable.device.cpu.{name}" for name in ("place_code", "pointers")}


def _modules_of(value: Any) -> Iterator[str]:
    """Modules whose text a kernel has that calls this value; with "=" where what these call is not to be looked at."""
    if isinstance(value, Intrinsic):
        yield f"={value.module}"
    elif isinstance(value, ModuleType):
        if value.__name__.startswith("derivable.") and not hasattr(value, "__path__"):
            yield value.__name__
    elif isinstance(function := getattr(value, "__dict__", {}).get("py_func"), FunctionType):
        yield function.__module__


@cache
def _file_of(module: str) -> str | None:
    spec = None if module == "__main__" else importlib.util.find_spec(module)
    return None if spec is None else spec.origin


@cache
def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        # What has no text has none later either.
        return path


# Code in the package


def package_folder() -> Path:
    """Where the files of compiled kernels are that the package brings, one for a kind of processor."""
    return Path(__file__).parent / "compiled"


def read_package(path: Path) -> tuple[Path | None, int, dict[str, Any]]:
    """A file of compiled kernels, where its code begins, and what it says of itself; no path if it has another form."""
    with suppress(OSError, ValueError, KeyError), path.open("rb") as file:
        header = file.readline()
        said = json.loads(header)
        if said["machine"] == _machine():
            return path, len(header), said
    return None, 0, {}


def code_in(package: tuple[Path | None, int, dict[str, Any]], name: str, of: str) -> tuple[list[str], bytes] | None:
    """The functions of other libraries that a kernel calls, and its code, if a file has it for this stamp."""
    path, start, said = package
    known, externals, position, size = said.get("kernels", {}).get(name, ("", "", 0, 0))
    if path is None or known != of:
        return None
    with suppress(OSError), path.open("rb") as file:
        file.seek(start + position)
        code = file.read(size)
        return (externals.split(), code) if len(code) == size else None
    return None


def write_package(path: Path, features: Sequence[str], codes: Mapping[str, tuple[str, Sequence[str], bytes]]) -> None:
    """Write kernels to one file: symbol -> (stamp, functions of other libraries, code)."""
    entries, position = {}, 0
    for name, (of, externals, code) in codes.items():
        entries[name] = [of, " ".join(externals), position, len(code)]
        position += len(code)
    header = json.dumps({"machine": _machine(), "features": sorted(features), "kernels": entries}).encode()
    path.parent.mkdir(exist_ok=True)
    with atomic_write(path, "wb") as file:
        file.write(header + b"\n" + b"".join(code for _, _, code in codes.values()))


def _from_package(function: FunctionType, kinds: Sequence[Kind]) -> tuple[list[str], bytes] | None:
    if not function.__module__.startswith(("derivable.", "derivable_")):
        return None
    return code_in(_package(), symbol(function, kinds), stamp(function.__module__))


@cache
def _package() -> tuple[Path | None, int, dict[str, Any]]:
    """The file for the most features that this processor has."""
    from llvmlite import binding as llvm

    best: tuple[Path | None, int, dict[str, Any]] = (None, 0, {})
    most, has = -1, {name for name, is_there in llvm.get_host_cpu_features().items() if is_there}
    for path in sorted(package_folder().glob("*.objects")):
        found = read_package(path)
        needed = found[2].get("features", ())
        if found[0] is not None and has >= set(needed) and len(needed) > most:
            best, most = found, len(needed)
    return best


def _machine() -> str:
    return f"{sys.platform} {platform.machine()} {_FORMAT}"


# Code in the user's cache


def _path(function: FunctionType, kinds: Sequence[Kind]) -> Path | None:
    """The file of a kernel; None where only Numba may compile and load it."""
    if function.__closure__ or not _is_plain():
        return None
    key = function.__code__.co_filename, symbol(function, kinds)
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:24]
    return cache_directory() / "objects" / f"{function.__name__}-{digest}.o"


def _from_cache(function: FunctionType, kinds: Sequence[Kind]) -> tuple[list[str], bytes] | None:
    path = _path(function, kinds)
    try:
        said, *parts = path.read_bytes().split(b"\n", 3) if path else (b"",)
    except OSError:
        return None
    is_whole = len(parts) == 3 and said == _mark(function, parts)
    return (parts[1].decode().split(), parts[2]) if is_whole and parts[0] == _processor() else None


def keep(function: FunctionType, kinds: Sequence[Kind], externals: Sequence[str], code: bytes) -> None:
    """Write the file of a kernel; one without code says that only Numba loads it."""
    path = _path(function, kinds)
    if path is None:
        return
    parts = _processor(), " ".join(externals).encode(), code
    # Where nothing can be written, Numba loads it.
    with suppress(OSError, DerivableError):
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path, "wb") as file:
            file.write(b"\n".join([_mark(function, parts), *parts]))


def _mark(function: FunctionType, parts: Sequence[bytes]) -> bytes:
    """Of what a file is, and that it is whole."""
    whole = hashlib.sha256(b"".join(parts)).hexdigest()
    return f"{stamp(function.__module__)} {_installed()} {whole}".encode()


@cache
def _installed() -> str:
    """Which Numba compiles."""
    path = _file_of("numba")
    file = None if path is None else os.stat(path)
    return f"{file and file.st_mtime_ns}-{file and file.st_size}"


@cache
def _processor() -> bytes:
    from llvmlite import binding as llvm

    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}".encode()


# Linking


class _Definition(ctypes.Structure):
    """What Python makes a built-in function from."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("entry", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


# Arguments come as an array of objects.
_FASTCALL = 0x80


def linked(function: FunctionType, kinds: Sequence[Kind]) -> Callable | None:
    """The kernel as a built-in function, NotImplemented for arguments of other kinds; None if only Numba has it."""
    entry = address(function, kinds)
    if entry is None:
        return None
    _definitions.append(_Definition(function.__name__.encode(), entry, _FASTCALL, (function.__doc__ or "").encode()))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return make(("PyCFunction_NewEx", ctypes.pythonapi))(ctypes.addressof(_definitions[-1]), None, None)


def address(function: FunctionType, kinds: Sequence[Kind]) -> int | None:
    """The address of a kernel's entry; None if only Numba has it."""
    found = _found(function, kinds)
    if found is None or not found[1]:
        return None
    from llvmlite import binding as llvm

    externals, code = found
    # Code that is linked twice after a Ctrl-C would have its name twice.
    with sigint_deferred(), _lock:
        engine = _engine()
        if not all(map(llvm.address_of_symbol, externals)):
            return None
        name = symbol(function, kinds)
        if name not in _addresses:
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            engine.finalize_object()
            _addresses[name] = engine.get_function_address(name)
        return _addresses[name]


@cache
def _engine() -> Any:
    """What links."""
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name, of in OF_PYTHON.items():
        llvm.add_symbol(name, of())
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
    return None if _is_plain() else "the environment or the processor has Numba compile otherwise than by default"


# What entries know of Python and NumPy

# Where objects have their type, a number its value, a tuple its length and its items; and arrays the address of their
# numbers, their axes, their shape, their dtype and their flags; and a dtype its order of bytes and its number.
TYPE, NUMBER, LENGTH, ITEMS = 8, 16, 16, 24
DATA, AXES, SHAPE, DTYPE, FLAGS = 16, 24, 32, 56, 64
ORDER, DTYPE_NUMBER = 26, 28
# The flags of arrays that are in C order and aligned, and of those that may be written.
READABLE, WRITEABLE = 0x1 | 0x100, 0x400
# The numbers of NumPy's dtypes from bool to float64, and their letters.
CODES = "?bBhHiIlLqQfd"
ARRAY_TYPE, EMPTY, LOADS = "derivable_ndarray", "derivable_empty", "derivable_loads"
_NAMES = dict.fromkeys(np.dtype(code).name for code in CODES)


def scalar_type(name: str) -> str:
    """The symbol of the type of NumPy's scalars."""
    return f"derivable_{name}"


def dtype_symbol(name: str) -> str:
    """The symbol of a dtype of NumPy."""
    return f"derivable_dtype_{name}"


def _in_python(name: str) -> Callable[[], int]:
    return lambda: ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, name))


_FUNCTIONS = """PyEval_SaveThread PyEval_RestoreThread Py_IncRef Py_DecRef PyLong_AsLongLong PyErr_Occurred PyErr_Clear
    PyBytes_FromStringAndSize PyObject_CallOneArg PyTuple_GetItem PyErr_SetObject PyTuple_New PyTuple_SetItem
    PyBool_FromLong PyFloat_FromDouble PyLong_FromLongLong PyLong_FromUnsignedLongLong PyObject_CallObject"""
_OBJECTS = """PyLong_Type PyFloat_Type PyBool_Type PyTuple_Type _Py_TrueStruct _Py_NoneStruct
    _Py_NotImplementedStruct"""
# What entries call and compare with: symbol -> its address.
OF_PYTHON: dict[str, Callable[[], int]] = {
    **{name: _in_python(name) for name in (*_FUNCTIONS.split(), *_OBJECTS.split())},
    **{scalar_type(name): lambda name=name: id(np.dtype(name).type) for name in _NAMES},
    **{dtype_symbol(name): lambda name=name: id(np.dtype(name)) for name in _NAMES},
    ARRAY_TYPE: lambda: id(np.ndarray),
    EMPTY: lambda: id(np.empty),
    LOADS: lambda: id(pickle.loads),
}


@cache
def _has_layout() -> bool:
    """Whether objects are laid out as entries read them: not where Python's objects begin otherwise."""
    if sys.implementation.name != "cpython" or sys.byteorder != "little" or struct.calcsize("P") != 8:
        return False
    if (
        object.__basicsize__ != NUMBER
        or tuple.__basicsize__ != ITEMS
        or not hasattr(ctypes.pythonapi, "PyObject_CallOneArg")
    ):
        return False
    probe, pair, number = np.zeros((3, 5), np.int16), (None, 7), np.int64(3)
    word, short = ctypes.c_int64.from_address, ctypes.c_int.from_address
    shape, dtype = word(id(probe) + SHAPE).value, word(id(probe) + DTYPE).value
    return (
        word(id(probe) + TYPE).value == id(np.ndarray)
        and word(id(probe) + DATA).value == probe.ctypes.data
        and short(id(probe) + AXES).value == 2
        and [word(shape).value, word(shape + 8).value] == [3, 5]
        and short(id(probe) + FLAGS).value == probe.flags.num
        and short(dtype + DTYPE_NUMBER).value == probe.dtype.num
        and ctypes.c_char.from_address(dtype + ORDER).value == probe.dtype.byteorder.encode()
        and word(id(number) + NUMBER).value == number
        and [word(id(pair) + LENGTH).value, word(id(pair) + ITEMS + 8).value] == [2, id(pair[1])]
    )


def kinds_of(arguments: Any) -> tuple[Kind, ...] | None:
    """The kinds of some arguments, a tuple; None where one is for Numba alone."""
    kinds = tuple(map(_kind_of, arguments))
    return None if None in kinds else kinds  # type: ignore[return-value]


def _kind_of(value: Any) -> Kind | None:
    of = type(value)
    if of is np.ndarray and value.dtype.num < len(CODES) and value.ndim and value.dtype.isnative:
        return f"{'' if value.flags.writeable else 'const '}{value.dtype.name}[{',' * (value.ndim - 1)}]"
    if of in (int, float, bool):
        return {int: "int64", float: "float64", bool: "bool"}[of]
    if isinstance(value, np.generic) and value.dtype.num < len(CODES):
        return value.dtype.name
    return kinds_of(value) if of is tuple and value else None
