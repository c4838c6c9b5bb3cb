"""Many samples through a design: the host puts the inputs of a pass into off-chip memory, starts the program, waits,
reads the outputs, and goes on with the next pass. All bits are compared with those of the emulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from derivable.accelerator.hardware import simulation
from derivable.accelerator.hardware.simulation import Backend, OffChip
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
    outputs: list[tuple[np.ndarray, ...]] = []  # of each pass, as they are in their formats
    cycles: list[int] = []
    lost = Counts()
    memories = map(lowered.pack, listed)
    with progress("passes", len(listed)) as advance:
        for number, result in enumerate(simulation.started(lowered, memories, backend, off_chip, initial)):
            emulation = Emulation(lowered.graph, lowered.formats, listed[number])
            integers = lowered.integers(result.memory)
            for name, one, other in zip(lowered.graph.outputs, integers, emulation.outputs()):
                if not np.array_equal(one, other):
                    raise DerivableError(
                        f"pass {number}: the output %{name} in {backend} is not that of the emulation",
                        hint="report this design: the hardware has to give the same bits",
                    )
            lost = sum(emulation.counts.values(), lost)
            outputs.append(integers)
            cycles.append(result.cycles)
            advance(note=f"{result.cycles:,} cycles")
    return Batch(lowered.numbers_of(outputs), np.array(cycles, np.int64), lost)
