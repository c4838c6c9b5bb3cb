"""Programs on the hardware in Icarus Verilog: no build, a few thousand cycles a second of a small array."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from derivable.accelerator.hardware import elaboration
from derivable.accelerator.machine.instructions import Machine
from derivable.core.diagnostics import DerivableError, DomainError, MissingDependencyError


def run(
    machine: Machine, words: np.ndarray, memory: np.ndarray, *, latency: int, interval: int, most_cycles: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run a program's words, uint32, over off-chip memory, uint8 [byte], in place.

    most_cycles  0: any number

    Returns the counters, uint64 (cycles, busy cycles of five units, waits of three), and the events, int64 [event, 3]:
    cycle, unit, whether it is done with an instruction or has taken one; and bool [byte], which bytes of memory have
    unknown bits (X or Z) afterwards, and are 0. Raises MissingDependencyError without Icarus,
    DerivableError where the hardware fails.
    """
    if shutil.which("iverilog") is None or shutil.which("vvp") is None:
        raise MissingDependencyError(
            "Icarus Verilog is not installed",
            hint='install it: `apt-get install iverilog`; or simulate with backend="verilator" or "python"',
        )
    line = machine.line
    lines = np.pad(memory, (0, -len(memory) % line)).reshape(-1, line)
    values = elaboration.parameters(machine) | {
        "PROGRAM_WORDS": words.size,
        "FAR_LINES": max(1, len(lines)),
        "LATENCY": latency,
        "INTERVAL": interval,
        "MOST_CYCLES": most_cycles,
    }
    made = elaboration.hardware("device_bench", values)
    with tempfile.TemporaryDirectory(prefix="derivable-icarus-") as name:
        folder = Path(name)
        for file, text in made.files.items():
            (folder / file).write_text(text, encoding="utf-8")
        (folder / "program.hex").write_text("\n".join(f"{word:08x}" for word in words.ravel()))
        (folder / "far.hex").write_text("\n".join(row[::-1].tobytes().hex() for row in lines))
        options = [f"-P{made.top}.{parameter}={value}" for parameter, value in values.items()]
        command = ["iverilog", "-g2012", "-DCHECKS", "-o", "bench.vvp", "-s", made.top, *options, *made.sources]
        for step in (command, ["vvp", "-n", "bench.vvp"]):
            done = subprocess.run(step, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode:
                raise DomainError(f"{step[0]} does not run the design: {(done.stderr or done.stdout).strip()[:300]}")
        if (folder / "failed.txt").exists():
            raise DerivableError(f"the simulated hardware failed: {(folder / 'failed.txt').read_text().strip()}")
        counters = np.loadtxt(folder / "counters.txt", np.uint64)
        rows = (folder / "events.txt").read_text().split()
        found = (folder / "far.out").read_text().split()
    after, unknown = _bytes(found, line)
    memory[:] = after[: len(memory)]
    return counters, np.array(rows, np.int64).reshape(-1, 3), unknown[: len(memory)]


def _bytes(lines: list[str], line: int) -> tuple[np.ndarray, np.ndarray]:
    """Memory of lines of digits, the last byte first: uint8 [byte], and bool [byte], where a digit is X or Z."""
    text = "".join(lines)
    digits = np.frombuffer(text.lower().encode(), np.uint8).reshape(-1, 2)
    unknown = ((digits == ord("x")) | (digits == ord("z"))).any(1).reshape(-1, line)[:, ::-1]
    known = np.frombuffer(bytes.fromhex(re.sub("[xXzZ]", "0", text)), np.uint8).reshape(-1, line)[:, ::-1]
    return known.ravel(), unknown.ravel()
