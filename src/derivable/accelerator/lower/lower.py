"""From an operator graph to a program: what the accelerator runs, and what lies in off-chip memory.

    prepare (formats.py) -> calibrate (quantisation.py) -> lower -> Lowered: program, image, places of inputs, outputs

What operators need of constants is loaded while the one before is under way, memories beside the sub-arrays are used by
halves in turn, and each instruction waits for what it must not meet alone; so loads, layers, convolutions of vectors
and lanes run beside each other where the graph allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.accelerator.lower import lower_lanes as lanes
from derivable.accelerator.lower import lower_products as products
from derivable.accelerator.lower import lower_vectors as vectors
from derivable.accelerator.lower.emission import Section
from derivable.accelerator.lower.lowering_state import VIEWS, State, channels_last, wanted_border
from derivable.accelerator.lower.ordering import quickest
from derivable.accelerator.lower.passes import Pass, write
from derivable.accelerator.machine import machine as golden
from derivable.accelerator.machine.hazards import check_counts
from derivable.accelerator.machine.instructions import Machine, Program
from derivable.accelerator.machine.layouts import View
from derivable.accelerator.numbers.formats import WIDE, Formats
from derivable.accelerator.operators.evaluation import Inputs, in_passes
from derivable.accelerator.operators.operators import Operator, OperatorGraph
from derivable.accelerator.operators.runtime import Layer
from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError, LimitError, ShapeError, UnsupportedError

if TYPE_CHECKING:
    from derivable.accelerator.numbers.quantisation import Quantised

_KINDS: dict[str, Callable[[State, Operator], Iterator[None]]] = {
    "conv2d": products.conv2d,
    "linear": products.linear,
    "matmul": products.matmul,
    "bundle": products.bundle,
    "bind": vectors.convolved,
    "unbind": vectors.convolved,
    "match_probability": vectors.match_probability,
    "add": lanes.added,
    "sub": lanes.added,
    "mul": lanes.multiplied,
    "div": lanes.divided,
    "softmax": lanes.softmax,
    "to_mass": lanes.to_mass,
    "normalise": lanes.normalised,
    "relu": lanes.relu,
    **dict.fromkeys((*lanes.STAGES, "clamp"), lanes.entrywise),
    **dict.fromkeys(("sum", "mean", "max", "min", "prod"), lanes.reduced),
    "max_pool2d": lanes.pooled,
    "avg_pool2d": lanes.averaged,
    **dict.fromkeys(VIEWS, lanes.viewed),
    "index": lanes.indexed,
    "roll": lanes.rolled,
    "concatenate": lanes.concatenated,
}


@dataclass(frozen=True)
class Places:
    """Where a pass finds its inputs, and leaves its outputs, off-chip."""

    inputs: Mapping[str, View]
    outputs: tuple[View, ...]


@dataclass(frozen=True)
class Lowered:
    """A program for one pass of a model, or several, with its data.

    image    off-chip memory without inputs, uint8
    places   of each pass, where inputs are put and outputs are found, off-chip
    formats  of every operator
    cache    bytes of the cache that are used
    reach    words or bytes of each memory, up to the last that the program touches
    chain    cycles of the longest chain of instructions each of which has to wait for the one before
    sections as they were written, before they were put in order
    swapped  products of which the value stands still and the constant streams
    as_layers bindings by constants that are products of matrices, and which
    """

    graph: OperatorGraph
    machine: Machine
    program: Program
    image: np.ndarray = field(repr=False)
    places: tuple[Places, ...]
    formats: Formats
    cache: int
    reach: Mapping[str, int]
    chain: int
    sections: tuple[Section, ...] = field(repr=False)
    swapped: frozenset[str] = frozenset()
    as_layers: Mapping[str, Layer] = field(default_factory=dict)

    @property
    def passes(self) -> int:
        """How many passes of the model the program does."""
        return len(self.places)

    @property
    def inputs(self) -> Mapping[str, View]:
        """Where the inputs of the first pass are put, off-chip."""
        return self.places[0].inputs

    @property
    def outputs(self) -> tuple[View, ...]:
        """Where the outputs of the first pass are found, off-chip."""
        return self.places[0].outputs

    def pack(self, inputs: Inputs) -> np.ndarray:
        """Off-chip memory with the inputs of all passes, see `in_passes`, rounded to their formats.

        Raises ShapeError for inputs that do not fit.
        """
        listed = in_passes(self.graph, inputs)
        if len(listed) != self.passes:
            raise ShapeError(f"inputs are given for {len(listed)} passes, and the program does {self.passes}")
        memory = self.image.copy()
        for given, places in zip(listed, self.places):
            for name, view in places.inputs.items():
                view.scatter(memory, self.formats[name].steps(given[name]))
        return memory

    def unpack(self, memory: np.ndarray) -> tuple[np.ndarray, ...]:
        """The outputs in off-chip memory after a run, as numbers of the model: float64, int64 or truth values.

        Those of several passes are behind each other along the first axis; numbers without axes are [pass].
        """
        return self.numbers_of([self.integers(memory, number) for number in range(self.passes)])

    def numbers_of(self, passes: Sequence[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
        """What `unpack` returns, from what `integers` returns for each pass."""
        together = (
            arrays[0] if len(passes) == 1 else np.concatenate([np.atleast_1d(array) for array in arrays])
            for arrays in zip(*passes)
        )
        return tuple(
            self.formats.values_of(self.graph[name], array) for name, array in zip(self.graph.outputs, together)
        )

    def integers(self, memory: np.ndarray, of_pass: int = 0) -> tuple[np.ndarray, ...]:
        """The outputs of a pass in off-chip memory after a run, as they are in their formats: int64."""
        return tuple(view.gather(memory) for view in self.places[of_pass].outputs)


def lower(
    quantised: Quantised,
    machine: Machine,
    partition: tuple[int, int] | None = None,
    counts: Mapping[str, int] | None = None,
    *,
    passes: int = 1,
    in_flight: int = 2,
) -> Lowered:
    """Lower a prepared graph that is quantised to integers.

    partition  how many sub-arrays layers have, from the first on, and how many vectors, up to the last; None: each has
               all, and they take turns
    passes     of the model that one program does
    in_flight  how many of them may be under way at a time
    counts     sub-arrays of operators that have another number. Two of which both find theirs run beside each other

    Raises UnsupportedError for an operator that the machine cannot do, and LimitError where memory does not suffice,
    both with the line of the model; and what `assign` raises.
    """
    graph, formats = quantised.graph, quantised.formats
    count = machine.sub_arrays
    neural, symbolic = (count, count) if partition is None else partition
    if not (1 <= neural <= count and 1 <= symbolic <= count):
        raise DomainError(f"the partition is {partition}, expected two numbers from 1 to {count}")
    counts = counts or {}
    wrong = next((name for name in counts if not 1 <= counts[name] <= count), None)
    if wrong is not None:
        raise DomainError(f"%{wrong} is given {counts[wrong]} sub-arrays, expected 1 to {count}")
    state = State(graph, machine, formats, (neural, symbolic), counts)
    listed = [state]
    while len(listed) < integer(passes, "passes", 1):
        listed.append(listed[-1].following())
    inputs: list[dict[str, View]] = [{} for _ in listed]
    outputs: list[tuple[View, ...]] = [()] * passes

    def store(each: State) -> None:
        outputs[each.number] = _store(each)

    write(
        [Pass(each, partial(_start, each, found), partial(store, each)) for each, found in zip(listed, inputs)],
        integer(in_flight, "in_flight", 1),
    )
    places = tuple(Places(*each) for each in zip(inputs, outputs))
    program = quickest(state.emitter)
    if len(program) > machine.program:
        raise LimitError(
            f"the program has {len(program)} instructions, and the machine has memory for {machine.program}",
            hint="lower with fewer passes=; a Machine that is made by hand takes a larger program=",
        )
    check_counts(program)
    image = np.frombuffer(bytes(state.image), np.uint8)
    return Lowered(
        graph,
        machine,
        program,
        image,
        places,
        formats,
        state.cache.most,
        state.emitter.reach,
        state.emitter.chain,
        tuple(state.emitter.sections),
        frozenset(state.swapped),
        state.as_layers,
    )


def _start(state: State, inputs: dict[str, View], operator: Operator) -> Iterator[None]:
    if operator.kind == "input":
        return _input(state, operator, inputs)
    if operator.kind not in _KINDS:
        raise UnsupportedError(
            f"%{operator.name}: {operator.kind} is not in what the accelerator does",
            source=operator.source or None,
            hint=f"leave it to the host, or write it with {', '.join(sorted(_KINDS))}",
        )
    return _KINDS[operator.kind](state, operator)


def _input(state: State, operator: Operator, inputs: dict[str, View]) -> Iterator[None]:
    format, shape = state.formats[operator.name], operator.shape
    if not state.graph.users[operator.name]:
        view = state.new(shape, format.stored)
        state.keep(operator.name, view)
        yield
        return
    view = None if format == WIDE else _picture(state, operator)
    if view is None:
        view = state.new(shape, format.stored)
    length = state.cache.used[view.buffer]
    # Borders of pictures are zeros.
    off_chip = state.place(bytes([format.zero & 255]) * length)
    inputs[operator.name] = replace(view, address=off_chip + view.address - view.buffer, buffer=off_chip)
    state.transfer("load", view.buffer, off_chip, length)
    state.keep(operator.name, view)
    yield


def _picture(state: State, operator: Operator) -> View | None:
    """Memory for an input of pictures, perhaps in another shape, as convolutions read them; None for other inputs."""
    users = [state.graph[name] for name in state.graph.users[operator.name]]
    read = users[0] if len(users) == 1 and users[0].kind == "reshape" else operator
    if len(read.shape) != 4:
        return None
    view = channels_last(
        state, read.shape, state.formats[operator.name].stored, wanted_border(state, read.name), 1, None
    )
    found = view.reshaped(operator.shape)
    if found is None:
        state.cache.free(view.buffer)
        state.bordered.pop(view.buffer, None)
    return found


def _store(state: State) -> tuple[View, ...]:
    """Outputs go off-chip as they lie, each buffer once."""
    places: dict[int, int] = {}
    found: list[View] = []
    for name in state.graph.outputs:
        state.enter(state.graph[name])
        if state.is_constant(name):
            raise state.refuse("an output is a constant", "the model gives it for every input: leave it out")
        view = state.values[name].view
        if view.buffer not in places:
            length = state.cache.used[view.buffer]
            places[view.buffer] = state.place(bytes(length))
            state.transfer("store", view.buffer, places[view.buffer], length)
        off_chip = places[view.buffer]
        found.append(replace(view, address=off_chip + view.address - view.buffer, buffer=off_chip))
    return tuple(found)


def simulate(lowered: Lowered, inputs: Inputs, latencies: golden.Latencies | None = None) -> tuple[Any, golden.Run]:
    """Run a program on the golden machine: the outputs as numbers of the model, and the run."""
    run = golden.run(lowered.machine, lowered.program, lowered.pack(inputs), latencies)
    return lowered.unpack(run.memory), run
