"""From an operator graph to a program: what the accelerator runs, and what lies in off-chip memory.

    prepare (formats.py) -> calibrate (quantisation.py) -> lower -> Lowered: program, image, places of inputs, outputs

What operators need of constants is loaded while the one before is under way, memories beside the sub-arrays are used by
halves in turn, and each instruction waits for what it must not meet alone; so loads, layers, convolutions of vectors
and lanes run beside each other where the graph allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.accelerator import machine as golden
from derivable.accelerator.formats import WIDE, Formats, assign
from derivable.accelerator.instructions import Machine, Program
from derivable.accelerator.layouts import View
from derivable.accelerator.lower_lanes import (
    added,
    bounded,
    compared,
    concatenated,
    divided,
    floored,
    gelu,
    indexed,
    multiplied,
    normalised,
    pooled,
    raised,
    reduced,
    relu,
    rolled,
    softmax,
    to_mass,
    viewed,
)
from derivable.accelerator.lower_products import bundle, conv2d, linear, matmul
from derivable.accelerator.lower_vectors import convolved, match_probability
from derivable.accelerator.lowering import Lowering, channels_last, wanted_border
from derivable.accelerator.operators import Inputs, Operator, OperatorGraph, checked_inputs
from derivable.core.diagnostics import DomainError, LimitError, UnsupportedError

if TYPE_CHECKING:
    from derivable.accelerator.quantisation import Quantised

_KINDS: dict[str, Callable[[Lowering, Operator], Iterator[None]]] = {
    "conv2d": conv2d,
    "linear": linear,
    "matmul": matmul,
    "bundle": bundle,
    "bind": convolved,
    "unbind": convolved,
    "match_probability": match_probability,
    "add": added,
    "sub": added,
    "mul": multiplied,
    "div": divided,
    "softmax": softmax,
    "gelu": gelu,
    "to_mass": to_mass,
    "normalise": normalised,
    "relu": relu,
    **dict.fromkeys(("clamp", "maximum", "minimum", "abs"), bounded),
    **dict.fromkeys(("greater", "equal"), compared),
    "floor": floored,
    **dict.fromkeys(("exp", "log", "sqrt", "tanh"), raised),
    **dict.fromkeys(("sum", "max", "min", "prod"), reduced),
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), pooled),
    **dict.fromkeys(("reshape", "permute", "slice", "expand"), viewed),
    "index": indexed,
    "roll": rolled,
    "concatenate": concatenated,
}


@dataclass(frozen=True)
class Lowered:
    """A program with its data.

    image    off-chip memory without inputs, uint8
    inputs   where inputs are put, off-chip
    outputs  where outputs are found, off-chip
    formats  of every operator
    cache    bytes of the cache that are used
    swapped  products of which the value stands still and the constant streams
    """

    graph: OperatorGraph
    machine: Machine
    program: Program
    image: np.ndarray = field(repr=False)
    inputs: Mapping[str, View]
    outputs: tuple[View, ...]
    formats: Formats
    cache: int
    swapped: frozenset[str] = frozenset()

    def pack(self, inputs: Inputs) -> np.ndarray:
        """Off-chip memory with inputs, rounded to their formats."""
        memory = self.image.copy()
        for name, array in checked_inputs(self.graph, inputs).items():
            if name in self.inputs:
                view, format = self.inputs[name], self.formats[name]
                view.scatter(memory, format.steps(array))
        return memory

    def unpack(self, memory: np.ndarray) -> tuple[np.ndarray, ...]:
        """The outputs in off-chip memory after a run, as numbers of the model: float64, int64 or truth values."""
        found: list[np.ndarray] = []
        for name, array in zip(self.graph.outputs, self.integers(memory)):
            numbers, dtype = self.formats[name].numbers(array), self.graph[name].dtype
            whole = {"b": bool, "i": np.int64, "u": np.int64}.get(dtype[0] if not dtype.startswith("bf") else "f")
            found.append(numbers if whole is None else np.rint(numbers).astype(whole))
        return tuple(found)

    def integers(self, memory: np.ndarray) -> tuple[np.ndarray, ...]:
        """The outputs in off-chip memory after a run, as they are in their formats: int64."""
        return tuple(view.gather(memory) for view in self.outputs)


def lower(
    quantised: Quantised,
    machine: Machine,
    partition: tuple[int, int] | None = None,
    counts: Mapping[str, int] | None = None,
) -> Lowered:
    """Lower a prepared graph that is quantised to integers.

    partition  how many sub-arrays layers have, from the first on, and how many vectors, up to the last; None: each has
               all, and they take turns
    counts     sub-arrays of operators that have another number. Two of which both find theirs run beside each other

    Raises UnsupportedError for an operator that the machine cannot do, and LimitError where memory does not suffice,
    both with the line of the model; and what `assign` raises.
    """
    graph, formats = quantised.graph, assign(quantised)
    count = machine.sub_arrays
    neural, symbolic = (count, count) if partition is None else partition
    if not (1 <= neural <= count and 1 <= symbolic <= count):
        raise DomainError(f"the partition is {partition}, expected two numbers from 1 to {count}")
    counts = counts or {}
    wrong = next((name for name in counts if not 1 <= counts[name] <= count), None)
    if wrong is not None:
        raise DomainError(f"%{wrong} is given {counts[wrong]} sub-arrays, expected 1 to {count}")
    low = Lowering(graph, machine, formats, (neural, symbolic), counts)
    inputs: dict[str, View] = {}
    order = _Order(low, inputs)
    order.run()
    outputs = _store(low)
    program = low.emitter.program()
    if len(program) > machine.program:
        raise LimitError(
            f"the program has {len(program)} instructions, and the machine has memory for {machine.program}",
            hint="give the machine a larger memory of programs",
        )
    image = np.frombuffer(bytes(low.image), np.uint8)
    return Lowered(graph, machine, program, image, inputs, outputs, formats, low.cache.most, frozenset(low.swapped))


class _Order:
    """Operators under way. One at a time in the order of the graph; but where a layer and a convolution of vectors do
    not depend on each other and have sub-arrays of their own, both, in turns.

    What an operator needs of constants is loaded before the one in front of it begins.
    """

    def __init__(self, low: Lowering, inputs: dict[str, View]):
        self.low = low
        self.pending = {operator.name: operator for operator in low.graph if operator.kind != "constant"}
        self.steps: dict[str, Iterator[None]] = {}  # of operators that are loaded
        self.inputs = inputs
        self.unread = {name: len(low.graph.users[name]) for name in self.pending}

    def run(self) -> None:
        while self.pending:
            active = [next(iter(self.pending.values()))]
            while active:
                if len(active) == 1:
                    active += self._partner(active[0])
                for operator in active:
                    self._load(operator)
                following = next((later for later in self.pending.values() if later not in active), None)
                if following is not None and self._has_room(following):
                    self._load(following)
                active = [operator for operator in active if self._advance(operator)]

    def _load(self, operator: Operator) -> None:
        if operator.name not in self.steps:
            self.low.enter(operator)
            self.steps[operator.name] = _start(self.low, operator, self.inputs)
            next(self.steps[operator.name], None)

    def _has_room(self, operator: Operator) -> bool:
        """Whether its constants leave at least as much of the cache as they take, by a rough count."""
        low = self.low
        taken = sum(low.graph.constants[name].size for name in operator.inputs if low.is_constant(name))
        return 3 * taken <= low.cache.size - sum(low.cache.used.values())

    def _advance(self, operator: Operator) -> bool:
        """Do a step of an operator; False if it was the last."""
        self.low.enter(operator)
        if next(self.steps[operator.name], self) is not self:
            return True
        del self.pending[operator.name]
        unread = []
        for name in dict.fromkeys(operator.inputs):
            if name in self.unread:
                self.unread[name] -= 1
                unread.append(name)
        unread.append(operator.name)
        outputs = self.low.graph.outputs
        self.low.done([name for name in unread if not self.unread[name] and name not in outputs])
        return False

    def _partner(self, operator: Operator) -> list[Operator]:
        """A convolution of vectors that can run beside a layer, or the other way round; what it needs is done."""
        other = {"gemm": "vector", "vector": "gemm"}.get(operator.unit)
        if other is None:
            return []
        for candidate in self.pending.values():
            if candidate.unit != other:
                continue
            if self.low.arrays_of(operator) + self.low.arrays_of(candidate) > self.low.machine.sub_arrays:
                continue
            needed = self._needed(candidate)
            if operator.name not in needed and all(self.pending[name].unit in _QUICK for name in needed):
                for before in [listed for name, listed in self.pending.items() if name in needed]:
                    self._load(before)
                    while self._advance(before):
                        pass
                return [candidate]
        return []

    def _needed(self, operator: Operator) -> set[str]:
        """What an operator depends on and is not done."""
        found: set[str] = set()
        waiting = [operator]
        while waiting:
            names = [name for name in waiting.pop().inputs if name in self.pending and name not in found]
            found.update(names)
            waiting += [self.pending[name] for name in names]
        return found


_QUICK = ("source", "simd", "view")  # units of operators that are done before a partner begins


def _start(low: Lowering, operator: Operator, inputs: dict[str, View]) -> Iterator[None]:
    if operator.kind == "input":
        return _input(low, operator, inputs)
    if operator.kind not in _KINDS:
        raise UnsupportedError(
            f"%{operator.name}: {operator.kind} is not in what the accelerator does",
            source=operator.source or None,
            hint=f"leave it to the host, or write it with {', '.join(sorted(_KINDS))}",
        )
    return _KINDS[operator.kind](low, operator)


def _input(low: Lowering, operator: Operator, inputs: dict[str, View]) -> Iterator[None]:
    format, shape = low.formats[operator.name], operator.shape
    if not low.graph.users[operator.name]:
        view = low.new(shape, format.stored)
        low.keep(operator.name, view)
        yield
        return
    view = None if format == WIDE else _picture(low, operator)
    if view is None:
        view = low.new(shape, format.stored)
    length = low.cache.used[view.buffer]
    # Borders of pictures are zeros.
    far = low.place(bytes([format.zero & 255]) * length)
    inputs[operator.name] = replace(view, address=far + view.address - view.buffer, buffer=far)
    low.transfer("load", view.buffer, far, length)
    low.keep(operator.name, view)
    yield


def _picture(low: Lowering, operator: Operator) -> View | None:
    """Memory for an input of pictures, perhaps in another shape, as convolutions read them; None for other inputs."""
    users = [low.graph[name] for name in low.graph.users[operator.name]]
    read = users[0] if len(users) == 1 and users[0].kind == "reshape" else operator
    if len(read.shape) != 4:
        return None
    view = channels_last(low, read.shape, low.formats[operator.name].stored, wanted_border(low, read.name), 1, None)
    found = view.reshaped(operator.shape)
    if found is None:
        low.cache.free(view.buffer)
        low.bordered.pop(view.buffer, None)
    return found


def _store(low: Lowering) -> tuple[View, ...]:
    """Outputs go off-chip as they lie, each buffer once."""
    places: dict[int, int] = {}
    found: list[View] = []
    for name in low.graph.outputs:
        low.enter(low.graph[name])
        if low.is_constant(name):
            raise low.refuse("an output is a constant", "the model gives it for every input: leave it out")
        view = low.values[name].view
        if view.buffer not in places:
            length = low.cache.used[view.buffer]
            places[view.buffer] = low.place(bytes(length))
            low.transfer("store", view.buffer, places[view.buffer], length)
        far = places[view.buffer]
        found.append(replace(view, address=far + view.address - view.buffer, buffer=far))
    return tuple(found)


def simulate(lowered: Lowered, inputs: Inputs, latencies: golden.Latencies | None = None) -> tuple[Any, golden.Run]:
    """Run a program on the golden machine: the outputs as numbers of the model, and the run."""
    run = golden.run(lowered.machine, lowered.program, lowered.pack(inputs), latencies)
    return lowered.unpack(run.memory), run
