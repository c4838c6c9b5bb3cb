"""Programs on the simulated hardware, and whole designs, their outputs and what each operator takes.

The hardware is the SystemVerilog of the package with a model of off-chip memory: Verilated with `rtl/device.h`, or in
Icarus with `rtl/device_bench.sv`, which takes no time to build and runs a hundred times slower.

    device = simulator(machine)                # built now or before
    found = device.run(program, memory)        # the memory afterwards, cycles, when each instruction began and ended
    simulate(lowered, inputs).per_node         # what each operator takes, beside the model

What comes out is what `machine.run` says, bit by bit. So are the cycles, with waits for the ports of the cache, unless
off-chip memory refuses transfers at random.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from derivable.accelerator.hardware import elaboration, icarus, verilator
from derivable.accelerator.machine import machine as golden
from derivable.accelerator.machine.instructions import NUM_UNITS, UNITS, Machine, Program
from derivable.accelerator.numbers.emulation import Counts, losses
from derivable.accelerator.operators.evaluation import in_passes
from derivable.core.arguments import integer
from derivable.core.diagnostics import DerivableError, DomainError, ShapeError, UnsupportedError
from derivable.core.registry import suggestion

if TYPE_CHECKING:
    from derivable.accelerator.lower.lower import Lowered
    from derivable.accelerator.operators.evaluation import Inputs

COUNTERS = 9  # cycles, busy cycles of five units, waits of three
MOST_LATENCY = 1 << 20  # cycles of off-chip memory

Backend = Literal["verilator", "icarus", "python"]
BACKENDS: tuple[Backend, ...] = ("verilator", "icarus", "python")

_EVENT = np.dtype([("cycle", np.uint64), ("unit", np.uint32), ("is_done", np.uint32)])


@dataclass(frozen=True)
class OffChip:
    """Off-chip memory in cycles.

    latency   from the address of a burst to its first line
    interval  between two lines
    seed      not 0: transfers are refused and late at random, which changes no result

    Raises DomainError for numbers that no memory has.
    """

    latency: int = 16
    interval: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        integer(self.latency, "the latency of off-chip memory", 0, MOST_LATENCY)
        integer(self.interval, "the interval of off-chip memory", 1, MOST_LATENCY)
        integer(self.seed, "the seed of off-chip memory", 0, (1 << 32) - 1)

    @property
    def latencies(self) -> golden.Latencies:
        """The same for the model, which refuses no transfers."""
        return golden.Latencies(off_chip=self.latency, interval=self.interval)


@dataclass(frozen=True)
class Simulated:
    """What a program did on the simulated hardware, or on the golden machine.

    memory  off-chip memory afterwards, uint8 [byte]
    cycles  from the start until all units were done
    begin   of each instruction that was executed but the end: the cycle in which its unit took it, int64
    end     of each instruction that was executed but the end: the cycle in which it was done, int64
    busy    of each unit: cycles in which it had an instruction
    waits   of dma, move and vec: cycles in which the cache refused them; empty of the golden machine
    unknown bytes of memory with unknown bits (X or Z), which are 0 in `memory`, bool [byte]; None where a simulator has
            no such bits
    """

    memory: np.ndarray
    cycles: int
    begin: np.ndarray
    end: np.ndarray
    busy: dict[str, int]
    waits: dict[str, int]
    unknown: np.ndarray | None = None


def library(machine: Machine) -> Path:
    """The shared library of a machine's simulator, with the functions of `rtl/device.cpp`, built now or before.

    Raises what `verilator.build` raises.
    """
    made = elaboration.hardware(elaboration.TOP, elaboration.parameters(machine))
    names = ("attempt.h", "device.h", "device.cpp")
    harness = {name: (elaboration.FOLDER / name).read_text(encoding="utf-8") for name in names}
    return verilator.build(made, harness)


# Of a start: the counters, the events, int64 [event, (cycle, unit, is done)], memory afterwards, and which bytes of it
# have unknown bits, if it knows any.
Start: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]


@dataclass(frozen=True)
class Job:
    """A program that a simulator starts once for each content of off-chip memory.

    words        of the program, uint32 [instruction, 16]
    memories     off-chip memory before each start, uint8 [byte], all as long
    off_chip     what that memory is like
    most_cycles  of a start
    most_events  of a start
    initial      seed of what registers and memories begin with, see `Simulator.run`
    """

    words: np.ndarray
    memories: Iterable[np.ndarray]
    off_chip: OffChip
    most_cycles: int
    most_events: int
    initial: int


Device: TypeAlias = Callable[[Job], Iterator[Start]]


def simulator(machine: Machine, backend: Backend = "verilator") -> Simulator:
    """The simulator of a machine, built by Verilator now or before, or in Icarus.

    Raises what `verilator.build` raises, and DomainError for another backend.
    """
    if backend == "icarus":
        return Simulator(machine, functools.partial(_interpreted, machine))
    if backend != "verilator":
        raise _unknown(backend)
    built = ctypes.CDLL(str(library(machine)))
    built.device_open.restype = ctypes.c_void_p
    built.device_start.restype = ctypes.c_int64
    built.device_message.restype = ctypes.c_char_p
    return Simulator(machine, functools.partial(_verilated, machine, built))


class Simulator:
    """The simulated hardware of one machine."""

    def __init__(self, machine: Machine, device: Device):
        self.machine, self._device = machine, device

    def run(
        self,
        program: Program,
        memory: np.ndarray,
        off_chip: OffChip | None = None,
        *,
        most_cycles: int = 1 << 40,
        initial: int = 0,
    ) -> Simulated:
        """Start a program once over off-chip memory, uint8 [byte], which is left as it is.

        initial  seed of the random bits with which registers and memories begin in Verilator; 0: zeros, as those of the
                 golden machine. In Icarus they begin unknown, but for the memories of the cache and A, which are random

        Raises DerivableError where the hardware leaves its memory, breaks the protocol of the port or is not done
        after `most_cycles`, and UnsupportedError for a seed in Icarus.
        """
        return next(self.starts(program, [memory], off_chip, most_cycles=most_cycles, initial=initial))

    def starts(
        self,
        program: Program,
        memories: Iterable[np.ndarray],
        off_chip: OffChip | None = None,
        *,
        most_cycles: int = 1 << 40,
        initial: int = 0,
    ) -> Iterator[Simulated]:
        """Start a program several times, as a host does: registers and memories are what the start before has left.

        memories  off-chip memory as the host has it before each start, uint8 [byte], all as long: what differs from the
                  one before is written, and the rest stays as the hardware left it
        """
        job = Job(
            np.ascontiguousarray(program.words, np.uint32),
            map(_checked, memories),
            off_chip or OffChip(),
            most_cycles,
            most_events=2 * len(program.executed),
            initial=initial,
        )
        for counters, events, memory, unknown in self._device(job):
            begin, end = _times(program, events)
            yield Simulated(
                memory,
                int(counters[0]),
                begin,
                end,
                dict(zip(UNITS, map(int, counters[1:6]))),
                dict(zip(("dma", "move", "vec"), map(int, counters[6:9]))),
                unknown,
            )


def _checked(memory: np.ndarray) -> np.ndarray:
    memory = np.array(memory, copy=True, order="C")
    if memory.dtype != np.uint8 or memory.ndim != 1:
        raise ShapeError(f"off-chip memory is {memory.dtype}{list(memory.shape)}, expected uint8 [byte]")
    return memory


def _verilated(machine: Machine, library: ctypes.CDLL, job: Job) -> Iterator[Start]:
    off_chip = job.off_chip
    opened = library.device_open(
        ctypes.c_uint32(machine.line),
        ctypes.c_void_p(job.words.ctypes.data),
        ctypes.c_uint64(job.words.size),
        *map(ctypes.c_uint32, (off_chip.latency, off_chip.interval, off_chip.seed, job.initial)),
    )
    device = ctypes.c_void_p(opened)
    events = np.zeros(job.most_events, _EVENT)
    counters = np.zeros(COUNTERS, np.uint64)
    memory = before = np.zeros(0, np.uint8)
    try:
        for written in job.memories:
            if len(memory):
                np.copyto(memory, written, where=written != before)
            else:
                memory = written.copy()
            before = written
            num_events = (
                -1
                if not opened
                else library.device_start(
                    device,
                    ctypes.c_void_p(memory.ctypes.data),
                    ctypes.c_uint64(memory.size),
                    ctypes.c_uint64(job.most_cycles),
                    ctypes.c_void_p(counters.ctypes.data),
                    ctypes.c_void_p(events.ctypes.data),
                    ctypes.c_uint64(len(events)),
                )
            )
            if num_events < 0:
                raise DerivableError(f"the simulated hardware failed: {library.device_message().decode()}")
            columns = [events[name].astype(np.int64) for name in _EVENT.names or ()]
            yield counters.copy(), np.stack(columns, 1)[:num_events], memory.copy(), None
    finally:
        library.device_close(device)


def _interpreted(machine: Machine, job: Job) -> Iterator[Start]:
    if job.off_chip.seed:
        raise UnsupportedError("off-chip memory refuses nothing at random in Icarus", hint="give its OffChip seed=0")
    return icarus.run(
        machine,
        job.words,
        list(job.memories),
        latency=job.off_chip.latency,
        interval=job.off_chip.interval,
        most_cycles=min(job.most_cycles, (1 << 31) - 1),
    )


@dataclass(frozen=True)
class NodeCycles:
    """What an operator takes, by the model and simulated.

    of_pass     the pass of the model, from 0 on
    begin, end  when its first instruction begins and its last one is done, in cycles of the simulation
    modelled    cycles from its first to its last instruction, by the model
    simulated   the same of the simulation
    busy        for each unit: (modelled, simulated) cycles that its own instructions take. They differ where off-chip
                memory was late, which the model does not foresee, and so units met others at the cache. What else
                differs between `modelled` and `simulated` comes from operators that it waits for
    """

    node: str
    of_pass: int
    begin: int
    end: int
    modelled: int
    simulated: int
    busy: dict[str, tuple[int, int]]

    @property
    def explanation(self) -> str:
        """Why the two differ, in a sentence."""
        waits = [f"{unit} waited {after - before}" for unit, (before, after) in self.busy.items() if after != before]
        own = sum(after - before for before, after in self.busy.values())
        if self.modelled == self.simulated and not waits:
            return "as modelled"
        reasons = [f"{', '.join(waits)} cycles more or less for off-chip memory or ports of the cache"] if waits else []
        if self.simulated - self.modelled != own:
            reasons.append("other operators came at other times")
        return f"{self.simulated - self.modelled:+d} cycles: {'; '.join(reasons)}"


@dataclass(frozen=True)
class Simulation:
    """A design run on inputs.

    outputs   what the model returns as float64, int64 or truth values: the tensors of its tuples, lists and
              dictionaries one after another, from the first to the last, dictionaries in the order in which they
              are written, and without None; those of several passes behind each other along the first axis
    cycles    from the start until all units were done
    modelled  the same by the model
    per_node  of each operator in each pass, in the order of their beginning
    memory    off-chip memory afterwards, uint8 [byte]
    passes    of the model that the program did
    busy      of each unit, as `Design.busy` has them: cycles in which it had an instruction
    losses    by the name of the operator that gives a tensor: how many of its numbers saturated, and how many that were
              not zero were flushed to zero, with how many there were; over all passes
    """

    outputs: tuple[np.ndarray, ...]
    cycles: int
    modelled: int
    per_node: tuple[NodeCycles, ...]
    memory: np.ndarray = field(repr=False)
    passes: int = 1
    losses: Mapping[str, Counts] = field(default_factory=dict, repr=False)
    busy: Mapping[str, int] = field(default_factory=dict, repr=False)

    @property
    def lost(self) -> Counts:
        """The losses of all tensors together."""
        return sum(self.losses.values(), Counts())

    @property
    def cycles_of_a_pass(self) -> float:
        """The mean over the passes, of which the first and the last have others on one side only."""
        return self.cycles / self.passes


def simulate(
    lowered: Lowered,
    inputs: Inputs,
    backend: Backend = "verilator",
    off_chip: OffChip | None = None,
    *,
    initial: int | None = None,
) -> Simulation:
    """Run a lowered design on inputs, and set what each operator takes beside the model.

    backend  "verilator", "icarus", or "python": the golden machine, whose cycles are those of the model
    initial  what registers and memories begin with, see `Simulator.run`; by default random bits, on which no output
             depends. With 0 what is in memory between the tensors is that of the golden machine, too

    Raises DomainError for another backend or inputs that do not fit, MissingDependencyError without the tools, and
    DerivableError where the hardware fails or takes ten times what the model says.
    """
    off_chip = checked(backend, off_chip)
    memory = lowered.pack(inputs)
    modelled = golden.timing(lowered.machine, lowered.program, off_chip.latencies)
    run = next(started(lowered, [memory], backend, off_chip, initial))
    nodes = _per_node(lowered.program, np.stack(modelled)[:, :-1], np.stack((run.begin, run.end)))
    return Simulation(
        lowered.unpack(run.memory),
        run.cycles,
        int(modelled[1][-1]),
        nodes,
        run.memory,
        lowered.passes,
        _losses(lowered, inputs),
        run.busy,
    )


def checked(backend: Backend, off_chip: OffChip | None) -> OffChip:
    """What off-chip memory is like. Raises DomainError for another backend and for what is no memory."""
    if backend not in BACKENDS:
        raise _unknown(backend)
    off_chip = OffChip() if off_chip is None else off_chip
    if not isinstance(off_chip, OffChip):
        raise DomainError(
            f"off_chip is {off_chip!r}", hint="give off_chip=dv.accelerator.simulation.OffChip(latency=100)"
        )
    return off_chip


def started(
    lowered: Lowered,
    memories: Iterable[np.ndarray],
    backend: Backend,
    off_chip: OffChip,
    initial: int | None = None,
) -> Iterator[Simulated]:
    """What a lowered design does, started once for each content of off-chip memory, see `Simulator.starts`.

    Raises what `simulate` raises.
    """
    machine, program = lowered.machine, lowered.program
    if backend == "python":
        for memory in memories:
            result = golden.run(machine, program, memory, off_chip.latencies)
            begin, end = result.begin[:-1], result.end[:-1]
            yield Simulated(result.memory, result.cycles, begin, end, golden.busy(program, begin, end), waits={})
        return
    # Hardware that waits for ever ends with an error; what is only late has ten times the time.
    most_cycles = 10 * off_chip.interval * int(golden.timing(machine, program, off_chip.latencies)[1][-1]) + 100_000
    initial = 1 + off_chip.seed if initial is None else initial
    device = simulator(machine, backend)
    for run in device.starts(program, memories, off_chip, most_cycles=most_cycles, initial=initial):
        if run.unknown is not None:
            _check_known(lowered, run.unknown)
        yield run


def _losses(lowered: Lowered, inputs: Inputs) -> dict[str, Counts]:
    """Of all passes; the emulation has the bits of the hardware."""
    found: dict[str, Counts] = {}
    for given in in_passes(lowered.graph, inputs):
        for name, counts in losses(lowered.graph, lowered.formats, given).items():
            found[name] = found.get(name, Counts()) + counts
    return found


def _check_known(lowered: Lowered, unknown: np.ndarray) -> None:
    """Raise DerivableError, with the output, where one has unknown bits; gaps between outputs may have some."""
    memory = unknown.astype(np.uint8)
    for places in lowered.places:
        for name, view in zip(lowered.graph.outputs, places.outputs):
            count = int(np.count_nonzero(view.gather(memory)))
            if count:
                raise DerivableError(
                    f"the simulated hardware failed: {count} numbers of the output %{name} have unknown bits (X)",
                    hint="the hardware read a register or a word of memory that was never written: report this design",
                )


def _per_node(program: Program, modelled: np.ndarray, simulated: np.ndarray) -> tuple[NodeCycles, ...]:
    """From begin and end of each instruction, [2, instruction]."""
    listed: dict[tuple[str, int], list[int]] = {}
    for number, instruction in enumerate(program.executed):
        if instruction.node and instruction.unit in UNITS[:NUM_UNITS]:
            listed.setdefault((instruction.node, instruction.of_pass), []).append(number)
    units = [instruction.unit for instruction in program.executed]
    found = []
    for (node, of_pass), numbers in listed.items():
        busy = {}
        for unit in UNITS[:NUM_UNITS]:
            own = [number for number in numbers if units[number] == unit]
            if own:
                before, after = (int((times[1, own] - times[0, own]).sum()) for times in (modelled, simulated))
                busy[unit] = (before, after)
        begin, end = int(simulated[0, numbers].min()), int(simulated[1, numbers].max())
        span = int(modelled[1, numbers].max() - modelled[0, numbers].min())
        found.append(NodeCycles(node, of_pass, begin, end, span, end - begin, busy))
    return tuple(sorted(found, key=lambda node: node.begin))


def _unknown(backend: object) -> DomainError:
    return DomainError(
        f"there is no backend {backend!r}", hint=suggestion(backend, BACKENDS, f"there are {', '.join(BACKENDS)}")
    )


def _times(program: Program, events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When each instruction began and ended.

    events  [event, (cycle, unit, is done)]; those of a unit are in the order of its instructions
    """
    units = np.array([UNITS.index(instruction.unit) for instruction in program.executed])
    cycles = np.zeros((2, len(units)), np.int64)
    for unit in range(NUM_UNITS):
        for is_done in range(2):
            cycles[is_done, units == unit] = events[(events[:, 1] == unit) & (events[:, 2] == is_done), 0]
    return cycles[0, units < NUM_UNITS], cycles[1, units < NUM_UNITS]
