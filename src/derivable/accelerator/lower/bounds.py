"""What bounds the cycles of a program from below: what each of its resources has to do, and the longest chain.

No order of its instructions takes fewer cycles than the largest of these numbers, on the same machine and with the
same places in memory. A machine that waits for nothing else takes just that. `least` takes both together, as schedules
of jobs on machines are bounded: some instructions of a unit, one at a time, between what has to be done before all of
them (their heads) and after all of them (their tails), which units do one at a time, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from derivable.accelerator.kernels import clock
from derivable.accelerator.lower.emission import Section
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
    sections: Sequence[Section] = field(repr=False, compare=False)

    @property
    def reasons(self) -> dict[str, int]:
        """Cycles by the name of what takes them, in the order in which ties are decided."""
        return {**self.units, "sub-array": self.sub_arrays, "port": self.ports, "chain": self.chain}

    @property
    def best(self) -> tuple[str, int]:
        """The largest bound: its name and its cycles."""
        return max(self.reasons.items(), key=lambda each: each[1])

    @cached_property
    def least(self) -> int:
        """The largest bound by units and chains together. It takes seconds for thousands of instructions."""
        return max(self.best[1], sum(section.count * _heads_and_tails(section) for section in self.sections))


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
    return Bounds(units, max(arrays), ceil_div(reads, PORTS), lowered.chain, lowered.sections)


def _heads_and_tails(section: Section) -> int:
    written = section.written
    if not written:
        return 0
    units, lengths = (np.array([getattr(of, name) for of in written]) for name in ("unit", "length"))
    after = [sorted(of.after) for of in written]
    users: list[list[int]] = [[] for _ in written]
    before = np.zeros((len(written), len(written)), bool)  # those that have to be done before each
    for number, others in enumerate(after):
        for other in others:
            users[other].append(number)
            before[number] |= before[other]
            before[number, other] = True
    heads = _heads(units, lengths, after, before)
    last = len(written) - 1
    turned = [sorted(last - user for user in users[last - number]) for number in range(len(written))]
    tails = _heads(units[::-1], lengths[::-1], turned, before.T[::-1, ::-1])[::-1]
    most = 0
    for unit in np.unique(units):
        of_unit = np.flatnonzero(units == unit)
        for tail in np.unique(tails[of_unit]):
            some = of_unit[tails[of_unit] >= tail]
            most = max(most, _one_at_a_time(heads[some], lengths[some]) + int(tail))
    return most


def _heads(units: np.ndarray, lengths: np.ndarray, after: Sequence[Sequence[int]], before: np.ndarray) -> np.ndarray:
    """The cycle in which each instruction can begin at the earliest: [instruction] int64.

    after   of each, some of those that have to be done before it, by which all others are
    before  [instruction, instruction] bool, all of them
    """
    heads = np.zeros(len(units), np.int64)
    for number, others in enumerate(after):
        soonest = [heads[other] + lengths[other] + clock.NEED * (units[other] != units[number]) for other in others]
        if len(others) > 1:
            needed = np.flatnonzero(before[number])
            for unit in np.unique(units[needed]):
                some = needed[units[needed] == unit]
                soonest.append(_one_at_a_time(heads[some], lengths[some]) + clock.NEED * (unit != units[number]))
        heads[number] = max(soonest, default=0)
    return heads


def _one_at_a_time(heads: np.ndarray, lengths: np.ndarray) -> int:
    """The cycle in which a unit is done at the earliest with instructions that begin at the earliest at their heads."""
    order = np.argsort(-heads, kind="stable")
    return int((heads[order] + np.cumsum(lengths[order])).max())
