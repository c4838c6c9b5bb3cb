"""The object code of kernels that are written by hand, in a file of the package, which LLVM links in a tenth of a
millisecond.

`building` writes a file for a kind of processor: kernels with an entry that Python calls as a built-in function, which
reads numbers and arrays as Python's and NumPy's headers lay them out. Code is used only if what it was made from is as
it was: the text of the kernel's module and of those whose kernels that calls, with their constants.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from derivable.core.files import atomic_write
from derivable.core.interrupts import sigint_deferred
from derivable.device.cpu import cpython, linking

# Changes with the form of the files.
_FORMAT = 4
SOURCES = Path(__file__).parents[3]
# What is linked, by symbol.
_addresses: dict[str, int] = {}

# The types of an argument: "int64" is a number, "int64[]" an array, "int64[,]" one with two axes; or those of a tuple.
Kind = str | tuple
# By symbol: the stamp of what a kernel was made from, and its code.
Codes = Mapping[str, tuple[str, bytes]]


@cache
def parsed(signature: str) -> tuple[Kind, ...]:
    """The kinds of arguments in a text, as in "int64 (int64[,] uint8[])": a number, and a tuple of two arrays."""
    open_tuples: list[list[Kind]] = [[]]
    for word in re.findall(r"[()]|[^()\s]+", signature):
        if word == "(":
            open_tuples.append([])
        elif word == ")":
            last = tuple(open_tuples.pop())
            open_tuples[-1].append(last)
        else:
            open_tuples[-1].append(word)
    (kinds,) = open_tuples
    return tuple(kinds)


def symbol(function: FunctionType, kinds: Sequence[Kind]) -> str:
    """The name that the entry of a kernel has in its code."""
    key = repr((function.__module__, function.__qualname__, tuple(kinds)))
    return f"derivable_{hashlib.sha256(key.encode()).hexdigest()[:24]}"


# What code is made from


@cache
def stamp(module: str) -> str:
    """Of the texts of a module and of those whose kernels that calls, of the constants that are known there, and of
    what compiles it.
    """
    names = sorted(_modules(module))
    paths = [*map(_file_of, names), *sorted((Path(__file__).parent / "building").glob("*.py"))]
    digest = hashlib.sha256(repr([list(map(_constants, names)), list(map(_digest, paths))]).encode())
    return digest.hexdigest()


def _constants(module: str) -> list[tuple[str, str]]:
    known = vars(sys.modules[module]) if module in sys.modules else {}
    return sorted((name, repr(x)) for name, x in known.items() if _is_constant(x) and not name.startswith("__"))


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, (int, float, str, np.generic))


@cache
def _modules(module: str) -> frozenset[str]:
    names, waiting = {module}, [module]
    while waiting:
        known = sys.modules.get(waiting.pop())
        called = {name for value in vars(known).values() for name in _modules_of(value)} if known else set()
        waiting += called - names
        names |= called
    return frozenset(names)


def _modules_of(value: Any) -> Iterator[str]:
    """Modules whose text a kernel has that calls this value."""
    if isinstance(value, ModuleType):
        if value.__name__.startswith("derivable.") and not hasattr(value, "__path__"):
            yield value.__name__
    elif isinstance(function := getattr(value, "__dict__", {}).get("py_func"), FunctionType):
        yield function.__module__


@cache
def _file_of(module: str) -> str | None:
    spec = None if module == "__main__" else importlib.util.find_spec(module)
    return None if spec is None else spec.origin


@cache
def _digest(path: str | Path | None) -> str:
    return "" if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()


# The file


def package_folder() -> Path:
    """Where the files of compiled kernels are that the package brings, one for a kind of processor."""
    return Path(__file__).parent / "compiled"


def read_package(path: Path) -> tuple[list[str], Codes]:
    """(what a processor needs for a file of compiled kernels, the kernels); none of a file of another form."""
    with suppress(OSError, ValueError, KeyError):
        header, _, code = path.read_bytes().partition(b"\n")
        said = json.loads(header)
        if said["machine"] == _machine() and said["size"] == len(code):
            return said["features"], {name: (of, code[a:b]) for name, (of, a, b) in said["kernels"].items()}
    return [], {}


def write_package(path: Path, features: Sequence[str], codes: Codes) -> None:
    """Write kernels to one file."""
    entries, size = {}, 0
    for name, (of, code) in codes.items():
        entries[name] = of, size, size + len(code)
        size += len(code)
    said = {"machine": _machine(), "features": list(features), "size": size, "kernels": entries}
    path.parent.mkdir(exist_ok=True)
    with atomic_write(path, "wb") as file:
        file.write(json.dumps(said).encode() + b"\n" + b"".join(code for _, code in codes.values()))


@cache
def package() -> Codes:
    """The kernels for the most features that this processor has."""
    from llvmlite import binding as llvm

    has = {name for name, is_there in llvm.get_host_cpu_features().items() if is_there}
    files = map(read_package, sorted(package_folder().glob("*.objects")))
    fitting = [(len(needed), codes) for needed, codes in files if has >= set(needed)]
    return max(fitting, key=lambda one: one[0], default=(0, {}))[1]


def _code(function: FunctionType, kinds: Sequence[Kind]) -> bytes | None:
    of, code = package().get(symbol(function, kinds), ("", b""))
    return code if of == stamp(function.__module__) else None


def has_code(function: FunctionType, kinds: Sequence[Kind]) -> bool:
    """Whether a kernel is compiled for arguments of these kinds, for this processor and from its text."""
    return _code(function, kinds) is not None


def _machine() -> str:
    return f"{sys.platform} {platform.machine()} {_FORMAT}"


# Linking


def linked(function: FunctionType, kinds: Sequence[Kind]) -> Callable:
    """A compiled kernel as a built-in function, which gives NotImplemented for arguments of other kinds."""
    name = symbol(function, kinds)
    code = _code(function, kinds)
    assert code is not None, name
    # A Ctrl-C would leave code linked that nothing knows of.
    with sigint_deferred(), linking.lock:
        if name not in _addresses:
            _add_symbols()
            _addresses[name] = linking.link(name, code)
    return cpython.built_in(function.__name__, _addresses[name], doc=function.__doc__)


@cache
def _add_symbols() -> None:
    from llvmlite import binding as llvm

    for name, of in cpython.SYMBOLS.items():
        llvm.add_symbol(name, of())
