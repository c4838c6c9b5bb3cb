"""SystemVerilog as a shared library: Verilator translates it to C++, which is compiled with a harness and kept.

What was built is found by its content: sources, parameters, harness, tools and their options. Verilator's own Makefile
would compile each of its many small files by itself, mostly headers, and its runtime library anew for each design:
together, and with the runtime library kept, an array of 8 x 8 x 2 takes 3 s of processor time instead of 8.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from derivable.accelerator.hardware.commands import run
from derivable.accelerator.hardware.elaboration import Hardware
from derivable.accelerator.operators.runtime import ceil_div
from derivable.core.cache import cache_directory
from derivable.core.diagnostics import MissingDependencyError
from derivable.core.files import locked
from derivable.core.progress import progress

# -O1 builds in half the time of -O2, and what it builds is about as fast: half a million cycles a second of 8 x 8 x 2.
COMPILE = ("-O1", "-std=gnu++17", "-fPIC", "-fno-gnu-unique", "-w")
# Registers and memories begin with random bits (`randReset` and `randSeed` of a context), as those of a chip may.
VERILATE = ("-O3", "--x-assign", "fast", "--x-initial", "unique", "--noassert", "-Wno-fatal", "-Wno-lint")
SMALLER = 'design with a smaller pes=, or simulate with backend="python"'
_PART = 1 << 21  # bytes of C++ that one process compiles, before it is worth starting another


@functools.cache
def version() -> str | None:
    """Verilator and the C++ compiler that are installed, None where one of them is missing."""
    if shutil.which("verilator") is None or shutil.which("g++") is None:
        return None
    printed = [
        subprocess.run([tool, option], capture_output=True, text=True, timeout=60).stdout.splitlines()[:1]
        for tool, option in (("verilator", "--version"), ("g++", "-dumpfullversion"))
    ]
    return ", g++ ".join("".join(lines) for lines in printed)


def build(made: Hardware, harness: Mapping[str, str], *, time_limit: float = 1800) -> Path:
    """The shared library of a module and a harness, built now or before.

    harness     C++ and headers, text by name of file; they see `V<module>.h`, and have functions that are `extern "C"`
    time_limit  seconds for each of the tools

    Safe in several processes: one builds, the others wait for it. Raises MissingDependencyError without Verilator or
    g++, DomainError with what a tool says against the sources, CompileTimeout.
    """
    tools = version()
    if tools is None:
        raise MissingDependencyError(
            "simulation needs Verilator and g++, and one of them is not installed",
            hint='install them: `apt-get install verilator g++`; or simulate with backend="icarus" or "python"',
        )
    parts = [made.digest, tools, *VERILATE, *COMPILE, *(part for item in sorted(harness.items()) for part in item)]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    place = cache_directory() / f"{made.top}_{digest}.so"
    if not place.exists():
        # One step for translating, one for compiling, which is most of it.
        with progress(f"building `{made.top}` for simulation", 2) as advance, locked(place.with_suffix(".lock")):
            if not place.exists():
                _build(made, harness, place, time_limit, advance)
    return place


def _build(
    made: Hardware, harness: Mapping[str, str], place: Path, time_limit: float, advance: Callable[[], None]
) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{made.top}_", dir=place.parent) as folder:
        work = Path(folder)
        for name, text in {**made.files, **harness}.items():
            (work / name).write_text(text, encoding="utf-8")
        values = [f"-G{name}={value}" for name, value in made.parameters.items()]
        verilate = ["verilator", "--cc", *VERILATE, *values, "--top-module", made.top, "--Mdir", ".", *made.sources]
        run([verilate], work, made.top, time_limit, SMALLER)
        advance()
        include = subprocess.run(["verilator", "--getenv", "VERILATOR_ROOT"], capture_output=True, text=True)
        root = Path(include.stdout.strip()) / "include"
        flags = [*COMPILE, "-I.", f"-I{root}", f"-I{root / 'vltstd'}", *_DEFINITIONS]
        own = [path.name for path in sorted(work.glob("*.cpp"))]
        units = _units(work, own)
        compiling = [["g++", *flags, "-c", unit, "-o", f"{unit}.o"] for unit in units]
        run(compiling, work, made.top, time_limit, SMALLER)
        runtime = [_runtime(root / f"{name}.cpp", flags, time_limit) for name in _globals(work, made.top)]
        objects = [f"{unit}.o" for unit in units] + [str(path) for path in runtime]
        linking = ["g++", "-shared", "-Wl,-Bsymbolic", *objects, "-o", "built.so", "-pthread"]
        run([linking], work, made.top, time_limit, SMALLER)
        os.replace(work / "built.so", place)


_DEFINITIONS = ("-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TRACE=0", "-DVM_TRACE_FST=0", "-DVM_TRACE_VCD=0")


def _globals(work: Path, top: str) -> list[str]:
    """The files of Verilator's runtime library that a design needs."""
    text = (work / f"V{top}_classes.mk").read_text()
    found = re.findall(r"VM_GLOBAL_(?:FAST|SLOW) \+= \\\n((?:\t\w+ \\\n)*)", text)
    return [name for block in found for name in re.findall(r"\w+", block)]


def _units(work: Path, names: Sequence[str]) -> list[str]:
    """Files that include the given ones, about equally much each, one for a processor if there is enough."""
    sizes = {name: (work / name).stat().st_size for name in names}
    count = max(1, min(os.cpu_count() or 1, ceil_div(sum(sizes.values()), _PART)))
    groups: list[list[str]] = [[] for _ in range(count)]
    for name in sorted(names, key=lambda name: -sizes[name]):
        min(groups, key=lambda group: sum(sizes[member] for member in group)).append(name)
    units = []
    for number, group in enumerate(group for group in groups if group):
        unit = f"unit{number}.cc"
        (work / unit).write_text("".join(f'#include "{name}"\n' for name in group))
        units.append(unit)
    return units


def _runtime(source: Path, flags: Sequence[str], time_limit: float) -> Path:
    """An object file of Verilator's runtime library, compiled once for all designs."""
    key = "\0".join([str(version()), str(source), *flags])
    place = cache_directory() / f"{source.stem}_{hashlib.sha256(key.encode()).hexdigest()[:24]}.o"
    if not place.exists():
        with locked(place.with_suffix(".lock")), tempfile.TemporaryDirectory(dir=place.parent) as folder:
            if not place.exists():
                done = Path(folder) / place.name
                compiling = ["g++", *flags, "-c", str(source), "-o", str(done)]
                run([compiling], Path(folder), source.stem, time_limit, SMALLER)
                os.replace(done, place)
    return place
