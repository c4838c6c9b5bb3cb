"""A design as a kit that an engineer takes away: sources, a program, off-chip memory before and after it, a testbench
with assertions, a test in Python, constraints, and a Makefile whose targets run all of it; see `bench/Makefile`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from derivable.accelerator.hardware import elaboration
from derivable.accelerator.hardware.icarus import lines_of
from derivable.accelerator.hardware.placement import FRAME, frame
from derivable.accelerator.machine import machine as golden

if TYPE_CHECKING:
    from derivable.accelerator.lower.lower import Lowered
    from derivable.accelerator.operators.evaluation import Inputs

BENCH = "device_bench"
FOLDER = Path(__file__).with_name("bench")
CLOCK = 100  # MHz, of the constraints


def write(lowered: Lowered, directory: str | os.PathLike, inputs: Inputs) -> Path:
    """Write the kit of a lowered design for inputs, see `Lowered.pack`, and return its folder.

    What is compared are the bytes of the outputs, with those of the golden machine, and the cycles. Raises what `pack`
    and `machine.run` raise, and DerivableError where the folder cannot be written, or has files of something else.
    """
    machine, program = lowered.machine, lowered.program
    memory = lowered.pack(inputs)
    run = golden.run(machine, program, memory)
    compared = np.zeros(len(memory), np.uint8)
    for places in lowered.places:
        for view in places.outputs:
            compared[view.places()] = 0xFF
    words = np.ascontiguousarray(program.words, np.uint32)
    values = elaboration.parameters(machine)
    bench = elaboration.hardware(
        BENCH,
        values
        | {
            "PROGRAM_WORDS": words.size,
            "FAR_LINES": max(1, -(-len(memory) // machine.line)),
            "LATENCY": golden.Latencies().off_chip,
            "MOST_CYCLES": 40 * run.cycles + 100_000,
            "CYCLES": run.cycles,
        },
    )
    top = f"{elaboration.TOP}.sv"
    texts = {name: bench.files[name] for name in (f"{BENCH}.sv", "handshake.sv")}
    texts[f"{BENCH}.sv"] = elaboration.with_parameters(texts[f"{BENCH}.sv"], bench.parameters)
    texts[top] = elaboration.with_parameters(bench.files[top], values)
    texts["bench.f"] = elaboration.listed(bench)
    texts[f"{FRAME}.sv"] = frame(elaboration.TOP, elaboration.ports(elaboration.hardware(elaboration.TOP, values)))
    texts["program.hex"] = "".join(f"{word:08x}\n" for word in words.ravel())
    texts["far.hex"] = "".join(lines_of(memory, machine.line, np.ones(len(memory), np.uint8)))
    for name, bytes_of in (("expected", run.memory), ("compared", compared)):
        texts[f"{name}.hex"] = "".join(lines_of(bytes_of, machine.line, compared))
    texts["constraints.lpf"] = f'FREQUENCY PORT "clk" {CLOCK} MHZ;\n'
    texts["constraints.xdc"] = (
        f"# Of the module kernel, in nanoseconds.\ncreate_clock -name clk -period {1e3 / CLOCK:g} [get_ports ap_clk]\n"
    )
    texts |= {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.iterdir()) if path.is_file()}
    return elaboration.write(elaboration.kernel(machine), directory, texts)
