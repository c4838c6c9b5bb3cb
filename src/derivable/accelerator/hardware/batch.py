"""Many samples through a design: the host puts the inputs of a pass into off-chip memory, starts the program, waits,
reads the outputs, and goes on with the next pass. All bits are compared with those of the emulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from derivable.accelerator.hardware import simulation
from derivable.accelerator.hardware.simulation import Backend, OffChip
from derivable.accelerator.machine import machine as golden
from derivable.accelerator.numbers.emulation import Counts, Emulation
from derivable.accelerator.operators.evaluation import in_passes
from derivable.core.diagnostics import DerivableError
from derivable.core.progress import progress

if TYPE_CHECKING:
    from derivable.accelerator.lower.lower import Lowered
    from derivable.accelerator.operators.evaluation import Inputs


@dataclass(frozen=True)
class Batch:
    """What a design gave for many samples.

    outputs  as `Simulation` has them, those of all passes behind each other along the first axis
    cycles   of each pass, from its start until all units were done: int64 [pass]
    lost     how many numbers saturated and how many were flushed to zero, over all passes
    """

    outputs: tuple[np.ndarray, ...]
    cycles: np.ndarray
    lost: Counts = field(default_factory=Counts)

    @property
    def passes(self) -> int:
        return len(self.cycles)

    @property
    def total(self) -> int:
        """Cycles of all passes, without those in which the host writes inputs and reads outputs."""
        return int(self.cycles.sum())


def run(
    lowered: Lowered,
    inputs: Inputs,
    backend: Backend = "verilator",
    off_chip: OffChip | None = None,
    *,
    initial: int | None = None,
) -> Batch:
    """Start the program of one pass once for each pass of the inputs, see `in_passes`.

    Memories and registers of the hardware are never reset in between. Raises what `simulation.simulate` raises, and
    DerivableError where an output is not that of the emulation.
    """
    off_chip = simulation.checked(backend, off_chip)
    listed = in_passes(lowered.graph, inputs)
    found: list[tuple[np.ndarray, ...]] = []
    cycles: list[int] = []
    lost = Counts()
    with progress("passes", len(listed)) as advance:
        for number, (memory, taken) in enumerate(_runs(lowered, listed, backend, off_chip, initial)):
            emulation = Emulation(lowered.graph, lowered.formats, listed[number])
            steps = lowered.integers(memory)
            for name, one, other in zip(lowered.graph.outputs, steps, emulation.outputs()):
                if not np.array_equal(one, other):
                    raise DerivableError(
                        f"pass {number}: the output %{name} in {backend} is not that of the emulation",
                        hint="report this design: the hardware has to give the same bits",
                    )
            lost = sum(emulation.counts.values(), lost)
            values = lowered.formats.values_of
            found.append(tuple(values(lowered.graph[name], one) for name, one in zip(lowered.graph.outputs, steps)))
            cycles.append(taken)
            advance(note=f"{taken:,} cycles")
    if len(listed) == 1:
        return Batch(found[0], np.array(cycles, np.int64), lost)
    together = (np.concatenate([np.atleast_1d(array) for array in arrays]) for arrays in zip(*found))
    return Batch(tuple(together), np.array(cycles, np.int64), lost)


def _runs(
    lowered: Lowered, listed: list[dict[str, np.ndarray]], backend: Backend, off_chip: OffChip, initial: int | None
) -> Iterator[tuple[np.ndarray, int]]:
    """Off-chip memory after each pass, and its cycles."""
    memories = map(lowered.pack, listed)
    if backend != "python":
        for run in simulation.started(lowered, memories, backend, off_chip, initial):
            yield run.memory, run.cycles
        return
    latencies = golden.Latencies(off_chip=off_chip.latency, interval=off_chip.interval)
    for memory in memories:
        made = golden.run(lowered.machine, lowered.program, memory, latencies)
        yield made.memory, made.cycles
