"""What bounds the cycles of a program from below: what each of its resources has to do, and the longest chain.

No order of its instructions takes fewer cycles than the largest of these numbers, on the same machine and with the
same places in memory. A machine that waits for nothing else takes just that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from derivable.accelerator.kernels import clock
from derivable.accelerator.lower.lower import Lowered
from derivable.accelerator.machine.instructions import NUM_UNITS, UNITS, Convolve, Gemm
from derivable.accelerator.machine.machine import PORTS, Latencies, cycles_of, demand
from derivable.accelerator.operators.runtime import ceil_div


@dataclass(frozen=True)
class Bounds:
    """Cycles that a program takes at least, for each reason.

    units       of each unit, the cycles of its instructions, which it does one at a time
    sub_arrays  of the sub-array that has most, the cycles in which it has a layer or a convolution
    ports       reads of the cache, of which there is one in a cycle for each port
    chain       of the longest chain of instructions each of which needs the one before
    """

    units: Mapping[str, int]
    sub_arrays: int
    ports: int
    chain: int

    @property
    def reasons(self) -> dict[str, int]:
        """Cycles by the name of what takes them, in the order in which ties are decided."""
        return {**self.units, "sub-array": self.sub_arrays, "port": self.ports, "chain": self.chain}

    @property
    def best(self) -> tuple[str, int]:
        """The largest bound: its name and its cycles."""
        return max(self.reasons.items(), key=lambda each: each[1])


def bounds(lowered: Lowered, latencies: Latencies | None = None) -> Bounds:
    """The bounds of a program of all its passes."""
    machine, latencies = lowered.machine, latencies or Latencies()
    units: dict[str, int] = dict.fromkeys(UNITS[:NUM_UNITS], 0)
    arrays = [0] * machine.sub_arrays
    reads = 0
    for of in lowered.program.executed:
        if of.unit not in units:
            continue
        taken = demand(machine, of, latencies)
        cycles = cycles_of(taken)
        units[of.unit] += cycles
        reads += taken[clock.WORK] * taken[clock.READS]
        if isinstance(of, (Gemm, Convolve)):
            first = of.first if isinstance(of, Convolve) else 0
            for bank in range(first, first + of.arrays):
                arrays[bank] += cycles
    # A port beyond those of the RTL is not counted in the reads of the lanes, see `demand`.
    return Bounds(units, max(arrays), ceil_div(reads, PORTS), lowered.chain)
