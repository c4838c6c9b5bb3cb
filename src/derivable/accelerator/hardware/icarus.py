"""Programs on the hardware in Icarus Verilog: no build, a few thousand cycles a second of a small array."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from derivable.accelerator.hardware import elaboration
from derivable.accelerator.machine.instructions import Machine
from derivable.accelerator.operators.runtime import ceil_div
from derivable.core.diagnostics import DerivableError, DomainError, MissingDependencyError

Start: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def run(
    machine: Machine,
    words: np.ndarray,
    memories: Sequence[np.ndarray],
    *,
    latency: int,
    interval: int,
    most_cycles: int = 0,
) -> Iterator[Start]:
    """Start a program's words, uint32, once for each of some contents of off-chip memory, uint8 [byte].

    memories     what the host has written before each start: what differs from the one before, the rest stays as it is
    most_cycles  of a start; 0: any number

    Yields of each start the counters, uint64 (cycles, busy cycles of five units, waits of three), and the events, int64
    [event, 3]: cycle, unit, whether it is done with an instruction or has taken one; memory afterwards, uint8 [byte],
    and bool [byte], which bytes of it have unknown bits (X or Z), and are 0. Raises MissingDependencyError without
    Icarus, DerivableError where the hardware fails.
    """
    if shutil.which("iverilog") is None or shutil.which("vvp") is None:
        raise MissingDependencyError(
            "Icarus Verilog is not installed",
            hint='install it: `apt-get install iverilog`; or simulate with backend="verilator" or "python"',
        )
    line, size = machine.line, len(memories[0])
    values = elaboration.parameters(machine) | {
        "PROGRAM_WORDS": words.size,
        "FAR_LINES": max(1, ceil_div(size, line)),
        "LATENCY": latency,
        "INTERVAL": interval,
        "MOST_CYCLES": most_cycles,
        "STARTS": len(memories),
    }
    made = elaboration.hardware("device_bench", values)
    with tempfile.TemporaryDirectory(prefix="derivable-icarus-") as name:
        folder = Path(name)
        for file, text in made.files.items():
            (folder / file).write_text(text, encoding="utf-8")
        (folder / "program.hex").write_text("\n".join(f"{word:08x}" for word in words.ravel()))
        wanted = np.ones(size, np.uint8)
        for number, memory in enumerate(memories):
            if number:
                wanted = memory != memories[number - 1]
            (folder / f"far{number or ''}.hex").write_text("".join(lines_of(memory, line, wanted)))
        options = [f"-P{made.top}.{parameter}={value}" for parameter, value in values.items()]
        command = ["iverilog", "-g2012", "-DCHECKS", "-o", "bench.vvp", "-s", made.top, *options, *made.sources]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        _check(command[0], done.returncode, done.stderr or done.stdout)
        yield from _starts(folder, size, line, len(memories))


def _starts(folder: Path, size: int, line: int, count: int) -> Iterator[Start]:
    """What each start gives, as soon as it is done."""
    with (
        open(folder / "log", "w+", encoding="utf-8") as log,
        subprocess.Popen(
            ["vvp", "-n", "bench.vvp"], cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        ) as of,
    ):
        try:
            for number in range(count):
                # The files of a start are whole when the next one has begun.
                following = folder / f"events{number + 1}.txt"
                while of.poll() is None and not following.exists():
                    time.sleep(0.005)
                if of.poll() is not None:
                    log.seek(0)
                    _check("vvp", of.returncode, log.read())
                if (folder / "failed.txt").exists():
                    raise DerivableError(
                        f"the simulated hardware failed: {(folder / 'failed.txt').read_text().strip()}"
                    )
                name = str(number or "")
                counters = np.loadtxt(folder / f"counters{name}.txt", np.uint64)
                rows = (folder / f"events{name}.txt").read_text().split()
                memory, unknown = _bytes((folder / f"far{name}.out").read_text().split(), line)
                yield counters, np.array(rows, np.int64).reshape(-1, 3), memory[:size], unknown[:size]
                (folder / f"far{name}.out").unlink()
        finally:
            of.kill()


def _check(tool: str, code: int, printed: str) -> None:
    if code:
        raise DomainError(f"{tool} does not run the design: {printed.strip()[:300]}")


def lines_of(memory: np.ndarray, line: int, wanted: np.ndarray) -> list[str]:
    """The lines of memory that have a wanted byte, as `$readmemh` takes them: a line a line, its last byte first."""
    rows, chosen = (np.pad(bytes_of, (0, -len(bytes_of) % line)).reshape(-1, line) for bytes_of in (memory, wanted))
    written, before = [], -1
    for number in np.flatnonzero(chosen.any(1)).tolist():
        if number != before + 1:
            written.append(f"@{number:x}\n")
        written.append(rows[number, ::-1].tobytes().hex() + "\n")
        before = number
    return written


def _bytes(lines: list[str], line: int) -> tuple[np.ndarray, np.ndarray]:
    """Memory of lines of digits, the last byte first: uint8 [byte], and bool [byte], where a digit is X or Z."""
    text = "".join(lines)
    digits = np.frombuffer(text.lower().encode(), np.uint8).reshape(-1, 2)
    unknown = ((digits == ord("x")) | (digits == ord("z"))).any(1).reshape(-1, line)[:, ::-1]
    known = np.frombuffer(bytes.fromhex(re.sub("[xXzZ]", "0", text)), np.uint8).reshape(-1, line)[:, ::-1]
    return known.ravel(), unknown.ravel()
