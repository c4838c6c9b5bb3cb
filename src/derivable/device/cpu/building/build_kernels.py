"""Compile the kernels that are written by hand, for the types that they list, into one file: when a package is built.

    python -m derivable.device.cpu.building.build_kernels [FILE [PROCESSOR]]

A processor is one of LLVM's names, such as x86-64-v3; without one it is this machine's. Without a file it is that of an
editable install. What the file has of the same texts stays. There are as many processes as cores.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from derivable.core.files import locked
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


def compile_module(module: str, known: object_code.Codes) -> object_code.Codes:
    """The code of the kernels of a module, of which some is known."""
    codes: dict[str, tuple[str, bytes]] = {}
    for kernel, kinds in kernels_of(module):
        symbol, stamp = object_code.symbol(kernel.py_func, kinds), object_code.stamp(module)
        if known.get(symbol, ("",))[0] == stamp:
            codes[symbol] = known[symbol]
            continue
        from derivable.device.cpu.building.entries import emitted
        from derivable.device.cpu.building.numba_parts import type_of

        types = tuple(map(type_of, kinds))
        kernel.dispatcher.compile(types)
        codes[symbol] = stamp, emitted(kernel.dispatcher.overloads[types], symbol)
    return codes


def build(path: Path, processor: str = "") -> int:
    """Compile all for a processor; returns how many there are."""
    features = sorted(FEATURES[processor]) if processor else _features()
    if processor:
        os.environ["NUMBA_CPU_NAME"] = processor
        os.environ["NUMBA_CPU_FEATURES"] = ",".join(f"+{feature}" for feature in features)
    path.parent.mkdir(exist_ok=True)
    with locked(path.with_suffix(".lock")):
        of, known = object_code.read_package(path)
        known = known if of == features else {}
        names = modules()
        with ProcessPoolExecutor(available_cores(), get_context("spawn")) as pool:
            parts = list(pool.map(compile_module, names, [known] * len(names)))
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
