"""A design as a kit that an engineer takes away: sources, a program, off-chip memory before and after it, and a
Makefile whose `make test` runs the program in a simulator and compares outputs and cycles."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from derivable.accelerator.hardware import elaboration
from derivable.accelerator.machine import machine as golden
from derivable.core.files import write_texts

if TYPE_CHECKING:
    from derivable.accelerator.lower.lower import Lowered
    from derivable.accelerator.operators.evaluation import Inputs

BENCH = "device_bench"


def write(lowered: Lowered, directory: str | os.PathLike, inputs: Inputs) -> Path:
    """Write the kit of a lowered design for inputs, see `Lowered.pack`, and return its folder.

    What is compared are the bytes of the outputs, with those of the golden machine, and the cycles. Raises what `pack`
    and `machine.run` raise, and DerivableError where the folder cannot be written.
    """
    machine, program = lowered.machine, lowered.program
    memory = lowered.pack(inputs)
    run = golden.run(machine, program, memory)
    compared = np.zeros(len(memory), np.uint8)
    for places in lowered.places:
        for view in places.outputs:
            compared[view.places()] = 0xFF
    words = np.ascontiguousarray(program.words, np.uint32)
    lines = max(1, -(-len(memory) // machine.line))
    values = elaboration.parameters(machine) | {
        "PROGRAM_WORDS": words.size,
        "FAR_LINES": lines,
        "LATENCY": golden.Latencies().off_chip,
        "MOST_CYCLES": 10 * run.cycles + 100_000,
        "CYCLES": run.cycles,
    }
    made = elaboration.hardware(BENCH, values)
    texts = dict(made.files)
    texts[f"{BENCH}.sv"] = elaboration.with_parameters(texts[f"{BENCH}.sv"], values)
    top = f"{elaboration.TOP}.sv"
    texts[top] = elaboration.with_parameters(texts[top], elaboration.parameters(machine))
    texts["program.hex"] = "".join(f"{word:08x}\n" for word in words.ravel())
    for name, bytes_of in (("far", memory), ("expected", run.memory), ("compared", compared)):
        texts[f"{name}.hex"] = _lines(bytes_of, machine.line)
    texts["sources.txt"] = "".join(f"{name}\n" for name in made.sources)
    texts["Makefile"] = (elaboration.FOLDER / "Makefile").read_text(encoding="utf-8")
    return write_texts(directory, texts)


def _lines(memory: np.ndarray, line: int) -> str:
    """A line of memory a line, its last byte first."""
    rows = np.pad(memory, (0, -len(memory) % line)).reshape(-1, line)
    return "".join(row[::-1].tobytes().hex() + "\n" for row in rows)
