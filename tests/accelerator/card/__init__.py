"""The kernel of Vitis in Verilator, as a card: registers behind AXI4-Lite, and memory behind AXI4 that checks it."""

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np

from derivable.accelerator.hardware import elaboration, verilator
from derivable.accelerator.machine.instructions import Machine

FOLDER = Path(__file__).parent
COUNTS = ("reads", "writes", "most_reads", "most_writes", "longest", "data_first", "ar", "r", "aw", "w", "b")


PORT = 16  # bytes of the port to memory: half a line of the small machine


def build(machine: Machine, port: int = PORT) -> Path:
    """The shared library of a machine's card, with the functions of `card.cpp`."""
    files = (elaboration.FOLDER / "attempt.h", FOLDER / "axi.h", FOLDER / "card.cpp")
    harness = {file.name: file.read_text(encoding="utf-8") for file in files}
    kernel = elaboration.kernel(machine)
    return verilator.build(replace(kernel, parameters={**kernel.parameters, "PORT": port}), harness)


def load(machine: Machine, port: int = PORT) -> ctypes.CDLL:
    found = ctypes.CDLL(str(build(machine, port)))
    found.card_open.restype = found.memory_open.restype = ctypes.c_void_p
    found.card_message.restype = ctypes.c_char_p
    return found


class CardError(Exception):
    pass


class Card:
    """Memory is at `base` of the card; options are those of `axi.h`."""

    def __init__(self, machine: Machine, memory: np.ndarray, base: int = 0, port: int = PORT, **options: int):
        self.simulator, self.memory = load(machine, port), np.array(memory, np.uint8)
        text = " ".join(f"{name}={value}" for name, value in {"port": port, **options}.items())
        self.card = ctypes.c_void_p(self.simulator.card_open(text.encode()))
        if not self.card:
            raise CardError(self.simulator.card_message().decode())
        place = ctypes.c_void_p(self.memory.ctypes.data)
        self._do("memory", place, ctypes.c_uint64(self.memory.size), ctypes.c_uint64(base))
        self.write(0x10, base & 0xFFFFFFFF)
        self.write(0x14, base >> 32)

    def _do(self, name: str, *arguments) -> None:
        if getattr(self.simulator, f"card_{name}")(self.card, *arguments):
            raise CardError(self.simulator.card_message().decode())

    def write(self, address: int, value: int) -> None:
        self._do("write", ctypes.c_uint32(address), ctypes.c_uint32(value))

    def read(self, address: int) -> int:
        found = ctypes.c_uint32()
        self._do("read", ctypes.c_uint32(address), ctypes.byref(found))
        return found.value

    def reset(self, cycles: int) -> None:
        self._do("reset", ctypes.c_uint64(cycles))

    def ticks(self, cycles: int) -> None:
        self._do("ticks", ctypes.c_uint64(cycles))

    def load(self, words: np.ndarray) -> None:
        """Write a program."""
        self.write(0x18, 0)
        for word in words.ravel():
            self.write(0x1C, int(word))

    def run(self, most_cycles: int = 200_000) -> int:
        """Start, and wait until it is done: the cycles."""
        self.write(0x00, 1)
        for _ in range(most_cycles // 64):
            self.ticks(64)
            if self.read(0x00) & 2:
                return self.read(0x20)
        raise CardError("the kernel is not done in time")

    def counts(self) -> dict[str, int]:
        found = (ctypes.c_uint64 * len(COUNTS))()
        self._do("counts", found)
        return dict(zip(COUNTS, found))

    def close(self) -> None:
        self.simulator.card_close(self.card)
