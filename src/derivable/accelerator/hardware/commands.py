"""Tools of hardware as child processes: what they print goes to files, and one that fails ends the others."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from derivable.core.diagnostics import CompileTimeout, DerivableError, DomainError
from derivable.core.interrupts import end, waiter


def run(commands: Sequence[Sequence[str]], work: Path, top: str, time_limit: float, smaller: str) -> None:
    """Run commands at the same time in the folder `work`; end all of them when one fails or the time is over.

    top         the module that they are for
    time_limit  seconds
    smaller     the hint where time or memory does not suffice

    What each prints is in `{number}.log`. Raises DomainError with what a tool says against the sources,
    CompileTimeout, DerivableError where a tool was ended from outside.
    """
    started = []
    try:
        for number, command in enumerate(commands):
            with open(work / f"{number}.log", "wb") as log:
                started.append(subprocess.Popen(command, cwd=work, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        for number, (command, process) in enumerate(zip(commands, started)):
            thread = waiter(process)
            thread.join(time_limit)
            tool = Path(command[0]).name
            if thread.is_alive():
                raise CompileTimeout(f"{tool} did not finish `{top}` within {time_limit:g} s", hint=smaller)
            if process.returncode:
                said = (work / f"{number}.log").read_text(errors="replace")
                raise _failed(tool, top, process.returncode, said, smaller)
    finally:
        for process in started:
            end(process)


def _failed(tool: str, top: str, code: int, said: str, smaller: str) -> DerivableError:
    lines = [line for line in said.splitlines() if not re.match(r"\d+ warnings?, \d+ errors?$", line)]
    wrong = [line for line in lines if "error" in line.lower()] or lines[-3:]
    if code < 0 or any("Killed" in line or "out of memory" in line.lower() for line in wrong):
        return DerivableError(
            f"{tool} was ended while it built `{top}`", hint=f"it probably had too little memory: {smaller}"
        )
    return DomainError(f"{tool} does not build `{top}`: {' / '.join(wrong[:3])}")
