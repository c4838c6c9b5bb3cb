"""A designed accelerator: the model's graphs, the array and who uses it when, memories, lanes, and what they take."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from derivable.accelerator.explore import sizing
from derivable.accelerator.explore.dataflow import DataflowGraph, dataflow
from derivable.accelerator.explore.exploration import Exploration, finalists
from derivable.accelerator.explore.schedule import Placed, Schedule
from derivable.accelerator.explore.sizing import Memories
from derivable.accelerator.hardware.resources import Device, Resources, check_fit, estimate, fit_memories, generated
from derivable.accelerator.hardware.resources import device as find_device
from derivable.accelerator.numbers.layers import DEFAULT_PRECISION, PARTS, parse_precision, resolve, widest
from derivable.accelerator.numbers.precision import PRECISIONS, CalibrationWarning
from derivable.accelerator.operators.kinds import Moved
from derivable.accelerator.operators.operators import OperatorGraph
from derivable.accelerator.operators.runtime import Elementwise, ceil_div, elementwise_cycles
from derivable.core import html
from derivable.core.arguments import integer, several
from derivable.core.diagnostics import DomainError, LimitError
from derivable.core.lazy import optional_module
from derivable.core.registry import suggestion

if TYPE_CHECKING:
    from derivable.accelerator.designs.sweep import Sweep
    from derivable.accelerator.hardware.batch import Batch
    from derivable.accelerator.hardware.placement import Placement
    from derivable.accelerator.hardware.simulation import Backend, OffChip, Simulation
    from derivable.accelerator.lower.bounds import Bounds
    from derivable.accelerator.lower.energy import Energy
    from derivable.accelerator.lower.lower import Lowered
    from derivable.accelerator.numbers.quantisation import Quantised

# What the generated hardware has registers for, and lanes.
LARGEST_SIDE, MOST_SUB_ARRAYS, MOST_LANES = 64, 16, 128
SMALLEST_PES = 16
COMPARED_ARRAYS = 4  # of those that are best by their programs of one pass
COMPARED_PASSES = 2  # of the programs by which designs are compared
MORE_CYCLES = 1.05  # that fewer lanes may take
Stage = Literal["summary", "operators", "dataflow", "exploration", "memory", "resources", "nodes", "program"]


@dataclass(frozen=True)
class Design:
    """An accelerator for one model and one size of its inputs.

    graph        what the model computes
    flow         its nodes, and what runs beside what
    exploration  the array that was found, and the schedule of a loop on it
    memories     their sizes
    lanes        of the SIMD unit
    device       that it is for
    precision    the format of each part, "neural" and "symbolic", and of operators that have another one
    quantised    the prepared graph with the scales of its numbers, from the calibration
    """

    graph: OperatorGraph
    flow: DataflowGraph
    exploration: Exploration
    memories: Memories
    lanes: int
    device: Device
    precision: Mapping[str, str]
    quantised: Quantised | None = field(default=None, repr=False, compare=False)

    def _repr_html_(self) -> str:
        """The lines of `str` as a table, for notebooks."""
        from derivable.accelerator.designs.texts import summary_rows

        return f"<div><b>Design</b></div>{html.table((), summary_rows(self), width=400)}"

    @property
    def height(self) -> int:
        """Rows of processing elements of a sub-array."""
        return self.exploration.height

    @property
    def width(self) -> int:
        """Columns of processing elements of a sub-array."""
        return self.exploration.width

    @property
    def sub_arrays(self) -> int:
        return self.exploration.sub_arrays

    @property
    def partition(self) -> tuple[int, int]:
        """Sub-arrays of layers and of vector nodes, before they are tuned node by node; both all of them where layers
        and vector nodes take turns. The program gives each node those of the schedule, as `placed` has them."""
        return self.exploration.partition

    @property
    def cycles(self) -> int:
        """An estimate by equations (1) and (4): cycles of the array alone per pass when passes are pipelined. What the
        generated hardware takes is `pass_cycles`."""
        return self.exploration.cycles

    @property
    def seconds(self) -> float:
        """Time of `cycles` at the clock of the device."""
        return self.cycles / self.device.clock

    @property
    def latency(self) -> int:
        """An estimate by equations (1) and (4): cycles of the array alone for a single pass."""
        return self.exploration.cycles_of(1)

    @cached_property
    def resources(self) -> Resources:
        """An analytic estimate of what it takes of the device, with memories as NSFlow sizes them."""
        array = (self.height, self.width, self.sub_arrays)
        return _resources(array, self.lanes, self.memories, widest(self.precision, self.graph))

    @cached_property
    def generated_resources(self) -> Resources | None:
        """The estimate of the hardware that is generated, whose cache is of blocks of 18 Kb, twice; else None.

        None and errors as for `pass_cycles`.
        """
        lowered = self._hardware()
        return None if lowered is None else generated(lowered.machine)

    @cached_property
    def placed(self) -> dict[str, Placed]:
        """Where and when each node of the array runs, by its name."""
        return _placed(self.flow, self.exploration.schedule)

    def explain(self, stage: Stage = "summary") -> str:
        """A text on one stage: "summary", "operators", "dataflow", "exploration", "memory", "resources", "nodes", or
        "program": the machine, and what each operator takes on it, beside the equations.

        Raises DomainError for another stage, and for "program" what `lowered` raises.
        """
        from derivable.accelerator.designs.texts import STAGES

        if not isinstance(stage, str) or stage not in STAGES:
            raise DomainError(
                f"there is no stage {stage!r}", hint=suggestion(stage, STAGES, f"stages are {', '.join(STAGES)}")
            )
        return STAGES[stage](self)

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        """On one line: `<Design 4 x 8 x 8, parallel 7 : 1, int8/int4 on u250, 12312 cycles per pass>`."""
        array, (neural, symbolic) = f"{self.height} x {self.width} x {self.sub_arrays}", self.partition
        formats = f"{self.precision['neural']}/{self.precision['symbolic']}"
        if len(self.precision) > len(PARTS):
            formats += f" and {len(self.precision) - len(PARTS)} layers of their own"
        mode = f"{self.exploration.mode} {neural} : {symbolic}"
        whole = self.pass_cycles()
        cycles = f"{whole} cycles per pass" if whole else f"{self.cycles} cycles per pass of the array by an estimate"
        return f"<Design {array}, {mode}, {formats} on {self.device.name}, {cycles}>"

    @property
    def lowered(self) -> Lowered:
        """The program of one pass for the generated hardware, and the machine it is for. Raises what `lower` raises."""
        return self.lower()

    @cached_property
    def _programs(self) -> dict[int, Lowered]:
        return {}

    def lower(self, passes: int = 1) -> Lowered:
        """The program of `passes` passes, which overlap, and the machine it is for.

        Raises UnsupportedError for an operator or a format that the hardware has not, LimitError where memory does not
        suffice.
        """
        from derivable.accelerator.designs.deployment import deploy

        if passes not in self._programs:
            self._programs[passes] = deploy(self, passes)
        return self._programs[passes]

    def pass_cycles(self, passes: int = 1) -> float | None:
        """Modelled cycles of a pass on the generated hardware, with off-chip memory, moves and lanes: the latency of
        one by itself, or the mean in a program of so many, which overlap. None where no hardware is generated: for
        formats of floats, or where memory does not suffice.

        Raises what `lower` raises but LimitError.
        """
        from derivable.accelerator.machine import machine

        lowered = self._hardware(passes)
        if lowered is None:
            return None
        cycles = int(machine.timing(lowered.machine, lowered.program)[1][-1])
        return cycles if passes == 1 else cycles / passes

    @cached_property
    def busy(self) -> Mapping[str, int] | None:
        """Cycles of each unit's work in the program of one pass: "dma", transfers off-chip; "move", to the array; "nn",
        layers; "vsa", convolutions of vectors; "vec", the SIMD unit. None and errors as for `pass_cycles`."""
        from derivable.accelerator.machine import machine

        lowered = self._hardware()
        if lowered is None:
            return None
        return machine.busy(lowered.program, *machine.timing(lowered.machine, lowered.program))

    def bounds(self, passes: int = 1) -> Bounds | None:
        """What bounds the cycles of a program of `passes` passes from below, unit by unit, and which of them most:
        `.best`. None and errors as for `pass_cycles`."""
        from derivable.accelerator.lower.bounds import bounds

        lowered = self._hardware(passes)
        return None if lowered is None else bounds(lowered)

    def energy(self) -> Energy | None:
        """pJ of a pass by published energies of 45 nm, for comparisons of designs only. None and errors as for
        `pass_cycles`."""
        from derivable.accelerator.lower.energy import energy

        lowered = self._hardware()
        return None if lowered is None else energy(lowered)

    def sweep(
        self,
        *,
        heights: Iterable[int] | None = None,
        widths: Iterable[int] | None = None,
        lanes: Iterable[int] | None = None,
        ports: Iterable[int] = (2,),
        bandwidths: Iterable[float | None] = (None,),
        passes: int = 1,
    ) -> Sweep:
        """Designs of the same model compared by what their programs take: cycles, energy, resources.

        heights, widths  of sub-arrays; powers of two by default. There are as many sub-arrays as fit the elements of
                         this design, with layers and vector nodes in turns, and beside each other on the best arrays
        lanes            of the SIMD unit; all powers of two by default
        ports            of the cache that are read: 2, which the generated hardware has, 3 or 4
        bandwidths       of off-chip memory in bytes a second, by which loads take longer; None is a line in each cycle
        passes           of the model in each program

        Raises DomainError for arguments that make no sense, LimitError where no design can be made, and
        UnsupportedError for formats of floats.
        """
        from derivable.accelerator.designs.sweep import sweep

        return sweep(
            self, heights=heights, widths=widths, lanes=lanes, ports=ports, bandwidths=bandwidths, passes=passes
        )

    def _hardware(self, passes: int = 1) -> Lowered | None:
        if self.quantised is None or any(PRECISIONS[name].is_float for name in self.precision.values()):
            return None
        try:
            return self.lower(passes)
        except LimitError:
            return None

    def simulate(self, inputs: Any, backend: Backend = "verilator", *, off_chip: OffChip | None = None) -> Simulation:
        """Run the generated hardware on inputs: `.outputs`, `.cycles` and `.per_node`.

        inputs    as the model takes them: an array or a tensor, a tuple, or a mapping of names. Those that are k times
                  as long along their first axis are k passes, which one program does beside each other (a number
                  without axes is [k]); outputs are k times as long, too
        backend   "verilator", which is built once for a machine, "icarus", or "python", the golden machine
        off_chip  how off-chip memory behaves

        Outputs are the model's, in its formats: bit by bit the same with every backend. Raises ShapeError for inputs
        that do not fit, what `lower` raises, and MissingDependencyError where a tool is not installed.
        """
        from derivable.accelerator.designs.deployment import simulate

        return simulate(self, inputs, backend, off_chip)

    def run(self, inputs: Any, backend: Backend = "verilator", *, off_chip: OffChip | None = None) -> Batch:
        """Run the generated hardware on many samples, a pass at a time, as the driver of a card does: `.outputs`, and
        `.cycles` of each pass.

        inputs  as `simulate` takes them, k times as long as the example for k passes

        The program is that of one pass, which is started k times; registers and memories are what the pass before left,
        in the golden machine zeros. `simulate` has one program for all passes instead, which overlap. Every output is
        compared with the emulation, bit by bit. Raises what `simulate` raises.
        """
        from derivable.accelerator.designs.deployment import run_batch

        return run_batch(self, inputs, backend, off_chip)

    def place(
        self, on: str | Path | None = None, *, module: str = "accelerator", seed: int = 1, time_limit: float = 7200
    ) -> Placement:
        """Put the generated hardware through Yosys and nextpnr: the clock that it reaches, the slowest path and what it
        takes of a device.

        on          the name of a device that open tools know, such as "ecp5-85k", or the path of a TOML file; the
                    design's own device by default
        module      of the hardware: all of it, or a part such as "ad_array", "lane" or "controller"
        seed        of the placer, whose results differ by some per cent
        time_limit  seconds for each of the tools

        Placed once, it is read from the cache afterwards. Raises DomainError for a device or a module that there is
        not, LimitError where the device has no room, what `lowered` raises, and MissingDependencyError without the
        tools.
        """
        from derivable.accelerator.designs.deployment import place

        return place(self, self.device if on is None else find_device(on), module, seed, time_limit)

    def write_kit(self, directory: str | Path, inputs: Any) -> Path:
        """Write the hardware with a program, inputs and expected outputs; `make -C FOLDER test` runs and compares them.

        inputs  of the model, as `simulate` takes them

        Returns the folder. Raises what `lowered` and `simulate` raise, and DerivableError if it cannot be written.
        """
        from derivable.accelerator.designs.deployment import write_kit

        return write_kit(self, directory, inputs)

    def save(self, directory: str | Path) -> None:
        """Write `design.yaml`, and the constants and scales beside it; `load` reads them.

        The directory is made if it is not there. A design that was there stays whole until the new one is. The same
        design gives the same bytes. Raises DerivableError if it cannot be written.
        """
        from derivable.accelerator.designs.design_file import save

        save(self, directory)


def design(
    model: Any,
    example_inputs: Any,
    pes: int = 1024,
    device: str | Path = "u250",
    precision: Mapping[str, str] | str = DEFAULT_PRECISION,
    *,
    symbolic: Sequence[str] = (),
    scales: Mapping[str, Any] | None = None,
    calibration: Iterable[Any] | None = None,
    heights: Iterable[int] | None = None,
    widths: Iterable[int] | None = None,
    lanes: Iterable[int] | None = None,
) -> Design:
    """An accelerator for a model, by the steps of NSFlow: trace, dataflow, two-phase exploration, sizes of memories.

    model           a torch.nn.Module, a function of tensors, an exported program or a file of ONNX, see `trace`
    example_inputs  a tensor, a tuple of arguments or a mapping; the design is for inputs of these shapes
    pes             processing elements, at most
    device          the name of a device, or the path of a TOML file with one
    precision       the format of each part, such as {"neural": "int8", "symbolic": "int4"}; a text "int8/int4" is the
                    same, and "int8" is both. Names of modules and operators have formats of their own, and "*" is the
                    rest: {"conv1": "int8", "*": "int4"}
    symbolic        paths of modules that belong to the symbolic part, see `trace`
    scales          those that a training has chosen, by names of modules and operators: a scale, or (scale, zero), of
                    "input" and "weight", such as {"conv1": {"input": (0.02, -128), "weight": [0.01, 0.02]}}; all
                    others come from the calibration
    calibration     samples of inputs, from which the ranges of numbers come, each like `example_inputs` or k times as
                    long along the first axis; by default the example alone. Numbers beyond the ranges saturate: a
                    CalibrationWarning says so where there is one sample only
    heights, widths of sub-arrays to try; by default powers of two
    lanes           of the SIMD unit to try, powers of two; by default all. One with fewer lanes than another is taken
                    where a pass takes at most a twentieth longer

    Arrays are compared by the cycles of their programs, as a simulation counts them. Deterministic. Raises
    UnsupportedError for models that cannot be traced or need what the hardware has not, DomainError for arguments that
    make no sense, LimitError for a design that the device has no room for, MissingDependencyError without torch.
    """
    optional_module("torch", "torch", "torch")
    from derivable.accelerator.numbers.formats import prepare
    from derivable.accelerator.numbers.quantisation import calibrate
    from derivable.accelerator.numbers.steps import steps_of
    from derivable.accelerator.operators.evaluation import in_passes
    from derivable.accelerator.trace.onnx_file import rounded_by_file
    from derivable.accelerator.trace.trace import flat_inputs, trace, uncompiled

    integer(pes, "pes", SMALLEST_PES, hint=f"a sub-array has at least {SMALLEST_PES} elements")
    target = find_device(device)
    named = parse_precision(precision)
    sizes = [checked_sides(heights, "height"), checked_sides(widths, "width")]
    tried_lanes = None if lanes is None else checked_lanes(lanes)
    if calibration is not None:
        calibration = list(several(calibration, "calibration", "[inputs]"))
    model = uncompiled(model)
    of_file = rounded_by_file(model)
    graph = trace(model, example_inputs, symbolic=symbolic)
    formats = resolve({**of_file.precision, **named}, graph)
    scales = {**of_file.scales, **scales} if isinstance(scales, Mapping) else scales or of_file.scales
    samples = [example_inputs] if calibration is None else calibration
    arrays = [part for sample in samples for part in in_passes(graph, flat_inputs(model, sample))]
    if len(arrays) == 1:
        warnings.warn(
            "the ranges of numbers come from one sample of inputs, and numbers of other inputs beyond them saturate; "
            "give several samples as calibration=[...], and look at `.lost` of a simulation",
            CalibrationWarning,
            stacklevel=2,
        )
    prepared = prepare(graph)
    parameters = model.named_parameters() if scales and hasattr(model, "named_parameters") else ()
    weights = {name: value.detach().cpu() for name, value in parameters}
    steps = steps_of(scales, prepared, formats, weights)
    quantised = calibrate(prepared, arrays, formats, steps)
    flow = dataflow(graph, precision=formats)
    if not flow.layers and not flow.vectors:
        raise DomainError(
            "the model has no layer and no vector node",
            hint="the array runs products of matrices and bindings of block codes; leave what has neither to the host",
        )
    found = finalists(
        flow.workload(),
        pes,
        heights=sizes[0],
        widths=sizes[1],
        most_sub_arrays=MOST_SUB_ARRAYS,
        largest_side=LARGEST_SIDE,
        in_turns=None,
    )
    made, refused = [], None
    least = math.inf
    for each in sorted(found, key=lambda each: each.cycles):
        # The equations are of the array alone, of which a program takes more.
        if each.cycles > least:
            break
        try:
            one = _with_room(replace(sized(graph, flow, each, target, formats), quantised=quantised))
        except LimitError as error:
            refused = refused or error
            continue
        made.append(one)
        does_not_fit, cycles, _ = _rank(one, 1)
        least = least if does_not_fit else min(least, cycles)
    if not made:
        assert refused is not None
        raise refused
    made.sort(key=lambda one: _rank(one, 1))
    return _with_lanes(min(made[:COMPARED_ARRAYS], key=_rank), tried_lanes)


def _rank(made: Design, passes: int = COMPARED_PASSES) -> tuple[bool, float, float]:
    """What designs are compared by: cycles of a pass in a program of several, and of the array by the equations where
    there is no such program. Those that the device has no room for as they are generated come last."""
    counted, generated = made.pass_cycles(passes), made.generated_resources
    return generated is not None and not generated.fit(made.device), counted or math.inf, made.cycles


def _with_room(made: Design) -> Design:
    """The design with half of the lanes as long as the device has no room for it as it is generated, or with twice as
    many as long as nothing bounds its program as they do."""
    while made.lanes > made.width and _rank(made, 1)[0]:
        made = replace(made, lanes=made.lanes // 2)
    while made.lanes < MOST_LANES and (of := made.bounds()) is not None and of.best[0] == "vec":
        other = replace(made, lanes=2 * made.lanes)
        if _rank(other, 1)[:2] >= _rank(made, 1)[:2]:
            break
        made = other
    return made


def _with_lanes(made: Design, lanes: Sequence[int] | None) -> Design:
    """The design with the fewest lanes with which a pass takes at most `MORE_CYCLES` times as long as with any other
    number of lanes that the device has room for. Refuses what the hardware has not."""
    listed = lanes or lane_counts(made.width)
    fitting = [count for count in listed if count >= made.width]
    if not fitting:
        raise DomainError(
            f"lanes has {listed}, and the best array {made.height} x {made.width} x {made.sub_arrays} has a lane for "
            "each column at least",
            hint=f"give lanes of {made.width} or more, or widths=",
        )
    if made.lanes not in fitting:
        made = replace(made, lanes=fitting[0])
    tried = [made if count == made.lanes else replace(made, lanes=count) for count in fitting]
    tried = [each for each in tried if each is made or _is_no_larger(each, made)]
    least = min(_rank(each)[1] for each in tried)
    return made if least == math.inf else next(each for each in tried if _rank(each)[1] <= MORE_CYCLES * least)


def lane_counts(width: int) -> list[int]:
    """The numbers of lanes that an array with sub-arrays of `width` columns can have."""
    return [2**e for e in range(MOST_LANES.bit_length()) if 2**e >= width]


def _is_no_larger(made: Design, other: Design) -> bool:
    """Whether the device has room for a design wherever it has for another, by both estimates of resources."""
    both = ((each.resources, each.generated_resources) for each in (made, other))
    return all(
        after is not None and (after.fit(made.device) or (before is not None and not before.fit(made.device)))
        for after, before in zip(*both)
    )


def sized(
    graph: OperatorGraph,
    flow: DataflowGraph,
    found: Exploration,
    target: Device,
    formats: Mapping[str, str],
) -> Design:
    """The design on an array: memories and lanes, and that the device has room for them."""
    array = (found.height, found.width, found.sub_arrays)
    inputs = [node.streamed for node in flow.layers]
    of_parts = widest(formats, graph)
    memories = fit_memories(flow.workload(), array, target, **of_parts, inputs=inputs)
    groups = list(_beside(flow, found))
    # The generated unit takes a word of sums at a time, so it has a lane for each column at least.
    lanes = max(sizing.simd_width(groups, MOST_LANES).width, found.width)
    # Loops follow one another: in the time of one, the unit has to do all of its work for one.
    while lanes < MOST_LANES and lane_cycles(flow, lanes) > found.cycles:
        lanes *= 2
    made = Design(graph, flow, found, memories, lanes, target, dict(formats))
    check_fit(
        made.resources,
        target,
        smaller=lambda count: _resources((*array[:2], count), lanes, memories, of_parts),
        most=found.sub_arrays,
        sides=array[:2],
    )
    return made


def _placed(flow: DataflowGraph, schedule: Schedule) -> dict[str, Placed]:
    return {
        node.name: place for node, place in zip((*flow.layers, *flow.vectors), (*schedule.layers, *schedule.vectors))
    }


def _beside(flow: DataflowGraph, found: Exploration) -> Iterable[tuple[int, Sequence[Elementwise]]]:
    """For each node of the critical path and what runs beside it: cycles of the array, and work of the SIMD unit."""
    cycles = {name: place.end - place.start for name, place in _placed(flow, found.schedule).items()}
    for node, others in flow.groups():
        nodes = (node, *others)
        yield sum(cycles.get(each.name, 0) for each in nodes), [work for each in nodes for work in each.elementwise]


def lane_cycles(flow: DataflowGraph, lanes: int) -> int:
    """Cycles of the SIMD unit in a loop, of which moves take some too."""
    moved = sum(ceil_div(node.work.elements, lanes) for node in flow if isinstance(node.work, Moved))
    return moved + sum(elementwise_cycles(work, lanes) for node in flow for work in node.elementwise)


def _resources(array: tuple[int, int, int], lanes: int, memories: Memories, formats: Mapping[str, str]) -> Resources:
    return estimate(array, simd=lanes, stores=memories, **formats)


def checked_sides(sides: Iterable[int] | None, what: str) -> list[int] | None:
    """Heights or widths to try. Raises DomainError for none, and for one that the hardware has no registers for."""
    return None if sides is None else _powers(sides, what, 4, LARGEST_SIDE)


def checked_lanes(lanes: Iterable[int]) -> list[int]:
    """Numbers of lanes to try, from the least on. Raises DomainError for none, and for one that no unit has."""
    return sorted(set(_powers(lanes, "number of lanes", 4, MOST_LANES, "lanes")))


def _powers(numbers: Iterable[int], what: str, least: int, most: int, name: str = "") -> list[int]:
    name = name or f"{what}s"
    listed = [integer(each, f"a {what}", least, most) for each in several(numbers, name, "[8, 16]")]
    if not listed:
        raise DomainError(f"{name} has no {what} to try", hint=f"leave {name} out to try powers of two")
    for each in listed:
        if each & (each - 1):
            raise DomainError(f"a {what} is {each}, expected a power of two from {least} to {most}")
    return listed
