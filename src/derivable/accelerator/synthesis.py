"""What yosys makes of SystemVerilog for a Xilinx device: cells by kind, labelled with the tool and its version.

The family matters: under `xcup` (UltraScale+), version 0.23 leaves adders and registers in the fabric; `xc7` absorbs
them into the slices, and is a proxy for what the vendor's tool does.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from derivable.accelerator.resources import Resources
from derivable.core.diagnostics import CompileTimeout, DomainError, MissingDependencyError

# Cells of yosys' Xilinx libraries that are one of what a device has.
_CELLS = {
    "dsp": re.compile(r"DSP48\w*"),
    "lut": re.compile(r"LUT[1-6]"),
    "ff": re.compile(r"FD[CPRS]E(_1)?"),
    "uram": re.compile(r"URAM288\w*"),
}
_BRAM = {re.compile(r"RAMB18\w*"): 1, re.compile(r"RAMB36\w*"): 2}


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
        report, script = Path(folder) / "cells.json", Path(folder) / "synthesise.ys"
        rows = [f'read_verilog -sv "{file}"' for file in files]
        rows += [f"chparam {chosen} {top}"] if chosen else []
        rows += [
            f"synth_xilinx -family {family} -top {top} -flatten -noiopad -noclkbuf",
            "tee -q -o cells.json stat -json",
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
                hint="give a smaller array or a longer time_limit",
            ) from None
        if done.returncode or not report.exists():
            said = [line for line in (done.stderr + done.stdout).splitlines() if "ERROR" in line] or ["nothing"]
            raise DomainError(f"yosys does not synthesise `{top}`: {said[0]}", source=", ".join(files))
        cells = json.loads(report.read_text())["design"]["num_cells_by_type"]
    seconds = time.monotonic() - start
    counted = {kind: sum(n for cell, n in cells.items() if form.fullmatch(cell)) for kind, form in _CELLS.items()}
    bram = sum(weight * n for cell, n in cells.items() for form, weight in _BRAM.items() if form.fullmatch(cell))
    return Synthesis(f"{tool}, {family}", Resources(**counted, bram=bram), tuple(sorted(cells.items())), seconds)
