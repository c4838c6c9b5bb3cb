"""Compile the kernels that are written by hand, for the types that they list, into one file: when a package is built.

    python -m derivable.device.cpu.building.build_kernels [FILE [PROCESSOR]]

A processor is one of LLVM's names, such as x86-64-v3; without one it is this machine's. Without a file it is that of an
editable install. What was compiled of the same texts before is in the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

from derivable.core.cache import cache_directory
from derivable.core.files import atomic_write, locked
from derivable.device.cpu import object_code
from derivable.device.cpu.built_kernels import Kernel
from derivable.device.cpu.threads import available_cores

# Those that take longest begin first.
_LONGEST = ("datalog.machine.proof_driver", "circuit.kernels.choice", "datalog.machine.driver")


def modules() -> list[str]:
    """The modules that have kernels with types."""
    paths = (
        path
        for path in (object_code.SOURCES / "derivable").rglob("*.py")
        if re.search(r"^@kernel\((?!\w+=)", path.read_text(), re.M)
    )
    names = {".".join(path.relative_to(object_code.SOURCES).with_suffix("").parts) for path in paths}
    first = [name for name in (f"derivable.{name}" for name in _LONGEST) if name in names]
    return [*first, *sorted(names.difference(first))]


def kernels_of(module: str) -> Iterator[tuple[Kernel, tuple[object_code.Kind, ...]]]:
    """The kernels of a module, each for the types of some arguments."""
    for value in vars(import_module(module)).values():
        if isinstance(value, Kernel) and value.__module__ == module:
            yield from ((value, object_code.parsed(signature)) for signature in value.signatures)


def compile_module(module: str, features: list[str]) -> object_code.Codes:
    """The code of the kernels of a module, for a processor with these features."""
    codes = {}
    for kernel, kinds in kernels_of(module):
        symbol, stamp = object_code.symbol(kernel.py_func, kinds), object_code.stamp(module)
        # By what it is made from, so that who goes from one commit to another compiles nothing twice.
        key = repr((symbol, stamp, features, version("numba"), version("llvmlite"))).encode()
        path = cache_directory() / "kernels" / f"{kernel.__name__}-{hashlib.sha256(key).hexdigest()[:24]}.o"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            with atomic_write(path, "wb") as file:
                file.write(_compiled(kernel, kinds, symbol))
        codes[symbol] = stamp, path.read_bytes()
    return codes


def _compiled(kernel: Kernel, kinds: tuple[object_code.Kind, ...], symbol: str) -> bytes:
    from derivable.device.cpu.building.entries import emitted
    from derivable.device.cpu.building.numba_parts import type_of

    types = tuple(map(type_of, kinds))
    kernel.dispatcher.compile(types)
    return emitted(kernel.dispatcher.overloads[types], symbol)


def build(path: Path, processor: str = "") -> int:
    """Compile all for a processor; returns how many there are."""
    features = sorted(FEATURES[processor]) if processor else _features()
    if processor:
        os.environ["NUMBA_CPU_NAME"] = processor
        os.environ["NUMBA_CPU_FEATURES"] = ",".join(f"+{feature}" for feature in features)
    path.parent.mkdir(exist_ok=True)
    with locked(path.with_suffix(".lock")), ProcessPoolExecutor(available_cores(), get_context("spawn")) as pool:
        names = modules()
        parts = list(pool.map(compile_module, names, [features] * len(names)))
        codes = {symbol: code for part in parts for symbol, code in part.items()}
        object_code.write_package(path, features, codes)
    return len(codes)


# What processors of these levels have, by LLVM's names.
_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
FEATURES = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}


def _features() -> list[str]:
    from llvmlite import binding as llvm

    return sorted(name for name, is_there in llvm.get_host_cpu_features().items() if is_there)


if __name__ == "__main__":
    file, *processor = sys.argv[1:] or [str(object_code.package_folder() / "native.objects")]
    print(f"{build(Path(file), *processor)} kernels")
