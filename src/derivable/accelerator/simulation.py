"""Programs on the simulated hardware: the Verilated accelerator with a model of off-chip memory, `rtl/device.h`.

    device = simulator(machine)                # built now or before
    found = device.run(program, memory)        # the memory afterwards, cycles, when each instruction began and ended

What comes out is what `machine.run` says, bit by bit. So are the cycles, with off-chip memory of the same latency, but
for what units wait for the ports of the cache, which `Simulated.waits` counts.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from derivable.accelerator import elaboration, verilator
from derivable.accelerator.instructions import NUM_UNITS, UNITS, Machine, Program
from derivable.core.diagnostics import DerivableError, ShapeError

COUNTERS = 9  # cycles, busy cycles of five units, waits of three

_EVENT = np.dtype([("cycle", np.uint64), ("unit", np.uint32), ("is_done", np.uint32)])


@dataclass(frozen=True)
class OffChip:
    """Off-chip memory in cycles.

    latency   from the address of a burst to its first line
    interval  between two lines
    seed      not 0: transfers are refused and late at random, which changes no result
    """

    latency: int = 16
    interval: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Simulated:
    """What a program did on the simulated hardware.

    memory  off-chip memory afterwards, uint8 [byte]
    cycles  from the start until all units were done
    begin   of each instruction but the end: the cycle in which its unit took it, int64 [instruction]
    end     of each instruction but the end: the cycle in which it was done, int64 [instruction]
    busy    of each unit: cycles in which it had an instruction
    waits   of dma, move and vec: cycles in which the cache refused them
    """

    memory: np.ndarray
    cycles: int
    begin: np.ndarray
    end: np.ndarray
    busy: dict[str, int]
    waits: dict[str, int]


def harness(*names: str) -> dict[str, str]:
    """The C++ of the package that drives the simulated device, text by name of file: `device.h` and others."""
    return {name: (elaboration.FOLDER / name).read_text(encoding="utf-8") for name in ("device.h", *names)}


def simulator(machine: Machine) -> Simulator:
    """The simulator of a machine, built by Verilator now or before. Raises what `verilator.build` raises."""
    made = elaboration.hardware(elaboration.TOP, elaboration.parameters(machine))
    return Simulator(machine, verilator.build(made, harness("device.cpp")))


class Simulator:
    """The simulated hardware of one machine, from the shared library at a path."""

    def __init__(self, machine: Machine, path: Path):
        self.machine = machine
        self._library = ctypes.CDLL(str(path))
        self._library.device_run.restype = ctypes.c_int64
        self._library.device_message.restype = ctypes.c_char_p

    def run(
        self, program: Program, memory: np.ndarray, off_chip: OffChip | None = None, *, most_cycles: int = 1 << 40
    ) -> Simulated:
        """Run a program over off-chip memory, uint8 [byte], which is left as it is.

        Raises DerivableError where the hardware leaves its memory, breaks the protocol of the port or is not done
        after `most_cycles`.
        """
        off_chip = off_chip or OffChip()
        memory = np.array(memory, copy=True, order="C")
        if memory.dtype != np.uint8 or memory.ndim != 1:
            raise ShapeError(f"off-chip memory is {memory.dtype}{list(memory.shape)}, expected uint8 [byte]")
        words = np.ascontiguousarray(program.words, np.uint32)
        counters = np.zeros(COUNTERS, np.uint64)
        events = np.zeros(2 * len(program), _EVENT)
        found = self._library.device_run(
            ctypes.c_uint32(self.machine.line),
            ctypes.c_void_p(words.ctypes.data),
            ctypes.c_uint64(words.size),
            ctypes.c_void_p(memory.ctypes.data),
            ctypes.c_uint64(memory.size),
            *map(ctypes.c_uint32, (off_chip.latency, off_chip.interval, off_chip.seed)),
            ctypes.c_uint64(most_cycles),
            ctypes.c_void_p(counters.ctypes.data),
            ctypes.c_void_p(events.ctypes.data),
            ctypes.c_uint64(len(events)),
        )
        if found < 0:
            raise DerivableError(f"the simulated hardware failed: {self._library.device_message().decode()}")
        begin, end = _times(program, events[:found])
        return Simulated(
            memory,
            int(counters[0]),
            begin,
            end,
            dict(zip(UNITS, map(int, counters[1:6]))),
            dict(zip(("dma", "move", "vec"), map(int, counters[6:9]))),
        )


def _times(program: Program, events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When each instruction began and ended: a unit's events are in the order of its instructions."""
    units = np.array([UNITS.index(instruction.unit) for instruction in program])
    found = np.zeros((2, len(program)), np.int64)
    for unit in range(NUM_UNITS):
        for is_done in range(2):
            cycles = events["cycle"][(events["unit"] == unit) & (events["is_done"] == is_done)]
            found[is_done, units == unit] = cycles
    return found[0, units < NUM_UNITS], found[1, units < NUM_UNITS]
