"""What yosys makes of SystemVerilog for a Xilinx device: cells by kind, labelled with the tool and its version.

Modules are synthesised one by one and counted as often as they occur, so that the time is that of the modules, and not
of the size of the array. What is optimised across them is little: 4 x 4 x 2 elements have 3,840 look-up tables so, and
3,845 if flattened. Wide look-up tables (MUXF7 to MUXF9) are left out, with which version 0.23 wants 1.4 times as many.

The family matters: under `xcup` (UltraScale+), version 0.23 leaves adders and registers in the fabric; `xc7` absorbs
some of them into the slices, but has no multiplier of 27 x 18 bits and takes two slices for an element.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from derivable.accelerator.hardware.resources import Resources
from derivable.core.diagnostics import CompileTimeout, DomainError, MissingDependencyError

# How many of what a device has are in each cell of yosys' Xilinx libraries. Shift registers and distributed memories
# are look-up tables (AMD, UltraScale Architecture Configurable Logic Block, UG574).
_CELLS: dict[str, dict[re.Pattern, int]] = {
    "dsp": {re.compile(r"DSP48\w*"): 1},
    "lut": {
        re.compile(r"LUT[1-6]|SRL16E|SRLC32E"): 1,
        re.compile(r"RAM(32|64)X1D"): 2,
        re.compile(r"RAM(32M|64M|128X1D)"): 4,
        re.compile(r"RAM(32M16|64M8|256X1D)"): 8,
    },
    "ff": {re.compile(r"FD[CPRS]E(_1)?"): 1},
    "bram": {re.compile(r"RAMB18\w*"): 1, re.compile(r"RAMB36\w*"): 2},
    "uram": {re.compile(r"URAM288\w*"): 1},
}
_COUNTED = re.compile(r"^\s+(\w+)\s+(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Synthesis:
    """What a tool reports of a design.

    tool     its name and version, and the family: "Yosys 0.23, xcup"
    cells    how many there are of each kind, as the tool names them
    seconds  that it took
    """

    tool: str
    resources: Resources
    cells: tuple[tuple[str, int], ...]
    seconds: float


@functools.cache
def version() -> str | None:
    """ "Yosys 0.23" of the yosys that is installed, None without one."""
    if shutil.which("yosys") is None:
        return None
    printed = subprocess.run(["yosys", "-V"], capture_output=True, text=True, timeout=60).stdout
    found = re.match(r"Yosys \S+", printed)
    return found[0] if found else "Yosys"


def synthesise(
    sources: Sequence[Path],
    top: str,
    parameters: Mapping[str, int] | None = None,
    *,
    family: str = "xcup",
    time_limit: float = 600,
) -> Synthesis:
    """Synthesise the module `top` of some SystemVerilog files, with its parameters set.

    family      of `synth_xilinx`: xcup, xcu, xc7
    time_limit  seconds

    Raises MissingDependencyError without yosys, DomainError with what yosys says against the sources, CompileTimeout.
    """
    tool = version()
    if tool is None:
        raise MissingDependencyError("yosys is not installed", hint="install it: `apt-get install yosys`")
    files = [str(Path(source).resolve()) for source in sources]
    chosen = " ".join(f"-set {name} {value}" for name, value in (parameters or {}).items())
    with tempfile.TemporaryDirectory() as folder:
        report, script = Path(folder) / "cells.txt", Path(folder) / "synthesise.ys"
        rows = [f'read_verilog -sv "{file}"' for file in files]
        rows += [f"chparam {chosen} {top}"] if chosen else []
        rows += [
            f"synth_xilinx -family {family} -top {top} -noiopad -noclkbuf -nowidelut",
            f"tee -q -o cells.txt stat -top {top}",
        ]
        script.write_text("\n".join(rows) + "\n")
        start = time.monotonic()
        try:
            done = subprocess.run(
                ["yosys", "-q", "-s", str(script)], capture_output=True, text=True, timeout=time_limit, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise CompileTimeout(
                f"yosys did not finish `{top}` within {time_limit:g} s",
                hint="give a smaller array or a larger time_limit=",
            ) from None
        if done.returncode or not report.exists():
            said = [line for line in (done.stderr + done.stdout).splitlines() if "ERROR" in line] or ["nothing"]
            raise DomainError(f"yosys does not synthesise `{top}`: {said[0]}", source=", ".join(files))
        # The last table is that of the whole design, where there is more than one module.
        text = report.read_text()
        cells = {name: int(count) for name, count in _COUNTED.findall(text[text.rfind("Number of cells") :])}
    seconds = time.monotonic() - start
    counted = {
        kind: sum(weight * n for cell, n in cells.items() for form, weight in forms.items() if form.fullmatch(cell))
        for kind, forms in _CELLS.items()
    }
    return Synthesis(f"{tool}, {family}", Resources(**counted), tuple(sorted(cells.items())), seconds)
