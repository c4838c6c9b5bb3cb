"""Energy of a program, operation by operation and byte by byte, by published energies of a process of 45 nm at 0.9 V.

    integer addition         32 bits 0.1 pJ
    integer multiplication   8 bits 0.2 pJ, 32 bits 3.1 pJ
    64 bits of a memory      8 KB 10 pJ, 32 KB 20 pJ, 1 MB 100 pJ; of sizes between, along straight lines of logarithms
    64 bits of DRAM          1.3 to 2.6 nJ, of which this takes the mean

Source: M. Horowitz, Computing's energy problem (and what we can do about it), ISSCC 2014, figure 1.1.9. An FPGA takes
several times as much, and what leaks, clocks and wires take is not in it: the numbers compare designs, they are no
forecast of a card's.

Counted is what the hardware does: a step of lanes takes all of its lanes, a line is read whole, and an element of the
array multiplies whether its numbers are padding or not. Two products of int4 that share a multiplier are one.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from derivable.accelerator.lower.lower import Lowered
from derivable.accelerator.machine import hazards
from derivable.accelerator.machine.instructions import (
    BITS,
    Convolve,
    Gemm,
    Instruction,
    Machine,
    Move,
    Transfer,
    Vector,
)
from derivable.accelerator.operators.runtime import ceil_div

ADD_32, MULTIPLY_8, MULTIPLY_32 = 0.1, 0.2, 3.1  # pJ
MEMORIES = ((8 << 10, 10 / 8), (32 << 10, 20 / 8), (1 << 20, 100 / 8))  # bytes of a memory, pJ a byte
DRAM = (1300 + 2600) / 2 / 8  # pJ a byte


@dataclass(frozen=True)
class Energy:
    """pJ of a program, by what takes them.

    array     multiplications and additions of its elements
    lanes     arithmetic of the SIMD unit
    banks     bytes that the memories beside the sub-arrays give and take
    cache     bytes that the cache gives and takes
    off_chip  bytes that off-chip memory gives and takes
    """

    array: float = 0.0
    lanes: float = 0.0
    banks: float = 0.0
    cache: float = 0.0
    off_chip: float = 0.0

    @property
    def total(self) -> float:
        return sum(astuple(self))


def energy(lowered: Lowered) -> Energy:
    """The energy of a program of all its passes."""
    return Energy(*map(sum, zip(*(astuple(of_instruction(lowered.machine, of)) for of in lowered.program.executed))))


def of_instruction(machine: Machine, of: Instruction) -> Energy:
    """The energy of an instruction on a machine."""
    cache = of_byte(machine.x)
    banks = {
        "A": of_byte(machine.a * machine.width),
        "B": of_byte(machine.b * machine.height),
        "K": of_byte(machine.k * 3),
        "C": of_byte(machine.c * 4 * machine.width),
        "P": of_byte(machine.p * 8 * machine.width),
    }
    elements = machine.height * machine.width
    multiply = MULTIPLY_8 + ADD_32
    if isinstance(of, Transfer):
        count = of.lines * machine.line
        return Energy(cache=count * cache, off_chip=count * DRAM)
    if isinstance(of, Move):
        steps = of.n0 * of.n1 * of.n2 * of.n3
        word = {"A": machine.width, "B": machine.height, "K": 3, "P": 8 * machine.width}[of.operation]
        lines = steps * (max(word, machine.line) if of.operation == "P" else machine.line)
        return Energy(cache=lines * cache, banks=steps * of.banks * word * banks[of.operation])
    if isinstance(of, Gemm):
        tiles, rows = of.columns * of.tiles, of.n0 * of.n1 * of.n2
        held = tiles * of.arrays * elements * banks["A"]
        streamed = tiles * of.arrays * rows * machine.height * banks["B"]
        # The first tile writes sums, the others read them before.
        sums = of.columns * rows * (2 * of.tiles - 1 + of.accumulate) * 4 * machine.width * banks["C"]
        return Energy(array=tiles * of.arrays * rows * elements * multiply, banks=held + streamed + sums)
    if isinstance(of, Convolve):
        folds = ceil_div(of.length, machine.height)
        words = of.arrays * of.groups * folds * (machine.height + of.length) * machine.width
        sums = of.arrays * of.groups * of.length * (2 * folds - 1 + of.accumulate) * 4 * machine.width
        products = of.arrays * of.groups * folds * of.length * elements
        return Energy(array=products * multiply, banks=words * banks["A"] + sums * banks["C"])
    if isinstance(of, Vector):
        lanes, steps = hazards.lanes(machine, of), of.n0 * of.n1 * of.n2
        is_multiplied = of.operation in ("mul", "exp2", "log2")
        first = (MULTIPLY_32 if is_multiplied else ADD_32) + (ADD_32 if of.operation in ("exp2", "log2") else 0)
        results = of.n0 * of.n1 * (1 if of.along else of.n2)
        arithmetic = steps * lanes * (first + ADD_32 * (of.along or of.across))
        # What is written is multiplied and rounded.
        arithmetic += results * (1 if of.across else lanes) * (MULTIPLY_32 + ADD_32)
        read = steps * ((of.a_from == "X") + hazards.reads_b(of)) * machine.line
        written = math.ceil(results * (1 if of.across else lanes) * BITS[of.y_type] / 8)
        sums = steps * 4 * machine.width * (of.a_from == "C") * banks["C"]
        sums += of.n0 * 8 * machine.width * (of.operation == "drain") * banks["P"]
        return Energy(lanes=arithmetic, banks=sums, cache=(read + written) * cache)
    return Energy()


def of_byte(size: int) -> float:
    """pJ of a byte that a memory of `size` bytes gives or takes; of smaller and larger ones by the nearest two."""
    (low, cheap), (high, dear) = MEMORIES[:2] if size <= MEMORIES[1][0] else MEMORIES[1:]
    return cheap * (size / low) ** (math.log(dear / cheap) / math.log(high / low))
